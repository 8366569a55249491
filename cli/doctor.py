"""`eventproc doctor`: is the directory healthy, and who uses it."""

from __future__ import annotations

import click

from eventproc.cli import session
from eventproc.cli.checkup import Report, look_inside, look_outside
from eventproc.cli.failures import FAILED, OK, UNUSABLE
from eventproc.cli.settings import Command, Settings, output_option, pass_settings
from eventproc.cli.show import show_one, show_rows
from eventproc.store.model.errors import Corrupt, Fenced, Retryable


@click.command(cls=Command)
@output_option()
@pass_settings
def doctor(settings: Settings, output: str) -> int:
    """Check a directory's health, and show who uses it.

    Exit code 0 when healthy, 1 when not, 6 when its tables are not those of this version.
    """
    report = Report()
    look_outside(session.directory_of(settings), report)
    try:
        session.run(settings, lambda ep: look_inside(ep, report))
    except (Corrupt, Fenced, Retryable) as why:
        report.problem(str(why))
    if output != "table":
        show_one(report.row(), output)
    else:
        show_one(report.facts, output)
        click.echo()
        if report.instances:
            show_rows(report.instances, ["instance", "pid", "state"], output)
            click.echo()
        for problem in report.problems:
            click.echo(f"problem: {problem}")
        click.echo("healthy" if not report.problems else "not healthy")
    if not report.usable:
        return UNUSABLE
    return FAILED if report.problems else OK
