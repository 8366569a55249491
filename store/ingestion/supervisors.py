"""Records of supervisors: the versions of their specs, what they remember, and when their next run is due."""

from __future__ import annotations

import json
import re
from typing import Final

import attrs

from eventproc.store.database import Tx
from eventproc.store.ingestion.notices import announce, post_notice
from eventproc.store.model.argument_checks import INT_MAX
from eventproc.store.model.errors import NotFound
from eventproc.store.model.ingestion_errors import SupervisorTerminated
from eventproc.store.model.list_pages import COMPLETE, NO_LIMIT, ListPage

_LAST_RUN: Final = re.compile(r'"last_run_ms":\s*(\d+)')
"""In the JSON of a memory, which may be damaged."""


@attrs.frozen
class SpecVersion:
    """One version of a supervisor's spec. text: JSON; None: the supervisor was terminated."""

    id: str
    version: int
    text: str | None
    created_ms: int


def spec_versions(
    tx: Tx, supervisor: str, *, before: int | None = None, limit: int | None = None
) -> list[SpecVersion]:
    """Return the versions of a spec, newest first. Raises NotFound.

    before: only versions before this one. limit: at most that many; None: all.
    """
    if find_spec(tx, supervisor) is None:
        raise NotFound(kind="supervisor", name=supervisor)
    rows = tx.execute(
        "SELECT id, version, spec, created_ms FROM supervisor WHERE id = ? AND version < ?"
        " ORDER BY version DESC LIMIT ?",
        (supervisor, INT_MAX if before is None else before, NO_LIMIT if limit is None else limit),
    )
    return [SpecVersion(*row) for row in rows.fetchall()]


def find_spec(tx: Tx, supervisor: str) -> SpecVersion | None:
    """Return the newest version of a spec, which may say that the supervisor was terminated; None without one."""
    row = tx.execute(
        "SELECT id, version, spec, created_ms FROM supervisor WHERE id = ? ORDER BY version DESC LIMIT 1",
        (supervisor,),
    ).fetchone()
    return None if row is None else SpecVersion(*row)


def specs_of_table(tx: Tx, name: str) -> list[str]:
    """Return the texts of all specs that ever wrote to a table, the oldest first, each once. Cost: a scan of specs."""
    rows = tx.execute(
        "SELECT spec FROM supervisor WHERE spec IS NOT NULL ORDER BY created_ms, id, version"
    ).fetchall()
    newest_first = dict.fromkeys(row[0] for row in reversed(rows))  # the newest of equal ones counts
    return [text for text in reversed(newest_first) if _writes_to(text, name)]


def live_specs_of_table(tx: Tx, name: str) -> list[str]:
    """Return the texts of the specs of the supervisors that write to a table and were not terminated, oldest first."""
    rows = tx.execute(
        "SELECT spec FROM supervisor AS s WHERE spec IS NOT NULL"
        " AND version = (SELECT max(version) FROM supervisor WHERE id = s.id) ORDER BY created_ms, id"
    ).fetchall()
    return [text for (text,) in rows if _writes_to(text, name)]


def is_table_read(tx: Tx, name: str) -> bool:
    """Return whether a group reads or publishes events for a table. Cost: one query, a spec per group."""
    rows = tx.execute(
        "SELECT s.spec FROM ingest_group AS g JOIN supervisor AS s ON s.id = g.supervisor AND s.version = g.version"
        " WHERE s.spec IS NOT NULL"
    )
    return any(_writes_to(text, name) for (text,) in rows.fetchall())


def _writes_to(text: str, table: str) -> bool:
    """Return whether a spec, as JSON, is of the table."""
    return bool(json.loads(text)["schema"]["datasource"] == table)


def get_live_spec(tx: Tx, supervisor: str) -> SpecVersion:
    """Return the newest spec of a supervisor that was not terminated. Raises NotFound, SupervisorTerminated."""
    found = find_spec(tx, supervisor)
    if found is None or found.text is None:
        raise missing_supervisor(tx, supervisor)
    return found


def missing_supervisor(tx: Tx, supervisor: str) -> NotFound:
    """Return the error about a supervisor that does not run: it was terminated, or never submitted."""
    found = find_spec(tx, supervisor)
    if found is None:
        return NotFound(kind="supervisor", name=supervisor)
    return SupervisorTerminated(name=supervisor, terminated_ms=found.created_ms)


def get_spec_text(tx: Tx, supervisor: str, version: int) -> str:
    """Return the text of a version of a spec, for the tasks that were created under it. Raises NotFound."""
    row = tx.execute(
        "SELECT spec FROM supervisor WHERE id = ? AND version = ?", (supervisor, version)
    ).fetchone()
    if row is None or row[0] is None:
        raise NotFound(kind="supervisor", name=f"{supervisor} version {version}")
    return str(row[0])


def add_spec(tx: Tx, supervisor: str, text: str | None, *, start_delay_ms: int = 0) -> SpecVersion:
    """Add a version of a spec, and let the supervisor run.

    text: None terminates the supervisor. start_delay_ms: pause before the first run of a new one.
    """
    version, created_ms = 1, tx.now_ms
    if (found := find_spec(tx, supervisor)) is not None:  # the clock may have been set back since
        version, created_ms = found.version + 1, max(found.created_ms, created_ms)
    added = SpecVersion(supervisor, version, text, created_ms)
    tx.execute(
        "INSERT INTO supervisor (id, version, spec, created_ms) VALUES (?, ?, ?, ?)",
        (added.id, added.version, added.text, added.created_ms),
    )
    if read_memory(tx, supervisor) is None:
        tx.execute(
            "INSERT INTO supervisor_state (id, memory, due_ms) VALUES (?, '{}', ?)",
            (supervisor, tx.now_ms + start_delay_ms),
        )
        announce(tx)
    else:
        post_notice(tx, supervisor)
    return added


def supervisor_ids(tx: Tx, page: ListPage = COMPLETE) -> list[str]:
    """Return the ids of the supervisors that run, are suspended, or still end their tasks, sorted."""
    rows = tx.execute(
        "SELECT id FROM supervisor_state WHERE id > ? AND id >= ? AND id < ? ORDER BY id LIMIT ?",
        (page.after or "", page.prefix, page.prefix + "\U0010ffff", page.most),
    )
    return [row[0] for row in rows.fetchall()]


def next_runs(tx: Tx) -> dict[str, int]:
    """Return when each supervisor has something to do (wall ms); 0 if a notice waits. Two queries."""
    runs: dict[str, int] = dict(tx.execute("SELECT id, due_ms FROM supervisor_state").fetchall())
    noticed = tx.execute("SELECT DISTINCT supervisor FROM supervisor_notice").fetchall()
    return runs | dict.fromkeys((row[0] for row in noticed), 0)


def last_runs(tx: Tx) -> dict[str, int]:
    """Return when each supervisor that has run did so last (wall ms), as it remembers. One query, of all memories."""
    rows = tx.execute("SELECT id, memory FROM supervisor_state").fetchall()
    return {each: int(found[1]) for each, text in rows if (found := _LAST_RUN.search(text)) is not None}


def read_memory(tx: Tx, supervisor: str) -> str | None:
    """Return what a supervisor remembers (JSON), or None if it has ended."""
    row = tx.execute("SELECT memory FROM supervisor_state WHERE id = ?", (supervisor,)).fetchone()
    return None if row is None else str(row[0])


def write_memory(tx: Tx, supervisor: str, memory: str, due_ms: int | None = None) -> None:
    """Store what a supervisor remembers, and when its next run is due; None: as before."""
    tx.execute(
        "UPDATE supervisor_state SET memory = ?, due_ms = coalesce(?, due_ms) WHERE id = ?",
        (memory, due_ms, supervisor),
    )


def end_supervisor(tx: Tx, supervisor: str) -> None:
    """Forget a terminated supervisor whose tasks have ended. Its history, offsets and published files stay."""
    tx.execute("DELETE FROM supervisor_state WHERE id = ?", (supervisor,))
    tx.execute("DELETE FROM supervisor_notice WHERE supervisor = ?", (supervisor,))


def running_workers(tx: Tx) -> list[tuple[str, str]]:
    """Return the pairs (supervisor, worker) that have a running task. One query, over the live tasks."""
    return tx.execute(
        "SELECT DISTINCT supervisor, worker FROM ingest_task WHERE state = 'running' AND finished_ms IS NULL"
    ).fetchall()
