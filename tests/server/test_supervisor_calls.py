"""REST of ingestion supervisors: each answer is verified against the OpenAPI document."""

from __future__ import annotations

from itertools import cycle

from eventproc.runtime import Eventproc
from tests.groups.support import eventually
from tests.ingestion.support import add_worker
from tests.server.rest_client import OWN, RestInMemory, ep as ep, rest as rest


def spec_of(name: str, stream: str = "s/t") -> dict[str, object]:
    """Return a spec of a supervisor whose first run comes immediately."""
    return {
        "id": name,
        "io": {"streams": [stream], "use_earliest_offset": True, "start_delay_ms": 0},
        "schema": {"datasource": name, "dimensions": ["page"]},
    }


async def test_a_supervisor_is_submitted_shown_suspended_and_terminated(
    rest: RestInMemory, ep: Eventproc
) -> None:
    path = f"{OWN}/supervisors"
    spec = {
        "id": "clicks",
        "io": {"streams": ["s/t"], "use_earliest_offset": True},
        "schema": {"datasource": "clicks", "dimensions": ["page"]},
    }
    shown = await rest.ok("POST", path, {"spec": spec, "dry_run": True})
    assert shown["submitted"] is False
    assert (await rest.ok("GET", path))["items"] == []
    assert (await rest.ok("POST", path, {"spec": spec}))["submitted"] is True
    assert [each["id"] for each in (await rest.ok("GET", path))["items"]] == ["clicks"]
    (version,) = (await rest.ok("GET", f"{path}/clicks/versions"))["items"]
    assert version["spec"]["io"]["streams"] == ["s/t"]
    for name in ("tasks", "lags"):
        assert isinstance(await rest.ok("GET", f"{path}/clicks/{name}"), list)
    for verb in ("suspend", "resume", "handoff"):
        body: object = {} if verb == "handoff" else None
        assert (await rest.ok("POST", f"{path}/clicks/{verb}", body))["id"] == "clicks"
    refused = await rest.call("POST", f"{path}/clicks/handoff", {"groups": [7]})
    assert (refused.status, "no group '7' of supervisor clicks" in str(refused.body)) == (404, True)
    assert (await rest.call("POST", f"{path}/clicks/terminate")).status == 204

    async def has_ended() -> bool:
        return not (await rest.ok("GET", path))["items"]

    await eventually(ep, has_ended)
    refused = await rest.call("POST", f"{path}/clicks/resume")
    assert (refused.status, "submit its spec again" in str(refused.body)) == (404, True)
    wrong = await rest.call("POST", path, {"spec": {**spec, "io": {"streams": 5}}})
    assert (wrong.status, "io.streams" in str(wrong.body)) == (400, True)


async def test_a_supervisor_is_reset_to_cuts_and_backfilled(rest: RestInMemory, ep: Eventproc) -> None:
    path = f"{OWN}/supervisors/clicks"
    await rest.ok("POST", f"{OWN}/supervisors", {"spec": spec_of("clicks")})

    async def offsets() -> list[int]:
        return [each["offset"] for each in (await rest.ok("GET", path))["partitions"]]

    async def has_run() -> bool:
        return await offsets() == [0]

    await eventually(ep, has_run)
    tail = await (await ep.stream("s/t")).tail()
    (end,) = tail.offsets.values()
    moved = {"stream": "s/t", "segment": "0.0", "offset": 0, "offset_after": end}
    shown = await rest.ok("POST", f"{path}/reset", {"to": [str(tail)], "dry_run": True})
    assert (shown, await offsets()) == ({"dry_run": True, "partitions": [moved]}, [0])
    shown = await rest.ok("POST", f"{path}/backfill", {"dry_run": True, "id": "rest"})
    ranges = [{"stream": "s/t", "segment": "0.0", "start": 0, "end": end}]
    assert shown == {"dry_run": True, "backfill": "rest", "ranges": ranges}
    assert [each["id"] for each in (await rest.ok("GET", f"{OWN}/supervisors"))["items"]] == ["clicks"]
    assert (await rest.ok("POST", f"{path}/backfill", {"id": "rest"}))["ranges"] == ranges
    assert [each["id"] for each in (await rest.ok("GET", f"{OWN}/supervisors"))["items"]] == [
        "clicks",
        "rest",
    ]
    assert await offsets() == [end]
    refused = await rest.call("POST", f"{path}/backfill", {})
    assert (refused.status, "everything that it found is published" in str(refused.body)) == (409, True)
    done = await rest.ok("POST", f"{path}/reset", {"to": [str(await (await ep.stream("s/t")).head())]})
    assert done["partitions"] == [{**moved, "offset": end, "offset_after": 0}]
    await eventually(ep, has_run)
    first = await rest.ok("POST", f"{path}/reset", {"dry_run": True})
    assert first["partitions"] == [{**moved, "offset_after": None}]
    for cuts, why in (("tail", "it must be a cut"), ("9:0.0=1", "it belongs to stream 9")):
        refused = await rest.call("POST", f"{path}/reset", {"to": [cuts]})
        assert (refused.status, why in str(refused.body)) == (400, True), refused


async def test_the_health_of_a_supervisor_is_a_status_for_probes(rest: RestInMemory, ep: Eventproc) -> None:
    await rest.ok("POST", f"{OWN}/supervisors", {"spec": spec_of("clicks")})
    path = f"{OWN}/supervisors/clicks/health"
    assert (await rest.ok("GET", path))["healthy"] is True
    await (await ep.stream("s/t")).seal()
    await (await ep.stream("s/t")).delete()
    verbs = cycle(("suspend", "resume"))

    async def is_unhealthy() -> bool:
        await rest.ok("POST", f"{OWN}/supervisors/clicks/{next(verbs)}")  # each is followed by a run
        return (await rest.call("GET", path)).status == 503

    await eventually(ep, is_unhealthy)
    refused = await rest.call("GET", path)
    assert "supervisor clicks is" in refused.body["detail"]
    assert "stream s/t not found; create it" in refused.body["detail"]
    assert (await rest.call("GET", f"{OWN}/supervisors/none/health")).status == 404


async def test_all_supervisors_are_suspended_resumed_and_terminated(rest: RestInMemory) -> None:
    path = f"{OWN}/supervisors"
    assert await rest.ok("POST", f"{path}/suspendAll") == []
    for name in ("a", "b"):
        await rest.ok("POST", path, {"spec": spec_of(name)})
    await rest.ok("POST", f"{path}/a/suspend")
    assert await rest.ok("POST", f"{path}/suspendAll") == ["b"]
    assert all(each["suspended"] for each in (await rest.ok("GET", path))["items"])
    assert await rest.ok("POST", f"{path}/resumeAll") == ["a", "b"]
    assert (await rest.call("POST", f"{path}/b/terminate")).status == 204
    assert await rest.ok("POST", f"{path}/terminateAll") == ["a"]
    assert await rest.ok("POST", f"{path}/terminateAll") == []


async def test_the_workers_are_listed(rest: RestInMemory, ep: Eventproc) -> None:
    await add_worker(ep, ep.db.instance_id)
    await add_worker(ep, "0", slots=1)
    page = await rest.ok("GET", f"{OWN}/ingestion/workers?limit=1")
    assert [(each["instance"], each["alive"]) for each in page["items"]] == [("0", False)]
    page = await rest.ok("GET", f"{OWN}/ingestion/workers?after={page['next']}")
    (found,) = page["items"]
    place = (found["machine"], found["pid"], found["slots"], found["alive"], found["tasks"])
    assert place == ("m1", 7, 2, True, [])


async def test_the_log_of_a_task_has_pages(rest: RestInMemory, ep: Eventproc) -> None:
    await rest.ok("POST", f"{OWN}/supervisors", {"spec": spec_of("clicks")})
    tasks: list[str] = []

    async def has_task() -> bool:
        tasks[:] = [each["id"] for each in await rest.ok("GET", f"{OWN}/supervisors/clicks/tasks")]
        return bool(tasks)

    await eventually(ep, has_task)
    path = f"{OWN}/ingestion/tasks/{tasks[0]}/log"
    page = await rest.ok("GET", path)
    assert [each["message"] for each in page["items"]] == ["created, as replica 0; it waits for a worker"]
    assert (await rest.ok("GET", f"{path}?after={page['items'][-1]['id']}"))["items"] == []
    assert (await rest.call("GET", f"{OWN}/ingestion/tasks/none/log")).status == 404
