"""Reader groups as records of a scope: their streams and options, and the counter of their generations."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import attrs

from eventproc.store.database import Tx
from eventproc.store.model.argument_checks import check_int, invalid_argument
from eventproc.store.records import RecordKind, keys
from eventproc.store.replicated import LogId

TruncatedPolicy: TypeAlias = Literal["earliest", "latest", "error"]
"""What a group does when events were truncated before it read them: go on at the head ("earliest"), go on at the tail
("latest"), or raise Truncated to its readers ("error")."""

LEASE_MS_MIN: Final = 1_000
"""Shortest lease. With a shorter one a busy machine would be enough to expire a healthy reader."""

CHECKPOINT_MS_MIN: Final = 100
"""Shortest pause between automatic checkpoints. Each one is an update from every reader."""


def _lease(instance: object, attribute: object, value: int | None) -> None:
    if value is not None:
        check_int("lease", value, least=LEASE_MS_MIN, unit="ms")


def _pause(instance: object, attribute: object, value: int | None) -> None:
    if value is not None:
        check_int("pause between checkpoints", value, least=CHECKPOINT_MS_MIN, unit="ms")


def _policy(instance: object, attribute: object, value: object) -> None:
    if value not in ("earliest", "latest", "error"):
        raise invalid_argument("on_truncated", value, "it must be 'earliest', 'latest' or 'error'")


@attrs.frozen(kw_only=True)
class GroupOptions:
    """Options of a group.

    lease_ms: longest time between two signs of life of a reader; the group expires a reader that exceeds it. None
        (default): only readers of dead processes are expired.
    checkpoint_ms: pause between automatic checkpoints. None (default): there are none.
    on_truncated: what to do when unread events were truncated; the loss is always logged and counted.
    Raises InvalidArgument.
    """

    lease_ms: int | None = attrs.field(default=None, validator=_lease)
    checkpoint_ms: int | None = attrs.field(default=None, validator=_pause)
    on_truncated: TruncatedPolicy = attrs.field(default="earliest", validator=_policy)


@attrs.frozen
class GroupStream:
    """A stream that a group reads, in one incarnation.

    added: the system added it (`add_stream`); the caller that created the group did not name it.
    """

    name: str
    stream_id: int
    added: bool = False


@attrs.frozen(kw_only=True)
class GroupRecord:
    """The record of a group. Its log holds the rest: readers, owners, checkpoints (`eventproc/groups/`).

    name: "scope/group".
    generation: grows with each change of members or owners.
    kind: "processor" or "readers".
    """

    name: str
    log: LogId
    streams: tuple[GroupStream, ...]
    generation: int
    kind: str
    created_ms: int
    paused: bool = False
    options: GroupOptions = attrs.field(factory=GroupOptions)


def _group_may_follow(before: GroupRecord | None, after: GroupRecord) -> str | None:
    if before is not None and after.generation <= before.generation:
        return f"its generation must grow; {before.generation} -> {after.generation}"
    return None


GROUP: Final = RecordKind(name="group", value=GroupRecord, invariant=_group_may_follow)

GENERATION: Final = "group_generation"
"""Name of a counter: the highest generation of any deleted group. A later group starts above it and repeats none."""


def topic_of(group: str) -> tuple[str, str]:
    """Return the topic to wake when a group changed."""
    return "group", group


def group_names(tx: Tx, scope: str | None = None) -> list[str]:
    """Return the names of the groups of a scope, or of all scopes, sorted."""
    return keys(tx, GROUP, prefix="" if scope is None else f"{scope}/")


def last_generation(tx: Tx) -> int:
    """Return the highest generation of any deleted group; 0 if no group was deleted. One look-up."""
    row = tx.execute("SELECT value FROM counter WHERE name = ?", (GENERATION,)).fetchone()
    return 0 if row is None else row[0]


def raise_last_generation(tx: Tx, generation: int) -> None:
    """Make later groups start above `generation`."""
    tx.execute(
        "INSERT INTO counter (name, value) VALUES (?, ?) ON CONFLICT DO UPDATE SET value = max(value, excluded.value)",
        (GENERATION, generation),
    )
