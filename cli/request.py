"""`eventproc request`: what was asked of the system, and what became of it."""

from __future__ import annotations

import click

from eventproc.cli import session
from eventproc.cli.asking import wait_for
from eventproc.cli.settings import Noun, Settings, output_option, pass_settings, timeout_option
from eventproc.cli.show import Row, show_one, show_rows
from eventproc.runtime import Eventproc
from eventproc.store.requests import Request


@click.group(cls=Noun)
def request() -> None:
    """Show, list and wait for what was asked of the system."""


@request.command()
@click.argument("request_id", metavar="ID")
@output_option()
@pass_settings
def show(settings: Settings, request_id: str, output: str) -> None:
    """Show a request and what became of it."""
    show_one(_row(session.run(settings, lambda ep: ep.requests.get(request_id))), output)


@request.command()
@click.argument("request_id", metavar="ID")
@timeout_option
@output_option()
@pass_settings
def wait(settings: Settings, request_id: str, timeout: float, output: str) -> None:
    """Wait until a request is done; its refusal is this command's."""

    async def act(ep: Eventproc) -> Request:
        return await wait_for(settings, ep, await ep.requests.get(request_id), round(timeout * 1000))

    show_one(_row(session.run(settings, act, host=True)), output)


@request.command("list")
@click.option("--limit", type=int, default=100, show_default=True, metavar="N", help="How many, the newest.")
@output_option()
@pass_settings
def list_(settings: Settings, limit: int, output: str) -> None:
    """List the newest requests, newest first."""
    rows = [_row(each) for each in session.run(settings, lambda ep: ep.requests.list(limit=limit))]
    show_rows(rows, ["request_id", "kind", "target", "status", "created_ms", "error"], output)


def _row(found: Request) -> Row:
    return {
        "request_id": found.id,
        "kind": found.kind,
        "target": found.target,
        "status": found.status.value,
        "created_ms": found.created_ms,
        "finished_ms": found.finished_ms,
        "error": None if found.error is None else str(found.error),
    }
