"""`eventproc user`: who may call the endpoints of `eventproc serve`, and do what."""

from __future__ import annotations

import sys
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

import click

import eventproc
from eventproc.cli.options import TABLE, Settings, duration_option, note, output_option, pass_settings
from eventproc.cli.verbs import Noun

if TYPE_CHECKING:
    from eventproc.cli.output.tables import Row
    from eventproc.describe import UserInfo
    from eventproc.runtime import Eventproc

LINE_CHARS_MAX: Final = 10_000
"""Characters that are read as a password. It may have fewer, so that a longer one is refused by its rule."""

COLUMNS: Final = ("name", "has_password", "grants", "tokens", "created_ms")
TABLES: Final = {"grants": ("pattern", "permission"), "tokens": ("name", "created_ms", "expires_ms")}

user_argument: Final = click.argument("name", metavar="USER")
pattern_argument: Final = click.argument("pattern", metavar="PATTERN")
token_argument: Final = click.argument("token", metavar="TOKEN-NAME")


scram_option: Final = click.option(
    "--scram", is_flag=True, help="Clients of Kafka may show the password by SCRAM-SHA-256 and SCRAM-SHA-512."
)


def _with_password(name: str, without: bool, scram: bool) -> dict[str, str | bool | None]:
    """Return the arguments, with the password that a person types, or the first line of standard input."""
    if without:
        return {"name": name, "password": None, "scram": scram}
    if sys.stdin.isatty():
        text: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        return {"name": name, "password": text, "scram": scram}
    try:
        line = sys.stdin.readline(LINE_CHARS_MAX)
    except OSError as why:
        raise click.UsageError(
            f"the password cannot be read from standard input ({why.strerror}); write it there, or use a terminal"
        ) from None
    return {"name": name, "password": line.rstrip("\r\n"), "scram": scram}


@click.group(cls=Noun)
def user() -> None:
    """Add users of `eventproc serve`, with their permissions, passwords and tokens.

    As soon as a directory has a user, its servers ask every caller for credentials. A change is in force on all running
    servers immediately.

    Examples:
        eventproc user add ann
        eventproc user grant ann READ_UPDATE 'shop/*'
        eventproc user list
    """


@user.does("added user {name}", before=_with_password)
@user_argument
@click.option(
    "--no-password", "without", is_flag=True, help="The user has tokens only; see `user add-token`."
)
@scram_option
async def add(ep: Eventproc, name: str, password: str | None, scram: bool) -> None:
    """Add a user, who may do nothing yet.

    On a terminal the command asks for the password twice. Otherwise it reads the first line of standard input.

    Examples:
        eventproc user add ann
        eventproc user add ann < password.txt
        eventproc user add robot --no-password
        eventproc user add kafka --scram < password.txt
    """
    await ep.users.add(name, password=password, scram=scram)


@user.shows(COLUMNS)
def list_(ep: Eventproc) -> Awaitable[list[UserInfo]]:
    """List the users.

    Examples:
        eventproc user list
        eventproc user list --output json
    """
    return ep.users.list()


@user.shows(tables=TABLES)
@user_argument
def describe(ep: Eventproc, name: str) -> Awaitable[UserInfo]:
    """Show a user with its grants, and the names of its tokens.

    Examples:
        eventproc user describe ann
    """
    return ep.users.get(name)


@user.does("user {name} has {permission} on {pattern}")
@user_argument
@click.argument("permission", type=click.Choice(["READ", "READ_UPDATE"]))
@pattern_argument
async def grant(ep: Eventproc, name: str, permission: str, pattern: str) -> None:
    """Give a user a permission on PATTERN, in place of the one that it has there.

    READ shows and reads; READ_UPDATE also writes, changes and deletes. PATTERN is SCOPE/NAME for a stream, a reader
    group or a table; SCOPE for listing, creating and deleting what is in a scope; or * for everything, which alone
    allows creating and deleting scopes. In names, * stands for any characters; quote it.

    Examples:
        eventproc user grant ann READ shop/orders
        eventproc user grant ann READ_UPDATE 'shop/*'
        eventproc user grant admin READ_UPDATE '*'
    """
    await ep.users.grant(name, eventproc.Permission(permission), pattern)


@user.does("user {name} has no grant on {pattern} any more")
@user_argument
@pattern_argument
async def revoke(ep: Eventproc, name: str, pattern: str) -> None:
    """Take away what `user grant` gave a user on exactly this PATTERN.

    Examples:
        eventproc user revoke ann 'shop/*'
    """
    await ep.users.revoke(name, pattern)


@user.does("changed the password of user {name}", before=_with_password)
@user_argument
@click.option(
    "--remove", "without", is_flag=True, help="The user has no password any more, and keeps its tokens."
)
@scram_option
def password(ep: Eventproc, name: str, password: str | None, scram: bool) -> Awaitable[None]:
    """Change the password of a user, which is read as by `user add`.

    Examples:
        eventproc user password ann
        eventproc user password robot --remove
    """
    return ep.users.set_password(name, password, scram=scram)


@user.command("add-token")
@user_argument
@token_argument
@duration_option(
    "--expires-in",
    least=1,
    help="How long the token is valid; until it is deleted unless given.",
)
@output_option()
@pass_settings
def add_token(settings: Settings, name: str, token: str, expires_in: float | None, output: str) -> None:
    """Make a token for a user, and print it; it cannot be shown again.

    A program sends it as `Authorization: Bearer TOKEN`, or in place of the user's password.

    Examples:
        eventproc user add-token ann laptop
        eventproc user add-token robot nightly --expires-in 86400
    """
    from eventproc.cli import session
    from eventproc.cli.output.tables import described, show_one

    life_ms = None if expires_in is None else round(expires_in * 1000)
    made = session.run(settings, lambda ep: ep.users.add_token(name, token, life_ms=life_ms))
    if output == TABLE:
        click.echo(made.text)
        note(
            settings, f"added token {token} of user {name}; keep it in a safe place, it cannot be shown again"
        )
    else:
        show_one(described(made), output)


@user.does("deleted token {token} of user {name}")
@user_argument
@token_argument
def delete_token(ep: Eventproc, name: str, token: str) -> Awaitable[None]:
    """Delete a token of a user.

    Examples:
        eventproc user delete-token ann laptop
    """
    return ep.users.delete_token(name, token)


async def _losses(ep: Eventproc, name: str) -> Row:
    found = await ep.users.get(name)
    return {"grants": len(found.grants), "tokens": len(found.tokens)}


@user.does("deleted user {name}", consent="Delete user {name}", losses=_losses)
@user_argument
def delete(ep: Eventproc, name: str) -> Awaitable[None]:
    """Delete a user with its grants and tokens.

    Running servers continue to ask for credentials when the last user is deleted.

    Examples:
        eventproc user delete ann --dry-run
        eventproc user delete ann
    """
    return ep.users.delete(name)
