"""The state that the steps of one decision work on: a copy of the view that shows what was decided so far."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import attrs

from eventproc.ingestion.actions import (
    Action,
    CreateGroup,
    CreateTask,
    DropGroup,
    EndGroup,
    EndTask,
    ExtendGroup,
    ForgetOffset,
    ForgetStream,
    SetDeadline,
    SetOffset,
)
from eventproc.ingestion.memory import Memory, with_task
from eventproc.ingestion.spec import SupervisorSpec, message_times
from eventproc.store.ingestion.rows import IngestOffset
from eventproc.store.ingestion.view import IngestView
from eventproc.store.model.ingestion import (
    IngestGroup,
    IngestGroupState,
    IngestSequence,
    IngestTask,
    PartitionKey,
    Positions,
    SequenceState,
    TaskState,
    sequence_ends,
)

RETRY_MS: Final = 1_000
"""Pause before the replacement of a second failed task in a row; it doubles with each one."""

RETRY_MS_MAX: Final = 60_000
"""Longest such pause. Higher: less work on a range that cannot be read; lower: quicker recovery when it can."""


@attrs.frozen(kw_only=True)
class Situation:
    """What a decision is based on.

    spec, version: the newest; of a terminated supervisor, the last one that it had.
    """

    view: IngestView
    spec: SupervisorSpec
    version: int
    terminated: bool
    memory: Memory

    @property
    def stopping(self) -> bool:
        """Whether groups end and none are created."""
        return self.terminated or self.spec.suspended


class WorkingState:
    """A copy of the view, changed by each action that is decided."""

    def __init__(self, situation: Situation) -> None:
        view = situation.view
        self.situation = situation
        self.spec = situation.spec
        self.now_ms = view.now_ms
        self.memory = situation.memory
        self.actions: list[Action] = []
        self.partitions = dict(view.partitions)
        self.offsets = dict(view.offsets)
        self.groups: dict[str, IngestGroup] = {each.base: each for each in view.groups}
        self.fingerprint = situation.spec.fingerprint
        self.orphaned: set[tuple[str, int]] = set()  # (base, replica) of the tasks of dead workers
        self._tasks: dict[str, dict[str, IngestTask]] = {}
        for task in view.tasks:
            self._put(task)
        self.sequences: dict[str, list[IngestSequence]] = {
            base: list(each) for base, each in view.sequences.items()
        }

    def with_state(self, state: IngestGroupState) -> list[IngestGroup]:
        """Return the groups in that state, oldest first."""
        return [each for each in self.groups.values() if each.state is state]

    def live_tasks(self, base: str) -> list[IngestTask]:
        """Return the tasks of a group that have not ended."""
        return [each for each in self._tasks.get(base, {}).values() if each.state.live]

    def running_tasks(self) -> list[IngestTask]:
        """Return the tasks that workers run."""
        return [
            each
            for tasks in self._tasks.values()
            for each in tasks.values()
            if each.state is TaskState.RUNNING
        ]

    def _put(self, task: IngestTask) -> None:
        self._tasks.setdefault(task.base, {})[task.id] = task

    def remember_error(self, message: str) -> None:
        """Show an error in the supervisor's status."""
        health = self.memory.health.note_error(self.now_ms, message)
        self.memory = attrs.evolve(self.memory, health=health)

    def set_offset(self, key: PartitionKey, offset: IngestOffset) -> None:
        """Set a committed offset."""
        self.offsets[key] = offset
        self.actions.append(SetOffset(key, offset))

    def forget_offset(self, key: PartitionKey) -> None:
        """Forget the committed offset of a partition."""
        del self.offsets[key]
        self.actions.append(ForgetOffset(key))

    def forget_streams(self, gone: Collection[int]) -> None:
        """Forget deleted streams, but not the last one with an offset: what matches later begins at its head."""
        if any(key[0] not in gone for key in self.offsets):
            self.actions += map(ForgetStream, sorted(gone))

    def create_group(self, gid: int, starts: Positions) -> None:
        """Let a new group read from `starts`."""
        min_ms, max_ms = message_times(self.spec.io, self.now_ms)
        group = IngestGroup(
            # A supervisor that was terminated and submitted again counts from 0, under a later version.
            base=f"{self.situation.view.supervisor}-{self.situation.version}-{self.memory.next_group:08d}",
            supervisor=self.situation.view.supervisor,
            gid=gid,
            version=self.situation.version,
            fingerprint=self.fingerprint,
            state=IngestGroupState.ACTIVE,
            created_ms=self.now_ms,
            starts=dict(starts),
            min_ms=min_ms,
            max_ms=max_ms,
        )
        self.memory = attrs.evolve(self.memory, next_group=self.memory.next_group + 1)
        self.groups[group.base] = group
        first = IngestSequence(base=group.base, n=0, starts=group.starts, ends=None, state=SequenceState.OPEN)
        self.sequences[group.base] = [first]
        self.actions.append(CreateGroup(group))

    def extend_group(self, group: IngestGroup, added: Positions) -> None:
        """Let a reading group read more partitions, from `added`."""
        extended = attrs.evolve(group, starts={**group.starts, **added})
        self.groups[group.base] = extended
        self.actions.append(ExtendGroup(extended, dict(added)))

    def has_read(self, group: IngestGroup) -> bool:
        """Return whether a reading group has anything to publish."""
        *closed, current = self.sequences[group.base]
        ends = sequence_ends(current, self.live_tasks(group.base))
        return ends != current.starts or any(each.ends != each.starts for each in closed)

    def end_group(self, group: IngestGroup) -> None:
        """End the reading of a group: it becomes pending, or goes if it has nothing to publish."""
        if not self.has_read(group):
            self.drop_group(group, "its group has ended, and had read nothing")
            return
        ended = attrs.evolve(
            group,
            state=IngestGroupState.PENDING,
            ends=sequence_ends(self.sequences[group.base][-1], self.live_tasks(group.base)),
            deadline_ms=self.now_ms + self.completion_ms(group),
        )
        self.groups[group.base] = ended
        self.actions.append(EndGroup(ended))

    def completion_ms(self, group: IngestGroup) -> int:
        """Return the time that a pending group has. It doubles with each retry, so that a slow one completes."""
        return self.spec.io.completion_timeout_ms << self.memory.retries.get(group.base, 0)

    def set_deadline(self, group: IngestGroup, deadline_ms: int | None) -> IngestGroup:
        """Set when a pending group is late, None: never; return it."""
        changed = attrs.evolve(group, deadline_ms=deadline_ms)
        self.groups[group.base] = changed
        self.actions.append(SetDeadline(changed))
        return changed

    def retry_group(self, group: IngestGroup, *, counts: bool) -> None:
        """Let new tasks read and publish what is left of a pending group, to the same ends, in a time of its own."""
        for task in self.live_tasks(group.base):
            self.end_task(task, TaskState.STOPPED, reason="other tasks read the range of its group again")
        if counts:
            retries = {**self.memory.retries, group.base: self.memory.retries.get(group.base, 0) + 1}
            self.memory = attrs.evolve(self.memory, retries=retries)
        if group.deadline_ms is not None:
            self.set_deadline(group, self.now_ms + self.completion_ms(group))
        for replica in range(self.spec.io.replicas):
            self.create_task(group, replica)

    def drop_group(self, group: IngestGroup, why: str) -> None:
        """Remove a group, and stop the tasks that it still has. why: for their logs."""
        for task in self.live_tasks(group.base):
            self.end_task(task, TaskState.STOPPED, reason=why)
        del self.groups[group.base]
        self.actions.append(DropGroup(group.base))
        retries = {base: count for base, count in self.memory.retries.items() if base != group.base}
        self.memory = attrs.evolve(self.memory, retries=retries)

    def fail_groups(self, failed: Iterable[IngestGroup]) -> list[IngestGroup]:
        """Remove groups whose ranges must be read again, with all groups that start behind them; return all of them.

        A group that reads other partitions, or starts before a lost one or at the committed offset, is not touched.
        """
        lost: list[IngestGroup] = []
        waiting = list(failed)
        while waiting:
            group = waiting.pop(0)
            if group.base not in self.groups:
                continue
            lost.append(group)
            self.drop_group(group, "its group was given up or reset; another one reads the range again")
            waiting += self.groups_behind(group)
        return lost

    def groups_behind(self, group: IngestGroup) -> list[IngestGroup]:
        """Return the groups that start behind what a group has not published: they can only wait for it."""
        return [each for each in self.groups.values() if self._is_behind(each, group)]

    def _is_behind(self, later: IngestGroup, group: IngestGroup) -> bool:
        return any(
            start > max(group.starts[key], self.offsets[key].offset)
            for key, start in later.starts.items()
            if key in group.starts and key in self.offsets
        )

    def create_task(self, group: IngestGroup, replica: int) -> None:
        """Let a worker take another task of a group; after failures, not immediately.

        The death of a worker says nothing about its tasks, so their replacements wait for nothing. The pause counts
        from the last failure: a task that takes the place of a waiting one waits no longer than that would have.
        """
        health = self.memory.health
        failures = 0 if (group.base, replica) in self.orphaned else health.failed_tasks
        pause_ms = 0 if failures < 2 else min(RETRY_MS << min(failures - 2, 20), RETRY_MS_MAX)
        retry_ms = 0 if health.failed_ms is None else health.failed_ms + pause_ms
        current = self.sequences[group.base][0]
        task = IngestTask(
            id=f"{group.base}-{self.memory.next_task}",
            supervisor=group.supervisor,
            base=group.base,
            replica=replica,
            state=TaskState.WAITING,
            worker=None,
            n=current.n,
            read={},
            planned={},
            created_ms=self.now_ms,
            not_before_ms=retry_ms if retry_ms > self.now_ms else 0,
        )
        self.memory = attrs.evolve(self.memory, next_task=self.memory.next_task + 1)
        self._put(task)
        self.actions.append(CreateTask(task))

    def end_task(
        self, task: IngestTask, state: TaskState, error: str | None = None, *, reason: str | None = None
    ) -> None:
        """End a task and fence its worker. reason: for its log, if it did not fail."""
        ended = attrs.evolve(task, state=state, error=error)
        self._put(ended)
        self.count_end(ended)
        self.actions.append(EndTask(task.id, state, error, reason))

    def count_end(self, task: IngestTask) -> None:
        """Add what an ended task did to the totals. Each is counted once: the same transaction stores that."""
        self.memory = attrs.evolve(self.memory, totals=with_task(self.memory.totals, task))

    def count_hung(self) -> None:
        """Add a task that was ended because it hung to the totals."""
        totals = attrs.evolve(self.memory.totals, hung=self.memory.totals.hung + 1)
        self.memory = attrs.evolve(self.memory, totals=totals)
