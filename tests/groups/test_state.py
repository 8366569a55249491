"""The state machine against a naive twin, which derives everything from the list of all updates each time."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from eventproc.groups.state import GroupState, apply, begin
from eventproc.groups.stored_state import GROUP_LOG
from eventproc.groups.targets import following
from eventproc.groups.updates import (
    CheckpointPassed,
    CheckpointStarted,
    ReaderJoined,
    ReaderLeft,
    SegmentCompleted,
    SegmentsAcquired,
    SegmentsReleased,
    StartPosition,
    StreamAdded,
    StreamDropped,
    StreamSkipped,
    SubscriptionChanged,
    Update,
)
from eventproc.store.groups import GroupOptions, GroupStream, SegmentKey, SegmentProgress
from eventproc.store.model.epochs import first_epoch, merge_ranges, split_ranges
from eventproc.store.model.history import successors
from eventproc.store.model.ids import SegmentId, number_of
from eventproc.store.model.progress import Progress
from tests.model.support import scaled
from tests.support.list_history import ListHistory

STREAM = GroupStream("s/t", 1)


def random_history(random: Random) -> ListHistory:
    epochs = [first_epoch(random.randint(1, 4), created_ms=0)]
    for _ in range(random.randint(0, 6)):
        ids = epochs[-1].ids
        if random.random() < 0.5 or len(ids) == 1:
            seal, ranges = split_ranges(
                epochs[-1], random.choice(ids), random.randint(2, 3), stream="shop/orders"
            )
        else:
            first = random.randrange(len(ids) - 1)
            seal, ranges = merge_ranges(
                epochs[-1], ids[first : first + random.randint(2, 3)], stream="shop/orders"
            )
        numbers = [number_of(each) for each in seal]
        epochs.append(scaled(epochs[-1], numbers, [(each.low, each.high) for each in ranges]))
    return ListHistory("shop/orders", epochs)


def applied(state: GroupState, update: Update) -> GroupState:
    """Return the state after an entry of the log: the update, and the targets that follow it."""
    after = apply(state, update)
    for each in following(after, [update], 0):
        after = apply(after, each)
    return after


class NaiveGroup:
    """What must be true, worked out from the updates alone."""

    def __init__(self, start: StartPosition) -> None:
        self.start = start
        self.updates: list[Update] = []

    def online(self) -> set[str]:
        joined: set[str] = set()
        for update in self.updates:
            if isinstance(update, ReaderJoined):
                joined.add(update.reader)
            elif isinstance(update, ReaderLeft):
                joined.discard(update.reader)
        return joined

    def owners(self) -> dict[SegmentKey, str]:
        owners: dict[SegmentKey, str] = {}
        for update in self.updates:
            match update:
                case SegmentsAcquired(reader, keys):
                    owners |= dict.fromkeys(keys, reader)
                case SegmentsReleased(_, positions):
                    for key, _ in positions:
                        del owners[key]
                case ReaderLeft(reader):
                    owners = {key: owner for key, owner in owners.items() if owner != reader}
                case SegmentCompleted(_, key):
                    del owners[key]
                case _:
                    pass
        return owners

    def progress(self) -> dict[SegmentKey, Progress]:
        """Where each open segment was handed over last: open are those whose predecessors are all finished."""
        found = {(STREAM.stream_id, segment): progress for segment, progress in self.start.held}
        finished: set[SegmentId] = set()
        known: dict[SegmentId, tuple[SegmentId, ...]] = {}
        for update in self.updates:
            match update:
                case SegmentsReleased(_, positions) | ReaderLeft(_, positions):
                    found |= dict(positions)
                case SegmentCompleted(_, key, following):
                    del found[key]
                    finished.add(key[1])
                    known |= dict(following)
                    for successor, before in following:
                        if finished.issuperset(before):
                            found[STREAM.stream_id, successor] = Progress()
                case _:
                    pass
        return found


class Play:
    """Random readers that do what the machine lets them do, with segments of a random history."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.history: ListHistory = random_history(self.random)
        first = self.history.epoch(self.history.first)
        start = StartPosition(STREAM, tuple((each, Progress()) for each in sorted(first.ids)))
        self.twin = NaiveGroup(start)
        self.state = begin(self.random.randrange(100), [start])
        self.checkpoints = 0

    def run(self, steps: int) -> None:
        for _ in range(steps):
            update = self.choose()
            if update is None:
                continue
            before = self.state
            self.state = applied(before, update)
            self.twin.updates.append(update)
            self.compare(before)

    def compare(self, before: GroupState) -> None:
        state = self.state
        state.check()
        assert state.generation > before.generation
        assert state.members.keys() == self.twin.online()
        owners = {
            key: assignment.owner for key, assignment in state.open.items() if assignment.owner is not None
        }
        assert owners == self.twin.owners()
        assert {key: assignment.progress for key, assignment in state.open.items()} == self.twin.progress()
        for key, assignment in state.open.items():
            old = before.open.get(key)
            if old is not None and old.owner != assignment.owner:
                assert assignment.owner_epoch == before.generation + 1
        encoded = GROUP_LOG.decode("here", GROUP_LOG.encode_snapshot(state))
        assert encoded.state == state  # type: ignore[union-attr]
        encoded = GROUP_LOG.decode("here", GROUP_LOG.encode_updates(self.twin.updates[-1:]))
        assert encoded.updates == tuple(self.twin.updates[-1:])  # type: ignore[union-attr]

    def choose(self) -> Update | None:
        readers = sorted(self.state.members)
        if not readers or self.random.random() < 0.1:
            new = f"r{self.random.randrange(6)}"
            return ReaderJoined(new, "here", 0) if new not in readers else None
        reader = self.random.choice(readers)
        owned = self.state.owned_by(reader)
        if asked := self.state.asked_of(reader):
            if self.random.random() < 0.2:
                return ReaderLeft(reader, self.positions(owned))
            return CheckpointPassed(asked[0], reader, self.positions(owned))
        match self.random.randrange(10):
            case 0:
                return ReaderLeft(reader, self.positions(owned))
            case 1:
                self.checkpoints += 1
                return CheckpointStarted(f"c{self.checkpoints}", 0)
            case 2 | 3 | 4:
                due = self.state.due_to(reader)
                return SegmentsAcquired(reader, due) if due else None
            case 5 | 6:
                surplus = [key for key, assignment in owned.items() if assignment.target != reader]
                return SegmentsReleased(reader, self.positions(surplus)) if surplus else None
            case _:
                return self.complete(owned)

    def complete(self, owned: Iterable[SegmentKey]) -> Update | None:
        ended = [key for key in owned if successors(self.history, key[1])]
        if not ended:
            return None
        key = self.random.choice(ended)
        reader = self.state.open[key].owner
        assert reader is not None
        return SegmentCompleted(reader, key, tuple(successors(self.history, key[1]).items()))

    def positions(self, keys: Iterable[SegmentKey]) -> tuple[SegmentProgress, ...]:
        found = []
        for key in keys:
            number = self.state.open[key].progress.number + self.random.randrange(3)
            found.append((key, Progress(number, number * 10)))
        return tuple(found)


@pytest.mark.hunt(seeds=60)
@pytest.mark.acceptance("K37")
def test_the_machine_says_what_its_updates_mean(seed: int) -> None:
    Play(seed).run(120)


@pytest.mark.hunt(seeds=20)
def test_every_segment_is_read_and_successors_after_their_predecessors(seed: int) -> None:
    play = Play(seed)
    play.run(100)
    while any(successors(play.history, segment) for _, segment in play.state.open):
        if not play.state.members:
            play.state = applied(play.state, ReaderJoined("last", "here", 0))
        for reader in sorted(play.state.members):
            play.state = _advance(play, reader)
            play.state.check()
    last = {(STREAM.stream_id, each) for each in play.history.epoch(play.history.current).ids}
    assert play.state.open.keys() == last
    assert not play.state.waiting


def _advance(play: Play, reader: str) -> GroupState:
    state = play.state
    for name in state.asked_of(reader):
        state = applied(state, CheckpointPassed(name, reader, play.positions(state.owned_by(reader))))
    owned = state.owned_by(reader)
    if surplus := [key for key, assignment in owned.items() if assignment.target != reader]:
        state = applied(
            state, SegmentsReleased(reader, tuple((key, state.open[key].progress) for key in surplus))
        )
    if due := state.due_to(reader):
        state = applied(state, SegmentsAcquired(reader, due))
    for key in state.owned_by(reader):
        if following := successors(play.history, key[1]):
            return applied(state, SegmentCompleted(reader, key, tuple(following.items())))
    return state


def opened(*segments: int) -> GroupState:
    held = tuple((SegmentId(each), Progress()) for each in segments)
    return begin(0, [StartPosition(STREAM, held)])


def key(segment: int) -> SegmentKey:
    return STREAM.stream_id, SegmentId(segment)


@pytest.mark.acceptance("E7", differs="nothing is polled: it is complete with the update that completes it")
def test_a_checkpoint_without_readers_is_complete_immediately() -> None:
    state = applied(opened(0, 1), CheckpointStarted("c", 0))
    assert not state.started
    assert [each.name for each in state.checkpoints] == ["c"]
    assert dict(state.checkpoints[0].positions) == {key(0): Progress(), key(1): Progress()}


@pytest.mark.acceptance(
    "E5", differs="progress is durable by itself: a release passes the checkpoint, and needs none"
)
def test_no_segment_changes_hands_past_a_reader_that_owes_its_position() -> None:
    state = opened(0, 1, 2)
    for reader in "a", "b":
        state = applied(state, ReaderJoined(reader, "here", 0))
    for reader in "a", "b":
        state = applied(state, SegmentsAcquired(reader, state.due_to(reader)))
    state = applied(state, ReaderJoined("d", "here", 0))
    (surplus,) = (each for each in state.owned_by("a") if state.open[each].target == "d")
    state = applied(state, CheckpointStarted("c", 0))
    assert state.asked_of("a") == state.asked_of("b") == state.asked_of("d") == ("c",)
    stands = {each: Progress(each[1] + 1, 10 * each[1] + 10) for each in state.open}
    released = SegmentsReleased("a", ((surplus, stands[surplus]),))
    for early in (
        released,
        SegmentCompleted("a", surplus, ()),
        SegmentsAcquired("d", (surplus,)),
    ):
        with pytest.raises(AssertionError, match="owes its position"):
            applied(state, early)
    for reader in "a", "b", "d":
        assert not state.checkpoints
        said = tuple((each, stands[each]) for each in state.owned_by(reader))
        state = applied(state, CheckpointPassed("c", reader, said))
        if reader == "a":
            state = applied(state, released)  # `a` has answered
            with pytest.raises(AssertionError, match="owes its position"):
                applied(state, SegmentsAcquired("d", (surplus,)))
    assert dict(state.checkpoints[0].positions) == stands, "a position for every segment"
    assert applied(state, SegmentsAcquired("d", (surplus,))).open[surplus].owner == "d"


def test_a_reader_that_leaves_is_not_waited_for() -> None:
    state = applied(opened(0), ReaderJoined("a", "here", 0))
    state = applied(state, SegmentsAcquired("a", state.due_to("a")))
    state = applied(state, CheckpointStarted("c", 0))
    state = applied(state, ReaderLeft("a", ((key(0), Progress(3, 30)),)))
    assert dict(state.checkpoints[0].positions) == {key(0): Progress(3, 30)}


def test_a_skip_keeps_what_it_does_not_move_with_its_owner() -> None:
    state = applied(opened(0, 1), ReaderJoined("a", "here", 0))
    state = applied(state, SegmentsAcquired("a", state.due_to("a")))
    there = StartPosition(STREAM, ((SegmentId(1), Progress()), (SegmentId(2), Progress(5, 50))))
    after = applied(state, StreamSkipped(there, (SegmentId(1),), 4))
    assert after.open.keys() == {key(1), key(2)}
    assert after.open[key(1)] == state.open[key(1)]
    assert (after.open[key(2)].owner, after.open[key(2)].target) == (None, "a")
    after.check()


def test_entries_written_before_a_field_was_added_are_read_with_its_default() -> None:
    completed = b'1:{"updates":[{"completed":{"reader":"a","key":[1,0],"successors":[[1,[0]]]}}]}'
    joined = b'1:{"updates":[{"joined":{"reader":"a","instance":"here","joined_ms":5}}]}'
    snapshot = (
        b'1:{"init":{"generation":4,"streams":[{"name":"s/t","stream_id":1}],"assignments":'
        b'[{"stream_id":1,"segment":0,"progress":{},"owner":"a","owner_epoch":3,"target":"a"}],'
        b'"members":{"a":{"instance":"here","epoch":2,"joined_ms":5}}}}'
    )
    entry = GROUP_LOG.decode("here", completed)
    update = SegmentCompleted("a", key(0), ((SegmentId(1), (SegmentId(0),)),))
    assert entry.updates == (update,)  # type: ignore[union-attr]
    assert GROUP_LOG.decode("here", joined).updates == (ReaderJoined("a", "here", 5),)  # type: ignore[union-attr]
    state = GROUP_LOG.decode("here", snapshot).state  # type: ignore[union-attr]
    state.check()
    assert state.options == GroupOptions() and state.dropped == ()
    after = applied(state, update)
    after.check()
    assert after.open.keys() == {key(1)}


def test_a_group_is_finished_when_nothing_is_left_and_no_stream_is_awaited() -> None:
    state = applied(opened(0), ReaderJoined("a", "here", 0, ("s/t",)))
    state = applied(state, SegmentsAcquired("a", state.due_to("a")))
    assert not state.is_finished
    done = applied(state, SegmentCompleted("a", key(0), ()))
    assert done.is_finished
    for awaited in ("s/*", "s/later"):
        assert not applied(done, SubscriptionChanged("a", ("s/t", awaited), 0)).is_finished
    assert not applied(done, StreamDropped(STREAM.stream_id)).is_finished, "its name may be used again"


@pytest.mark.hunt(seeds=20)
def test_dropped_streams_are_at_most_those_named_at_the_creation(seed: int) -> None:
    random = Random(seed)
    names = [f"s/{number}" for number in range(3)]
    state = begin(0, [StartPosition(GroupStream(name, number), ()) for number, name in enumerate(names)])
    forgotten: set[str] = set()
    for stream_id in range(3, 200):
        if state.streams and random.random() < 0.5:
            gone = random.choice(state.streams)
            state = applied(state, StreamDropped(gone.stream_id))
            if not gone.added:
                forgotten.add(gone.name)
        elif forgotten and random.random() < 0.3:
            name = random.choice(sorted(forgotten))
            state = applied(state, StreamAdded(StartPosition(GroupStream(name, stream_id), ())))
            forgotten.remove(name)
        else:
            brought = GroupStream(f"s/orders-{stream_id}", stream_id, added=True)
            state = applied(state, StreamAdded(StartPosition(brought, ())))
        assert {each.name for each in state.dropped} == forgotten <= set(names)
        assert len(state.dropped) == len(forgotten)
