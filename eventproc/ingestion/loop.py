"""Runs a supervisor on the host: one notice after the other, each decision in one transaction.

A decision is made in a read. If it has actions, it is made again in a write, on what is stored then, and applied there,
so that nothing changes in between. A notice that fails is removed and shown as an error; the loop goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

import attrs

from eventproc.ingestion.actions import Decision, apply_actions
from eventproc.ingestion.decisions import active_scaler, handle, matcher
from eventproc.ingestion.memory import Memory
from eventproc.ingestion.notices import Notice, RunNotice, decode_notice
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
from eventproc.store.ingestion.supervisors import (
    read_memory,
    write_memory,
)
from eventproc.store.ingestion.view import read_view
from eventproc.store.model.errors import DatabaseStopped, Fenced, NotFound, Retryable
from eventproc.store.ownership import Owner

LOG = logging.getLogger("eventproc.ingestion")

FAILED_PAUSE_MS: Final = 1_000
"""Pause after a supervisor's loop failed, so that a lasting failure does not keep a processor busy."""


async def handle_next(db: Database, owner: Owner, supervisor: str, is_alive: Callable[[str], bool]) -> None:
    """Handle the oldest notice of a supervisor, or run it because that is due. Raises OwnerFenced.

    is_alive: of the instance of a worker.
    """
    try:
        found = await db.read(partial(_decide, is_alive=is_alive, supervisor=supervisor))
        if found is not None:
            await db.write(
                partial(_apply, is_alive=is_alive, owner=owner, supervisor=supervisor, decided=found),
                step=Step.SUPERVISOR_RUN,
            )
    except (Fenced, DatabaseStopped, Retryable):
        raise
    except Exception as error:
        LOG.exception("a notice of supervisor %s failed", supervisor)
        await db.write(
            partial(_note_failure, owner=owner, supervisor=supervisor, why=repr(error)),
            step=Step.SUPERVISOR_RUN,
        )


@attrs.frozen
class _Decided:
    """A decision, and the notice that it is about; None for a run that was due."""

    notice: StoredNotice | None
    decision: Decision


def _decide(tx: Tx, is_alive: Callable[[str], bool], supervisor: str) -> _Decided | None:
    """Decide about the next notice. None: the supervisor has ended."""
    waiting = waiting_notices(tx, supervisor)
    stored = waiting[0] if waiting else None
    notice: Notice = RunNotice() if stored is None else decode_notice(stored)
    situation = read_situation(tx, supervisor, is_alive)
    return None if situation is None else _Decided(stored, handle(notice, situation))


def read_situation(
    tx: Tx, supervisor: str, is_alive: Callable[[str], bool], *, with_lags: bool | None = None
) -> Situation | None:
    """Return what a supervisor decides on, or None if it has ended.

    with_lags: whether to count the events that it is behind. None (default): if a sample is due.
    """
    text = read_memory(tx, supervisor)
    if text is None:
        return None
    versions = spec_versions(tx, supervisor)
    newest = next(each for each in versions if each.text is not None)
    assert newest.text is not None, "the version was chosen for having a text"
    spec = SupervisorSpec.parse(newest.text)
    memory = Memory.decode(text)
    pattern = matcher(spec)
    if with_lags is None:
        with_lags = active_scaler(spec) is not None and memory.next_sample_ms <= tx.now_ms
    view = read_view(
        tx,
        supervisor,
        streams=spec.io.streams,
        matches=None if pattern is None else lambda name: pattern.fullmatch(name) is not None,
        is_alive=is_alive,
        with_lags=with_lags,
    )
    return Situation(
        view=view, spec=spec, version=newest.version, terminated=versions[0].text is None, memory=memory
    )


def get_situation(tx: Tx, supervisor: str, is_alive: Callable[[str], bool]) -> Situation:
    """Return what a supervisor decides on, with lags. Raises NotFound if it has ended."""
    found = read_situation(tx, supervisor, is_alive, with_lags=True)
    if found is None:
        raise NotFound(kind="supervisor", name=supervisor)
    return found


def _apply(tx: Tx, is_alive: Callable[[str], bool], owner: Owner, supervisor: str, decided: _Decided) -> None:
    """Apply a decision, made again if it has actions. Raises OwnerFenced."""
    owner.check(tx)
    now = _decide(tx, is_alive, supervisor) if decided.decision.actions else decided
    if now is None:
        return
    if now.notice is not None:
        remove_notice(tx, now.notice)
    write_memory(tx, supervisor, now.decision.memory.encode(), now.decision.due_ms)
    apply_actions(tx, supervisor, now.decision.actions)


def _note_failure(tx: Tx, owner: Owner, supervisor: str, why: str) -> None:
    """Remove the notice that failed, and show the error. Raises OwnerFenced."""
    owner.check(tx)
    waiting = waiting_notices(tx, supervisor)
    if waiting:
        remove_notice(tx, waiting[0])
    if (text := read_memory(tx, supervisor)) is not None:
        memory = Memory.decode(text)
        health = memory.health.note_error(tx.now_ms, why)
        failed = health.finish_run(health.state, failed=True, stream_failed=False)
        memory = attrs.evolve(memory, health=failed)
        write_memory(tx, supervisor, memory.encode(), tx.now_ms + FAILED_PAUSE_MS)
