"""The groups of one scope, for their members: joining, heartbeats, commits, and what administrators ask.

A server knows nothing of a group but what is stored: what it answers is written before. So members may ask another
server of the same store, or this one after it was killed, and go on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from eventproc.base.bounded_cache import BoundedCache
from eventproc.base.clock import new_id
from eventproc.groups.kafka_groups import (
    change_members,
    ensure_kafka_group,
    present_members,
    store_commits,
    verify_committer,
    write_heard,
)
from eventproc.groups.names import group_name
from eventproc.server.access.authority import Caller, NotPermitted
from eventproc.server.kafka import group_calls as g
from eventproc.server.kafka.calls import TopicPlace
from eventproc.server.kafka.codec.groups import CONSUMER, partitions_of
from eventproc.server.kafka.kafka_errors import (
    GROUP_REFUSALS,
    REFUSALS,
    KafkaCode,
    KafkaRefusal,
    code_of,
    group_code_of,
)
from eventproc.server.kafka.sasl import Identity
from eventproc.server.kafka.served_topics import ServedTopics
from eventproc.store.access.permissions import Permission
from eventproc.store.database import Database, Tx
from eventproc.store.groups import (
    GROUP,
    KAFKA,
    GroupRecord,
    KafkaCommit,
    SegmentKey,
    committed_progress,
    delete_group,
    find_members,
    forget_progress,
    forget_said,
    group_names,
    has_lapsed,
    hear_all,
    is_kafka_group,
    last_heard,
    pending_keys,
    read_notes,
    watch_members,
)
from eventproc.store.model.errors import NotFound
from eventproc.store.model.group_errors import GroupNotEmpty
from eventproc.store.model.ids import number_of
from eventproc.store.model.kafka_rounds import (
    NO_MEMBERS,
    KafkaMember,
    KafkaMembers,
    KafkaPhase,
    assign,
    awaits_join,
    end_if_due,
    has_joined,
    join,
    leave,
    left_ms,
    note_owned,
    overdue,
    replace_instance,
    verify_member,
)
from eventproc.store.records import Versioned, find

SESSION_MS_MIN: Final = 1_000
"""Shortest session of a member. With a shorter one a busy machine would be enough to expire it."""

SESSION_MS_MAX: Final = 1_800_000
"""Longest session, as in Kafka: for so long the partitions of a dead member are not consumed."""

LOOK_MS: Final = 1_000
"""How often a member that waits for a round looks whether others have fallen silent. Each look is one read."""

BEATS_IN_SESSION: Final = 3
"""How often within its session it is stored that a member was heard."""

NOTE_BYTES_MAX: Final = 4_096
"""Bytes that a member may say with a commit, as in Kafka."""

ID_CLIENT_CHARS_MAX: Final = 200
"""Characters of a client's name with which the ids of its members begin."""

IDS_MAX: Final = 10_000
"""Ids that were given to members that have not joined yet. A member whose id was forgotten asks for another one."""

KNOWN_BYTES_MAX: Final = 32 * 2**20
"""What the members of groups that are kept decoded say and were given, in bytes. Higher: more memory; lower: heartbeats
of large groups cost milliseconds."""

KNOWN_MEMBER_BYTES: Final = 1_024
"""What a member that is kept decoded counts beside that."""

OWNED_MAX: Final = 10_000
"""Partitions of a group whose owners are noted. Each is in the record of the group's members."""

BRIEF_COMMITS_MAX: Final = 8
"""Partitions of a commit that is written on the event loop if nothing else waits."""

STATES: Final[dict[KafkaPhase, str]] = {
    "empty": "Empty",
    "joining": "PreparingRebalance",
    "syncing": "CompletingRebalance",
    "stable": "Stable",
}
"""What a group does, by Kafka's names."""

_Offsets: TypeAlias = list[tuple[str, KafkaCode, list[g.CommittedOffset]]]
"""What was committed in some groups, or why that is not said."""


class _Found(NamedTuple):
    """The members of a group as they are stored. reset: of the group, which none that was deleted shares."""

    reset: int
    members: Versioned[KafkaMembers]


class _Look(NamedTuple):
    """The members of a group. wait_ms: when to look again. is_due: a round is over, or what was heard is not stored."""

    members: KafkaMembers
    wait_ms: int
    is_due: bool = False


def _size_bytes(found: _Found) -> int:
    members = found.members.value
    return members.size_bytes + (len(members.members) + 1) * KNOWN_MEMBER_BYTES


class KafkaGroups:
    """The groups of the scope of these topics, for all connections of one server."""

    def __init__(self, db: Database, topics: ServedTopics) -> None:
        self._db = db
        self._topics = topics
        self._ids = BoundedCache[str, bool](IDS_MAX)
        self._known = BoundedCache[str, _Found](KNOWN_BYTES_MAX, _size_bytes)

    async def hear_all(self) -> None:
        """Give every member a full session, and every round its full time: while no server ran, none was heard."""
        await self._db.write(partial(hear_all, scope=self._topics.scope))

    async def join(self, call: g.JoinGroup, who: Identity, client: str, host: str) -> g.JoinAnswer:
        """Let a member join a round, and return the round when it is complete. who: returns the caller as it is now."""
        member_id = call.member_id or self._new_member_id(client)
        try:
            name = self.name(await who(), Permission.READ_UPDATE, call.group)
            if not SESSION_MS_MIN <= call.session_ms <= SESSION_MS_MAX or call.round_ms <= 0:
                raise KafkaRefusal(KafkaCode.INVALID_SESSION_TIMEOUT, f"a session of {call.session_ms} ms")
            if not call.member_id and call.instance is None and call.takes_id:
                self._ids.keep(member_id, True)
                return g.JoinAnswer(KafkaCode.MEMBER_ID_REQUIRED, member_id)
            return await self._join(name, call, who, member_id, client, host)
        except GROUP_REFUSALS as why:
            return g.JoinAnswer(group_code_of(why), call.member_id)

    def _new_member_id(self, client: str) -> str:
        begin = "".join(each for each in client[:ID_CLIENT_CHARS_MAX] if each.isprintable())
        return f"{begin or 'client'}-{new_id(self._db.clock)}"

    async def _join(
        self, name: str, call: g.JoinGroup, who: Identity, member_id: str, client: str, host: str
    ) -> g.JoinAnswer:
        joiner = KafkaMember(
            client=client,
            host=host,
            session_ms=call.session_ms,
            round_ms=call.round_ms,
            protocols=call.protocols,
            instance=call.instance,
        )
        may_be_new = not call.member_id or self._ids.find(member_id) is not None
        replaced: list[str] = []

        def write(tx: Tx) -> _Look:
            replaced.clear()  # it may run again

            def step(state: KafkaMembers) -> KafkaMembers:
                holder = state.of_instance(call.instance)
                if holder is not None and not call.member_id:
                    replaced[:] = [holder]
                    return replace_instance(state, call.kind, holder, member_id, joiner, tx.monotonic_ms)
                if not may_be_new or holder is not None:
                    verify_member(state, member_id, call.instance)
                return join(state, call.kind, member_id, joiner, tx.monotonic_ms)

            ensure_kafka_group(tx, name)
            return _seen(tx, change_members(tx, name, step))

        with self._db.subscribe([watch_members(name)]) as changes:
            found = await self._db.write(write)
            self._ids.forget(member_id)
            while has_joined(found.members, member_id):
                await changes.wait(found.wait_ms)
                # The grant may have been revoked meanwhile.
                (await who()).verify(Permission.READ_UPDATE, name)
                found = await self._look(name, member_id, beats=False)
        members = found.members
        verify_member(members, member_id, call.instance)
        leader = members.leader or ""
        if members.phase == "stable" and leader == member_id:
            leader = replaced[0] if replaced else ""  # there was no round to lead
        return g.JoinAnswer(KafkaCode.NONE, member_id, members, leader)

    async def _look(self, name: str, member_id: str, *, beats: bool) -> _Look:
        """Return the members as they are when what is due was written. beats: also that this member was heard."""
        known = self._known.find(name)
        stored, found = await self._db.read(
            partial(self._look_at, name=name, member_id=member_id, beats=beats, known=known)
        )
        if stored is not None and stored is not known:
            self._known.keep(name, stored)
        return await self._write_due(name, member_id, beats=beats) if found.is_due else found

    def _look_at(
        self, tx: Tx, name: str, member_id: str, known: _Found | None, *, beats: bool
    ) -> tuple[_Found | None, _Look]:
        stored = _find(tx, name, known)
        members = NO_MEMBERS if stored is None else stored.members.value
        if not members.members:
            return stored, _Look(members, LOOK_MS)
        now_ms = tx.monotonic_ms
        shortest_ms = min(each.session_ms for each in members.members.values())
        heard = last_heard(tx, name, now_ms - shortest_ms // BEATS_IN_SESSION)
        is_due = (
            end_if_due(members, now_ms) is not members
            or bool(overdue(members, heard, now_ms) - {member_id})
            or (beats and member_id in heard)
        )
        return stored, _seen(tx, members, is_due=is_due)

    async def _write_due(self, name: str, member_id: str, *, beats: bool) -> _Look:
        def write(tx: Tx) -> _Look:
            if beats:
                write_heard(tx, name, member_id)
            return _seen(tx, change_members(tx, name))

        return await self._db.write(write)

    async def sync(self, call: g.SyncGroup, who: Identity) -> tuple[KafkaCode, KafkaMembers, bytes]:
        """Take what the leader assigns, and return what the member was given, when that is known. who: as of `join`."""
        try:
            return await self._sync(call, who)
        except GROUP_REFUSALS as why:
            return group_code_of(why), NO_MEMBERS, b""

    async def _sync(self, call: g.SyncGroup, who: Identity) -> tuple[KafkaCode, KafkaMembers, bytes]:
        seat, caller = call.seat, await who()
        name = self.name(caller, Permission.READ_UPDATE, seat.group)
        with self._db.subscribe([watch_members(name)]) as changes:
            found = await self._look(name, seat.member_id, beats=True)
            while True:
                members = found.members
                verify_member(members, seat.member_id, seat.instance, seat.generation)
                if members.phase == "joining":
                    return KafkaCode.REBALANCE_IN_PROGRESS, members, b""
                if members.phase == "stable":
                    return KafkaCode.NONE, members, members.members[seat.member_id].assignment
                if members.leader == seat.member_id:
                    found = await self._db.write(partial(self._assign, name=name, call=call, caller=caller))
                else:
                    await changes.wait(found.wait_ms)
                    caller = await who()
                    caller.verify(Permission.READ_UPDATE, name)
                    found = await self._look(name, seat.member_id, beats=True)

    def _assign(self, tx: Tx, name: str, call: g.SyncGroup, caller: Caller) -> _Look:
        seat = call.seat

        def step(state: KafkaMembers) -> KafkaMembers:
            verify_member(state, seat.member_id, seat.instance, seat.generation)
            after = assign(state, seat.member_id, call.assignments)
            return state if after is state else note_owned(after, self._owned(tx, after, caller))

        return _seen(tx, change_members(tx, name, step))

    def _owned(self, tx: Tx, state: KafkaMembers, caller: Caller) -> dict[str, tuple[tuple[str, int], ...]]:
        """Return the partitions that each member was given, as far as there is room for them.

        Without those that do not exist, and those that the leader may not read: a group holds up the retention of what
        it has.
        """
        if state.kind != CONSUMER:
            return {}
        room, topics = OWNED_MAX, dict[str, tuple[str, int]]()
        owned = {}
        for name, member in state.members.items():
            places = partitions_of(member.assignment)
            if (room := room - len(places)) < 0:
                break
            for topic in {each.topic for each in places} - topics.keys():
                topics[topic] = self._extent(tx, topic, caller)
            owned[name] = tuple(
                (topics[each.topic][0], each.partition)
                for each in places
                if 0 <= each.partition < topics[each.topic][1]
            )
        return owned

    def _extent(self, tx: Tx, topic: str, caller: Caller) -> tuple[str, int]:
        """Return the full name of a topic and its number of partitions, 0 without one that the caller may read."""
        try:
            self._topics.verify(caller, Permission.READ, topic)
            found = self._topics.get(tx, topic)
        except (NotFound, NotPermitted, KafkaRefusal):
            return topic, 0
        return found.stream, len(found.segments)

    async def heartbeat(self, call: g.GroupHeartbeat, caller: Caller) -> KafkaCode:
        """Note that a member is alive; return whether it has to join a round."""
        seat = call.seat
        try:
            name = self.name(caller, Permission.READ_UPDATE, seat.group)
            members = (await self._look(name, seat.member_id, beats=True)).members
            verify_member(members, seat.member_id, seat.instance, seat.generation)
        except GROUP_REFUSALS as why:
            return group_code_of(why)
        return KafkaCode.REBALANCE_IN_PROGRESS if awaits_join(members, seat.member_id) else KafkaCode.NONE

    async def leave(self, call: g.LeaveGroup, caller: Caller) -> list[tuple[g.GroupSeat, KafkaCode]]:
        """Let members leave; return each with whether it has."""
        return [(seat, await self._refused(partial(self._leave, seat, caller))) for seat in call.seats]

    async def _leave(self, seat: g.GroupSeat, caller: Caller) -> None:
        name = self.name(caller, Permission.READ_UPDATE, seat.group)

        def write(tx: Tx) -> None:
            def step(state: KafkaMembers) -> KafkaMembers:
                member = seat.member_id or state.of_instance(seat.instance) or ""
                verify_member(state, member, seat.instance)
                return leave(state, [member], tx.monotonic_ms)

            change_members(tx, name, step)

        await self._db.write(write)

    async def commit_offsets(self, call: g.OffsetCommit, caller: Caller) -> list[g.PlaceAnswer]:
        """Store what a member has processed; return what became of each partition."""
        try:
            name = self.name(caller, Permission.READ_UPDATE, call.seat.group)
            write = partial(self._commit, name=name, call=call, caller=caller)
            return await self._db.write(write, brief=len(call.commits) <= BRIEF_COMMITS_MAX)
        except GROUP_REFUSALS as why:
            return [g.PlaceAnswer(each.place, group_code_of(why)) for each in call.commits]

    def _commit(self, tx: Tx, name: str, call: g.OffsetCommit, caller: Caller) -> list[g.PlaceAnswer]:
        answers, commits = self.read_commits(tx, name, call, caller)
        if call.seat.generation in (None, -1):  # admin clients reset groups so
            forget_said(tx, name, {each.key for each in commits})
        store_commits(tx, name, commits)
        return answers

    def read_commits(
        self, tx: Tx, name: str, call: g.OffsetCommit, caller: Caller, *, is_transactional: bool = False
    ) -> tuple[list[g.PlaceAnswer], list[KafkaCommit]]:
        """Return the commits that the client may make, and what becomes of each partition. Raises MemberRefused."""
        seat, commits, answers = call.seat, list[KafkaCommit](), list[g.PlaceAnswer]()
        generation = -1 if seat.generation is None else seat.generation
        if seat.instance is not None and generation >= 0:  # librdkafka names it without membership, too
            found = _find(tx, name, self._known.find(name))
            members = NO_MEMBERS if found is None else found.members.value
            verify_member(members, seat.member_id, seat.instance)
        for place, number, note in call.commits:
            code = KafkaCode.NONE
            try:
                stream, key = self._partition(tx, caller, place)
            except REFUSALS as why:
                code = code_of(why)
            else:
                if len(note.encode()) > NOTE_BYTES_MAX:
                    code = KafkaCode.OFFSET_METADATA_TOO_LARGE
                else:
                    commits.append(KafkaCommit(stream, key, number, note))
            answers.append(g.PlaceAnswer(place, code))
        if commits:  # otherwise there is nothing for which a group would be created
            verify_committer(
                *(tx, name),
                member_id=seat.member_id or seat.instance or "",
                generation=generation,
                is_transactional=is_transactional,
            )
        return answers, commits

    def _partition(self, tx: Tx, caller: Caller, place: TopicPlace) -> tuple[str, SegmentKey]:
        self._topics.verify(caller, Permission.READ, place.topic)
        topic = self._topics.get(tx, place.topic)
        return topic.stream, (topic.stream_id, topic.segment(place))

    async def committed(self, call: g.OffsetFetch, caller: Caller) -> _Offsets:
        """Return what was committed in some groups."""
        look = partial(self._all_committed, call=call, caller=caller)

        def look_once(tx: Tx) -> tuple[bool, _Offsets]:
            names = (f"{self._topics.scope}/{group}" for group, _ in call.wanted)
            return call.needs_stable and any(has_lapsed(tx, each) for each in names), look(tx)

        may_change, found = await self._db.read(look_once)
        # A write comes behind an end that waits for its COMMIT, or before one that is refused.
        return await self._db.write(look) if may_change else found

    def _all_committed(self, tx: Tx, call: g.OffsetFetch, caller: Caller) -> _Offsets:
        found: _Offsets = []
        for group, places in call.wanted:
            code, offsets = KafkaCode.NONE, list[g.CommittedOffset]()
            try:
                name = self.name(caller, Permission.READ, group)
                offsets = self._committed(tx, name, places, caller, needs_stable=call.needs_stable)
            except GROUP_REFUSALS as why:
                code = group_code_of(why)
                offsets = [g.CommittedOffset(each, code) for each in places or ()]
            found.append((group, code, offsets))
        return found

    def _committed(
        self,
        tx: Tx,
        name: str,
        places: Sequence[TopicPlace] | None,
        caller: Caller,
        *,
        needs_stable: bool,
    ) -> list[g.CommittedOffset]:
        unstable = pending_keys(tx, name) if needs_stable else ()
        record = find(tx, GROUP, name)
        progress = committed_progress(tx, name) if record is not None and record.value.kind == KAFKA else {}
        wants_all, notes = places is None, read_notes(tx, name)
        if places is None:
            places = self._committed_places(record, progress, caller)
        answers = []
        for place in places:
            try:
                _, (stream_id, segment) = self._partition(tx, caller, place)
            except NotFound:  # as of a partition in which nothing was committed
                answers.append(g.CommittedOffset(place, KafkaCode.NONE))
                continue
            except REFUSALS as why:
                answers.append(g.CommittedOffset(place, code_of(why)))
                continue
            if (stream_id, segment) in unstable:
                answers.append(g.CommittedOffset(place, KafkaCode.UNSTABLE_OFFSET_COMMIT))
            elif (done := progress.get((stream_id, segment))) is None:
                answers.append(g.CommittedOffset(place, KafkaCode.NONE))
            else:
                note = notes.get((stream_id, segment), "")
                answers.append(g.CommittedOffset(place, KafkaCode.NONE, done.number, note))
        if wants_all:  # without those of topics that were deleted, or created again
            return [each for each in answers if each.number >= 0 or each.code is not KafkaCode.NONE]
        return answers

    async def forget_offsets(
        self, call: g.OffsetDelete, caller: Caller
    ) -> tuple[KafkaCode, list[g.PlaceAnswer]]:
        """Let nothing be committed in some partitions of a group without members."""
        try:
            name = self.name(caller, Permission.READ_UPDATE, call.group)
            write = partial(self._forget, name=name, call=call, caller=caller)
            return KafkaCode.NONE, await self._db.write(write)
        except GROUP_REFUSALS as why:
            return group_code_of(why), []

    def _forget(self, tx: Tx, name: str, call: g.OffsetDelete, caller: Caller) -> list[g.PlaceAnswer]:
        self._verify_exists(tx, name)
        subscribed = bool(change_members(tx, name).members)
        answers, keys = [], []
        for place in call.places:
            code = KafkaCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else KafkaCode.NONE
            try:
                keys.append(self._partition(tx, caller, place)[1])
            except REFUSALS as why:
                code = code_of(why)
            answers.append(g.PlaceAnswer(place, code))
        if not subscribed:
            forget_progress(tx, name, keys)
        return answers

    async def describe_groups(self, call: g.DescribeGroups, caller: Caller) -> list[g.GroupAnswer]:
        """Return groups with their members. One that does not exist is dead."""
        return await self._db.read(partial(self._describe_all, call=call, caller=caller))

    def _describe_all(self, tx: Tx, call: g.DescribeGroups, caller: Caller) -> list[g.GroupAnswer]:
        answers = []
        for group in call.groups:
            try:
                name = self.name(caller, Permission.READ, group)
                answers.append(self._describe(tx, name, group))
            except GROUP_REFUSALS as why:
                answers.append(g.GroupAnswer(group, group_code_of(why)))
        return answers

    def _describe(self, tx: Tx, name: str, group: str) -> g.GroupAnswer:
        if not is_kafka_group(tx, name):
            return g.GroupAnswer(group, KafkaCode.NONE)
        members = present_members(tx, name)
        return g.GroupAnswer(group, KafkaCode.NONE, STATES[members.phase], members)

    async def list_groups(self, call: g.ListGroups, caller: Caller) -> list[g.GroupAnswer]:
        """Return the groups that the caller may read."""
        return await self._db.read(partial(self._list, call=call, caller=caller))

    def _list(self, tx: Tx, call: g.ListGroups, caller: Caller) -> list[g.GroupAnswer]:
        found = [
            self._describe(tx, name, name.partition("/")[2])
            for name in group_names(tx, self._topics.scope, kinds=[KAFKA])
            if caller.may(Permission.READ, name)
        ]
        return [each for each in found if not call.states or each.state in call.states]

    async def delete_groups(self, call: g.DeleteGroups, caller: Caller) -> dict[str, KafkaCode]:
        """Delete groups without members."""
        return {group: await self._refused(partial(self._delete, group, caller)) for group in call.groups}

    async def _delete(self, group: str, caller: Caller) -> None:
        name = self.name(caller, Permission.READ_UPDATE, group)

        def write(tx: Tx) -> None:
            self._verify_exists(tx, name)
            if members := change_members(tx, name).members:
                raise GroupNotEmpty(group=name, event="deletion", readers=tuple(members))
            delete_group(tx, name)

        await self._db.write(write)

    async def _refused(self, act: Callable[[], Awaitable[None]]) -> KafkaCode:
        try:
            await act()
        except GROUP_REFUSALS as why:
            return group_code_of(why)
        return KafkaCode.NONE

    def _verify_exists(self, tx: Tx, name: str) -> None:
        if not is_kafka_group(tx, name):
            raise NotFound(kind="group", name=name)

    def _committed_places(
        self, group: Versioned[GroupRecord] | None, keys: Iterable[SegmentKey], caller: Caller
    ) -> list[TopicPlace]:
        """Return the partitions of these segments, as far as the caller may read them."""
        streams = {} if group is None else {each.stream_id: each.name for each in group.value.streams}
        return [
            TopicPlace(streams[stream_id].partition("/")[2], number_of(segment))
            for stream_id, segment in keys
            if stream_id in streams and caller.may(Permission.READ, streams[stream_id])
        ]

    def name(self, caller: Caller, permission: Permission, group: str) -> str:
        """Return the full name of a group. Raises NotPermitted, InvalidArgument."""
        name = group_name(f"{self._topics.scope}/{group}")
        caller.verify(permission, name)
        return name


def _find(tx: Tx, name: str, known: _Found | None) -> _Found | None:
    """Return the members of a group. known: what was found before, which is returned if it is still so."""
    group = find(tx, GROUP, name)
    if group is None:
        return None
    reset = group.value.reset
    before = known.members if known is not None and known.reset == reset else None
    found = find_members(tx, name, before)
    if found is None:
        return None
    return known if known is not None and found is before else _Found(reset, found)


def _seen(tx: Tx, members: KafkaMembers, *, is_due: bool = False) -> _Look:
    left = left_ms(members, tx.monotonic_ms)
    return _Look(members, LOOK_MS if left is None else min(left, LOOK_MS), is_due)
