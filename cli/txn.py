"""`eventproc txn`: list and describe the transactions of a stream, and commit or abort them."""

from __future__ import annotations

from typing import Final

import anyio
import click

from eventproc.cli import session
from eventproc.cli.destruction import Consent, destructive, is_confirmed
from eventproc.cli.options import (
    CommandGroup,
    Settings,
    note,
    output_option,
    pass_settings,
    stream_argument,
    timeout_option,
    watch_option,
)
from eventproc.cli.output.tables import Row, described, show_done, show_rows, show_with_tables
from eventproc.cli.watch import show_found
from eventproc.errors import IllegalTransition, TransactionDecided
from eventproc.runtime import Eventproc
from eventproc.store.model.limits import TXNS_LISTED_MAX
from eventproc.store.transactions import state_after_abort
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
    "position",
    "events",
    "size_bytes",
    "reason",
)
APPENDED_COLUMNS: Final = ("segment", "offset", "number", "count")

ID: Final = click.argument("txn_id", metavar="ID")
"""A transaction's id, as `write --transaction` and `txn list` print it."""


@click.group(cls=CommandGroup)
def txn() -> None:
    """List, describe, commit and abort transactions.

    Examples:
        eventproc txn list shop/orders
    """


@txn.command("list")
@stream_argument
@click.option("--finished", is_flag=True, help="List those that ended within the last day, the newest first.")
@click.option("--after", metavar="ID", help="The last transaction of the previous page.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=TXNS_LISTED_MAX,
    show_default=True,
    metavar="N",
    help="How many to list at most.",
)
@watch_option
@output_option()
@pass_settings
def list_(settings: Settings, name: str, finished: bool, after: str | None, limit: int, output: str) -> None:
    """List a stream's unfinished transactions: open, committing or aborting.

    Examples:
        eventproc txn list shop/orders
        eventproc txn list shop/orders --finished --limit 20
    """

    async def look(ep: Eventproc) -> list[TransactionDescription]:
        stream = await ep.stream(name)
        return await stream.transactions(finished=finished, after=after, limit=limit)

    def show(found: list[TransactionDescription]) -> None:
        show_rows([described(each) for each in found], FINISHED_COLUMNS if finished else COLUMNS, output)

    show_found(settings, look, show)


@txn.command()
@stream_argument
@ID
@watch_option
@output_option()
@pass_settings
def describe(settings: Settings, name: str, txn_id: str, output: str) -> None:
    """Show a transaction: owner, size, lease, and the position of its events after the commit.

    Examples:
        eventproc txn describe shop/orders 0199f0c2-7a44-7c1e-9d1e-2f6b8f1d3c55
    """

    async def look(ep: Eventproc) -> TransactionDescription:
        return await (await ep.stream(name)).transaction_of(txn_id).status()

    def show(found: TransactionDescription) -> None:
        show_with_tables(described(found), [("appended", APPENDED_COLUMNS)], output)

    show_found(settings, look, show)


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
def commit(settings: Settings, name: str, txn_id: str, no_wait: bool, timeout: float, output: str) -> None:
    """Commit a transaction: make its staged events visible. Events that its owner has not staged yet are left out.

    Examples:
        eventproc txn commit shop/orders 0199f0c2-7a44-7c1e-9d1e-2f6b8f1d3c55
    """

    async def act(ep: Eventproc) -> None:
        found = (await ep.stream(name)).transaction_of(txn_id)
        await found.commit(wait=False)
        if no_wait:
            return
        try:
            await found.commit(timeout_ms=round(timeout * 1000))
        except anyio.get_cancelled_exc_class():
            note(settings, f"eventproc: transaction {txn_id} is decided; its commit goes on")
            raise

    session.run(settings, act, host=not no_wait)
    state = "decided" if no_wait else "committed"
    row = {"done": "commit", "target": name, "id": txn_id, "state": state}
    show_done(settings, row, output, f"{txn_id} is {state}")


@txn.command()
@stream_argument
@ID
@click.option(
    "--force",
    is_flag=True,
    help="Abort it also if it is decided to commit, but its commit fails; `txn describe` shows the reason.",
)
@destructive
@output_option()
@pass_settings
def abort(
    settings: Settings, name: str, txn_id: str, force: bool, yes: bool, dry_run: bool, output: str
) -> None:
    """Abort a transaction: discard its staged events permanently. Its owner gets an error at its next call.

    A joint transaction is aborted in all its streams.

    The process that serves the directory frees its bytes.

    Examples:
        eventproc txn abort shop/orders 0199f0c2-7a44-7c1e-9d1e-2f6b8f1d3c55 --dry-run
    """

    async def act(ep: Eventproc) -> None:
        await (await ep.stream(name)).transaction_of(txn_id).abort(force=force)

    async def look(ep: Eventproc) -> Row:
        return _would_abort(await (await ep.stream(name)).transaction_of(txn_id).status(), force)

    question = f"Abort transaction {txn_id} of {name}"
    if is_confirmed(settings, Consent(yes, dry_run), question, look, output):
        session.run(settings, act)
        row = {"done": "abort", "target": name, "id": txn_id}
        show_done(settings, row, output, f"{txn_id} is aborted")


def _would_abort(found: TransactionDescription, force: bool) -> Row:
    """Return what an abort would discard. Raises the same refusal."""
    try:
        after = state_after_abort(found.state, found.reason, force=force)
    except IllegalTransition as why:
        raise TransactionDecided(stream=found.stream, txn=found.id, state=why.state, event="abort") from None
    return {
        "dry_run": True,
        "would": "abort",
        "target": found.stream,
        "id": found.id,
        "already_done": after is found.state,
        "events": found.events,
        "bytes": found.size_bytes,
        "streams": list(found.streams),
    }
