"""What is done to a group: made, deleted, paused, given another stream, rid of a reader; functions of a transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

from eventproc.groups.keys import GroupStream
from eventproc.groups.state import GroupState, begin
from eventproc.groups.table import GROUP, Group, change, state_of, topic_of, write_segments
from eventproc.groups.updates import Left, Opening, PauseSet, StreamAdded
from eventproc.store.catalog import Stream, find_stream, get_scope, get_stream
from eventproc.store.database import Tx
from eventproc.store.model.arguments import int_of, items_of, refused, text_of
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.errors import AlreadyExists, GroupStreamReplaced
from eventproc.store.model.names import StreamName
from eventproc.store.model.progress import Progress
from eventproc.store.records import create, delete, find, get, keys
from eventproc.store.segments import number_at, segment_state
from eventproc.streams.positions import frontier_at, head_cut, tail_cut, time_cut

GroupStart: TypeAlias = StreamCut | Mapping[str, StreamCut] | Literal["head", "tail"] | int
"""Where a group begins: an end of its streams, a time in wall ms, or cuts (a stream without one: at its head)."""

PROCESSOR: Final = "processor"
READERS: Final = "readers"

_GENERATION: Final = "group_generation"
"""Counter: no generation of a deleted group lies above it, so that a group made later repeats none."""


def group_name(text: str, streams: Sequence[str] = ()) -> str:
    """Return the full name "scope/group"; a bare one takes the scope of the first stream. Raises InvalidArgument."""
    text_of("group", text)
    if "/" not in text and streams:
        text = f"{streams[0].partition('/')[0]}/{text}"
    return str(StreamName.parse(text))


def ensure_group(
    tx: Tx, name: str, streams: Sequence[str], start: GroupStart = "head", *, kind: str = PROCESSOR
) -> None:
    """Make the group `name` ("scope/group"), reading `streams` from `start` on; one that is there and equal is fine.

    Raises AlreadyExists naming the fields that differ (`start` is only looked at when the group is made),
    GroupStreamReplaced when one of its streams was deleted since, NotFound, InvalidArgument, and as `frontier_at`.
    """
    name = str(StreamName.parse(name))
    names = _stream_names(streams)
    if (found := find(tx, GROUP, name)) is not None:
        _verify_equal(found.value, names, kind)
        verify_streams(tx, found.value)
        return
    get_scope(tx, name.partition("/")[0])
    _verify_named(start, names)
    openings = [opening_of(tx, get_stream(tx, each).value, start) for each in names]
    row = tx.execute("SELECT value FROM counter WHERE name = ?", (_GENERATION,)).fetchone()
    empty = GroupState(generation=0 if row is None else row[0])
    state = begin(empty.generation, openings)
    group = Group(
        name=name, streams=state.streams, generation=state.generation, kind=kind, created_ms=tx.now_ms
    )
    create(tx, GROUP, name, group)
    write_segments(tx, name, empty, state)
    tx.wake(topic_of(name))


def _stream_names(streams: Sequence[str]) -> list[str]:
    names = [
        str(StreamName.parse(each)) for each in items_of("streams", streams, "a sequence of names is needed")
    ]
    if not names:
        raise refused("streams", streams, "a group reads at least one stream")
    if len(set(names)) < len(names):
        raise refused("streams", streams, "a stream is named twice")
    return names


def _verify_named(start: GroupStart, names: Sequence[str]) -> None:
    """Raise InvalidArgument when a cut is of a stream that the group does not read."""
    if isinstance(start, Mapping):
        strangers = sorted(start.keys() - set(names))
    else:
        strangers = [start.stream] if isinstance(start, StreamCut) and start.stream not in names else []
    if strangers:
        raise refused("start", start, f"the group does not read {strangers[0]}")


def _verify_equal(group: Group, names: Sequence[str], kind: str) -> None:
    chosen = {each.name for each in group.streams if not each.added}
    differing = []
    if chosen != set(names):
        differing.append("streams")
    if group.kind != kind:
        differing.append("kind")
    if differing:
        raise AlreadyExists(kind="group", name=group.name, differing=tuple(differing))


def verify_streams(tx: Tx, group: Group) -> None:
    """Raise GroupStreamReplaced when a stream of the group was deleted, whatever has its name now."""
    for each in group.streams:
        found = find_stream(tx, each.name)
        if found is None or found.value.stream_id != each.stream_id:
            current = None if found is None else found.value.stream_id
            raise GroupStreamReplaced(
                group=group.name, stream=each.name, stream_id=each.stream_id, current_id=current
            )


def opening_of(tx: Tx, stream: Stream, start: GroupStart, *, added: bool = False) -> Opening:
    """Return where a group begins in a stream. Raises as `frontier_at`, and InvalidArgument."""
    if isinstance(start, Mapping):
        start = start.get(stream.name, "head")
    if isinstance(start, StreamCut):
        cut = start if start.stream == stream.name else head_cut(tx, stream)
    elif start == "head":
        cut = head_cut(tx, stream)
    elif start == "tail":
        cut = tail_cut(tx, stream)
    else:
        cut = time_cut(tx, stream, int_of("start", start, unit="ms"))
    frontier = frontier_at(tx, stream, cut)
    held = tuple(
        (segment, Progress(number_at(tx, stream.stream_id, segment, offset), offset))
        for segment, offset in frontier.held.items()
        if segment_state(tx, stream.stream_id, segment) is not None
    )
    waiting = tuple((segment, tuple(sorted(before))) for segment, before in frontier.waiting.items())
    return Opening(GroupStream(stream.name, stream.stream_id, added), held, waiting)


def add_stream(tx: Tx, group: str, stream: str) -> None:
    """Let the group read one more stream, from its head; one that it reads already is fine.

    Raises NotFound, GroupStreamReplaced.
    """
    record = get(tx, GROUP, group).value
    found = get_stream(tx, stream).value
    if any(each.name == stream for each in record.streams):
        verify_streams(tx, record)
    else:
        change(tx, group, StreamAdded(opening_of(tx, found, "head", added=True)))


def set_paused(tx: Tx, name: str, paused: bool) -> None:
    """Tell the group's processors to stop reading on, or to go on. Raises NotFound."""
    if get(tx, GROUP, name).value.paused != paused:
        change(tx, name, PauseSet(paused))


def expire_reader(tx: Tx, group: str, reader: str) -> None:
    """Declare a reader offline: what it owned is nobody's, at its durable progress, and the reader is fenced.

    One that is not online is fine. Raises NotFound.
    """
    record = get(tx, GROUP, group).value
    if reader in state_of(tx, record).members:
        change(tx, group, Left(reader))


def list_groups(tx: Tx, scope: str | None = None) -> list[Group]:
    """Return the groups of a scope, or of all, by name."""
    prefix = "" if scope is None else f"{scope}/"
    return [get(tx, GROUP, key).value for key in keys(tx, GROUP, prefix=prefix)]


def get_group(tx: Tx, name: str) -> Group:
    """Return the group's record. Raises NotFound."""
    return get(tx, GROUP, name).value


def delete_group(tx: Tx, name: str) -> None:
    """Remove the group with its progress; readers that are online are fenced. Raises NotFound."""
    found = get(tx, GROUP, name)
    delete(tx, GROUP, found)
    tx.execute("DELETE FROM group_segment WHERE group_name = ?", (name,))
    tx.execute("DELETE FROM group_member WHERE group_name = ?", (name,))
    tx.execute(
        "INSERT INTO counter (name, value) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET value = max(value, ?2)",
        (_GENERATION, found.value.generation),
    )
    tx.wake(topic_of(name))
