"""`eventproc scope`: the namespaces of streams."""

from __future__ import annotations

import click

from eventproc.cli import session
from eventproc.cli.asking import Waiting, ask
from eventproc.cli.dry import would
from eventproc.cli.settings import (
    Noun,
    Settings,
    dry_run_option,
    note,
    output_option,
    pass_settings,
    waiting_options,
)
from eventproc.cli.show import Row, show_rows
from eventproc.runtime import Eventproc
from eventproc.store.catalog import get_scope
from eventproc.store.database import Tx
from eventproc.store.model.names import check_scope_name
from eventproc.workflows.requests import AnyRequest, DeleteScope
from eventproc.workflows.scopes import verify_empty


@click.group(cls=Noun)
def scope() -> None:
    """Make, list and delete scopes, the namespaces of streams."""


@scope.command()
@click.argument("name", metavar="SCOPE")
@pass_settings
def create(settings: Settings, name: str) -> None:
    """Make a scope; one that is there is fine."""
    session.run(settings, lambda ep: ep.create_scope(name))
    note(settings, f"scope {name} is there")


@scope.command("list")
@output_option()
@pass_settings
def list_(settings: Settings, output: str) -> None:
    """List the scopes."""

    async def look(ep: Eventproc) -> list[Row]:
        counts: dict[str, int] = {}
        scopes = await ep.scopes()
        for stream in await ep.streams():
            name = stream.name.partition("/")[0]
            counts[name] = counts.get(name, 0) + 1
        return [
            {
                "scope": each.name,
                "state": each.state.value,
                "streams": counts.get(each.name, 0),
                "created_ms": each.created_ms,
            }
            for each in scopes
        ]

    show_rows(session.run(settings, look), ["scope", "state", "streams", "created_ms"], output)


@scope.command()
@click.argument("name", metavar="SCOPE")
@click.option("--recursive", is_flag=True, help="Delete its groups and streams first.")
@dry_run_option
@waiting_options
@output_option()
@pass_settings
def delete(
    settings: Settings,
    name: str,
    recursive: bool,
    dry_run: bool,
    no_wait: bool,
    timeout: float,
    output: str,
) -> None:
    """Delete a scope, which must be empty unless --recursive is given."""

    def request(tx: Tx) -> AnyRequest:
        check_scope_name(name)
        get_scope(tx, name)
        if not recursive:
            verify_empty(tx, name)
        return DeleteScope(name)

    async def make(_: Eventproc) -> AnyRequest:
        return DeleteScope(name)

    if dry_run:
        would(settings, request, output)
    elif recursive:
        ask(settings, make, Waiting(no_wait, timeout), f"deleted scope {name} and all that was in it")
    elif no_wait:
        raise click.UsageError("--no-wait needs --recursive: an empty scope is deleted at once")
    else:
        session.run(settings, lambda ep: ep.delete_scope(name))
        note(settings, f"deleted scope {name}")
