"""Events of what changes: who gets which, where a caller resumes, and how its stream ends."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import attrs
import httpx
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream

import eventproc
from eventproc.base.tasks import BackgroundTasks
from eventproc.errors import ScopeNotEmpty
from eventproc.runtime import Eventproc
from eventproc.server.access.authority import Authority
from eventproc.server.rest import change_response, changes
from eventproc.server.rest.application import RestAnswers, rest_application
from eventproc.store.access import users
from eventproc.testing.crash import PATIENCE_S
from tests.server.access_support import READ, add_user, add_users, loaded
from tests.server.support import ServerProcess

PATH = "/eventproc/v1/changes"


@attrs.frozen
class Received:
    """An event: its name, id and data."""

    name: str
    id: str | None
    data: dict[str, Any]

    @classmethod
    def of(cls, text: str) -> Received:
        fields = dict(line.split(": ", 1) for line in text.strip().split("\n"))
        return cls(fields["event"], fields.get("id"), json.loads(fields["data"]))

    @property
    def shown(self) -> tuple[str, ...]:
        """What tests compare."""
        keys = ("kind", "target", "status") if self.name == "request" else ("name", "change")
        return self.name, *(str(self.data[each]) for each in keys if each in self.data)


class Watching:
    """A response that is being read."""

    def __init__(self, messages: MemoryObjectReceiveStream[str]) -> None:
        self._messages = messages

    async def message(self) -> str:
        with anyio.fail_after(PATIENCE_S):
            return await self._messages.receive()

    async def next(self) -> Received:
        while (text := await self.message()).startswith(":"):
            pass
        return Received.of(text)

    async def until(self, *last: str) -> list[Received]:
        """Return the events up to the one that is shown so."""
        found = [await self.next()]
        while found[-1].shown != last:
            found.append(await self.next())
        return found


@asynccontextmanager
async def watching(
    answers: RestAnswers, *, token: str = "", last_id: str | None = None, room: float = float("inf")
) -> AsyncIterator[Watching]:
    """Watch until the end of the block; it begins when changes are reported. room: messages that wait unread."""
    headers = [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {token}".encode())]
    headers += [] if last_id is None else [(b"last-event-id", last_id.encode())]
    scope = {"type": "http", "method": "GET", "path": PATH, "headers": headers, "query_string": b""}
    sink, messages = anyio.create_memory_object_stream[str](room)

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            assert message["status"] == 200
        elif message["body"]:
            await sink.send(message["body"].decode())

    async def receive() -> dict[str, str]:
        await anyio.sleep_forever()
        raise AssertionError

    async with BackgroundTasks() as tasks:
        with sink, messages:
            tasks.start_soon(partial(rest_application(answers), scope, receive, send))
            found = Watching(messages)
            assert await found.message() == ": watching\n\n"
            yield found
            tasks.cancel()


@asynccontextmanager
async def serving(ep: Eventproc, authority: Authority | None = None) -> AsyncIterator[RestAnswers]:
    """Follow the changes during the block."""
    async with BackgroundTasks() as tasks:
        answers = RestAnswers(ep, authority or Authority(ep.db), "127.0.0.1")
        tasks.start_soon(answers.changes.run)
        yield answers


async def test_a_watcher_gets_the_life_of_a_stream(ep: Eventproc) -> None:
    async with serving(ep) as answers, watching(answers) as found:
        stream = await ep.create_stream("s/t")
        await stream.split("0.0")
        await stream.truncate(await stream.tail())
        await stream.seal()
        await stream.delete()
        events = await found.until("request", "delete", "s/t", "done")
        done = [each.data["kind"] for each in events if each.data.get("status") == "done"]
        assert done == ["create", "scale", "truncate", "seal", "delete"]


async def test_scopes_and_groups_of_both_kinds_that_come_and_go_are_reported(ep: Eventproc) -> None:
    await ep.create_stream("s/t")
    async with serving(ep) as answers, watching(answers) as found:
        for kind, create in (("group", ep.create_group), ("share", ep.create_share_group)):
            made = await create("s/g", ["s/t"])
            assert (await found.next()).shown == (kind, "s/g", "created")
            await made.delete()
            assert (await found.next()).shown == (kind, "s/g", "deleted")
        await ep.create_scope("new")
        assert (await found.next()).shown == ("scope", "new", "created")
        await ep.delete_scope("new")
        assert (await found.next()).shown == ("scope", "new", "deleted")
        await ep.create_scope("new")
        await ep.delete_scope("new", recursive=True)
        *_, last = await found.until("scope", "new", "deleted")
        assert last.id is None


async def test_a_refused_request_is_reported_with_its_reason(ep: Eventproc) -> None:
    await ep.create_stream("s/t")
    async with serving(ep) as answers, watching(answers) as found:
        with pytest.raises(ScopeNotEmpty):
            await ep.delete_scope("s")
        await ep.create_stream("s/u")
        events = await found.until("request", "create", "s/u", "done")
        assert all(each.data["error"] for each in events if each.data["status"] == "rejected")


async def test_a_caller_resumes_where_it_was_and_misses_nothing(ep: Eventproc) -> None:
    async with serving(ep) as answers:
        async with watching(answers) as found:
            await ep.create_stream("s/a")
            last = (await found.until("request", "create", "s/a", "done"))[-1]
        for name in ("s/b", "s/c"):
            await ep.create_stream(name)
        async with watching(answers, last_id=last.id) as found:
            missed = await found.until("request", "create", "s/c", "done")
            assert [each.data["target"] for each in missed] == ["s/b", "s/c"]
            await ep.create_stream("s/d")
            await found.until("request", "create", "s/d", "done")
        async with watching(answers, last_id=missed[0].id) as found:
            again = await found.until("request", "create", "s/d", "done")
            assert [each.data["target"] for each in again] == ["s/c", "s/d"]


async def test_an_id_whose_requests_are_not_kept_resets_the_caller(ep: Eventproc) -> None:
    async with serving(ep) as answers, watching(answers, last_id="7-999999") as found:
        assert (await found.next()).name == "reset"
        await ep.create_stream("s/t")
        await found.until("request", "create", "s/t", "done")


async def test_a_malformed_id_is_refused(ep: Eventproc) -> None:
    transport = httpx.ASGITransport(rest_application(RestAnswers(ep, Authority(ep.db), "127.0.0.1")))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        found = await http.get(PATH, headers={"Last-Event-ID": "x"})
        assert (found.status_code, found.json()["fields"]["what"]) == (400, "Last-Event-ID")
        found = await http.head(PATH)
        assert found.headers["content-type"].startswith("text/event-stream")


async def test_a_caller_gets_only_what_it_may_read(ep: Eventproc) -> None:
    await ep.create_scope("other")
    await ep.create_stream("other/t")
    tokens = await add_users(ep)
    token = await ep.db.write(partial(add_user, name="both"))
    async with (
        serving(ep, await loaded(ep)) as answers,
        watching(answers, token=tokens["stream-reader"]) as of_one,
        watching(answers, token=tokens["reader-of-others"]) as of_others,
        watching(answers, token=tokens["server-reader"]) as of_all,
        watching(answers, token=token) as of_nobody,
    ):
        for name in ("s/t", "s/u", "other/u"):
            await ep.create_stream(name)
        await of_all.until("request", "create", "other/u", "done")
        answers.changes.end()
        for each, targets in ((of_one, ["s/t"]), (of_others, ["other/u"]), (of_nobody, [])):
            *events, last = await each.until("closed")
            assert sorted({event.data["target"] for event in events}) == targets
            assert last.data["reason"] == changes.SERVER_ENDS


async def test_a_caller_whose_credentials_end_is_disconnected(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_response, "HEARTBEAT_S", 0.01)
    tokens = await add_users(ep)
    authority = await loaded(ep)
    async with (
        serving(ep, authority) as answers,
        watching(answers, token=tokens["server-reader"]) as found,
    ):
        assert await found.message() == ": alive\n\n"
        await ep.db.write(partial(users.delete_user, name="server-reader"))
        await authority.load()
        assert (await found.next()).data == {"reason": change_response.REVOKED}


async def test_what_is_queued_is_not_sent_after_its_permission_is_gone(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_response, "HEARTBEAT_S", 0.01)
    tokens = await add_users(ep)
    await ep.users.grant("stream-reader", READ, "s/u")
    authority = await loaded(ep)
    async with (
        serving(ep, authority) as answers,
        watching(answers, token=tokens["stream-reader"], room=0) as slow,
        watching(answers, token=tokens["server-reader"]) as fast,
    ):
        for name in ("s/t", "s/u"):  # the first event is being sent, the others are queued
            await ep.create_stream(name)
            await fast.until("request", "create", name, "done")
        await ep.users.revoke("stream-reader", "s/u")
        await authority.load()
        await anyio.sleep(0.02)
        answers.changes.end()
        *events, _ = await slow.until("closed")
        assert {each.data["target"] for each in events} == {"s/t"}


async def test_a_slow_caller_is_told_and_disconnected(ep: Eventproc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "QUEUE_EVENTS", 2)
    async with serving(ep) as answers:
        async with watching(answers, room=0) as slow, watching(answers) as fast:
            for number in range(5):
                await ep.create_stream(f"s/{number}")
                await fast.until("request", "create", f"s/{number}", "done")
            *events, last = await slow.until("closed")
            assert last.data == {"reason": changes.TOO_SLOW}
            assert len(events) <= 4  # two were queued, one was being sent
        monkeypatch.setattr(changes, "LAST_EVENT_S", 0)
        async with watching(answers, room=0), watching(answers) as fast:
            for number in range(5, 10):
                await ep.create_stream(f"s/{number}")
                await fast.until("request", "create", f"s/{number}", "done")
            with anyio.fail_after(PATIENCE_S):
                while answers.changes.watchers > 1:  # it never reads its end
                    await anyio.lowlevel.checkpoint()


async def test_too_many_callers_and_callers_at_the_end_are_refused(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "WATCHERS_MAX", 1)
    async with serving(ep) as answers:
        transport = httpx.ASGITransport(rest_application(answers))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            async with watching(answers) as found:
                assert "eventproc_watchers 1.0" in (await http.get("/metrics")).text
                assert (await http.get(PATH)).status_code == 503
                answers.changes.end()
                assert (await found.next()).name == "closed"
            assert answers.changes.watchers == 0
            assert (await http.get(PATH)).status_code == 503


async def test_changes_by_other_instances_and_the_instances_are_reported(tmp_path: Path) -> None:
    async with (
        eventproc.open(tmp_path / "d", durability="os") as ep,
        serving(ep) as answers,
        watching(answers) as found,
    ):
        async with eventproc.open(tmp_path / "d", host=False) as other:
            added = await found.next()
            assert (added.name, added.data["change"]) == ("instance", "added")
            await other.create_scope("s")
            await found.until("scope", "s", "created")
            await other.create_stream("s/t")
            await found.until("request", "create", "s/t", "done")
            await other.create_group("s/g", ["s/t"])
            await found.until("group", "s/g", "created")
            await other.create_share_group("s/q", ["s/t"])
            await found.until("share", "s/q", "created")
        removed = await found.next()
        assert (removed.data["id"], removed.data["change"]) == (added.data["id"], "removed")


def read_events(lines: Iterator[str]) -> Iterator[Received]:
    """Yield the events of a response."""
    event: list[str] = []
    for line in lines:
        if line and not line.startswith(":"):
            event.append(line)
        elif event:
            yield Received.of("\n".join(event))
            event.clear()


@pytest.mark.subprocess
def test_a_serving_process_sends_changes_and_says_that_it_ends(tmp_path: Path) -> None:
    from eventproc.cli.main import run

    directory = tmp_path / "served"
    assert run(["-C", str(directory), "init", "--durability", "os"]) == 0
    with (
        ServerProcess(directory, rest=True) as server,
        httpx.Client(base_url=server.rest, timeout=PATIENCE_S, trust_env=False) as http,
        http.stream("GET", PATH) as response,
    ):
        lines = response.iter_lines()
        assert next(lines) == ": watching"
        assert http.post("/v1/scopes", json={"scopeName": "s"}).status_code == 201
        assert http.post("/v1/scopes/s/streams", json={"streamName": "t"}).status_code == 201
        events = read_events(lines)
        created = next(each for each in events if each.data.get("status") == "done")
        assert created.shown == ("request", "create", "s/t", "done")
        assert server.end(signal.SIGTERM) == 0
        assert [each.name for each in events][-1] == "closed"
