"""Reader groups as records: what a scope holds beside its streams. What happens in one is decided in eventproc/groups/.

They lie below the workflows because the delete of a scope deletes its groups.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import attrs

from eventproc.store.database import Tx
from eventproc.store.model.arguments import int_of, refused
from eventproc.store.records import RecordKind, delete, get, keys
from eventproc.store.replicated import LogId, delete_log

TruncatedPolicy: TypeAlias = Literal["earliest", "latest", "error"]
"""Where a group goes on that finds what it had not read truncated: at the head, at the tail, or nowhere."""

LEASE_MS_MIN: Final = 1_000
"""Shortest lease: below it a busy machine is enough to be taken for hung."""

CHECKPOINT_MS_MIN: Final = 100
"""Shortest pause between automatic checkpoints: each is an update from every reader."""


def _lease(instance: object, attribute: object, value: int | None) -> None:
    if value is not None:
        int_of("lease", value, least=LEASE_MS_MIN, unit="ms")


def _pause(instance: object, attribute: object, value: int | None) -> None:
    if value is not None:
        int_of("pause between checkpoints", value, least=CHECKPOINT_MS_MIN, unit="ms")


def _policy(instance: object, attribute: object, value: object) -> None:
    if value not in ("earliest", "latest", "error"):
        raise refused("on_truncated", value, "it must be 'earliest', 'latest' or 'error'")


@attrs.frozen(kw_only=True)
class GroupOptions:
    """Options of a group.

    lease_ms: longest time between two signs of life of a reader before it counts as hung and is expired; None: only
    the dead are. checkpoint_ms: pause between automatic checkpoints; None: there are none. on_truncated: where to go
    on when what was not read yet is gone; it is always told and counted. Raises InvalidArgument.
    """

    lease_ms: int | None = attrs.field(default=None, validator=_lease)
    checkpoint_ms: int | None = attrs.field(default=None, validator=_pause)
    on_truncated: TruncatedPolicy = attrs.field(default="earliest", validator=_policy)


@attrs.frozen
class GroupStream:
    """A stream of a group, of one incarnation. added: by the system (`add_stream`), not by who made the group."""

    name: str
    stream_id: int
    added: bool = False


@attrs.frozen(kw_only=True)
class GroupRecord:
    """A group as its record says; who reads what is in its log (eventproc/groups/).

    name: "scope/group". generation: grows with each change of members or owners. kind: "processor" or "readers".
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
        return f"its generation grows; {before.generation} -> {after.generation}"
    return None


GROUP: Final = RecordKind(name="group", value=GroupRecord, invariant=_group_may_follow)

GENERATION: Final = "group_generation"
"""Counter: no generation of a deleted group lies above it, so that a group made later repeats none."""


def topic_of(group: str) -> tuple[str, str]:
    """Return what to wake when a group changed."""
    return "group", group


def group_names(tx: Tx, scope: str | None = None) -> list[str]:
    """Return the names of the groups of a scope, or of all, sorted."""
    return keys(tx, GROUP, prefix="" if scope is None else f"{scope}/")


def delete_group(tx: Tx, name: str) -> None:
    """Remove the group with its progress; readers that are online are fenced. Raises NotFound."""
    found = get(tx, GROUP, name)
    delete(tx, GROUP, found)
    delete_log(tx, found.value.log)
    tx.execute("DELETE FROM group_segment WHERE group_name = ?", (name,))
    tx.execute("DELETE FROM group_member WHERE group_name = ?", (name,))
    tx.execute(
        "INSERT INTO counter (name, value) VALUES (?, ?) ON CONFLICT DO UPDATE SET value = max(value, excluded.value)",
        (GENERATION, found.value.generation),
    )
    tx.wake(topic_of(name))
