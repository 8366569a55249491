"""Groups as records of a scope: their kinds, streams and options, and the counter of their generations."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs

from eventproc.store.database import Tx, Watch
from eventproc.store.model.argument_checks import check_choice, check_int, check_str, invalid_argument
from eventproc.store.model.errors import CorruptRecord, NotFound
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.limits import DELIVERIES_MAX, DURATION_MS_MAX, LOCK_MS
from eventproc.store.model.list_pages import NO_LIMIT
from eventproc.store.records import RecordKind, find, get, keys
from eventproc.store.replicated import LogId

TruncatedPolicy: TypeAlias = Literal["earliest", "latest", "error"]
"""What a group does when events were truncated before it read them.

"earliest": go on at the head. "latest": go on at the tails of the truncated segments, and leave the others where they
are. "error": raise Truncated to its readers, or stop its processor.
"""

DeletedPolicy: TypeAlias = Literal["error", "drop"]
"""What a group does when a stream of it was deleted: raise GroupStreamReplaced to its readers ("error"), or read its
other streams, and a stream created under the same name later from its head ("drop")."""

RetainedPart: TypeAlias = Literal["progress", "manual"]
"""What a group keeps a stream from losing by retention by consumption: what it has not finished ("progress"), or what
`Group.allow_truncation` has not named ("manual")."""

GroupKind: TypeAlias = Literal["readers", "processor", "share", "kafka", "pravega"]
"""Who uses a group: readers and consumers, a processor, the consumers of a queue, or clients of Kafka or Pravega."""

READERS: Final[GroupKind] = "readers"
PROCESSOR: Final[GroupKind] = "processor"
SHARE: Final[GroupKind] = "share"
KAFKA: Final[GroupKind] = "kafka"
PRAVEGA: Final[GroupKind] = "pravega"

OWNED: Final = (READERS, PROCESSOR, KAFKA, PRAVEGA)
"""The kinds in which a segment has one owner at a time. In a share group, consumers hold events."""

EQUAL: Final = "equal"
"""Name of the default assignor."""

ASSIGNOR_CHARS_MAX: Final = 64
"""Characters of an assignor's name, which is stored with every group."""

PATIENCE_MS_MIN: Final = 1_000
"""Shortest patience. With a shorter one a busy machine would be enough to expire a healthy reader."""

CHECKPOINT_MS_MIN: Final = 100
"""Shortest pause between automatic checkpoints. Each one is an update from every reader."""

LOCK_MS_MIN: Final = 100
"""Shortest lock. With a shorter one a busy machine would be enough to lose it before the handler begins."""


def check_assignor(name: str) -> str:
    """Return `name` if an assignor may have it. Raises InvalidArgument."""
    if not check_str("assignor", name).isidentifier() or len(name) > ASSIGNOR_CHARS_MAX:
        reason = f"it must be a name of up to {ASSIGNOR_CHARS_MAX} letters, digits and '_', such as 'equal' or 'range'"
        raise invalid_argument("assignor", name, reason)
    return name


@attrs.frozen(kw_only=True)
class GroupOptions:
    """Options of a group.

    patience_ms: how long a reader may be silent, or slow to release a segment that another reader shall own, in ms; the
        group expires a reader that exceeds it. None (default): only readers of dead processes are expired.
    checkpoint_ms: pause between automatic checkpoints. None (default): there are none.
    on_truncated: what to do when unread events were truncated; the loss is always logged and counted.
    on_deleted: what to do when a stream was deleted. Default: "error".
    assignor: who decides which reader owns which segment: "equal" (default), "range", "round_robin", "lag", or an own
        one.
    retains: what a stream with retention by consumption keeps for the group: what it has not finished ("progress",
        default), what it has not allowed to be truncated ("manual"), or nothing (None).
    Raises InvalidArgument.
    """

    patience_ms: int | None = None
    checkpoint_ms: int | None = None
    on_truncated: TruncatedPolicy = "earliest"
    on_deleted: DeletedPolicy = "error"
    assignor: str = EQUAL
    retains: RetainedPart | None = "progress"

    def __attrs_post_init__(self) -> None:
        if self.patience_ms is not None:
            check_int("patience", self.patience_ms, least=PATIENCE_MS_MIN, unit="ms")
        if self.checkpoint_ms is not None:
            check_int("pause between checkpoints", self.checkpoint_ms, least=CHECKPOINT_MS_MIN, unit="ms")
        check_choice("on_truncated", self.on_truncated, get_args(TruncatedPolicy))
        check_choice("on_deleted", self.on_deleted, get_args(DeletedPolicy))
        check_assignor(self.assignor)
        check_choice("retains", self.retains, (*get_args(RetainedPart), None))


@attrs.frozen(kw_only=True)
class ShareOptions:
    """Options of a share group.

    lock_ms: how long a consumer holds an event without renewing its lock.
    deliveries_max: after so many deliveries an event that was not accepted becomes a dead letter.
    Raises InvalidArgument.
    """

    lock_ms: int = LOCK_MS
    deliveries_max: int = DELIVERIES_MAX

    def __attrs_post_init__(self) -> None:
        check_int("lock", self.lock_ms, least=LOCK_MS_MIN, most=DURATION_MS_MAX, unit="ms")
        check_int("deliveries_max", self.deliveries_max, least=1)


@attrs.frozen
class GroupStream:
    """A stream that a group reads, in one incarnation.

    added: the system added it (`add_stream`); the caller that created the group did not name it.
    epoch: the latest epoch whose segments a share group has opened. Segments of later epochs are new to it. -1: none;
        other groups follow the successors of the segments that they finish.
    """

    name: str
    stream_id: int
    added: bool = False
    epoch: int = -1


@attrs.frozen(kw_only=True)
class GroupRecord:
    """The record of a group. Its log holds the rest: readers, owners, checkpoints (`eventproc/groups/`).

    name: "scope/group".
    generation: grows with each change of members or owners; of a share group, with each reset. A lock of an earlier
        generation is lost. None repeats, also after a deletion.
    log: None for a share group, which has no members and no owners, and for clients of Kafka and Pravega, whose record
        and rows say everything.
    share: options of a share group. lost_events: of a share group: unfinished events that were truncated.
    dropped: streams that were deleted under the group; see `DeletedPolicy`.
    created_options, created_share: the options that it was created with; None while they are `options`, or `share`.
    reset: the generation of its creation or its last reset: what an owner of an earlier epoch knew is void.
    worker: of a share group: a worker consumes it, or did. Its processes have rows as members, for people only.
    dead_letters: the stream of dead letters that this worker declares; None: the default.
    """

    name: str
    streams: tuple[GroupStream, ...]
    generation: int
    kind: GroupKind
    created_ms: int
    log: LogId | None = None
    paused: bool = False
    options: GroupOptions = attrs.field(factory=GroupOptions)
    dropped: tuple[GroupStream, ...] = ()
    created_options: GroupOptions | None = None
    share: ShareOptions = attrs.field(factory=ShareOptions)
    created_share: ShareOptions | None = None
    lost_events: int = 0
    reset: int = 0
    worker: bool = False
    dead_letters: str | None = None


def _group_may_follow(before: GroupRecord | None, after: GroupRecord) -> str | None:
    # A share group also changes as its streams do, without a new generation.
    if before is not None and after.generation < before.generation + (after.kind != SHARE):
        return f"its generation must grow; {before.generation} -> {after.generation}"
    return None


def with_patience(plain: dict[str, Any]) -> dict[str, Any]:
    """Return a record or an entry of the log of format 1 in format 2: its one deadline is the longest that was set."""
    updates = [update for each in plain.get("updates") or () for update in each.values()]
    for holder in (plain, plain.get("init") or {}, *updates):
        for options in filter(None, (holder.get("options"), holder.get("created_options"))):
            options.pop("added_start", None)
            deadlines = [options.pop(each) for each in ("lease_ms", "rebalance_ms") if each in options]
            if deadlines:
                options["patience_ms"] = max(deadlines)
    return plain


GROUP: Final = RecordKind(
    name="group",
    value=GroupRecord,
    format=2,
    upcasts={1: with_patience},
    invariant=_group_may_follow,
    immutable=True,
)


def get_group(tx: Tx, name: str, *, share: bool = False) -> GroupRecord:
    """Return the record of a group in which segments have owners, or of a share group. Raises NotFound."""
    found = find(tx, GROUP, name)
    if found is None or (found.value.kind == SHARE) is not share:
        raise NotFound(kind="share group" if share else "group", name=name)
    return found.value


@attrs.frozen
class TruncatableCut:
    """How far a group with `retains="manual"` lets a stream be truncated."""

    offsets: Mapping[SegmentId, int]


TRUNCATABLE: Final = RecordKind(name="released cut", value=TruncatableCut)


def truncatable_key(group: str, stream_id: int) -> str:
    """Return the key of the record of how far a group lets a stream be truncated."""
    return f"{group}/{stream_id:016d}"


GENERATION: Final = "group_generation"
"""Name of a counter: the highest generation of any deleted group. A later group starts above it and repeats none."""


def channel_of(group: str) -> tuple[str, str]:
    """Return the topic to wake when a group changed."""
    return "group", group


def group_names(
    tx: Tx, scope: str | None = None, *, kinds: Collection[GroupKind] | None = None, limit: int = NO_LIMIT
) -> list[str]:
    """Return the names of the groups of a scope, or of all scopes, sorted.

    kinds: only groups of these; None: of all. A group whose record is damaged counts as one of readers, so that lists
        of names still show it.
    limit: how many to look at.
    """
    names = keys(tx, GROUP, prefix="" if scope is None else f"{scope}/", limit=limit)
    if kinds is None:
        return names
    found = ((each, readable_group(tx, each)) for each in names)
    return [name for name, group in found if (READERS if group is None else group.kind) in kinds]


def readable_group(tx: Tx, name: str) -> GroupRecord | None:
    """Return the record of a group for a list of groups, or None if it is damaged. Raises NotFound."""
    try:
        return get(tx, GROUP, name).value
    except CorruptRecord:
        return None


def streams_of_group(tx: Tx, name: str) -> list[str]:
    """Return the names of the streams that a group of any kind reads. Raises NotFound, CorruptRecord."""
    return [each.name for each in get(tx, GROUP, name).value.streams]


GROUPS: Final = ("groups",)
"""Topic to wake when a group was created or deleted."""

WATCH_GROUPS: Final = Watch(GROUPS, lambda tx: tuple(group_names(tx)))
"""The subscription to groups that come and go. Each wake-up costs one read of their names."""
