"""`eventproc task`: list, describe, wait for and cancel tasks; and how other commands submit one (`--background`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import click

from eventproc.cli import session
from eventproc.cli.exit_codes import FAILED, OK
from eventproc.cli.options import (
    CommandGroup,
    Settings,
    output_option,
    pass_settings,
    timeout_option,
    watch_option,
)
from eventproc.cli.output.tables import described, show_done, show_one, show_rows
from eventproc.cli.watch import show_found
from eventproc.cluster import AnyTask
from eventproc.describe import TaskInfo, TaskStatus
from eventproc.runtime import Eventproc


@click.group(cls=CommandGroup)
def task() -> None:
    """List, describe, wait for and cancel tasks: backups, offloads and deletions in the background.

    An instance that may be the host runs them, such as `eventproc run`. After its death another one goes on.

    Examples:
        eventproc task list
    """


@task.command("list")
@click.option(
    "--limit", type=int, default=100, show_default=True, metavar="N", help="Largest number of tasks."
)
@watch_option
@output_option()
@pass_settings
def list_(settings: Settings, limit: int, output: str) -> None:
    """List the newest tasks, the newest first. A task is kept for a day after its end.

    Examples:
        eventproc task list
        eventproc task list --watch
    """
    columns = ["id", "kind", "resource", "status", "done", "total", "created_ms", "error"]

    def show(found: list[TaskInfo]) -> None:
        show_rows([described(each) for each in found], columns, output)

    show_found(settings, lambda ep: ep.tasks.list(limit=limit), show)


@task.command()
@click.argument("task_id", metavar="ID")
@watch_option
@output_option()
@pass_settings
def describe(settings: Settings, task_id: str, output: str) -> None:
    """Show a task: its progress, the instance that runs it, and its result or why it failed.

    Examples:
        eventproc task describe 0199f0c2-7a44-7c1e-9d1e-2f6b8f1d3c55
    """

    def show(found: TaskInfo) -> None:
        show_one(described(found), output)

    show_found(settings, lambda ep: ep.tasks.get(task_id), show)


@task.command()
@click.argument("task_id", metavar="ID")
@output_option()
@pass_settings
def cancel(settings: Settings, task_id: str, output: str) -> None:
    """Ask a task to end. What it has done stays.

    Examples:
        eventproc task cancel 0199f0c2-7a44-7c1e-9d1e-2f6b8f1d3c55
    """
    show_one(described(session.run(settings, lambda ep: ep.tasks.cancel(task_id))), output)


@task.command()
@click.argument("task_id", metavar="ID")
@timeout_option
@output_option()
@pass_settings
def wait(settings: Settings, task_id: str, timeout: float, output: str) -> int:
    """Wait until a task has ended. If no other instance runs tasks, this command runs it.

    Exit codes: 0 done, 1 failed or cancelled, 5 timed out.

    Examples:
        eventproc task wait 0199f0c2-7a44-7c1e-9d1e-2f6b8f1d3c55 --timeout 600
    """

    async def act(ep: Eventproc) -> TaskInfo:
        return await ep.tasks.wait(task_id, timeout_ms=round(timeout * 1000))

    ended = session.run(settings, act, host=True)
    show_one(described(ended), output)
    return OK if ended.status is TaskStatus.DONE else FAILED


def submit_in_background(
    settings: Settings, make: Callable[[Eventproc], Awaitable[AnyTask]], output: str
) -> None:
    """Submit a task and print its id, without waiting for it. make: checks the arguments, and returns the task."""

    async def act(ep: Eventproc) -> TaskInfo:
        return await ep.tasks.submit(await make(ep))

    made = session.run(settings, act)
    row = {"done": "submit", "target": made.resource, "task_id": made.id}
    show_done(
        settings, row, output, f"submitted task {made.id}: `eventproc task wait {made.id}` waits for its end"
    )
