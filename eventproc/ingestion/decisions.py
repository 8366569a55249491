"""What a supervisor does about a notice: a pure function of one snapshot. The order of the steps is Druid's.

Source: docs/design/ingestion.md.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

import attrs

from eventproc.ingestion.actions import (
    CountTask,
    Decision,
    EndSupervisor,
    ForgetOffsets,
    HoldEvents,
    NoteStream,
    PostNotice,
)
from eventproc.ingestion.assignment import assign_partitions
from eventproc.ingestion.autoscale import ScaleDecision, TaskLoad, aggregate_lag, cost_based, lag_based
from eventproc.ingestion.health import SupervisorState
from eventproc.ingestion.memory import SAMPLES_MAX, LagSample, Memory
from eventproc.ingestion.notices import (
    HandoffNotice,
    Notice,
    ResetNotice,
    RunNotice,
    ScaleNotice,
    encode_notice,
)
from eventproc.ingestion.ranges import SUPERVISOR_HOLD_MS
from eventproc.ingestion.spec import AutoscalerConfig, AutoscalerStrategy, LagAggregate, SupervisorSpec
from eventproc.ingestion.working_state import Situation, WorkingState
from eventproc.store.ingestion.rows import IngestOffset
from eventproc.store.ingestion.tasks import PUBLISHED
from eventproc.store.ingestion.view import furthest_reads
from eventproc.store.model.ids import format_segment
from eventproc.store.model.ingestion import (
    IngestGroup,
    IngestGroupState,
    IngestTask,
    PartitionKey,
    Positions,
    TaskState,
)

RETRIES_MAX: Final = 3
"""How often new tasks take over a pending group that failed or was late. Then another group, of the newest spec, reads
its range and what lies behind it. Higher: the groups behind it keep for longer what they have read; lower: a mistake of
the spec is passed sooner."""


def handle(notice: Notice, situation: Situation) -> Decision:
    """Return what to do about a notice. Pure: the same situation gives the same decision."""
    match notice:
        case RunNotice():
            return SupervisorRun(situation).decide()
        case HandoffNotice(groups):
            memory = situation.memory
            wanted = tuple(sorted({*memory.handoff, *groups}))
            return Decision((), attrs.evolve(memory, handoff=wanted), situation.view.now_ms)
        case ResetNotice(offsets, numbers):
            return _reset(situation, offsets, numbers)
        case ScaleNotice(task_count, reason):
            return _scale(situation, task_count, reason)


def matcher(spec: SupervisorSpec) -> re.Pattern[str] | None:
    """Return the pattern of the names of a supervisor's streams, None if its spec names them."""
    return None if spec.io.pattern is None else re.compile(spec.io.pattern)


def task_count_of(spec: SupervisorSpec, memory: Memory) -> int:
    """Return how many groups should read: what the autoscaler chose, unless the spec was changed since."""
    if memory.task_count is not None and memory.scaled_from == _scaling_text(spec):
        return memory.task_count
    return spec.first_task_count


def _scaling_text(spec: SupervisorSpec) -> str:
    scaler = spec.io.autoscaler
    if scaler is None or not scaler.enabled:
        return "none"
    bounds = (spec.io.task_count, scaler.task_count_start, scaler.task_count_min, scaler.task_count_max)
    return "/".join(map(str, bounds))


def active_scaler(spec: SupervisorSpec) -> AutoscalerConfig | None:
    """Return the configuration of the autoscaler if it is enabled."""
    scaler = spec.io.autoscaler
    return scaler if scaler is not None and scaler.enabled else None


def _reset(situation: Situation, offsets: Positions | None, numbers: Positions) -> Decision:
    """Move the committed offsets, and drop every group that reads or publishes behind one that moves."""
    state = WorkingState(situation)
    if offsets is None:
        for group in list(state.groups.values()):
            state.drop_group(group, "the supervisor was reset")
        state.actions.append(ForgetOffsets())
        state.memory = attrs.evolve(state.memory, idle_since_ms=None)
    else:
        state.fail_groups(
            each for each in situation.view.groups if not offsets.keys().isdisjoint(each.starts)
        )
        for key, offset in offsets.items():
            state.set_offset(key, IngestOffset(offset, numbers[key]))
    return Decision(tuple(state.actions), state.memory, state.now_ms)


def _scale(situation: Situation, task_count: int, reason: str) -> Decision:
    """Let another number of groups read, unless something forbids it now. The next run moves the partitions."""
    memory, now_ms = situation.memory, situation.view.now_ms
    skipped = _why_not_scale(situation, task_count)
    if skipped is not None:
        memory = attrs.evolve(memory, last_scale_reason=f"{reason}; not now: {skipped}")
        return Decision((), memory, None)
    memory = attrs.evolve(
        memory,
        task_count=task_count,
        scaled_from=_scaling_text(situation.spec),
        last_scale_ms=now_ms,
        last_scale_reason=reason,
        samples=(),
    )
    return Decision((), memory, now_ms)


def _why_not_scale(situation: Situation, task_count: int) -> str | None:
    scaler, memory = active_scaler(situation.spec), situation.memory
    if scaler is None:
        return "the autoscaler is not enabled"
    if situation.stopping or memory.health.state in (SupervisorState.IDLE, SupervisorState.COMPLETED):
        return "the supervisor is idle, suspended, completed, or ends"
    if any(each.state is IngestGroupState.PENDING for each in situation.view.groups):
        return "groups are publishing"
    current = task_count_of(situation.spec, memory)
    delay_ms = scaler.min_scale_up_delay_ms if task_count > current else scaler.min_scale_down_delay_ms
    if memory.last_scale_ms is not None and situation.view.now_ms - memory.last_scale_ms < delay_ms:
        return f"the last change is less than {delay_ms:,} ms old"
    return None


class SupervisorRun:
    """One run. Each step is a method; `decide` has their order."""

    def __init__(self, situation: Situation) -> None:
        self.situation = situation
        self.view = situation.view
        self.spec = situation.spec
        self.now_ms = situation.view.now_ms
        self.state = WorkingState(situation)
        self.failed = False
        self.stream_failed = False
        self.again = False
        self.idle = False
        # Bases of the groups of which a task succeeded, or failed, since the last run.
        self.succeeded: set[str] = set()
        self.failing: set[str] = set()

    def decide(self) -> Decision:
        """Run all steps and return the decision."""
        self._refresh_partitions()
        health = self.state.memory.health
        if self.stream_failed and not health.ever_good and not self.view.groups:
            return self._finish()
        self._check_tasks()
        self._end_groups()
        self._check_pending()
        self._check_active()
        if not self.situation.stopping:
            self._note_first_offsets()
            self._forget_offsets()
        self._check_idle()
        if not self.situation.stopping and not self.idle:
            self._create_groups()
            self._create_tasks()
        self._measure()
        return self._finish()

    # Partitions

    def _refresh_partitions(self) -> None:
        """Find the streams, leave out those that were made again, and mark segments that were read to their ends."""
        for key, (_, end) in (self.view.bounds or {}).items():  # also if its stream is gone by now
            offset = self.state.offsets.get(key)
            if offset is not None and offset.offset == end and not offset.closed:
                self.state.set_offset(key, attrs.evolve(offset, closed=True))
        if self.situation.terminated or self._is_complete():  # the streams of the latter may be deleted
            return
        view = self.view
        missing = [name for name in view.wanted if name not in view.found]
        if missing or not view.wanted:
            what = f"stream {missing[0]} not found" if missing else "no stream matches the pattern"
            self._fail(f"{what}; create it, or submit another spec")
            self.stream_failed = True
        for name, stream_id in view.found.items():
            noted = view.noted.get(name, stream_id)
            if noted != stream_id:
                remedy = (
                    "reset the supervisor, so that it reads the new one"
                    if view.bounds is None
                    else "terminate the supervisor: its ranges are gone"
                )
                self._fail(f"stream {name} was deleted and made again; {remedy}")
                for key in [each for each in self.state.partitions if each[0] == stream_id]:
                    del self.state.partitions[key]
            elif name not in view.noted:
                self.state.actions.append(NoteStream(name, stream_id))
        self._check_bounds()
        for key, offset in list(self.state.offsets.items()):
            partition = self.state.partitions.get(key)
            if (
                partition is not None
                and partition.sealed
                and not offset.closed
                and offset.offset >= partition.tail
            ):
                self.state.set_offset(key, attrs.evolve(offset, closed=True))

    def _check_bounds(self) -> None:
        """Leave out ranges that are gone, and those outside of which something was published."""
        found = set(self.view.found.values())
        for key, (start, end) in (self.view.bounds or {}).items():
            offset = self.state.offsets.get(key)
            if offset is None or (offset.closed and offset.offset == end):
                continue
            if not start <= offset.offset <= end:
                self.state.partitions.pop(key, None)
                self._fail(
                    f"{self._name_of(key)} was published up to offset {offset.offset:,}, outside of its range"
                    f" {start:,} to {end:,}; submit the range under another id"
                )
            elif key not in self.view.partitions and key[0] in found:
                gap = f"{self._name_of(key)}: bytes {offset.offset:,} to {end:,} were truncated unread"
                if self.spec.tuning.reset_offset_automatically:
                    self.state.set_offset(key, IngestOffset(end, offset.number, closed=True))
                    self.state.remember_error(f"{gap}; skipped, as the spec asks")
                else:
                    self._fail(f"{gap}; terminate the supervisor")

    def _is_complete(self) -> bool:
        """Return whether the supervisor is bounded, and everything in its ranges is published."""
        bounds, offsets = self.view.bounds, self.state.offsets
        return bounds is not None and all(
            key in offsets and offsets[key].closed and offsets[key].offset == end
            for key, (_, end) in bounds.items()
        )

    def _name_of(self, key: PartitionKey) -> str:
        """Return the text of a partition in messages."""
        name = next((name for name, found in self.view.found.items() if found == key[0]), str(key[0]))
        return f"{name} segment {format_segment(key[1])}"

    def _fail(self, message: str) -> None:
        self.failed = True
        self.state.remember_error(message)

    # Tasks

    def _check_tasks(self) -> None:
        """Fail the tasks of dead workers, stop those that hang, and count the ends of all."""
        dead: set[str] = set()
        for task in self.view.tasks:
            if task.state is TaskState.RUNNING:
                if task.worker in self.view.dead_workers:
                    self.state.end_task(task, TaskState.FAILED, "its worker died")
                    self.state.orphaned.add((task.base, task.replica))
                    self.failing.add(task.base)
                    if task.worker not in dead:  # one death is one failure
                        dead.add(task.worker)
                        self._count_failure(task, "its worker died")
                elif (why := self._why_hung(task)) is not None:
                    self.state.end_task(task, TaskState.STOPPED, why)
                    self._count_failure(task, why)
                    self.state.count_hung()
            elif not task.state.live:
                self.state.actions.append(CountTask(task.id))
                self.state.count_end(task)
                if task.state is TaskState.FAILED:
                    self._count_failure(task, task.error or "")
                elif task.state is TaskState.SUCCEEDED:
                    self.succeeded.add(task.base)
                    self._count(failed=False)

    def _why_hung(self, task: IngestTask) -> str | None:
        """Return why a running task counts as hung, or None."""
        tuning, progress_ms = self.spec.tuning, task.stats.progress_ms
        if task.seen_ms is not None and task.seen_ms + tuning.task_timeout_ms < self.now_ms:
            return f"its worker gave no sign for {tuning.task_timeout_ms:,} ms"
        if progress_ms is not None and progress_ms + tuning.job_timeout_ms < self.now_ms:
            return f"its job made no progress for {tuning.job_timeout_ms:,} ms"
        return None

    def _count_failure(self, task: IngestTask, why: str) -> None:
        self.failing.add(task.base)
        self._count(failed=True)
        self.state.remember_error(f"task {task.id}: {why}")

    def _count(self, *, failed: bool) -> None:
        memory = self.state.memory
        self.state.memory = attrs.evolve(memory, health=memory.health.note_task(self.now_ms, failed=failed))

    # Durations, hand-off, changes of the spec, partitions that move

    def _end_groups(self) -> None:
        """End the groups whose time is over, at most as many as the spec allows, and those that must end anyway."""
        state = self.state
        active = sorted(
            state.with_state(IngestGroupState.ACTIVE), key=lambda each: (self._started_ms(each), each.gid)
        )
        losing = self._losing_groups() if not self.situation.stopping else set[str]()
        stops_max = self.spec.stops_max(task_count_of(self.spec, state.memory))
        ended = len(state.with_state(IngestGroupState.PENDING))
        for group in active:
            must = (
                self.situation.stopping
                or group.fingerprint != state.fingerprint
                or group.base in losing
                or self._is_exhausted(group)
            )
            # A group that has read nothing keeps its tasks and their pauses, unless a newer spec waits for it.
            is_worth_it = state.has_read(group) or group.version != self.situation.version
            early = group.gid in state.memory.handoff and is_worth_it
            is_over = self._started_ms(group) + self.spec.io.task_duration_ms <= self.now_ms
            if must or early or (is_over and ended < stops_max):
                state.end_group(group)
                ended += 0 if must else 1
        state.memory = attrs.evolve(state.memory, handoff=())

    def _started_ms(self, group: IngestGroup) -> int:
        """Return when the first task of the group began; now if none did."""
        times = [each.started_ms for each in self.state.live_tasks(group.base) if each.started_ms is not None]
        return min(times, default=self.now_ms)

    def _is_exhausted(self, group: IngestGroup) -> bool:
        """Return whether all partitions of a group are sealed, and it has read them to their ends."""
        read = dict(self.state.sequences[group.base][-1].starts)
        for task in self.state.live_tasks(group.base):
            for key, offset in task.read.items():
                read[key] = max(offset, read.get(key, offset))
        return all(
            (partition := self.state.partitions.get(key)) is not None
            and partition.sealed
            and read[key] >= partition.tail
            for key in group.starts
        )

    def _losing_groups(self) -> set[str]:
        """Return the groups that lose a partition to another one."""
        placed = self._place(self._readable())
        return {
            group.base
            for group in self.state.with_state(IngestGroupState.ACTIVE)
            if any(placed.get(key, group.gid) != group.gid for key in group.starts)
        }

    def _place(self, keys: Collection[PartitionKey]) -> dict[PartitionKey, int]:
        """Return the group of each partition that is to be read."""
        previous: dict[PartitionKey, int] = {}
        for group_state in (IngestGroupState.PENDING, IngestGroupState.ACTIVE):
            for group in self.state.with_state(group_state):
                previous |= dict.fromkeys(group.starts, group.gid)
        return assign_partitions(keys, task_count_of(self.spec, self.state.memory), previous)

    def _readable(self) -> set[PartitionKey]:
        """Return the partitions that need a reader. A sealed one that a group reads needs no other."""
        covered = self._covered()
        return {
            key
            for key, partition in self.state.partitions.items()
            if (not partition.sealed or (key not in covered and self._start(key) < partition.tail))
            and not (key in self.state.offsets and self.state.offsets[key].closed)
        }

    def _covered(self) -> set[PartitionKey]:
        return {key for each in self.state.with_state(IngestGroupState.ACTIVE) for key in each.starts}

    def _start(self, key: PartitionKey) -> int:
        """Return where the next group begins: behind what is being published, or what is; or where a first run does."""
        known = [
            each.ends[key]
            for each in self.state.with_state(IngestGroupState.PENDING)
            if each.ends is not None and key in each.ends
        ]
        if key in self.state.offsets:  # past the end of a pending group that has read nothing of it
            known.append(self.state.offsets[key].offset)
        if known:
            return max(known)
        partition = self.state.partitions[key]
        is_first = not self.view.offsets or key[0] in self.state.memory.added_streams  # others appeared since
        return partition.tail if is_first and not self.spec.io.use_earliest_offset else partition.head

    # Pending and active groups

    def _check_pending(self) -> None:
        """Remove the groups that are complete, and let new tasks take over those that failed or are late.

        The time of a group begins when what lies before it is published. Until then it can only wait.
        """
        for group in self.state.with_state(IngestGroupState.PENDING):
            if group.base not in self.state.groups:
                continue  # it was behind one that was given up
            if group.base in self.succeeded or not self.state.sequences.get(group.base):
                self.state.drop_group(group, PUBLISHED)
                self.again = True
                continue
            waits = self._is_waiting(group)
            if waits != (group.deadline_ms is None):
                deadline_ms = None if waits else self.now_ms + self.state.completion_ms(group)
                group = self.state.set_deadline(group, deadline_ms)
            is_late = group.deadline_ms is not None and group.deadline_ms <= self.now_ms
            if is_late or not self.state.live_tasks(group.base):
                self._retry_pending(group, is_late=is_late)
            elif self._is_starved(group):
                waited_ms = self.spec.tuning.task_timeout_ms
                self._give_up(group, f"no worker took the tasks of group {group.gid} for {waited_ms:,} ms")

    def _is_waiting(self, group: IngestGroup) -> bool:
        """Return whether a pending group can publish nothing, because one before it has not published."""
        return any(
            group in self.state.groups_behind(each)
            for each in self.state.with_state(IngestGroupState.PENDING)
        )

    def _retry_pending(self, group: IngestGroup, *, is_late: bool) -> None:
        """Let new tasks read a group again, unless that is hopeless or was tried often enough."""
        why = f"the tasks of group {group.gid} failed"
        if is_late:
            self._count(failed=True)
            why = f"group {group.gid} did not complete within {self.state.completion_ms(group):,} ms"
        retries = self.state.memory.retries.get(group.base, 0)
        live = self.state.live_tasks(group.base)
        if retries >= RETRIES_MAX:
            self._give_up(group, f"group {group.gid} did not complete in {retries + 1} attempts")
        elif self._is_unreadable(group) or (live and all(each.state is TaskState.WAITING for each in live)):
            self._give_up(group, why)
        else:
            if is_late:
                self.state.remember_error(f"{why}; new tasks read its range again")
            self.state.retry_group(group, counts=is_late or group.base in self.failing)

    def _give_up(self, group: IngestGroup, why: str) -> None:
        """Let another group, of the newest spec, read the range of a group, and of those behind it."""
        lost = self.state.fail_groups([group])
        self.state.remember_error(
            f"{why}; another group reads its range again, and those of {len(lost) - 1} groups behind it"
        )

    def _is_starved(self, group: IngestGroup) -> bool:
        """Return whether a group finds no worker, while groups behind it, which wait for it, have some."""
        since_ms = self.now_ms - self.spec.tuning.task_timeout_ms
        return all(
            each.state is TaskState.WAITING and max(each.created_ms, each.not_before_ms) <= since_ms
            for each in self.state.live_tasks(group.base)
        ) and any(
            task.state is TaskState.RUNNING
            for behind in self.state.groups_behind(group)
            for task in self.state.live_tasks(behind.base)
        )

    def _is_unreadable(self, group: IngestGroup) -> bool:
        """Return whether no task can publish a pending group: its range is gone, or was published or skipped."""
        return any(
            self._is_gone(key, start)
            or (key in self.state.offsets and start < self.state.offsets[key].offset)
            for key, start in self._unpublished(group)
        )

    def _unpublished(self, group: IngestGroup) -> list[tuple[PartitionKey, int]]:
        """Return where the ranges of closed sequences begin that hold something."""
        return [
            (key, start)
            for each in self.state.sequences[group.base]
            for key, start in each.starts.items()
            if each.ends is not None and each.ends[key] > start
        ]

    def _check_active(self) -> None:
        """Drop a group whose task failed on a range that is gone: a replacement could not read it either."""
        for group in self.state.with_state(IngestGroupState.ACTIVE):
            abandoned = not self.state.live_tasks(group.base)
            if abandoned or group.base in self.failing:
                needed = self._unpublished(group)
                if abandoned:
                    needed += self.state.sequences[group.base][0].starts.items()
                if any(self._is_gone(key, start) for key, start in needed):
                    self.state.fail_groups([group])

    def _is_gone(self, key: PartitionKey, start: int) -> bool:
        """Return whether no task can read a partition from `start` on."""
        if key in self.view.partitions:
            return start < self.view.partitions[key].head
        return key[0] in self.view.deleted

    # First and last offsets, and idleness

    def _note_first_offsets(self) -> None:
        """Commit where the reading of each new partition begins, so that an idle supervisor skips nothing."""
        for key, partition in self.state.partitions.items():
            if key not in self.state.offsets:
                start = self._start(key)
                number = partition.head_number if start == partition.head else partition.tail_number
                closed = partition.sealed and start == partition.tail
                self.state.set_offset(key, IngestOffset(start, number, closed))
        self.state.memory = attrs.evolve(self.state.memory, added_streams=())

    def _forget_offsets(self) -> None:
        """Forget the offsets of published segments that exist no more: each scale leaves some. Ranges need theirs."""
        found = set() if self.view.bounds is not None else set(self.view.found.values())
        needed = {key for each in self.state.groups.values() for key in each.starts}
        for key, offset in list(self.state.offsets.items()):
            if offset.closed and key[0] in found and key not in self.view.partitions and key not in needed:
                self.state.forget_offset(key)
        if self.spec.io.pattern is not None:
            self.state.forget_streams(self.view.gone - {key[0] for key in needed})

    def _check_idle(self) -> None:
        """Become idle if nothing was written since the last run and nothing is left to read, for long enough."""
        idle_after_ms = self.spec.io.idle_after_ms
        memory = self.state.memory
        tails = sum(each.tail_number for each in self.state.partitions.values())
        since_ms = None
        if idle_after_ms is not None and not self.situation.stopping and not self.stream_failed:
            furthest = furthest_reads(self.view)
            read = all(
                furthest.get(key, self._start(key)) >= each.tail
                for key, each in self.state.partitions.items()
            )
            if read and memory.last_run_ms is None:
                since_ms = self.now_ms - idle_after_ms
            elif read and memory.tails == tails:
                since_ms = self.now_ms if memory.idle_since_ms is None else memory.idle_since_ms
            self.idle = since_ms is not None and self.now_ms - since_ms >= idle_after_ms
        self.state.memory = attrs.evolve(memory, idle_since_ms=since_ms, tails=tails)

    # Creation

    def _create_groups(self) -> None:
        """Give every partition without a reader to a group: one that reads, or a new one."""
        state = self.state
        covered = self._covered()
        placed = self._place(self._readable())
        reading = {each.gid: each for each in state.with_state(IngestGroupState.ACTIVE)}
        starts: dict[int, dict[PartitionKey, int]] = {}
        for key, gid in placed.items():
            if key not in covered and (start := self._checked_start(key)) is not None:
                starts.setdefault(gid, {})[key] = start
        for gid, added in sorted(starts.items()):
            if gid in reading:
                state.extend_group(reading[gid], added)
            else:
                state.create_group(gid, added)

    def _checked_start(self, key: PartitionKey) -> int | None:
        """Return where to begin; None if the events there were truncated."""
        partition = self.state.partitions[key]
        start = self._start(key)
        if start >= partition.head:
            return start
        first = min(partition.head, partition.tail)  # a bounded partition may end before what is left
        gap = f"{self._name_of(key)}: bytes {start:,} to {first:,} were truncated unread"
        if self.spec.tuning.reset_offset_automatically:
            self.state.set_offset(key, IngestOffset(first, min(partition.head_number, partition.tail_number)))
            self.state.remember_error(f"{gap}; skipped, as the spec asks")
            return first
        self._fail(f"{gap}; reset the supervisor to a later position")
        return None

    def _create_tasks(self) -> None:
        """Give every reading group its replicas."""
        for group in self.state.with_state(IngestGroupState.ACTIVE):
            live = self.state.live_tasks(group.base)
            for task in sorted(live, key=lambda each: each.replica)[self.spec.io.replicas :]:
                self.state.end_task(task, TaskState.STOPPED, reason="the spec asks for fewer replicas")
            taken = {each.replica for each in live}
            for replica in range(self.spec.io.replicas):
                if replica not in taken:
                    self.state.create_task(group, replica)

    # Measuring and the end of a run

    def _measure(self) -> None:
        """Take samples of the lag, and ask the autoscaler, when these are due."""
        memory = self.state.memory
        if self.view.lags is not None and memory.needs_lag(self.now_ms):
            lag = aggregate_lag(self.view.lags.values(), LagAggregate.SUM)
            self.state.memory = memory = memory.with_lag(self.now_ms, lag)
        scaler = active_scaler(self.spec)
        if (
            scaler is None
            or self.situation.stopping
            or self.idle
            or self.stream_failed
            or self._is_complete()
        ):
            return
        if memory.next_scale_ms is None:
            memory = attrs.evolve(memory, next_scale_ms=self.now_ms + scaler.lag_collection_range_ms)
        if self.view.lags is not None and memory.next_sample_ms <= self.now_ms:
            range_ms = scaler.lag_collection_range_ms
            pause_ms = max(scaler.lag_collection_interval_ms, range_ms // SAMPLES_MAX)
            lag = aggregate_lag(self.view.lags.values(), scaler.lag_aggregate)
            samples = (*memory.samples, LagSample(at_ms=self.now_ms, lag=lag))[-(range_ms // pause_ms + 1) :]
            memory = attrs.evolve(memory, samples=samples, next_sample_ms=self.now_ms + pause_ms)
        if memory.next_scale_ms is not None and memory.next_scale_ms <= self.now_ms:
            wanted = self._wanted_scale(scaler, memory)
            memory = attrs.evolve(
                memory,
                next_scale_ms=self.now_ms + scaler.scale_action_period_ms,
                last_scale_reason=wanted.reason,
            )
            if wanted.task_count is not None:
                self.state.actions.append(
                    PostNotice(*encode_notice(ScaleNotice(wanted.task_count, wanted.reason)))
                )
        self.state.memory = memory

    def _wanted_scale(self, scaler: AutoscalerConfig, memory: Memory) -> ScaleDecision:
        current = task_count_of(self.spec, memory)
        partitions = len(self._readable() | self._covered())
        if scaler.strategy is AutoscalerStrategy.LAG:
            return lag_based(memory.samples, scaler, current=current, partitions=partitions)
        stats = [each.stats for each in self.view.tasks if each.state is TaskState.RUNNING]
        rates = [each.rates[-1] for each in stats if each.rates]
        busy = [each.busy_ratio for each in stats if each.busy_ratio is not None]
        load = TaskLoad(
            lag=memory.samples[-1].lag if memory.samples else -1,
            rate=sum(rates) / len(rates) if rates else None,
            idle_ratio=1 - sum(busy) / len(busy) if busy else None,
            partitions=partitions,
            current=current,
            task_duration_s=self.spec.io.task_duration_ms / 1000,
        )
        return cost_based(load, scaler)

    def _finish(self) -> Decision:
        state = self.state
        if self.situation.terminated and not state.groups:
            state.actions.append(EndSupervisor())
        proposed = SupervisorState.RUNNING
        if self.situation.terminated:
            proposed = SupervisorState.STOPPING
        elif self.spec.suspended:
            proposed = SupervisorState.SUSPENDED
        elif self._is_complete() and not state.groups:
            proposed = SupervisorState.COMPLETED
        elif self.idle:
            proposed = SupervisorState.IDLE
        health = state.memory.health.finish_run(
            proposed, failed=self.failed, stream_failed=self.stream_failed
        )
        state.memory = attrs.evolve(state.memory, health=health, last_run_ms=self.now_ms)
        self._hold_unpublished()
        return Decision(tuple(state.actions), state.memory, self._due_ms())

    def _hold_unpublished(self) -> None:
        """Keep what the groups may have to read again: from the committed offsets on, as far as it is readable."""
        starts: dict[PartitionKey, int] = {}
        bounds = self.view.bounds or {}
        needed = {key for each in self.state.groups.values() for key in each.starts}
        if not self.situation.terminated:
            needed |= bounds.keys()  # also of ranges that no group reads yet
        for key in needed:
            offset = self.state.offsets.get(key)
            if key in self.view.partitions and offset is not None and not offset.closed:
                start = max(offset.offset, self.view.partitions[key].head)
                if key not in bounds or start < bounds[key][1]:
                    starts[key] = start
        if starts or self.view.held:
            ends = {key: end for key, (_, end) in bounds.items() if key in starts}
            self.state.actions.append(HoldEvents(starts, self.now_ms + SUPERVISOR_HOLD_MS, ends))

    def _due_ms(self) -> int:
        """Return when the next run is due: after the period, or when something ends before."""
        if self.again:
            return self.now_ms
        due = [self.now_ms + self.spec.io.period_ms]
        due += [each.deadline_ms for each in self.state.groups.values() if each.deadline_ms is not None]
        for task in self.state.running_tasks():
            if task.seen_ms is not None and task.started_ms is not None:
                due.append(task.seen_ms + self.spec.tuning.task_timeout_ms + 1)
                if task.stats.progress_ms is not None:
                    due.append(task.stats.progress_ms + self.spec.tuning.job_timeout_ms + 1)
                group = self.state.groups.get(task.base)
                ends_ms = task.started_ms + self.spec.io.task_duration_ms
                if group is not None and group.state is IngestGroupState.ACTIVE and ends_ms > self.now_ms:
                    due.append(ends_ms)
        memory = self.state.memory
        if active_scaler(self.spec) is not None and not self.situation.stopping:
            due += [
                each for each in (memory.next_sample_ms, memory.next_scale_ms) if each and each > self.now_ms
            ]
        return max(min(due), self.now_ms + 1)
