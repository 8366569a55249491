"""Tests of the rounds of a group of Kafka's clients, beside a naive twin that remembers members and joins only."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st

from eventproc.store.model.kafka_rounds import (
    FIRST_ROUND_MS,
    MEMBERS_BYTES_MAX,
    MEMBERS_MAX,
    NO_MEMBERS,
    KafkaMember,
    KafkaMembers,
    MemberProblem,
    MemberRefused,
    assign,
    awaits_join,
    end_if_due,
    give_time,
    join,
    leave,
    left_ms,
    note_owned,
    overdue,
    replace_instance,
    verify_member,
)

KIND = "consumer"
ROUND_MS = 5_000


def member(
    said: bytes = b"a", *, instance: str | None = None, names: tuple[str, ...] = ("range",)
) -> KafkaMember:
    protocols = tuple((name, said) for name in names)
    return KafkaMember(
        client="c", host="h", session_ms=10_000, round_ms=ROUND_MS, protocols=protocols, instance=instance
    )


def stable(*names: str) -> KafkaMembers:
    """Return a group of these members that consume. The first one leads."""
    state = NO_MEMBERS
    for name in names:
        state = join(state, KIND, name, member(), 0)
    state = end_if_due(state, FIRST_ROUND_MS)
    state = assign(state, names[0], {name: name.encode() for name in names})
    return note_owned(state, {name: (("s/t", at),) for at, name in enumerate(names)})


class NaiveGroup:
    """Remembers the members, those that have joined the round, and whether a round is under way."""

    def __init__(self) -> None:
        self.members: dict[str, bytes] = {}
        self.joined: set[str] = set()
        self.phase = "empty"
        self.rounds = 0
        self.ends_ms = 0
        self.is_first = False

    def join(self, name: str, said: bytes, leader: str | None, now_ms: int) -> None:
        repeats = self.members.get(name) == said
        if repeats and (self.phase == "syncing" or (self.phase == "stable" and name != leader)):
            return
        self.members[name] = said
        if self.phase == "joining":
            self.joined.add(name)
        else:
            self.begin(now_ms, {name})
        self.end_if_all_joined()

    def begin(self, now_ms: int, joined: set[str]) -> None:
        self.is_first = self.phase == "empty"
        self.phase, self.joined = "joining", joined
        self.ends_ms = now_ms + (FIRST_ROUND_MS if self.is_first else ROUND_MS)

    def end_if_all_joined(self) -> None:
        if not self.is_first and self.joined == set(self.members):
            self.end()

    def end(self) -> None:
        self.members = {name: said for name, said in self.members.items() if name in self.joined}
        self.rounds += 1
        self.phase, self.is_first = ("syncing" if self.members else "empty"), False

    def leave(self, name: str, now_ms: int) -> None:
        if self.members.pop(name, None) is None:
            return
        self.joined.discard(name)
        if not self.members:
            self.phase, self.rounds, self.is_first = "empty", self.rounds + 1, False
        elif self.phase == "joining":
            self.end_if_all_joined()
        else:
            self.begin(now_ms, set())


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["join", "join", "join", "leave", "wait", "assign"]),
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from([b"1", b"2"]),
        st.sampled_from([1, FIRST_ROUND_MS, ROUND_MS]),
    ),
    max_size=30,
)


@given(STEPS)
def test_a_group_has_the_members_and_rounds_of_its_naive_twin(
    steps: list[tuple[str, str, bytes, int]],
) -> None:
    state, naive, now_ms = NO_MEMBERS, NaiveGroup(), 0
    for what, name, said, wait_ms in steps:
        before = state
        match what:
            case "join":
                naive.join(name, said, state.leader, now_ms)
                state = join(state, KIND, name, member(said), now_ms)
            case "leave":
                naive.leave(name, now_ms)
                state = leave(state, [name], now_ms)
            case "wait":
                now_ms += wait_ms
                if naive.phase == "joining" and now_ms >= naive.ends_ms:
                    naive.end()
                state = end_if_due(state, now_ms)
            case _:
                if naive.phase == "syncing" and name == state.leader:
                    naive.phase = "stable"
                state = assign(state, name, {each: each.encode() for each in state.members})
        assert (state.phase, state.generation) == (naive.phase, naive.rounds)
        assert {
            each: dict(found.protocols)["range"] for each, found in state.members.items()
        } == naive.members
        if state.phase == "joining":
            assert {each for each in state.members if not awaits_join(state, each)} == naive.joined
            assert left_ms(state, now_ms) == max(naive.ends_ms - now_ms, 0)
        else:
            assert left_ms(state, now_ms) is None
        if state.phase in ("syncing", "stable"):
            assert state.leader in state.members
            assert state.protocol == "range"
        if state.phase == "stable":
            assert all(found.assignment == each.encode() for each, found in state.members.items())
        assert state.generation >= before.generation


@given(STEPS)
def test_a_group_is_stable_again_when_all_members_join_and_their_leader_assigns(
    steps: list[tuple[str, str, bytes, int]],
) -> None:
    state, now_ms = join(NO_MEMBERS, KIND, "a", member(), 0), 0
    for what, name, said, wait_ms in steps:
        if what == "join":
            state = join(state, KIND, name, member(said), now_ms)
        elif what == "leave" and len(state.members) > 1:
            state = leave(state, [name], now_ms)
        elif what == "wait":
            now_ms += wait_ms
            state = end_if_due(state, now_ms)
    for name in [*state.members, *state.members]:
        if name in state.members:
            state = join(state, KIND, name, member(b"last"), now_ms)
    state = end_if_due(state, now_ms + FIRST_ROUND_MS)
    if not state.members:
        return
    assert state.phase in ("syncing", "stable")
    state = assign(state, state.leader or "", {})
    assert state.phase == "stable"


def refusal(call: Any, *arguments: Any) -> MemberProblem:
    with pytest.raises(MemberRefused) as refused:
        call(*arguments)
    return refused.value.problem


def test_the_way_to_assign_that_most_members_prefer_is_chosen_among_those_that_all_know() -> None:
    state = join(NO_MEMBERS, KIND, "a", member(names=("sticky", "range", "own")), 0)
    state = join(state, KIND, "b", member(names=("range", "sticky")), 0)
    state = join(state, KIND, "c", member(names=("range", "sticky")), 0)
    assert end_if_due(state, FIRST_ROUND_MS).protocol == "range"


def test_a_member_that_shares_no_way_to_assign_or_does_something_else_is_refused() -> None:
    state = stable("a")
    problem = MemberProblem.INCONSISTENT_GROUP_PROTOCOL
    assert refusal(join, state, KIND, "b", member(names=("own",)), 0) is problem
    assert refusal(join, state, "connect", "b", member(), 0) is problem
    assert refusal(join, NO_MEMBERS, KIND, "b", member(names=()), 0) is problem
    assert refusal(join, NO_MEMBERS, "", "b", member(), 0) is problem
    alone = join(state, "connect", "a", member(names=("own",)), 0)
    assert (alone.kind, alone.phase) == ("connect", "syncing")


def test_a_group_is_bounded_in_members_and_in_what_they_say() -> None:
    full = attrs.evolve(stable("a"), members={str(each): member() for each in range(MEMBERS_MAX)})
    assert refusal(join, full, KIND, "b", member(), 0) is MemberProblem.GROUP_MAX_SIZE_REACHED
    long = "n" * MEMBERS_BYTES_MAX
    for each in (
        member(bytes(MEMBERS_BYTES_MAX)),
        member(names=("range", long)),
        attrs.evolve(member(), client=long),
        member(instance=long),
    ):
        assert refusal(join, stable("a"), KIND, "b", each, 0) is MemberProblem.GROUP_MAX_SIZE_REACHED
    assert refusal(join, NO_MEMBERS, long, "b", member(), 0) is MemberProblem.GROUP_MAX_SIZE_REACHED
    syncing = end_if_due(join(NO_MEMBERS, KIND, "a", member(), 0), FIRST_ROUND_MS)
    too_much = {"a": bytes(MEMBERS_BYTES_MAX + 1)}
    assert refusal(assign, syncing, "a", too_much) is MemberProblem.GROUP_MAX_SIZE_REACHED


def test_a_member_of_another_round_or_none_is_refused() -> None:
    state = stable("a", "b")
    verify_member(state, "a", None, 1)
    assert refusal(verify_member, state, "a", None, 0) is MemberProblem.ILLEGAL_GENERATION
    assert refusal(verify_member, state, "z", None, 1) is MemberProblem.UNKNOWN_MEMBER_ID


def test_a_client_with_a_name_of_its_own_gets_back_what_it_had_without_a_round() -> None:
    state = join(NO_MEMBERS, KIND, "a", member(instance="one"), 0)
    state = join(state, KIND, "b", member(), 0)
    state = assign(end_if_due(state, FIRST_ROUND_MS), "a", {"a": b"mine"})
    state = note_owned(state, {"a": (("s/t", 0),)})
    back = replace_instance(state, KIND, "a", "a2", member(instance="one"), 9)
    assert (back.phase, back.generation, back.leader) == ("stable", 1, "a2")
    assert back.members["a2"].assignment == b"mine"
    assert back.owners == {("s/t", 0): "a2"}
    assert refusal(verify_member, back, "a", "one") is MemberProblem.FENCED_INSTANCE_ID
    other = replace_instance(state, KIND, "a", "a2", member(b"other", instance="one"), 9)
    assert (other.phase, set(other.members)) == ("joining", {"a2", "b"})


def test_a_client_with_a_name_of_its_own_stays_a_member_of_rounds_until_its_session_ends() -> None:
    state = join(NO_MEMBERS, KIND, "a", member(instance="one"), 0)
    state = join(state, KIND, "b", member(), 0)
    state = assign(end_if_due(state, FIRST_ROUND_MS), "a", {})
    state = join(state, KIND, "b", member(b"other"), 1_000)
    state = end_if_due(state, 1_000 + ROUND_MS)
    assert set(state.members) == {"a", "b"}
    assert (state.phase, state.leader) == ("syncing", "b")


def test_a_silent_member_is_overdue_unless_it_has_joined_a_round_and_waits() -> None:
    state = stable("a", "b")
    assert overdue(state, {"a": 0, "b": 5, "z": 0}, 10_001) == {"a"}
    joining = join(state, KIND, "b", member(b"other"), 20_000)
    assert overdue(joining, {"a": 0, "b": 0}, 20_001) == {"a"}


def test_a_round_does_not_wait_for_longer_than_it_may_after_a_restart_of_the_machine() -> None:
    joining = join(stable("a", "b"), KIND, "b", member(b"other"), 10**9)
    assert left_ms(joining, 5) == ROUND_MS
    first = join(NO_MEMBERS, KIND, "a", member(), 10**9)
    for state, lasts_ms in ((joining, ROUND_MS), (first, FIRST_ROUND_MS)):
        again = end_if_due(state, 5)
        assert (again.phase, left_ms(again, 6)) == ("joining", lasts_ms - 1)
        assert end_if_due(again, 5 + lasts_ms).phase == "syncing"


def test_a_round_during_which_no_server_ran_has_its_full_time_once_more() -> None:
    joining = join(stable("a", "b"), KIND, "b", member(b"other"), 0)
    again = give_time(joining, 10 * ROUND_MS)
    assert left_ms(again, 10 * ROUND_MS) == ROUND_MS
    assert give_time(stable("a"), 5) == stable("a")
