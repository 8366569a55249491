"""`eventproc job`: submit, list, show, cancel and retry the jobs of a share group."""

from __future__ import annotations

from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import click

from eventproc.cli.options import due_ms, due_options, limit_option
from eventproc.cli.output.events import row_of
from eventproc.cli.texts import BytesParam
from eventproc.cli.verbs import Noun, rows_of_pages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from eventproc import Job
    from eventproc.cli.output.tables import Row
    from eventproc.describe import JobState
    from eventproc.runtime import Eventproc

STATES = ("waiting", "running", "done", "failed", "cancelled")

group_argument = click.argument("group", metavar="SCOPE/GROUP")
job_argument = click.argument("job_id", metavar="ID")


@click.group(cls=Noun)
def job() -> None:
    """Submit, list, show, cancel and retry jobs, which the workers of a share group do.

    A job that ended is known for a day.

    Examples:
        eventproc job list shop/mail
    """


@job.shows(["id", "state", "attempts", "progress", "submitted_ms", "due_ms", "error"])
@group_argument
@limit_option(100, "Largest number of jobs.")
@click.option("--state", type=click.Choice(STATES), help="List the jobs in this state only.")
@click.option("--after", metavar="ID", help="List the jobs after this one.")
async def list_(
    ep: Eventproc, group: str, limit: int, state: JobState | None, after: str | None
) -> list[Row]:
    """List the jobs of a share group, in the order in which they were submitted.

    Examples:
        eventproc job list shop/mail
        eventproc job list shop/mail --state failed --limit 20
    """
    read, row = partial(ep.jobs(group).list, state=state), partial(row_of, whole=False)
    rows = await rows_of_pages(read, row, "id", after=after, limit=limit)
    if not rows:
        await ep.share_group(group)  # raises NotFound, if the name is wrong
    return rows


@job.shows(watch=False)
@group_argument
@click.argument("payload", type=BytesParam())
@click.option(
    "--stream", metavar="STREAM", help="Stream that takes the job; by default the only one of the group."
)
@click.option("--id", metavar="ID", help="Its id; a job of an id that is known is not submitted again.")
@click.option(
    "--priority", type=int, default=0, metavar="N", help="Priority, 0 (default) to 9; higher goes first."
)
@due_options
async def submit(
    ep: Eventproc,
    group: str,
    payload: bytes,
    stream: str | None,
    delay: float | None,
    at: str | None,
    **options: Any,
) -> Row:
    """Submit a job to the workers of a share group. Shows what the job is then.

    Examples:
        eventproc job submit shop/mail '{"to": "ana"}' --stream shop/jobs
        eventproc job submit shop/mail hello --id order-17 --priority 5 --delay 60
    """
    delay_ms, at_ms = due_ms(delay, at)
    made = await ep.jobs(group, stream).submit(payload, delay_ms=delay_ms, at=at_ms, **options)
    return row_of(await made.describe(), whole=False)


def _one(change: Callable[[Job], Awaitable[object]]) -> click.Command:
    """Add a command about one job, which shows what the job is once the function has changed it."""

    @wraps(change)
    async def shown(ep: Eventproc, group: str, job_id: str) -> Row:
        found = ep.jobs(group).job(job_id)
        await change(found)
        return row_of(await found.describe(), whole=True)

    return job.shows(watch=False)(group_argument(job_argument(shown)))


@_one
async def show(_: Job) -> None:
    """Show a job with its payload, its state, and its last error.

    Examples:
        eventproc job show shop/mail order-17
    """


@_one
def cancel(found: Job) -> Awaitable[bool]:
    """Let nobody do a job. A call that runs is cancelled soon, its effects discarded. Shows what the job is then.

    Examples:
        eventproc job cancel shop/mail order-17
    """
    return found.cancel()


@_one
def retry(found: Job) -> Awaitable[bool]:
    """Let a failed job be done once more: its dead letter is redriven. Shows what the job is then.

    Examples:
        eventproc job retry shop/mail order-17
    """
    return found.retry()
