"""`eventproc ingest`: the processes that run the tasks of ingestion supervisors."""

from __future__ import annotations

import signal
from typing import Final

import click

from eventproc.cli.exit_codes import Signalled
from eventproc.cli.options import LEVELS, Command, CommandGroup, Settings, pass_settings

SLOTS_MAX: Final = 256
"""Largest number of slots: a typing error must not fill the machine."""


@click.group(cls=CommandGroup)
def ingest() -> None:
    """Run the tasks of ingestion supervisors.

    Examples:
        eventproc ingest worker --slots 4
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
