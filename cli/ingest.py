"""`eventproc ingest`: the processes that run the tasks of ingestion supervisors."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, Final

import click

from eventproc.cli.exit_codes import Signalled
from eventproc.cli.options import LEVELS, TABLE, Command, Settings, output_option, pass_settings
from eventproc.cli.verbs import Noun

if TYPE_CHECKING:
    from eventproc.cli.output.tables import Row
    from eventproc.describe import IngestLogLine, IngestWorkerInfo
    from eventproc.runtime import Eventproc

SLOTS_MAX: Final = 256
"""Largest number of slots: a typing error must not fill the machine."""


WORKER_COLUMNS: Final = (
    *("instance", "alive", "machine", "pid", "slots", "tasks"),
    *("started_ms", "seen_ms"),
)


@click.group(cls=Noun)
def ingest() -> None:
    """Run the tasks of ingestion supervisors, and list the workers that run them.

    Examples:
        eventproc ingest worker --slots 4
        eventproc ingest workers
    """


@ingest.command(cls=Command)
@click.option(
    "--slots",
    type=click.IntRange(1, SLOTS_MAX),
    default=2,
    show_default=True,
    metavar="N",
    help="How many tasks run simultaneously.",
)
@click.option(
    "--master",
    default="local[*]",
    show_default=True,
    metavar="URL",
    help="Spark's master, as for spark-submit.",
)
@click.option(
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    help="The least severe messages that are shown; info unless given.",
)
@pass_settings
def worker(settings: Settings, slots: int, master: str, log_level: str | None) -> None:
    """Run ingestion tasks as Spark jobs, until SIGTERM or Ctrl-C.

    The process starts one Spark driver. After a signal, tasks stop at the end of a slice; a sequence that is being
    published is published first. Supervisors replace the tasks of a worker that ended or died, and no event is lost or
    ingested twice. If the JVM of the driver dies, the command gives its tasks back and ends with exit code 4: start it
    again. Needs the extra `spark`. Some other process must host: `eventproc run`.

    Examples:
        eventproc ingest worker --slots 4
        eventproc ingest worker --slots 8 --master spark://cluster:7077
    """
    from eventproc.cli.server_log import ServerLog
    from eventproc.cli.session import address_of

    address = address_of(settings)
    from eventproc.spark.ingestion.worker import IngestionWorker  # loads Spark

    ServerLog(settings, log_level).install()
    process = IngestionWorker(address, slots=slots, master=master)
    came: list[int] = []

    def end(number: int, _frame: object) -> None:
        came.append(number)
        process.stop()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)
    process.run()
    if came and came[0] != signal.SIGTERM:
        raise Signalled(came[0])


def _with_counts(row: Row) -> Row:
    """Replace the tasks of a worker by their number, for people."""
    tasks: Any = row["tasks"]
    return {**row, "tasks": len(tasks)}


@ingest.shows(WORKER_COLUMNS, people=_with_counts)
async def workers(ep: Eventproc) -> list[IngestWorkerInfo]:
    """List the processes that run ingestion tasks, the oldest first. One that died is listed for an hour.

    As JSON, each has the ids of its tasks.

    Examples:
        eventproc ingest workers
        eventproc ingest workers --watch
    """
    return await ep.ingestion_workers()


@ingest.command()
@click.argument("task", metavar="TASK")
@click.option("--follow", is_flag=True, help="Wait for new lines until the task has ended.")
@output_option()
@pass_settings
def logs(settings: Settings, task: str, follow: bool, output: str) -> None:
    """Show what an ingestion task has logged: its start, what it reads and publishes, its failures and its end.

    TASK is its id, as `eventproc supervisor tasks` and `eventproc ingest workers` show it. The log can be read on every
    machine, also after the worker died. The newest 500 lines of a task are kept, for at most a week.

    Examples:
        eventproc ingest logs clicks-1-00000000-0
        eventproc ingest logs clicks-1-00000000-0 --follow
    """
    from eventproc.cli import session
    from eventproc.cli.output.tables import described, iso_time, show_rows

    if follow and output == "json":
        raise click.UsageError("--follow has no end, which a JSON array needs: use --output jsonl")

    def show(lines: list[IngestLogLine]) -> None:
        if output == TABLE:
            for line in lines:
                click.echo(f"{iso_time(line.at_ms)}  {line.message}")
        else:
            show_rows([described(each) for each in lines], (), output)

    async def act(ep: Eventproc) -> None:
        if not follow:
            show(await ep.ingestion_log(task))
            return
        async for line in ep.follow_ingestion_log(task):
            show([line])

    session.run(settings, act)
