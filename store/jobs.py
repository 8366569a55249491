"""The rows of jobs, which say what became of events that were submitted with an id.

The row of a job is written in the transaction that appends its event, and changes in those that acquire it, release it,
accept it, or make it a dead letter. Events without a job cost nothing here. Beside them lie the rows of rates, which
say how many calls of a worker may begin.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import attrs

from eventproc.store.database import Tx, Watch, find_number, upsert
from eventproc.store.model.argument_checks import storable
from eventproc.store.model.errors import NotFound
from eventproc.store.model.jobs import ENDED, ERROR_CHARS_MAX, KEPT_MS, JobDescription
from eventproc.store.payload_pages import page_of_rows

_stored: Final = partial(storable, chars_max=ERROR_CHARS_MAX)

FORGOTTEN_A_STEP: Final = 1_000
"""Rows of ended jobs that one transaction deletes."""

_COLUMNS: Final = (
    "job_id, group_name, stream, state, attempts, progress, error, submitted_ms, changed_ms, due_ms, routing_key,"
    " payload"
)

_ENDED: Final = ", ".join(f"'{each}'" for each in ENDED)

_STORE_FREE: Final = upsert("rate_limit", "group_name, key", "free_us")


@attrs.frozen(kw_only=True)
class NewJob:
    """A job that is submitted, encoded. due_ms: when it begins at the earliest, wall ms; None: at once."""

    id: str
    group: str
    stream: str
    payload: bytes
    key: str | None = None
    due_ms: int | None = None


def watch_job(group: str, job: str) -> Watch:
    """Return the subscription to a job. Each wake-up costs one look-up."""

    def probe(tx: Tx) -> object:
        row = tx.execute(
            "SELECT state, changed_ms FROM job WHERE group_name = ? AND job_id = ?", (group, job)
        ).fetchone()
        return None if row is None else tuple(row)

    return Watch(_channel(group, job), probe)


def watch_cancelled(group: str) -> Watch:
    """Return the subscription to jobs of a group that are cancelled while they run. Each wake-up costs one look-up."""

    def probe(tx: Tx) -> object:
        row = tx.execute(
            "SELECT changed_ms, count(*) FROM job WHERE group_name = ? AND state = 'cancelled'"
            " GROUP BY changed_ms ORDER BY changed_ms DESC LIMIT 1",  # two may be cancelled in the same millisecond
            (group,),
        ).fetchone()
        return None if row is None else tuple(row)

    return Watch(("cancelled jobs", group), probe)


def find_job(tx: Tx, group: str, job: str) -> JobDescription | None:
    """Return a job; None if it is not known, or no longer. One look-up."""
    row = tx.execute(
        f"SELECT {_COLUMNS} FROM job WHERE group_name = ? AND job_id = ?", (group, job)
    ).fetchone()
    return None if row is None else _job(row)


def get_job(tx: Tx, group: str, job: str) -> JobDescription:
    """Return a job. Raises NotFound. One look-up."""
    if (found := find_job(tx, group, job)) is None:
        raise NotFound(kind=f"job of {group}", name=job)
    return found


def get_result(tx: Tx, group: str, job: str) -> bytes | None:
    """Return the result of a job; None without one. Raises NotFound."""
    row = tx.execute("SELECT result FROM job WHERE group_name = ? AND job_id = ?", (group, job)).fetchone()
    if row is None:
        raise NotFound(kind=f"job of {group}", name=job)
    return None if row[0] is None else bytes(row[0])


def list_jobs(
    tx: Tx, group: str, *, state: str | None, after: str | None, limit: int
) -> list[JobDescription]:
    """Return a page of jobs of a group in the order of their submission, those after the job `after`.

    Raises NotFound.
    """
    where, values = "group_name = ?", [group]
    if state is not None:
        where += " AND state = ?"
        values.append(state)
    if after is not None:
        get_job(tx, group, after)
        where += " AND id > (SELECT id FROM job WHERE group_name = ? AND job_id = ?)"
        values += [group, after]
    found = f"FROM job WHERE {where} ORDER BY id"
    return [_job(row) for row in page_of_rows(tx, _COLUMNS, "length(payload)", found, values, limit)]


def insert_job(tx: Tx, job: NewJob) -> JobDescription | None:
    """Write the row of a job, and return None; or return the job of its id, if there is one."""
    if (found := find_job(tx, job.group, job.id)) is not None:
        return found
    key = None if job.key is None else job.key.encode()
    tx.execute(
        "INSERT INTO job (job_id, group_name, stream, state, attempts, submitted_ms, changed_ms, due_ms, routing_key,"
        " payload) VALUES (?, ?, ?, 'waiting', 0, ?, ?, ?, ?, ?)",
        (job.id, job.group, job.stream, tx.now_ms, tx.now_ms, job.due_ms, key, job.payload),
    )
    return None


def begin_jobs(tx: Tx, group: str, attempts: Mapping[str, int]) -> None:
    """Note which attempt of which job begins."""
    change = "state = 'running', attempts = ?, due_ms = NULL"
    _change(tx, group, change, {job: (attempt,) for job, attempt in attempts.items()})


def cancelled_jobs(tx: Tx, group: str, jobs: Iterable[str]) -> set[str]:
    """Return those of the jobs that are cancelled. A look-up each."""
    return {
        job
        for job in jobs
        if tx.execute(
            "SELECT 1 FROM job WHERE group_name = ? AND job_id = ? AND state = 'cancelled'", (group, job)
        ).fetchone()
    }


def discard_jobs(tx: Tx, group: str, jobs: Iterable[str]) -> None:
    """Note that the events of cancelled jobs are finished, by an empty result: they may be forgotten now."""
    tx.executemany(
        "UPDATE job SET result = ? WHERE group_name = ? AND job_id = ?", [(b"", group, job) for job in jobs]
    )


def end_jobs(tx: Tx, group: str, results: Mapping[str, bytes | None]) -> None:
    """Note the results of jobs that are done."""
    _change(
        tx,
        group,
        "state = 'done', progress = 1000000, error = NULL, result = ?",
        {job: (result,) for job, result in results.items()},
    )


def fail_jobs(tx: Tx, group: str, errors: Mapping[str, tuple[str, int]]) -> None:
    """Note that jobs failed for good. errors: {job: (error, attempts)}."""
    change = "state = 'failed', error = ?, attempts = ?"
    _change(tx, group, change, {job: (_stored(error), count) for job, (error, count) in errors.items()})


def return_jobs(tx: Tx, group: str, attempts: Mapping[str, int]) -> None:
    """Note that jobs wait again, with so many attempts: what a worker had of them does not count."""
    change = "state = 'waiting', attempts = ?"
    _change(tx, group, change, {job: (before,) for job, before in attempts.items()})


def free_jobs(tx: Tx, group: str, errors: Mapping[str, str | None]) -> None:
    """Note that jobs wait again, after an error or a redrive."""
    _change(
        tx,
        group,
        "state = 'waiting', error = coalesce(?, error)",
        {job: (None if error is None else _stored(error),) for job, error in errors.items()},
    )


def note_progress(tx: Tx, group: str, progress: Mapping[str, float]) -> None:
    """Note how far running jobs are, from 0 to 1."""
    parts = {job: (round(part * 1_000_000),) for job, part in progress.items()}
    _change(tx, group, "progress = ?", parts, where="state = 'running'")


def cancel_job(tx: Tx, group: str, job: str) -> JobDescription:
    """Let nobody do the job, and return what it was. One that has ended does not change. Raises NotFound."""
    found = get_job(tx, group, job)
    if found.state not in ENDED:
        _change(tx, group, "state = 'cancelled'", {job: ()})
        # Not before the last one: a clock that was set back would hide it from `watch_cancelled`.
        tx.execute(
            "UPDATE job SET changed_ms = (SELECT max(changed_ms) FROM job WHERE group_name = ? AND state = 'cancelled')"
            " WHERE group_name = ? AND job_id = ?",
            (group, group, job),
        )
        tx.wake(("cancelled jobs", group))
    return found


def cancel_jobs_of(tx: Tx, stream: str) -> None:
    """Cancel the jobs of a stream that is deleted: nobody can do them any more. Cost: a look at each job's row.

    The events of those that were cancelled before are gone, too, so that all may be forgotten.
    """
    tx.execute(
        "UPDATE job SET result = ? WHERE stream = ? AND state = 'cancelled' AND result IS NULL", (b"", stream)
    )
    rows = tx.execute(
        f"UPDATE job SET state = 'cancelled', result = ?, changed_ms = ? WHERE stream = ? AND state NOT IN ({_ENDED})"
        " RETURNING group_name, job_id",
        (b"", tx.now_ms, stream),
    ).fetchall()
    for group, job in rows:
        tx.wake(_channel(group, job))
    for group in {group for group, _ in rows}:
        tx.wake(("cancelled jobs", group))


def delete_jobs(tx: Tx, group: str) -> None:
    """Forget the jobs of a group that is deleted, and wake those that wait for them."""
    _delete_jobs(tx, "group_name = ?", group)


def delete_jobs_in(tx: Tx, scope: str) -> None:
    """Forget the jobs of groups that a scope never had, and that is deleted, as `delete_jobs` those of the others."""
    _delete_jobs(tx, "group_name >= ? AND group_name < ?", f"{scope}/", f"{scope}0")


def delayed_id(group: str, job: str) -> str:
    """Return the id of the delayed event of a job."""
    return f"{group}:{job}"


def cancel_job_of(tx: Tx, event_id: str, job: str) -> None:
    """Cancel the job whose delayed event is forgotten. Nothing happens if it is not known any more."""
    group = event_id.removesuffix(f":{job}")
    if event_id != delayed_id(group, job) or find_job(tx, group, job) is None:
        return
    if cancel_job(tx, group, job).state not in ENDED:
        discard_jobs(tx, group, [job])


def move_job_of(tx: Tx, event_id: str, job: str, due_ms: int | None) -> None:
    """Note another time of the job whose delayed event has it."""
    group = event_id.removesuffix(f":{job}")
    if event_id == delayed_id(group, job):
        _change(tx, group, "due_ms = ?", {job: (due_ms,)})


def free_us_of(tx: Tx, group: str, name: bytes) -> int:
    """Return when the rate of a name is free, wall us; 0 if it was never used, or long ago. One look-up."""
    query = "SELECT free_us FROM rate_limit WHERE group_name = ? AND key = ?"
    return find_number(tx, query, group, name) or 0


def store_free_us(tx: Tx, group: str, name: bytes, free_us: int) -> None:
    """Store when the rate of a name is free, wall us."""
    tx.execute(_STORE_FREE, (group, name, free_us))


def forget_free(tx: Tx, group: str) -> None:
    """Remove the rows of names whose rate is free: none says the same."""
    tx.execute("DELETE FROM rate_limit WHERE group_name = ? AND free_us < ?", (group, tx.now_ms * 1_000))


def forget_jobs(tx: Tx) -> bool:
    """Forget jobs that ended KEPT_MS ago; return whether there may be more.

    A cancelled job stays until its event is finished: a worker that comes later has to know of it.
    """
    done = tx.execute(
        f"DELETE FROM job WHERE id IN (SELECT id FROM job WHERE state IN ({_ENDED})"
        " AND changed_ms < ? AND (state != 'cancelled' OR result IS NOT NULL) ORDER BY changed_ms LIMIT ?)",
        (tx.now_ms - KEPT_MS, FORGOTTEN_A_STEP),
    )
    return done.rowcount >= FORGOTTEN_A_STEP


def _delete_jobs(tx: Tx, where: str, *values: str) -> None:
    rows = tx.execute(f"DELETE FROM job WHERE {where} RETURNING group_name, job_id", values).fetchall()
    for group, job in rows:
        tx.wake(_channel(group, job))


def _change(
    tx: Tx,
    group: str,
    change: str,
    jobs: Mapping[str, Sequence[Any]],
    *,
    where: str = "state != 'cancelled'",
) -> None:
    """Change the rows of jobs in these states, and wake those that wait for them. Nothing happens without jobs."""
    if not jobs:
        return
    tx.executemany(
        f"UPDATE job SET {change}, changed_ms = ? WHERE group_name = ? AND job_id = ? AND {where}",
        [(*values, tx.now_ms, group, job) for job, values in jobs.items()],
    )
    for job in jobs:
        tx.wake(_channel(group, job))


def _channel(group: str, job: str) -> tuple[str, str, str]:
    return "job", group, job


def _job(row: Sequence[Any]) -> JobDescription:
    job, group, stream, state, attempts, progress, error, submitted_ms, changed_ms, due_ms, key, payload = row
    return JobDescription(
        id=job,
        group=group,
        stream=stream,
        state=state,
        attempts=attempts,
        progress=None if progress is None else progress / 1_000_000,
        error=error,
        submitted_ms=submitted_ms,
        changed_ms=changed_ms,
        due_ms=due_ms,
        key=None if key is None else bytes(key).decode(),
        payload=bytes(payload),
    )
