"""`eventproc scope`: the namespaces of streams."""

from __future__ import annotations

import click

from eventproc.cli import session
from eventproc.cli.destruction import Consent, destructive, is_confirmed, submit_destruction
from eventproc.cli.losses import operation_losses
from eventproc.cli.options import (
    CommandGroup,
    Settings,
    output_option,
    page_options,
    pass_settings,
    request_id_option,
    waiting_options,
    watch_option,
)
from eventproc.cli.output.tables import Row, show_done, show_rows
from eventproc.cli.submit import WaitOptions
from eventproc.cli.task import submit_in_background
from eventproc.cli.watch import show_found
from eventproc.cluster import DeleteScopeTask
from eventproc.runtime import Eventproc
from eventproc.store.catalog import SCOPE, get_scope, list_scopes, stream_names
from eventproc.store.database import Tx
from eventproc.store.model.list_pages import ListPage
from eventproc.store.model.names import check_scope_name
from eventproc.store.records import find
from eventproc.workflows.requests import DeleteScope
from eventproc.workflows.scopes import create_scope, verify_empty


@click.group(cls=CommandGroup)
def scope() -> None:
    """Create, list and delete scopes, the namespaces of streams.

    Examples:
        eventproc scope create shop
        eventproc scope list
    """


@scope.command()
@click.argument("name", metavar="SCOPE")
@output_option()
@pass_settings
def create(settings: Settings, name: str, output: str) -> None:
    """Create a scope. An existing scope of that name is left as it is.

    Examples:
        eventproc scope create shop
    """

    def make(tx: Tx) -> bool:
        existing = find(tx, SCOPE, name)
        create_scope(tx, name)
        return existing is None

    created = session.run(settings, lambda ep: ep.db.write(make))
    text = f"created scope {name}" if created else f"scope {name} exists already"
    show_done(settings, {"done": "create", "target": name, "created": created}, output, text)


@scope.command("list")
@page_options("SCOPE")
@watch_option
@output_option()
@pass_settings
def list_(settings: Settings, page: ListPage, output: str) -> None:
    """List the scopes.

    Examples:
        eventproc scope list
        eventproc scope list --limit 100 --after shop
        eventproc scope list --output json
    """

    def look(tx: Tx) -> list[Row]:
        return [
            {
                "scope": each.name,
                "state": each.state.value,
                "streams": len(stream_names(tx, each.name)),
                "created_ms": each.created_ms,
            }
            for each in list_scopes(tx, page)
        ]

    columns = ["scope", "state", "streams", "created_ms"]
    show_found(settings, lambda ep: ep.db.read(look), lambda rows: show_rows(rows, columns, output))


@scope.command()
@click.argument("name", metavar="SCOPE")
@click.option("--recursive", is_flag=True, help="Delete its groups and streams too.")
@destructive
@request_id_option
@waiting_options
@click.option(
    "--background", is_flag=True, help="With --recursive: submit a task that deletes stream by stream."
)
@output_option()
@pass_settings
def delete(
    settings: Settings,
    name: str,
    recursive: bool,
    yes: bool,
    dry_run: bool,
    request_id: str | None,
    no_wait: bool,
    timeout: float,
    background: bool,
    output: str,
) -> None:
    """Delete a scope. It must be empty unless --recursive is given.

    Examples:
        eventproc scope delete shop
        eventproc scope delete shop --recursive --dry-run
        eventproc scope delete shop --recursive --background
    """

    def verify(tx: Tx) -> None:
        check_scope_name(name)
        get_scope(tx, name)
        verify_empty(tx, name)

    async def look(ep: Eventproc) -> Row:
        await ep.db.read(verify)
        return await losses(ep)

    async def losses(ep: Eventproc) -> Row:
        return (await operation_losses(ep, DeleteScope(name)))[1]

    async def task(ep: Eventproc) -> DeleteScopeTask:
        await ep.db.read(lambda tx: get_scope(tx, name))
        return DeleteScopeTask(name)

    consent, question = Consent(yes, dry_run), f"Delete scope {name}"
    if background and not recursive:
        raise click.UsageError("--background needs --recursive: an empty scope is deleted immediately")
    if background:
        if is_confirmed(settings, consent, f"{question} with its groups and streams", losses, output):
            submit_in_background(settings, task, output)
    elif recursive:
        done = f"deleted scope {name} with its groups and streams"
        waiting = WaitOptions(no_wait, timeout, request_id)
        submit_destruction(
            settings,
            DeleteScope(name),
            consent,
            f"{question} with its groups and streams",
            waiting,
            done,
            output,
        )
    elif no_wait or request_id is not None:
        option = "--no-wait" if no_wait else "--request-id"
        raise click.UsageError(f"{option} needs --recursive: an empty scope is deleted immediately")
    elif is_confirmed(settings, consent, question, look, output):
        session.run(settings, lambda ep: ep.delete_scope(name))
        show_done(settings, {"done": "delete", "target": name}, output, f"deleted scope {name}")
