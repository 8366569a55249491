"""`eventproc run`: serve a directory and run apps on it, in this process or in several that it watches over."""

from __future__ import annotations

import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from eventproc.cli.options import Command, Settings, pass_settings, server_options
from eventproc.cli.serve import AddressParam, plain_option, shown_address, verify_installed

if TYPE_CHECKING:
    from eventproc.runtime import Eventproc

LOG = logging.getLogger("eventproc.run")

WORKERS_MAX: Final = 256
"""Largest number of workers: a typing error must not fill the machine. Each has an interpreter of about 50 MB."""


@click.command(cls=Command)
@click.argument("apps", metavar="[MODULE:APP]...", nargs=-1)
@click.option(
    "--workers",
    type=click.IntRange(1, WORKERS_MAX),
    metavar="N",
    help="Run the apps in N processes that share the work; one that ends is started again.",
)
@click.option(
    "--reload",
    is_flag=True,
    help="For development: start again when a Python file below the current directory changes.",
)
@click.option(
    "--host/--no-host",
    default=True,
    show_default=True,
    help="Whether this process may be the host, which runs requests of all processes.",
)
@click.option(
    "--metrics",
    type=AddressParam(),
    metavar="[HOST:]PORT",
    help="Serve /metrics for Prometheus there; port 0 takes a free one. Needs the extra `server`. Off unless given.",
)
@plain_option
@server_options
@pass_settings
def run(
    settings: Settings,
    apps: tuple[str, ...],
    workers: int | None,
    reload: bool,
    metrics: tuple[str, int] | None,
    plain: bool,
    grace: float,
    host: bool,
    log_level: str | None,
    log_format: str | None,
) -> None:
    """Serve the directory, and run the processors of apps, until SIGTERM or Ctrl-C.

    After a signal, running handlers finish within the grace period, and their progress is durable (exit code 0).
    Handlers that take longer are cancelled, and their events are handled again later (exit code 143 or 130); one that
    ignores that is abandoned 10 s later. A second signal ends the process immediately. If a processor fails, the others
    end in the same way (exit code 1); with --workers its process is started again.

    Apps are imported from the current directory, such as `eventproc run shop:app`. Other commands work without a
    server too: each of them is the host while it waits.

    The log goes to stderr. If an app configures handlers of the root logger, they are used instead.

    Examples:
        eventproc run
        eventproc run shop.mail:app --grace 30
        eventproc run shop:app --workers 4 --log-format json
        eventproc run shop:app --reload
        eventproc run shop:app --metrics 9100
    """
    import anyio

    from eventproc.cli.app_loader import load_app
    from eventproc.cli.server import DirectoryServer, no_endpoints
    from eventproc.cli.server_log import ServerLog
    from eventproc.cli.worker_link import WorkerLink
    from eventproc.cli.worker_processes import WorkerSet

    if not (apps or host):
        raise click.UsageError("nothing to do: name an app MODULE:APP, or leave --no-host out")
    if plain and metrics is None:
        raise click.UsageError("--plain is about --metrics: name its address with --metrics [HOST:]PORT")
    if (workers or reload) and not apps:
        raise click.UsageError("--workers and --reload need an app: name it MODULE:APP, such as shop:app")
    link = WorkerLink.find()
    is_one_of_many = link is not None and workers is not None
    worker = link.number if link and is_one_of_many else None
    log = ServerLog(settings, log_level, log_format, worker=worker)
    with log.reporting():
        if link is None and (workers or reload):
            log.install()
            raise click.exceptions.Exit(anyio.run(WorkerSet(workers or 1, reload=reload).run))
        if link is not None:
            # The supervisor obeys them. The server heeds SIGTERM when it can drain.
            for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
        if metrics is not None:
            verify_installed("run --metrics", has_rest=True)
        with log.importing():
            loaded = [load_app(name) for name in dict.fromkeys(apps)]
        log.install()
        # One of the workers is enough: what is shown belongs to the store.
        shown_at = metrics if worker in (None, 1) else None
        server = DirectoryServer(
            settings,
            loaded,
            grace_ms=round(grace * 1000),
            shows_status=not is_one_of_many,
            link=link,
            endpoints=no_endpoints if shown_at is None else partial(_metrics, address=shown_at, plain=plain),
        )
        server.run(host=host)


@asynccontextmanager
async def _metrics(ep: Eventproc, address: tuple[str, int], plain: bool) -> AsyncIterator[None]:
    from eventproc.server.endpoints import serve_metrics

    async with serve_metrics(ep, address, allows_plain=plain) as bound:
        LOG.info("metrics: http://%s/metrics", shown_address(*bound))
        yield
