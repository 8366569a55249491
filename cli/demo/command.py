"""`eventproc demo`: the command, and the tables that it prints."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from eventproc.base.kernel import peak_memory_bytes
from eventproc.cli.options import TABLE, Command, DirectoryParam, Settings, note, output_option, pass_settings
from eventproc.cli.output.tables import show_one
from eventproc.cli.output.terminal import print_table, progress

if TYPE_CHECKING:
    from eventproc.cli.demo.report import DemoReport
    from eventproc.cli.signals import SignalScope

DEFAULT_MEAN: Final = "dep_delay"
"""The column of the flight records whose mean is shown by default."""

FLIGHTS: Final = Path("data/flights.csv.xz")
"""The flight records in the project's repository."""

WORST: Final = 10


@click.command(cls=Command)
@click.argument(
    "file", metavar="[FILE]", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False
)
@click.option(
    "--key", default="tailnum", show_default=True, metavar="COLUMN", help="Column with the routing key."
)
@click.option(
    "--mean",
    metavar="COLUMN",
    help=f"Column to average per key.  [default: {DEFAULT_MEAN}, if the file has it]",
)
@click.option(
    "--topics",
    is_flag=True,
    help="Use a topic and consumers in processes of their own, two of which are killed.",
)
@click.option(
    "--auto-scale",
    is_flag=True,
    help="Let a policy scale the stream: up in a burst of rows, and down when it is quiet. Takes about 40 s.",
)
@output_option()
@click.option(
    "--dir",
    "directory",
    type=DirectoryParam(),
    metavar="DIR",
    help="Directory to work in; a temporary one unless given.",
)
@click.option(
    "--durability", type=click.Choice(["fsync", "os"]), help="Durability of the directory.  [default: fsync]"
)
@pass_settings
def demo(
    settings: Settings,
    file: Path | None,
    key: str,
    mean: str | None,
    topics: bool,
    auto_scale: bool,
    output: str,
    directory: str | None,
    durability: str | None,
) -> None:
    """Send the rows of a CSV FILE (plain, .gz or .xz) through a stream, and prove that no row was lost.

    FILE may be any CSV with a header; --key names the column with the routing key. Unless given, FILE is
    data/flights.csv.xz of the project's repository, if the current directory has it.

    Several writers, and a handler that is called in the order of each key, run while the stream scales. Then the
    stream is truncated, sealed and deleted. The exit code is 1 if a row was lost, duplicated or out of order.

    With --topics the rows go through a topic of 8 partitions, from which 4 consumers copy them exactly once. Two of
    them are killed, one joins, and 4 partitions are added.

    With --auto-scale the first 40,000 rows are written in a burst, which splits the stream's segments, and the last of
    them slowly, until all segments are merged again.

    Examples:
        eventproc demo flights.csv
        eventproc demo flights.csv --topics
        eventproc demo flights.csv --auto-scale
    """
    if topics and auto_scale:
        raise click.UsageError("--topics and --auto-scale exclude each other")
    import anyio

    from eventproc.cli.demo.report import DemoTask
    from eventproc.cli.demo.run import run
    from eventproc.cli.server_log import ServerLog
    from eventproc.cli.signals import run_with_signals

    ServerLog(settings, "error" if settings.quiet else "warning").install()
    file = _flights() if file is None else file
    mean = _check_columns(file, key, mean)

    async def work(signal_scope: SignalScope) -> tuple[DemoReport, float]:
        began = anyio.current_time()
        named = None if directory is None else nullcontext(directory)
        with named or tempfile.TemporaryDirectory(prefix="eventproc-demo-") as path:
            place, through = Path(path), "a topic" if topics else "a stream"
            note(settings, f"sending the rows of {file.name} through {through} in {place}")
            with progress(settings, file.name, None) as show:
                task = DemoTask(file, key, mean, place, durability)
                report = await run(
                    task, topics=topics, auto_scale=auto_scale, show=show, signal_scope=signal_scope
                )
        return report, anyio.current_time() - began

    report, seconds = run_with_signals(work)
    if not report.produced.rows:
        raise click.ClickException(f"{file}: it has a header, but no rows")
    facts = _facts(report, seconds)
    if output == TABLE:
        _print_tables(facts, report, key, mean)
    else:
        show_one({**facts, "cpu_seconds": _rounded(report.cpu_seconds)}, output)
    if not report.flawless:
        click.echo(
            "eventproc: rows were lost, duplicated or out of order; this is a bug, please report it", err=True
        )
        raise click.exceptions.Exit(1)
    if report.missed:
        raise click.ClickException(report.missed)


def _check_columns(file: Path, key: str, mean: str | None) -> str | None:
    """Return the column to average, None if there is none. Raises InvalidArgument for a column that the file lacks."""
    from eventproc.cli.input.csv_reader import CsvReader
    from eventproc.cli.input.lines import InputLines, open_input
    from eventproc.errors import InvalidArgument

    with open_input(str(file)) as source:
        table = CsvReader(InputLines(source))
    try:
        table.index(key)
    except InvalidArgument as why:
        why.add_note("--key names the one with the routing key")
        raise
    if mean is None:
        return DEFAULT_MEAN if DEFAULT_MEAN in table.columns else None
    table.index(mean)
    return mean


def _facts(report: DemoReport, seconds: float) -> dict[str, int | float]:
    """Return the figures that the demo prints."""
    ledger = report.ledger
    return {
        "written": report.produced.written,
        "processed": ledger.processed,
        "duplicates": ledger.duplicates,
        "order_violations": ledger.order_violations,
        **report.facts,
        "events_per_second": round(ledger.processed / max(seconds, 0.001)),
        "seconds": round(seconds, 2),
        "peak_rss_mb": round(peak_memory_bytes() / 1e6, 1),
    }


def _rounded(cpu_seconds: Mapping[str, float]) -> dict[str, float]:
    return {step.lower().replace(" ", "_"): round(seconds, 2) for step, seconds in cpu_seconds.items()}


def _flights() -> Path:
    if not FLIGHTS.is_file():
        raise click.UsageError(
            f"name a FILE: any CSV with a header, such as {FLIGHTS} of the project's repository; "
            "--key names the column with the routing key"
        )
    return FLIGHTS


def _print_tables(facts: Mapping[str, int | float], report: DemoReport, key: str, mean: str | None) -> None:
    print_table(["what", "result"], [(name.replace("_", " "), f"{value:,}") for name, value in facts.items()])
    total = sum(report.cpu_seconds.values())
    click.echo()
    print_table(
        ["CPU time", "seconds", "share"],
        [(step, f"{each:.2f}", f"{each / total:.0%}") for step, each in report.cpu_seconds.items()],
    )
    worst = [] if mean is None else report.ledger.worst(WORST)
    if worst:
        click.echo()
        rows = [(each.key, f"{each.mean:,.1f}", f"{each.rows:,}") for each in worst]
        print_table([key, f"mean {mean}", "rows"], rows)
