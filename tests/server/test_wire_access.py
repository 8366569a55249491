"""Delegation tokens on the connections of the segment store: commands without one are refused, also after it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import product

import anyio
import pytest
import trio.testing

import eventproc
from eventproc.runtime import Eventproc
from eventproc.server.access.authority import Authority, Caller, NotPermitted
from eventproc.server.access.delegation import CLOCK_SKEW_MS, TOKEN_LIFE_MS
from eventproc.server.frames import FREE_FRAME_BYTES, ConnectionOver, MalformedFrame
from eventproc.server.wire import commands as c
from eventproc.server.wire.codec import Message
from eventproc.store.access import users
from eventproc.store.access.permissions import Grant, Permission
from eventproc.testing import VirtualClock
from tests.server.access_support import READ, UPDATE, add_user, add_users, loaded, may
from tests.server.access_table import NOTHING, SCOPES, WIRE, WRITER as OF_WRITER, command_of
from tests.server.wire_peer import WRITER, block, connected, framed
from tests.support.virtual_time import anyio_backend as anyio_backend, clock_of

SEGMENT, OTHER = "s/t/0.#epoch.0", "s/u/0.#epoch.0"


@pytest.fixture
async def ep() -> AsyncIterator[Eventproc]:
    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await ep.create_scope("s")
        for name in ("s/t", "s/u"):
            await ep.create_stream(name)
        await ep.db.write(lambda tx: add_user(tx, "ann", (UPDATE, "s/t"), (READ, "s/u")))
        yield ep


async def token_for(ep: Eventproc, authority: Authority, resource: str = "s/t") -> str:
    user = await ep.db.read(lambda tx: users.get_user(tx, "ann"))
    return authority.delegation_token(Caller(user), resource)


def set_up(token: str, segment: str = SEGMENT, writer: bytes = WRITER) -> c.SetupAppend:
    return c.SetupAppend(1, writer, segment, token)


@pytest.mark.acceptance("G3")
async def test_a_writer_needs_a_token_that_allows_to_write_and_a_reader_one_that_allows_to_read(
    ep: Eventproc,
) -> None:
    authority = await loaded(ep)
    writes, reads_other = await token_for(ep, authority), await token_for(ep, authority, "s/u")
    async with connected(ep, authority=authority) as peer:
        for token, segment in (
            ("", SEGMENT),
            ("x.y.z", SEGMENT),
            (reads_other, SEGMENT),
            (reads_other, OTHER),
        ):
            refused = await peer.ask(set_up(token, segment), c.AuthTokenCheckFailed)
            assert (refused.request_id, refused.code) == (1, c.TOKEN_REFUSED)
        await peer.ask(set_up(writes), c.AppendSetup)
        await peer.ask(block(b"x", last=0), c.DataAppended)
        for command in (
            c.ReadSegment(SEGMENT, 0, 100, "", 7),
            c.GetStreamSegmentInfo(7, SEGMENT, reads_other),
        ):
            assert (await peer.ask(command, c.AuthTokenCheckFailed)).request_id == 7
        assert (await peer.ask(c.ReadSegment(SEGMENT, 0, 100, writes, 8), c.SegmentRead)).data
        await peer.ask(c.GetStreamSegmentInfo(9, OTHER, reads_other), c.StreamSegmentInfo)


@pytest.mark.acceptance("G3", differs="a token is accepted for a minute after its end, because clocks differ")
async def test_an_expired_token_is_refused_with_the_code_after_which_clients_renew_it(ep: Eventproc) -> None:
    authority = await loaded(ep)
    token = await token_for(ep, authority)
    clock = clock_of(ep)
    clock.advance(TOKEN_LIFE_MS + CLOCK_SKEW_MS)
    async with connected(ep, authority=authority) as peer:
        assert (await peer.ask(set_up(token), c.AuthTokenCheckFailed)).code == c.TOKEN_EXPIRED
        await peer.ask(set_up(await token_for(ep, authority)), c.AppendSetup)


async def test_a_writer_whose_token_expires_is_closed_and_stores_nothing_more_until_it_is_renewed(
    ep: Eventproc,
) -> None:
    authority = await loaded(ep)
    clock = clock_of(ep)
    async with connected(ep, authority=authority) as peer:
        await peer.ask(set_up(await token_for(ep, authority)), c.AppendSetup)
        await peer.ask(block(b"first", last=0), c.DataAppended)
        clock.advance(TOKEN_LIFE_MS + CLOCK_SKEW_MS)
        await peer.send(block(b"late", last=1))
        assert isinstance(await peer.wait_ended(), ConnectionOver)
    async with connected(ep, authority=authority) as peer:
        renewed = await peer.ask(set_up(await token_for(ep, authority)), c.AppendSetup)
        assert renewed.last_event_number == 0
        await peer.ask(block(b"again", last=1), c.DataAppended)


async def test_a_grant_that_is_revoked_ends_the_writers_that_use_it(ep: Eventproc) -> None:
    authority = await loaded(ep)
    async with connected(ep, authority=authority) as peer:
        await peer.ask(set_up(await token_for(ep, authority)), c.AppendSetup)
        await ep.db.write(lambda tx: users.grant(tx, "ann", Grant("s/t", READ)))
        await authority.load()
        await peer.send(block(b"x", last=0))
        assert isinstance(await peer.wait_ended(), ConnectionOver)
    stream = await ep.stream("s/t")
    assert (await stream.describe()).events == 0


async def test_the_end_of_a_block_that_began_before_a_grant_was_revoked_is_not_stored(ep: Eventproc) -> None:
    authority = await loaded(ep)
    async with connected(ep, authority=authority) as peer:
        await peer.ask(set_up(await token_for(ep, authority)), c.AppendSetup)
        data = block(b"x", last=0).data
        await peer.send(c.AppendBlock(WRITER, data))
        await trio.testing.wait_all_tasks_blocked()
        await ep.db.write(lambda tx: users.delete_user(tx, "ann"))
        await authority.load()
        await peer.send(c.AppendBlockEnd(WRITER, len(data), b"", 1, 0, 1))
        assert isinstance(await peer.wait_ended(), ConnectionOver)
    assert (await (await ep.stream("s/t")).describe()).events == 0


async def test_a_read_that_waits_gets_nothing_that_is_appended_after_its_grant_was_revoked(
    ep: Eventproc,
) -> None:
    authority = await loaded(ep)
    async with connected(ep, authority=authority) as peer:
        token = await token_for(ep, authority)
        await peer.send(c.ReadSegment(SEGMENT, 0, 100, token, 7))
        await trio.testing.wait_all_tasks_blocked()
        await ep.db.write(lambda tx: users.delete_user(tx, "ann"))
        await authority.load()
        async with (await ep.stream("s/t")).writer() as writer:
            await writer.write(b"secret")
        refused = await peer.take_as(c.AuthTokenCheckFailed)
        assert (refused.request_id, refused.code) == (7, c.TOKEN_REFUSED)


async def test_a_writer_that_was_set_up_without_users_needs_a_token_when_there_are_some() -> None:
    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await ep.create_scope("s")
        await ep.create_stream("s/t")
        authority = await loaded(ep)
        async with connected(ep, authority=authority) as peer:
            await peer.ask(set_up(""), c.AppendSetup)
            await peer.ask(block(b"x", last=0), c.DataAppended)
            await ep.db.write(lambda tx: add_user(tx, "ann", (UPDATE, "*")))
            await authority.load()
            await peer.send(block(b"y", last=1))
            assert isinstance(await peer.wait_ended(), ConnectionOver)


async def test_a_refused_set_up_leaves_the_token_of_the_writer_as_it_was(ep: Eventproc) -> None:
    authority = await loaded(ep)
    clock = clock_of(ep)
    async with connected(ep, authority=authority) as peer:
        await peer.ask(set_up(await token_for(ep, authority)), c.AppendSetup)
        clock.advance(TOKEN_LIFE_MS)
        newer = await token_for(ep, authority)
        await peer.ask(set_up(newer, "s/t/9.#epoch.9"), c.NoSuchSegment)
        clock.advance(CLOCK_SKEW_MS)
        await peer.send(block(b"x", last=0))
        assert isinstance(await peer.wait_ended(), ConnectionOver)


@pytest.mark.parametrize(
    ("log", "is_hers"),
    [
        ("_RGt", True),
        ("_RGu", False),
        ("_RGother", False),
        ("_RG_RGt", False),
        ("_RG", False),
        ("_MARKu", False),
    ],
)
async def test_the_log_of_a_reader_group_needs_rights_on_the_group(
    ep: Eventproc, log: str, is_hers: bool
) -> None:
    """A token for a log is one for its group, so neither the token nor the name of a log reaches another group."""
    authority = await loaded(ep)
    token, segment = await token_for(ep, authority), f"s/{log}/0.#epoch.0"
    async with connected(ep, authority=authority) as peer:
        answer = c.NoSuchSegment if is_hers else c.AuthTokenCheckFailed
        for command in (set_up(token, segment), c.ReadSegment(segment, 0, 100, token, 7)):
            await peer.ask(command, answer)


async def test_a_large_frame_is_taken_only_after_a_token_that_is_right(ep: Eventproc) -> None:
    authority = await loaded(ep)
    large = b"x" * (FREE_FRAME_BYTES + 1)
    async with connected(ep, authority=authority) as peer:
        await peer.ask(set_up("x.y.z"), c.AuthTokenCheckFailed)
        await peer.send(block(large, last=0))
        assert isinstance(await peer.wait_ended(), MalformedFrame)
    async with connected(ep, authority=authority) as peer:
        await peer.ask(set_up(await token_for(ep, authority)), c.AppendSetup)
        await peer.ask(block(large, last=0), c.DataAppended)


async def test_large_events_and_tables_need_tokens_too(ep: Eventproc) -> None:
    authority = await loaded(ep)
    token, table = await token_for(ep, authority), "s/t/0.#epoch.0"
    async with connected(ep, authority=authority) as peer:
        await peer.ask(c.CreateTransientSegment(1, WRITER, SEGMENT, ""), c.AuthTokenCheckFailed)
        made = await peer.ask(c.CreateTransientSegment(1, WRITER, SEGMENT, token), c.SegmentCreated)
        await peer.ask(c.MergeSegments(2, SEGMENT, made.segment, ""), c.AuthTokenCheckFailed)
        await peer.ask(c.MergeSegments(2, OTHER, made.segment, token), c.AuthTokenCheckFailed)
        await peer.ask(c.CreateTableSegment(3, table, ""), c.AuthTokenCheckFailed)
        await peer.ask(c.CreateTableSegment(3, table, token), c.SegmentCreated)
        await peer.ask(c.ReadTable(4, "readers_kvtable", token, ()), c.AuthTokenCheckFailed)


async def test_each_command_is_answered_to_those_who_are_permitted_on_its_stream_and_nobody_else() -> None:
    """Try each command with the token that each user gets for its stream, and for the stream of another scope."""
    wrong: list[object] = []
    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        for scope in SCOPES:
            await ep.create_scope(scope)
            await ep.create_stream(f"{scope}/t")
        users_tokens = await add_users(ep)
        authority = await loaded(ep)
        async with connected(ep, authority=authority):  # its server owns the segments of all that follow
            for user, user_token in users_tokens.items():
                caller = await authority.authenticate(f"Bearer {user_token}")
                tokens = {scope: token_of(authority, caller, f"{scope}/t") for scope in SCOPES}
                assert {scope for scope in SCOPES if tokens[scope]} == {
                    scope for scope in SCOPES if may(user, READ, f"{scope}/t")
                }
                for (kind, row), scope, given in product(WIRE.items(), SCOPES, SCOPES):
                    needed = UPDATE if row == OF_WRITER else row
                    allowed = row == NOTHING or (
                        scope == given and isinstance(needed, Permission) and may(user, needed, f"{scope}/t")
                    )
                    if await is_answered(ep, authority, kind, f"{scope}/t", tokens[given]) is not allowed:
                        wrong.append((kind.__name__, user, scope, given))
    assert wrong == []


def token_of(authority: Authority, caller: Caller, resource: str) -> str:
    try:
        return authority.delegation_token(caller, resource)
    except NotPermitted:
        return ""


async def is_answered(
    ep: Eventproc, authority: Authority, kind: type[Message], stream: str, token: str
) -> bool:
    """Return whether a connection of its own answers a command with anything but a refusal."""
    segment, data = f"{stream}/0.#epoch.0", framed(b"x")
    async with connected(ep, authority=authority) as peer:
        if WIRE[kind] == OF_WRITER:
            await peer.send(set_up(token, segment))
            await peer.take()
        match kind:
            case c.AppendBlock:
                await peer.send(c.AppendBlock(WRITER, data), c.AppendBlockEnd(WRITER, len(data), b"", 1, 0))
            case c.AppendBlockEnd:
                await peer.send(block(b"x", last=0))
            case c.ConditionalAppend:
                await peer.send(c.ConditionalAppend(WRITER, 0, 0, data))
            case c.ConditionalBlockEnd:
                await peer.send(c.ConditionalBlockEnd(WRITER, 0, 0, data, 1))
            case _:
                await peer.send(command_of(kind, segment, token))
        if (
            WIRE[kind] == NOTHING
        ):  # if it has no answer, the next one is the refusal of this call, whose id is 1
            await peer.send(set_up("", segment))
        try:
            reply = await peer.take()
        except anyio.IncompleteRead:
            assert isinstance(peer.ended, MalformedFrame), peer.ended
            return False
        return not isinstance(reply, c.AuthTokenCheckFailed) or reply.request_id == 1
