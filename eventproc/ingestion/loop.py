"""Runs a supervisor on the host: one notice after the other, each decision in one transaction.

A decision is made in the write that applies it, so that nothing changes in between and no notice is removed that it did
not see. A notice that fails is removed and shown as an error; the loop goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final

import attrs

from eventproc.ingestion.actions import apply_actions
from eventproc.ingestion.decisions import active_scaler, handle, matcher
from eventproc.ingestion.memory import Memory
from eventproc.ingestion.notices import Notice, RunNotice, decode_notice
from eventproc.ingestion.ranges import bounds_of
from eventproc.ingestion.spec import SupervisorSpec
from eventproc.ingestion.working_state import Situation
from eventproc.store.database import Database, Tx
from eventproc.store.faults import Step
from eventproc.store.ingestion import (
    StoredNotice,
    remove_notice,
    spec_versions,
    waiting_notices,
)
from eventproc.store.ingestion.rows import follow_clock, read_streams
from eventproc.store.ingestion.supervisors import (
    missing_supervisor,
    read_memory,
    write_memory,
)
from eventproc.store.ingestion.view import read_view
from eventproc.store.model.errors import DatabaseStopped, Fenced, Retryable
from eventproc.store.model.limits import SET_BACK_MS
from eventproc.store.ownership import Owner

LOG = logging.getLogger("eventproc.ingestion")

SPECS_KEPT: Final = 64
"""Parsed specs that are kept, the latest ones. Every run needs one, and a thousand ranges take 50 ms to parse.
Higher: more memory, some kB each."""

FAILED_PAUSE_MS: Final = 1_000
"""Pause after a supervisor's loop failed, so that a lasting failure does not keep a processor busy."""


async def handle_next(db: Database, owner: Owner, supervisor: str, is_alive: Callable[[str], bool]) -> None:
    """Handle the oldest notice of a supervisor, or run it because that is due. Raises OwnerFenced.

    is_alive: of the instance of a worker.
    """
    try:
        await db.write(
            partial(_handle, is_alive=is_alive, owner=owner, supervisor=supervisor),
            step=Step.SUPERVISOR_RUN,
        )
    except _HandlingFailed as failed:
        LOG.exception("a notice of supervisor %s failed", supervisor)
        why = repr(failed.__cause__)
        await db.write(
            partial(_note_failure, owner=owner, supervisor=supervisor, notice=failed.notice, why=why),
            step=Step.SUPERVISOR_RUN,
        )


class _HandlingFailed(Exception):
    """What was decided about a notice failed, and changed nothing. notice: None for a run that was due."""

    def __init__(self, notice: StoredNotice | None) -> None:
        super().__init__(notice)
        self.notice = notice


def _handle(tx: Tx, is_alive: Callable[[str], bool], owner: Owner, supervisor: str) -> None:
    """Decide about the oldest notice, or about a run that is due, and apply it. Raises OwnerFenced, _HandlingFailed."""
    owner.check(tx)
    waiting = waiting_notices(tx, supervisor)
    stored = waiting[0] if waiting else None
    try:
        situation = read_situation(tx, supervisor, is_alive)
        if situation is not None and _maybe_follow_clock(tx, supervisor, situation.memory):
            situation = read_situation(tx, supervisor, is_alive)
        if situation is None:  # it has ended
            for each in waiting:
                remove_notice(tx, each)
            return
        notice: Notice = RunNotice() if stored is None else decode_notice(stored)
        decision = handle(notice, situation)
        if stored is not None:
            remove_notice(tx, stored)
        write_memory(tx, supervisor, decision.memory.encode(), decision.due_ms)
        apply_actions(tx, supervisor, decision.actions)
    except (Fenced, DatabaseStopped, Retryable):
        raise
    except Exception as error:
        raise _HandlingFailed(stored) from error


def _maybe_follow_clock(tx: Tx, supervisor: str, memory: Memory) -> bool:
    """Move the times of a supervisor if the wall clock was set back since its last run; return whether it was."""
    back_ms = (memory.last_run_ms or 0) - tx.now_ms
    if back_ms <= SET_BACK_MS:
        return False
    follow_clock(tx, supervisor, back_ms)
    write_memory(tx, supervisor, memory.earlier(back_ms).encode())
    return True


def read_situation(
    tx: Tx, supervisor: str, is_alive: Callable[[str], bool], *, with_lags: bool | None = None
) -> Situation | None:
    """Return what a supervisor decides on, or None if it has ended.

    with_lags: whether to count the events that it is behind. None (default): if a sample is due.
    """
    text = read_memory(tx, supervisor)
    if text is None:
        return None
    versions = spec_versions(tx, supervisor, limit=2)  # a supervisor that has ended ends no second time
    newest = next(each for each in versions if each.text is not None)
    assert newest.text is not None, "the version was chosen for having a text"
    spec = _parsed(newest.text)
    memory = Memory.decode(text)
    pattern = matcher(spec)
    if with_lags is None:
        scales = active_scaler(spec) is not None and memory.next_sample_ms <= tx.now_ms
        with_lags = scales or memory.needs_lag(tx.now_ms)
    view = read_view(
        tx,
        supervisor,
        streams=spec.stream_names,
        matches=None if pattern is None else lambda name: pattern.fullmatch(name) is not None,
        is_alive=is_alive,
        with_lags=with_lags,
        bounds=bounds_of(spec, read_streams(tx, supervisor)),
    )
    return Situation(
        view=view, spec=spec, version=newest.version, terminated=versions[0].text is None, memory=memory
    )


@lru_cache(SPECS_KEPT)
def _parsed(text: str) -> SupervisorSpec:
    return SupervisorSpec.parse(text)


def get_situation(tx: Tx, supervisor: str, is_alive: Callable[[str], bool]) -> Situation:
    """Return what a supervisor decides on, with lags. Raises NotFound if it has ended."""
    found = read_situation(tx, supervisor, is_alive, with_lags=True)
    if found is None:
        raise missing_supervisor(tx, supervisor)
    return found


def _note_failure(tx: Tx, owner: Owner, supervisor: str, notice: StoredNotice | None, why: str) -> None:
    """Remove the notice that failed, if it was one, and show the error. Raises OwnerFenced."""
    owner.check(tx)
    if notice is not None:
        remove_notice(tx, notice)
    if (text := read_memory(tx, supervisor)) is not None:
        memory = Memory.decode(text)
        health = memory.health.note_error(tx.now_ms, why)
        failed = health.finish_run(health.state, failed=True, stream_failed=False)
        memory = attrs.evolve(memory, health=failed)
        write_memory(tx, supervisor, memory.encode(), tx.now_ms + FAILED_PAUSE_MS)
