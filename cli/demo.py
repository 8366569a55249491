"""`eventproc demo`: real data through a stream's whole life, and a table that proves nothing went wrong."""

from __future__ import annotations

import resource
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from eventproc.cli.progress import progress
from eventproc.cli.settings import TABLE, Command, Directory, Settings, note, output_option, pass_settings
from eventproc.cli.show import show_one
from eventproc.cli.signals import Ending, run_to_end
from eventproc.store.clock import SystemClock

if TYPE_CHECKING:
    from eventproc.cli.demo_ledger import Ledger

DEFAULT_MEAN: Final = "dep_delay"
"""The column of the records that come with the project whose mean is worth a table."""

FLIGHTS: Final = Path("data/flights.csv.xz")
"""The records that come with the project's repository, where they lie in it."""

WORST: Final = 10


@click.command(cls=Command)
@click.argument(
    "file", metavar="[FILE]", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False
)
@click.option(
    "--key", default="tailnum", show_default=True, metavar="COLUMN", help="Column that keys the rows."
)
@click.option(
    "--mean", metavar="COLUMN", help=f"Column to take means of, per key.  [default: {DEFAULT_MEAN}, if there]"
)
@output_option()
@click.option(
    "--dir", "directory", type=Directory(), metavar="DIR", help="Work here, not in a temporary directory."
)
@click.option("--durability", type=click.Choice(["fsync", "os"]), help="Of the directory.  [default: fsync]")
@pass_settings
def demo(
    settings: Settings,
    file: Path | None,
    key: str,
    mean: str | None,
    output: str,
    directory: str | None,
    durability: str | None,
) -> None:
    """Send the rows of a CSV FILE (plain, .gz or .xz) through a stream, and prove that none went astray.

    Any CSV with a header will do; --key names the column that keys its rows. Unless given, FILE is
    data/flights.csv.xz of the project's repository, if the current folder has it.

    Several writers and a handler that keeps the order of each key run while the stream scales; then it is
    truncated, sealed and deleted. Exits with 1 when a row was lost, doubled or out of order.
    """
    from eventproc.cli.demo_ledger import Ledger
    from eventproc.cli.demo_rows import scan
    from eventproc.cli.demo_run import Report, run

    file = _flights() if file is None else file
    clock = SystemClock()
    began_ms = clock.monotonic_ms()
    rows = scan(file, key)
    mean = mean or (DEFAULT_MEAN if DEFAULT_MEAN in rows.table.columns else None)
    if mean is not None:
        rows.table.index(mean)
    ledger = Ledger(rows.count, key=key, mean_of=mean)

    async def work(ending: Ending) -> Report:
        with _place(directory) as place:
            note(
                settings,
                f"{rows.count:,} rows of {file.name}, {rows.keys:,} keys ({key}); working in {place}",
            )
            with progress(settings, file.name, rows.count) as show:
                return await run(rows, ledger, place, durability=durability, show=show, ending=ending)

    report = run_to_end(work)
    seconds = (clock.monotonic_ms() - began_ms) / 1000
    facts: dict[str, int | float] = {
        "written": report.written,
        "processed": report.processed,
        "duplicates": report.duplicates,
        "order_violations": report.order_violations,
        "epochs": report.epochs,
        "events_per_second": round(report.processed / max(seconds, 0.001)),
        "seconds": round(seconds, 2),
        "peak_rss_mb": round(_peak_rss_mb(), 1),
    }
    if output == TABLE:
        _print_tables(facts, ledger, key, mean)
    else:
        show_one(facts, output)
    if not report.flawless:
        click.echo("rows were lost, doubled or out of order: this is a bug, please report it", err=True)
        raise click.exceptions.Exit(1)


def _flights() -> Path:
    if not FLIGHTS.is_file():
        raise click.UsageError(
            f"name a FILE: any CSV with a header, such as {FLIGHTS} of the project's repository; "
            "--key names the column that keys its rows"
        )
    return FLIGHTS


@contextmanager
def _place(directory: str | None) -> Iterator[Path]:
    if directory is not None:
        yield Path(directory)
        return
    with tempfile.TemporaryDirectory(prefix="eventproc-demo-") as temporary:
        yield Path(temporary)


def _print_tables(facts: dict[str, int | float], ledger: Ledger, key: str, mean: str | None) -> None:
    from eventproc.cli.table import print_table

    print_table(["what", "result"], [(name.replace("_", " "), f"{value:,}") for name, value in facts.items()])
    worst = [] if mean is None else ledger.worst(WORST)
    if worst:
        click.echo()
        rows = [(each.key, f"{each.mean:,.1f}", f"{each.rows:,}") for each in worst]
        print_table([key, f"mean {mean}", "rows"], rows)


def _peak_rss_mb() -> float:
    """Return the most memory this process had, in 10^6 bytes.

    From /proc where there is one: getrusage's number begins with that of the process that started this one.
    """
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            line = next(line for line in status if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024 / 1e6
    except (OSError, StopIteration):
        unit_bytes = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit_bytes / 1e6
