"""`eventproc scope`: the namespaces of streams."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

import click

import eventproc
from eventproc.cli.options import (
    Settings,
    destructive,
    output_option,
    page_options,
    pass_settings,
    request_id_option,
    waiting_options,
)
from eventproc.cli.verbs import Noun

if TYPE_CHECKING:
    from eventproc import DeleteScopeTask
    from eventproc.cli.output.tables import Row
    from eventproc.describe import ScopeInfo
    from eventproc.runtime import Eventproc


@click.group(cls=Noun)
def scope() -> None:
    """Create, list and delete scopes, the namespaces of streams.

    Examples:
        eventproc scope create shop
        eventproc scope list
    """


@scope.does("created scope {name}", existing="scope {name} exists already")
@click.argument("name", metavar="SCOPE")
async def create(ep: Eventproc, name: str) -> Row:
    """Create a scope. An existing scope of that name is left as it is.

    Examples:
        eventproc scope create shop
    """
    known = name in [each.name for each in await ep.scopes(prefix=name)]
    await ep.create_scope(name)
    return {"created": not known}


@scope.shows(["scope=name", "state", "streams", "created_ms"])
@page_options("SCOPE")
def list_(ep: Eventproc, page: dict[str, Any]) -> Awaitable[list[ScopeInfo]]:
    """List the scopes.

    Examples:
        eventproc scope list
        eventproc scope list --limit 100 --after shop
        eventproc scope list --output json
    """
    return ep.scopes(**page)


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
    from eventproc.cli import session
    from eventproc.cli.destruction import Consent, is_confirmed, submit_destruction
    from eventproc.cli.output.tables import show_done
    from eventproc.cli.submit import WaitOptions, submit_in_background
    from eventproc.errors import ScopeNotEmpty

    async def losses(ep: Eventproc) -> Row:
        found = await ep.requests.preview(eventproc.DeleteScope(name))
        kinds = ("stream", "group", "synchronizer", "table")
        counts = {f"{each}s": getattr(found, f"{each}_count") for each in kinds}
        if not recursive and any(counts.values()):
            raise ScopeNotEmpty(scope=name, **counts)
        return found.losses()

    async def task(ep: Eventproc) -> DeleteScopeTask:
        await losses(ep)
        return eventproc.DeleteScopeTask(name)

    consent, question = Consent(yes, dry_run), f"Delete scope {name} with its groups and streams"
    if not recursive:
        given = {"--background": background, "--no-wait": no_wait, "--request-id": request_id}
        for option in (name for name, value in given.items() if value):
            raise click.UsageError(f"{option} needs --recursive: an empty scope is deleted immediately")
        if is_confirmed(settings, consent, f"Delete scope {name}", losses, output):
            session.run(settings, lambda ep: ep.delete_scope(name))
            show_done(settings, {"done": "delete", "target": name}, output, f"deleted scope {name}")
    elif background:
        if is_confirmed(settings, consent, question, losses, output):
            submit_in_background(settings, task, output)
    else:
        waiting = WaitOptions(no_wait, timeout, request_id)
        done = f"deleted scope {name} with its groups and streams"
        submit_destruction(settings, eventproc.DeleteScope(name), consent, question, waiting, done, output)
