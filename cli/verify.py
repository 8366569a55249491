"""`eventproc verify`: check everything that a directory or a backup holds."""

from __future__ import annotations

from pathlib import Path

import click

import eventproc
from eventproc.cli.exit_codes import FAILED, OK
from eventproc.cli.options import (
    TABLE,
    Command,
    Settings,
    StoreParam,
    background_option,
    output_option,
    pass_settings,
)
from eventproc.cli.output.tables import show_one


@click.command(cls=Command)
@click.argument("argument", metavar="[DIR|BACKUP]", type=StoreParam(), required=False)
@background_option
@output_option()
@pass_settings
def verify(settings: Settings, argument: str | None, background: bool, output: str) -> int:
    """Check all pages, all invariants, and the content of all files of a directory or a backup.

    Without an argument it is the directory of -C, or the current one. Other processes may use the directory meanwhile.
    Everything is read once, so it takes as long as reading the files. `eventproc doctor` is faster.

    With --background an instance that may be the host checks the directory. `eventproc task describe` shows how far it
    is, and what it found.

    Exit codes: 0 healthy, 1 damaged, 6 the directory or backup cannot be used.

    Examples:
        eventproc verify data
        eventproc verify data --background
        eventproc verify /mnt/backups/monday --output json
    """
    from eventproc.cli import session
    from eventproc.cli.submit import submit_in_background
    from eventproc.cluster.integrity_checks import IntegrityReport, is_backup, verify_backup, verify_directory
    from eventproc.errors import Corrupt

    if argument is not None:
        settings.directory = argument
    address = session.address_of(settings)
    path, is_server = Path(address), session.is_url(address)
    of_backup = not is_server and is_backup(path)
    if background:
        if of_backup:
            raise click.UsageError(
                f"{path} is a backup: --background checks directories, whose instances run it"
            )
        submit_in_background(settings, eventproc.VerifyTask(), output)
        return OK
    if of_backup:
        report = verify_backup(path)
    else:
        report = IntegrityReport("server" if is_server else "directory")
        try:
            session.run(settings, lambda ep: verify_directory(ep.db, report))
        except Corrupt as why:
            report.problems.append(str(why))
    row = {"target": session.shown(address), **report.row()}
    if output != TABLE:
        show_one(row, output)
    else:
        show_one({name: value for name, value in row.items() if name != "problems"}, output)
        for problem in report.problems:
            click.echo(f"problem: {problem}")
    return FAILED if report.problems else OK
