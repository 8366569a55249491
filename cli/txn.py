"""`eventproc txn`: list and describe the transactions of a stream, and commit or abort them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from eventproc.cli.options import (
    Settings,
    limit_option,
    note,
    output_option,
    pass_settings,
    stream_argument,
    timeout_option,
)
from eventproc.cli.verbs import Noun

if TYPE_CHECKING:
    from eventproc.cli.output.tables import Row
    from eventproc.runtime import Eventproc
    from eventproc.streams import TransactionDescription

COLUMNS: Final = (
    *("id", "state", "created_ms", "age_ms", "owner", "owner_alive", "events", "size_bytes"),
    *("lease_ms", "lease_left_ms"),
)
FINISHED_COLUMNS: Final = (
    "id",
    "state",
    "created_ms",
    "finished_ms",
    "order",
    "events",
    "size_bytes",
    "reason",
)
APPENDED_COLUMNS: Final = ("segment", "offset", "number", "count")

ID: Final = click.argument("id", metavar="ID")
"""A transaction's id, as `write --transaction` and `txn list` print it."""


@click.group(cls=Noun)
def txn() -> None:
    """List, describe, commit and abort transactions.

    Examples:
        eventproc txn list shop/orders
    """


@txn.shows(lambda finished, **_: FINISHED_COLUMNS if finished else COLUMNS)
@stream_argument
@click.option("--finished", is_flag=True, help="List those that ended within the last day, the newest first.")
@click.option("--after", metavar="ID", help="The last transaction of the previous page.")
@limit_option(500)
async def list_(
    ep: Eventproc, name: str, finished: bool, after: str | None, limit: int
) -> list[TransactionDescription]:
    """List a stream's unfinished transactions: open, committing or aborting.

    Examples:
        eventproc txn list shop/orders
        eventproc txn list shop/orders --finished --limit 20
    """
    return await (await ep.stream(name)).transactions(finished=finished, after=after, limit=limit)


@txn.shows(tables={"appended": APPENDED_COLUMNS})
@stream_argument
@ID
async def describe(ep: Eventproc, name: str, id: str) -> TransactionDescription:
    """Show a transaction: owner, size, lease, and where its events lie after the commit.

    Examples:
        eventproc txn describe shop/orders 0199f0c2-7a44-7c1e-9d1e-2f6b8f1d3c55
    """
    return await (await ep.stream(name)).transaction_of(id).status()


@txn.command()
@stream_argument
@ID
@click.option(
    "--no-wait",
    is_flag=True,
    help="Decide it and return; the process that serves the directory makes it visible.",
)
@timeout_option
@output_option()
@pass_settings
def commit(settings: Settings, name: str, id: str, no_wait: bool, timeout: float, output: str) -> None:
    """Commit a transaction: make its staged events visible. Events that its owner has not staged yet are left out.

    Examples:
        eventproc txn commit shop/orders 0199f0c2-7a44-7c1e-9d1e-2f6b8f1d3c55
    """

    import anyio

    from eventproc.cli import session
    from eventproc.cli.output.tables import show_done

    async def act(ep: Eventproc) -> None:
        found = (await ep.stream(name)).transaction_of(id)
        await found.commit(wait=False)
        if no_wait:
            return
        try:
            await found.commit(timeout_ms=round(timeout * 1000))
        except anyio.get_cancelled_exc_class():
            note(settings, f"eventproc: transaction {id} is decided; its commit goes on")
            raise

    session.run(settings, act, host=not no_wait)
    state = "decided" if no_wait else "committed"
    row = {"done": "commit", "target": name, "id": id, "state": state}
    show_done(settings, row, output, f"{id} is {state}")


async def _losses(ep: Eventproc, name: str, id: str, force: bool) -> Row:
    """Return what an abort would discard. Raises the same refusal."""
    from eventproc.describe import TxnState

    found = await (await ep.stream(name)).transaction_of(id).preview_abort(force=force)
    return {
        "id": found.id,
        "already_done": found.state in (TxnState.ABORTING, TxnState.ABORTED),
        "events": found.events,
        "bytes": found.size_bytes,
        "streams": list(found.streams),
    }


@txn.does("{id} is aborted", consent="Abort transaction {id} of {name}", losses=_losses)
@stream_argument
@ID
@click.option(
    "--force",
    is_flag=True,
    help="Abort it also if it is decided to commit, but its commit fails; `txn describe` shows the reason.",
)
async def abort(ep: Eventproc, name: str, id: str, force: bool) -> None:
    """Abort a transaction: discard its staged events permanently. Its owner gets an error at its next call.

    A joint transaction is aborted in all its streams.

    The process that serves the directory frees its bytes.

    Examples:
        eventproc txn abort shop/orders 0199f0c2-7a44-7c1e-9d1e-2f6b8f1d3c55 --dry-run
    """
    await (await ep.stream(name)).transaction_of(id).abort(force=force)
