"""REST of an operator, for what has no path of Pravega's: each answer is verified against the OpenAPI document."""

from __future__ import annotations

import base64
from pathlib import Path

import eventproc
from eventproc.base.clock import part_id
from eventproc.describe import TaskStatus
from eventproc.runtime import Eventproc
from eventproc.topics.operations import SealTopic
from eventproc.workflows.requests import PRESENT
from tests.server.access_support import READ, UPDATE, add_user, loaded
from tests.server.rest_client import OWN, RestInMemory, ep as ep, rest as rest
from tests.support.apps import run_until_idle


async def test_a_group_is_created_updated_checkpointed_and_deleted(rest: RestInMemory, ep: Eventproc) -> None:
    body = {"name": "g", "streams": ["s/t"], "start": ["tail"], "patience_ms": 60_000, "on_deleted": "drop"}
    made = await rest.ok("POST", f"{OWN}/groups/s", body)
    assert (made["name"], made["events"], made["options"]["patience_ms"]) == ("s/g", 0, 60_000)
    assert made["options"]["on_deleted"] == "drop"
    assert (await rest.call("POST", f"{OWN}/groups/s", {**body, "patience_ms": None})).status == 409
    options = {
        name: value for name, value in made["options"].items() if not name.startswith(("on_del", "added"))
    }
    changed = await rest.ok(
        "PUT", f"{OWN}/groups/s/g/options", {**options, "patience_ms": None, "retains": "manual"}
    )
    assert (changed["options"]["patience_ms"], changed["options"]["retains"]) == (None, "manual")
    wrong = await rest.call("PUT", f"{OWN}/groups/s/g/options", {**options, "retains": "all"})
    assert (wrong.status, "it must be one of progress, manual" in wrong.body["detail"]) == (400, True)
    made = await rest.ok("POST", f"{OWN}/groups/s/g/checkpoints", {"name": "first"})
    found = await rest.ok("GET", f"{OWN}/groups/s/g/checkpoints")
    assert found == [made]
    group = await ep.group("s/g")
    async with group.reader("r1"):
        assert (await rest.call("POST", f"{OWN}/groups/s/g/readers/r1/offline")).status == 204
        assert (await group.describe()).members == ()
    assert (await rest.call("DELETE", "/v1/scopes/s/readergroups/g")).status == 204


async def test_a_consumer_group_shows_its_partitions(rest: RestInMemory, ep: Eventproc) -> None:
    await ep.create_topic("s/topic", partitions=2)
    await ep.create_group("s/c", ["s/topic"], on_deleted="drop")
    found = await rest.ok("GET", f"{OWN}/groups/s/c/partitions")
    assert [each["partition"] for each in found] == [0, 1]


async def test_the_number_of_a_partition_is_reset_as_in_python(rest: RestInMemory, ep: Eventproc) -> None:
    topic = await ep.create_topic("s/topic", partitions=2)
    async with topic.producer() as producer:
        for number in range(6):
            await producer.write(b"%d" % number, partition=number % 2)
    group = await ep.create_group("s/c", ["s/topic"])
    path, body = f"{OWN}/groups/s/c/partitions/reset", {"number": 2, "partitions": ["s/topic:1"]}
    planned = await rest.ok("POST", path, {**body, "dry_run": True})
    assert [(each["partition"], each["number"]) for each in planned] == [(1, 2)]
    assert [each.events for each in await group.partitions()] == [3, 3]
    assert await rest.ok("POST", path, body) == planned
    assert [each.events for each in await group.partitions()] == [3, 1]
    assert len(await rest.ok("POST", path, {"start": "tail"})) == 2
    assert [each.events for each in await group.partitions()] == [0, 0]
    for wrong in ({}, {"start": "tail", "shift": 1}, {"start": "tail", "partitions": ["s/topic"]}):
        assert (await rest.call("POST", path, wrong)).status == 400


async def test_numbers_of_partitions_are_committed_as_in_python(rest: RestInMemory, ep: Eventproc) -> None:
    topic = await ep.create_topic("s/topic", partitions=2)
    async with topic.producer() as producer:
        await producer.write(b"0", partition=1)
    await ep.create_group("s/c", ["s/topic"])
    path = f"{OWN}/groups/s/c/partitions/commit"
    numbers = [{"stream": "s/topic", "partition": each, "number": each} for each in (0, 1)]
    committed = await rest.ok("POST", path, {"numbers": numbers})
    assert [(each["partition"], each["committed"], each["events"]) for each in committed] == [
        (0, 0, 0),
        (1, 1, 0),
    ]
    assert (await rest.call("POST", path, {})).status == 400
    for wrong in ([], [{**numbers[0], "number": 2}]):
        assert (await rest.call("POST", path, {"numbers": wrong})).status == 400


async def test_a_share_group_is_created_listed_reset_and_deleted(rest: RestInMemory) -> None:
    body = {"name": "q", "streams": ["s/t"], "start": ["head"], "deliveries_max": 2}
    made = await rest.ok("POST", f"{OWN}/shares/s", body)
    assert made["options"]["deliveries_max"] == 2
    listed = await rest.ok("GET", f"{OWN}/shares?scope=s")
    assert [each["name"] for each in listed["items"]] == ["s/q"]
    assert (await rest.ok("GET", f"{OWN}/shares/s/q"))["generation"] == made["generation"]
    changed = await rest.ok("PUT", f"{OWN}/shares/s/q/options", {"lock_ms": 60_000, "deliveries_max": 3})
    assert changed["options"] == {"lock_ms": 60_000, "deliveries_max": 3}
    assert await rest.ok("POST", f"{OWN}/shares/s/q/consumers/c/offline") == 0
    (moved,) = await rest.ok("POST", f"{OWN}/shares/s/q/reset", {"start": ["tail"], "dry_run": True})
    assert (moved["events_before"], moved["events_after"]) == (3, 0)
    assert (await rest.ok("GET", f"{OWN}/shares/s/q"))["generation"] == made["generation"]
    assert await rest.ok("POST", f"{OWN}/shares/s/q/reset", {"start": ["tail"]}) == [moved]
    assert (await rest.ok("GET", f"{OWN}/shares/s/q"))["generation"] > made["generation"]
    assert (await rest.call("DELETE", f"{OWN}/shares/s/q")).status == 204
    assert (await rest.call("GET", f"{OWN}/shares/s/q")).status == 404


async def test_a_topic_is_created_altered_truncated_and_deleted(rest: RestInMemory, ep: Eventproc) -> None:
    made = await rest.ok("POST", f"{OWN}/topics/s", {"name": "topic", "partitions": 2, "partitioning": "key"})
    assert len(made["partitions"]) == 2
    altered = await rest.ok("POST", f"{OWN}/topics/s/topic/alter", {"partitions": 3})
    assert len(altered["partitions"]) == 3
    assert await rest.ok("POST", f"{OWN}/topics/s/topic/truncate", {"before_ms": 0})
    assert [each["name"] for each in (await rest.ok("GET", f"{OWN}/topics"))["items"]] == ["s/topic"]
    described = await (await ep.topic("s/topic")).describe()
    assert await rest.ok("GET", f"{OWN}/topics/s/topic") == eventproc.to_dict(described)
    assert (await rest.call("DELETE", f"{OWN}/topics/s/topic")).status == 204
    assert (await rest.call("DELETE", f"{OWN}/topics/s/t")).status == 404  # a stream, but not a topic
    wrong = await rest.call("POST", f"{OWN}/topics/s", {"name": "other", "partitioning": "sticky"})
    assert (wrong.status, "it must be one of key, round_robin" in wrong.body["detail"]) == (400, True)


async def test_a_topic_is_deleted_once_per_key(rest: RestInMemory, ep: Eventproc) -> None:
    key = ep.requests.new_id()
    await ep.create_topic("s/topic")
    for _ in range(2):
        deleted = await rest.call("DELETE", f"{OWN}/topics/s/topic", idempotency_key=key)
        assert deleted.status == 204
    assert (await rest.call("DELETE", f"{OWN}/topics/s/topic")).status == 404
    await ep.create_topic("s/topic")
    assert (await rest.call("DELETE", f"{OWN}/topics/s/topic", idempotency_key=key)).status == 204
    assert [each.name for each in await ep.topics()] == ["s/topic"]


async def test_a_deletion_that_does_not_wait_for_the_seal_of_its_topic_is_to_be_repeated(
    tmp_path: Path,
) -> None:
    async with eventproc.open(tmp_path) as ep:
        await ep.create_scope("s")
        await ep.create_topic("s/topic")
    async with eventproc.open(tmp_path, host=False) as ep:  # nobody runs the request
        answer = await RestInMemory(ep).call("DELETE", f"{OWN}/topics/s/topic", prefer="wait=0")
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    async with eventproc.open(tmp_path) as ep:
        assert (await RestInMemory(ep).call("DELETE", f"{OWN}/topics/s/topic")).status == 204
        assert await ep.topics() == []


async def test_a_deletion_that_had_sealed_a_topic_does_not_delete_the_next_one_of_its_name(
    rest: RestInMemory, ep: Eventproc
) -> None:
    key = ep.requests.new_id()
    await ep.create_topic("s/topic")
    sealed = await ep.requests.submit(SealTopic("s/topic", PRESENT), request_id=part_id(key, "seal"))
    await ep.requests.wait(sealed.id)  # the first call died here
    await (await ep.topic("s/topic")).delete()
    await ep.create_topic("s/topic")
    await (await ep.stream("s/topic")).seal()
    assert (await rest.call("DELETE", f"{OWN}/topics/s/topic", idempotency_key=key)).status >= 400
    assert [each.name for each in await ep.topics()] == ["s/topic"]


async def test_a_truncation_is_repeated_although_another_topic_has_the_name(
    rest: RestInMemory, ep: Eventproc
) -> None:
    key, body = ep.requests.new_id(), {"partition": 0, "before_number": 1}
    for events in (1, 2):
        topic = await ep.create_topic("s/topic")
        async with topic.producer() as producer:
            for _ in range(events):
                await producer.write(b"event")
        path = f"{OWN}/topics/s/topic/truncate"
        assert (await rest.call("POST", path, body, idempotency_key=key)).status == 200
        assert (await topic.describe()).partitions[0].end - (await topic.describe()).partitions[0].first == (
            0 if events == 1 else 2
        )
        await topic.delete()


async def give_up_all(ep: Eventproc, stream: str) -> None:
    """Make dead letters of the group s/mailer of all events of a stream."""
    app = eventproc.App()

    @app.processor(stream, group="mailer", retry=eventproc.RetryPolicy(attempts=1))
    async def mail(event: eventproc.Event) -> None:
        raise ValueError("no such address")

    await run_until_idle(ep, app)


async def test_a_processor_is_paused_and_its_dead_letters_are_shown_redriven_and_dropped(
    rest: RestInMemory, ep: Eventproc
) -> None:
    await give_up_all(ep, "s/t")
    path = f"{OWN}/processors/s/mailer"
    assert [each["group"]["name"] for each in (await rest.ok("GET", f"{OWN}/processors"))["items"]] == [
        "s/mailer"
    ]
    assert (await rest.ok("POST", f"{path}/pause"))["group"]["paused"] is True
    assert (await rest.ok("POST", f"{path}/resume"))["group"]["paused"] is False
    first = await rest.ok("GET", f"{path}/dead-letters?limit=2")
    last = await rest.ok("GET", f"{path}/dead-letters?after={first['next']}")
    letters = [*first["items"], *last["items"]]
    assert [base64.b64decode(each["payload"]) for each in letters] == [b"0", b"1", b"2"]
    assert await rest.ok("GET", f"{path}/dead-letters/{letters[0]['id']}") == letters[0]
    assert (await rest.ok("POST", f"{path}/dead-letters/redrive", {"ids": [letters[0]["id"]]}))[
        "letters"
    ] == 1
    assert (await rest.ok("POST", f"{path}/dead-letters/drop", {"ids": None}))["letters"] == 2
    assert (await rest.ok("GET", f"{path}/dead-letters"))["items"] == []


async def test_a_caller_sees_no_event_of_a_stream_that_it_may_not_read(ep: Eventproc) -> None:
    tokens = await ep.db.write(
        lambda tx: {
            "of-group": add_user(tx, "of-group", (READ, "s/mailer"), (UPDATE, "s/mail")),
            "of-scope": add_user(tx, "of-scope", (UPDATE, "s")),
        }
    )
    await give_up_all(ep, "s/t")
    authority = await loaded(ep)
    of_group = RestInMemory(ep, authority, tokens["of-group"])
    assert (await of_group.call("GET", f"{OWN}/processors/s/mailer")).status == 403
    assert (await of_group.call("GET", f"{OWN}/processors/s/mailer/dead-letters")).status == 403
    await ep.state("s/mailer").store({"a": b"secret"})
    for below in ("", "/size", "/value?key=a"):
        assert (await of_group.call("GET", f"{OWN}/groups/s/mailer/state{below}")).status == 403
    await ep.create_share_group("s/mail", ["s/t"])
    job, path = await ep.jobs("s/mail").submit(b"secret"), f"{OWN}/jobs/s/mail"
    for method, below in (("GET", ""), ("GET", f"/{job.id}"), ("POST", f"/{job.id}/cancel")):
        assert (await of_group.call(method, path + below)).status == 403
    for body in ({"payload": "x"}, {"payload": "x", "stream": "s/t"}):
        assert (await of_group.call("POST", path, body)).status == 403
    assert [each.id for each in await ep.jobs("s/mail").list()] == [job.id]
    of_scope = RestInMemory(ep, authority, tokens["of-scope"])
    for kind in ("groups", "shares"):
        refused = await of_scope.call("POST", f"{OWN}/{kind}/s", {"name": "mine", "streams": ["s/t"]})
        assert refused.status == 403


async def test_a_job_is_submitted_once_for_a_key_and_listed_shown_cancelled_and_retried(
    rest: RestInMemory, ep: Eventproc
) -> None:
    app = eventproc.App()

    @app.worker("s/t", share_group="mail", start="tail", retry=eventproc.RetryPolicy(attempts=1))
    async def mail(event: eventproc.Event) -> str:
        if event.payload == b"fails":
            raise ValueError("no such address")
        return "sent"

    path, body = f"{OWN}/jobs/s/mail", {"payload": "ana", "key": "a", "priority": 5, "stream": "s/t"}
    assert (await rest.call("POST", path, {"payload": "ana"})).status == 404
    await run_until_idle(ep, app)
    made = await rest.call("POST", path, body, idempotency_key="order-1")
    assert (made.status, made.body["id"], made.body["state"]) == (201, "order-1", "waiting")
    del body["stream"]
    assert (await rest.call("POST", path, body, idempotency_key="order-1")).body == made.body
    for other in ({"payload": "bob"}, {"key": None}):
        refused = await rest.call("POST", path, {**body, **other}, idempotency_key="order-1")
        assert (refused.status, "another job of s/mail" in refused.body["detail"]) == (422, True)
    for wrong in ({"priority": 10}, {"delay_ms": 1, "at": "5"}, {"headers": {"a": None}}, {"stream": "t"}):
        assert (await rest.call("POST", path, {**body, **wrong})).status == 400
    refused = await rest.call("POST", path, {**body, "at": "head"})
    assert "time 'head': it must be in ms since 1970 or such as" in refused.body["detail"]
    refused = await rest.call("POST", path, body, idempotency_key="order/1")
    assert (refused.status, "it must have no '/'" in refused.body["detail"]) == (400, True)
    later = await rest.ok("POST", path, {**body, "payload": "later", "at": "2100-01-31T08:00Z"})
    assert (await rest.ok("POST", f"{path}/{later['id']}/cancel"))["state"] == "cancelled"
    fails = await rest.ok("POST", path, {"payload": "fails"})
    await run_until_idle(ep, app)
    done = await rest.ok("GET", f"{path}/order-1")
    assert (done["state"], done["attempts"], base64.b64decode(done["payload"])) == ("done", 1, b"ana")
    first = await rest.ok("GET", f"{path}?limit=2")
    rest_of_them = await rest.ok("GET", f"{path}?after={first['next']}")
    assert [each["state"] for each in (*first["items"], *rest_of_them["items"])] == [
        "done",
        "cancelled",
        "failed",
    ]
    assert [each["id"] for each in (await rest.ok("GET", f"{path}?state=failed"))["items"]] == [fails["id"]]
    assert (await rest.ok("POST", f"{path}/{fails['id']}/retry"))["state"] == "waiting"
    assert (await rest.call("POST", f"{path}/unknown/cancel")).status == 404


async def test_a_transaction_is_shown_and_committed(rest: RestInMemory, ep: Eventproc) -> None:
    stream = await ep.stream("s/t")
    path = f"{OWN}/streams/s/t"
    async with stream.transaction() as txn:
        await txn.write(b"x", key="k")
        await txn.flush()
        found = await rest.ok("GET", f"{path}/transactions/{txn.id}")
        assert found["state"] == "open"
        decided = await rest.ok("POST", f"{path}/transactions/{txn.id}/commit")
        assert decided["state"] in ("committing", "committed")


async def test_long_work_is_begun_as_a_task(rest: RestInMemory, ep: Eventproc) -> None:
    await ep.create_scope("old")
    await ep.create_stream("old/t")
    begun = await rest.call("DELETE", f"{OWN}/scopes/old")
    assert (begun.status, begun.body["kind"]) == (202, "delete-scope")
    assert (await ep.tasks.wait(begun.body["id"])).status is TaskStatus.DONE
    assert (await rest.call("GET", "/v1/scopes/old")).status == 404
    assert (await rest.call("DELETE", f"{OWN}/scopes/old")).status == 404
    assert (await rest.ok("POST", f"{OWN}/verify"))["kind"] == "verify"
    assert (await rest.ok("POST", f"{OWN}/compact"))["kind"] == "compact"
    assert (await rest.ok("POST", f"{OWN}/streams/s/t/offload", {"older_than_ms": 0}))["kind"] == "offload"


async def test_the_picture_of_a_stream_is_numbers_or_svg(rest: RestInMemory, ep: Eventproc) -> None:
    await ep.create_group("s/g", ["s/t"])
    path = f"{OWN}/streams/s/t/plot"
    found = await rest.ok("GET", path)
    assert [(each["low"], each["high"], each["events"]) for each in found["segments"]] == [(0.0, 1.0, 3)]
    assert [each["group"] for each in found["positions"]] == ["s/g"]
    kind, text = await rest.text(path, "text/html, image/svg+xml;q=0.9")
    assert kind.startswith("image/svg+xml") and text.startswith("<svg ")
    late = await rest.call("GET", f"{path}?from_ms=2000&to_ms=1000")
    assert (late.status, "before from_ms" in late.body["detail"]) == (400, True)


async def test_a_picture_shows_the_groups_that_its_caller_may_read(ep: Eventproc) -> None:
    for group in ("s/g", "s/h"):
        await ep.create_group(group, ["s/t"])
    tokens = await ep.db.write(
        lambda tx: [add_user(tx, "one", (READ, "s/t"), (READ, "s/h")), add_user(tx, "none", (READ, "s/t"))]
    )
    seen = []
    for token in tokens:
        found = await RestInMemory(ep, await loaded(ep), token).ok("GET", f"{OWN}/streams/s/t/plot")
        seen.append([each["group"] for each in found["positions"]])
    assert seen == [["s/h"], []]


async def test_a_job_of_a_group_with_several_streams_names_one(rest: RestInMemory, ep: Eventproc) -> None:
    await ep.create_stream("s/u")
    await ep.create_share_group("s/g", ["s/t", "s/u"])
    refused = await rest.call("POST", f"{OWN}/jobs/s/g", {"payload": "x"})
    assert (refused.status, "has the streams s/t, s/u; name the one" in refused.body["detail"]) == (400, True)
    made = await rest.ok("POST", f"{OWN}/jobs/s/g", {"payload": "x", "stream": "s/u"})
    assert made["stream"] == "s/u"


async def test_the_states_of_a_processor_are_counted_listed_shown_and_dropped(
    rest: RestInMemory, ep: Eventproc
) -> None:
    await ep.create_group("s/totals", ["s/t"])
    path = f"{OWN}/groups/s/totals/state"
    assert await rest.ok("GET", path) == {"items": [], "next": None}
    assert (await rest.call("GET", f"{path}/size")).status == 404
    assert (await rest.call("GET", f"{OWN}/groups/s/none/state")).status == 404
    states = {"": b"0", "a/b?c": b'{"count":1}', "é": b"\xff"}
    await ep.state("s/totals").store(states)
    assert await rest.ok("GET", f"{path}/size") == {
        "group": "s/totals",
        "stream": "s/t",
        "payload": "bytes",
        "versions": [1],
        "watermark_ms": None,
        "keys": 3,
        "value_bytes": 13,
    }
    first = await rest.ok("GET", f"{path}?limit=1")
    assert [each["key"] for each in first["items"]] == [first["next"]] == [""]
    rest_of = await rest.ok("GET", f"{path}?after={first['next']}")
    assert {
        each["key"]: base64.b64decode(each["value"]) for each in [*first["items"], *rest_of["items"]]
    } == states
    assert [each["key"] for each in (await rest.ok("GET", f"{path}?first=a&last=b"))["items"]] == ["a/b?c"]
    one = f"{path}/value?key=a%2Fb%3Fc"
    assert await rest.ok("GET", one) == {
        "key": "a/b?c",
        "value": base64.b64encode(b'{"count":1}').decode(),
        "version": 1,
        "expires_ms": None,
        "timer_ms": None,
    }
    async with (await ep.group("s/totals")).reader("r1"):
        assert {(await rest.call("DELETE", each)).status for each in (path, one)} == {409}
    assert [await rest.ok("DELETE", one) for _ in range(2)] == [{"keys": 1}, {"keys": 0}]
    assert (await rest.call("GET", one)).status == 404
    assert (await rest.call("DELETE", f"{path}/value")).status == 400
    assert await rest.ok("DELETE", path) == {"keys": 2}
    assert (await rest.call("DELETE", path)).status == 404
