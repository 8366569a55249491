"""`eventproc task`: list, describe, wait for and cancel tasks."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

import click

from eventproc.cli.exit_codes import FAILED, OK
from eventproc.cli.options import Settings, limit_option, output_option, pass_settings, timeout_option
from eventproc.cli.verbs import Noun

if TYPE_CHECKING:
    from eventproc.describe import TaskInfo
    from eventproc.runtime import Eventproc

task_argument = click.argument("task_id", metavar="ID")


@click.group(cls=Noun)
def task() -> None:
    """List, describe, wait for and cancel tasks: backups, offloads and deletions in the background.

    An instance that may be the host runs them, such as `eventproc run`. After its death another one goes on.

    Examples:
        eventproc task list
    """


@task.shows(["id", "kind", "resource", "status", "done", "total", "created_ms", "error"])
@limit_option(100, "Largest number of tasks.")
def list_(ep: Eventproc, limit: int) -> Awaitable[list[TaskInfo]]:
    """List the newest tasks, the newest first. A task is kept for a day after its end.

    Examples:
        eventproc task list
        eventproc task list --watch
    """
    return ep.tasks.list(limit=limit)


@task.shows()
@task_argument
def describe(ep: Eventproc, task_id: str) -> Awaitable[TaskInfo]:
    """Show a task: its progress, the instance that runs it, and its result or why it failed.

    Examples:
        eventproc task describe 0199f0c2-7a44-7c1e-9d1e-2f6b8f1d3c55
    """
    return ep.tasks.get(task_id)


@task.shows(watch=False)
@task_argument
def cancel(ep: Eventproc, task_id: str) -> Awaitable[TaskInfo]:
    """Ask a task to end. What it has done stays.

    Examples:
        eventproc task cancel 0199f0c2-7a44-7c1e-9d1e-2f6b8f1d3c55
    """
    return ep.tasks.cancel(task_id)


@task.command()
@task_argument
@timeout_option
@output_option()
@pass_settings
def wait(settings: Settings, task_id: str, timeout: float, output: str) -> int:
    """Wait until a task has ended. If no other instance runs tasks, this command runs it.

    Exit codes: 0 done, 1 failed or cancelled, 5 timed out.

    Examples:
        eventproc task wait 0199f0c2-7a44-7c1e-9d1e-2f6b8f1d3c55 --timeout 600
    """
    from eventproc.cli import session
    from eventproc.cli.output.tables import described, show_one

    def act(ep: Eventproc) -> Awaitable[TaskInfo]:
        return ep.tasks.wait(task_id, timeout_ms=round(timeout * 1000))

    ended = session.run(settings, act, host=True)
    show_one(described(ended), output)
    return OK if ended.status.value == "done" else FAILED
