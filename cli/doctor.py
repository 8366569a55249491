"""`eventproc doctor`: print the health of a directory or a store on a server."""

from __future__ import annotations

from pathlib import Path

import click

from eventproc.cli.exit_codes import FAILED, OK, UNUSABLE
from eventproc.cli.options import Command, Settings, output_option, pass_settings
from eventproc.cli.output.tables import show_one, show_rows


@click.command(cls=Command)
@click.option("--quick", is_flag=True, help="Leave out the checks that read the complete database.")
@output_option()
@pass_settings
def doctor(settings: Settings, quick: bool, output: str) -> int:
    """Check a directory's health, and list the processes that use it.

    Exit codes: 0 healthy, 1 not healthy, 6 the database does not have the tables of this version.

    Examples:
        eventproc doctor
        eventproc doctor --quick --output json
    """
    from eventproc.cli import session
    from eventproc.cluster.health_checks import HealthReport, check_database, check_files
    from eventproc.errors import Corrupt, Fenced, Retryable
    from eventproc.spark.java import describe as describe_spark

    report = HealthReport()
    if not session.is_url(address := session.address_of(settings)):
        check_files(Path(address), report)
    try:
        session.run(
            settings,
            lambda ep: check_database(ep.db, report, describe_spark=describe_spark, quick=quick),
        )
    except (Corrupt, Fenced, Retryable) as why:
        report.problem(str(why))
    if output != "table":
        show_one(report.row(), output)
    else:
        show_one(report.facts, output)
        click.echo()
        if report.instances:
            show_rows(report.instances, list(report.instances[0]), output)
            click.echo()
        for problem in report.problems:
            click.echo(f"problem: {problem}")
        click.echo("healthy" if not report.problems else "not healthy")
    if not report.usable:
        return UNUSABLE
    return FAILED if report.problems else OK
