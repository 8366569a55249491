"""`eventproc backup` and `eventproc restore`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

import eventproc
from eventproc.cli.options import (
    Command,
    DirectoryParam,
    Settings,
    background_option,
    output_option,
    pass_settings,
)
from eventproc.cli.output.tables import Row, iso_time, show_done, show_one
from eventproc.cli.output.terminal import Advance, progress
from eventproc.cli.output.units import size_text

if TYPE_CHECKING:
    from eventproc import BackupTask
    from eventproc.runtime import Eventproc


@click.command(cls=Command)
@click.argument("dest", metavar="DEST", type=DirectoryParam())
@click.option("--dry-run", is_flag=True, help="Print what would be copied; change nothing.")
@background_option
@output_option()
@pass_settings
def backup(settings: Settings, dest: str, dry_run: bool, background: bool, output: str) -> None:
    """Make a verified backup of the directory in the new folder DEST.

    All processes go on reading and writing meanwhile. The backup is the state of one moment, with the files of events
    that lie outside the database. Nothing is left if it fails. `eventproc restore` makes a directory of it, and
    `eventproc verify` checks it again.

    Exit codes: 4 DEST exists, 6 DEST cannot be written or the disk is full.

    Examples:
        eventproc backup /mnt/backups/monday
        eventproc -C data backup /mnt/backups/monday --dry-run
    """
    from eventproc.cli import session
    from eventproc.cli.submit import submit_in_background

    if background and not dry_run:

        async def make(ep: Eventproc) -> BackupTask:
            return eventproc.BackupTask(str((await ep.preview_backup(dest)).path))

        submit_in_background(settings, make, output)
        return

    async def act(ep: Eventproc) -> Row:
        plan = await ep.preview_backup(dest)
        if dry_run:
            return {
                "dry_run": True,
                "would": "backup",
                "target": str(plan.path),
                "bytes": plan.bytes,
                "files": plan.files,
                "free_bytes": plan.free_bytes,
            }
        with progress(settings, "backing up", plan.bytes) as advance:
            made = await ep.backup(dest, advance=_shown(advance))
        return {
            "done": "backup",
            "target": str(made.path),
            "created_ms": made.created_ms,
            "bytes": made.bytes,
            "files": made.files,
        }

    row = session.run(settings, act)
    if dry_run:
        show_one(row, output)
    else:
        show_done(settings, row, output, f"{dest} is a complete backup: {size_text(int(str(row['bytes'])))}")


@click.command(cls=Command)
@click.argument("source", metavar="SRC", type=DirectoryParam())
@click.argument("argument", metavar="[DIR]", type=DirectoryParam(), required=False)
@click.option("--dry-run", is_flag=True, help="Check SRC and DIR; change nothing.")
@output_option()
@pass_settings
def restore(settings: Settings, source: str, argument: str | None, dry_run: bool, output: str) -> None:
    """Make the directory DIR from the backup SRC; the directory of -C or the current one unless given.

    DIR counts before -C and EVENTPROC_DIR. It must be missing or empty. It becomes a directory of its own, with the
    state at the time of the backup. Give Spark queries that continue on it new checkpoints: their old ones may be
    ahead of it.

    Exit codes: 1 a file of SRC is damaged, 4 DIR is not empty, 6 SRC is no complete backup or the disk is full.

    Examples:
        eventproc restore /mnt/backups/monday data
        eventproc restore /mnt/backups/monday data --dry-run
    """
    from eventproc.cli import session

    if argument is not None:
        settings.directory = argument  # EVENTPROC_DIR may name the directory that is lost
    directory = session.directory_of(settings)
    with progress(settings, "restoring", None) as advance:
        made = eventproc.restore_backup(Path(source), directory, advance=_shown(advance), dry_run=dry_run)
    row = {
        "dry_run" if dry_run else "done": True if dry_run else "restore",
        "target": str(made.path),
        "backup": str(Path(source).absolute()),
        "created_ms": made.backup_ms,
        "bytes": made.bytes,
        "files": made.files,
    }
    if dry_run:
        show_one(row, output)
    else:
        text = f"{made.path} holds the state of {iso_time(made.backup_ms)}: {size_text(made.bytes)}"
        show_done(settings, row, output, text)


def _shown(advance: Advance) -> Callable[[int, int], None]:
    return lambda done, total: advance(done, f"{done >> 20} of {total >> 20} MiB")
