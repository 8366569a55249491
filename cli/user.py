"""`eventproc user`: who may call the endpoints of `eventproc serve`, and do what."""

from __future__ import annotations

import sys
from typing import Final

import click

from eventproc import Permission
from eventproc.cli import session
from eventproc.cli.destruction import Consent, destructive, is_confirmed
from eventproc.cli.options import (
    TABLE,
    CommandGroup,
    DurationParam,
    Settings,
    note,
    output_option,
    pass_settings,
    watch_option,
)
from eventproc.cli.output.tables import Row, described, show_done, show_one, show_rows, show_with_tables
from eventproc.cli.watch import show_found
from eventproc.runtime import Eventproc
from eventproc.runtime.users import UserInfo
from eventproc.store.access.users import check_user_name

COLUMNS: Final = ("name", "has_password", "grants", "tokens", "created_ms")
GRANT_COLUMNS: Final = ("pattern", "permission")
TOKEN_COLUMNS: Final = ("name", "created_ms", "expires_ms")

user_argument: Final = click.argument("name", metavar="USER")
pattern_argument: Final = click.argument("pattern", metavar="PATTERN")


@click.group(cls=CommandGroup)
def user() -> None:
    """Add users of `eventproc serve`, with their permissions, passwords and tokens.

    As soon as a directory has a user, its servers ask every caller for credentials. A change is in force on all running
    servers immediately.

    Examples:
        eventproc user add ann
        eventproc user grant ann READ_UPDATE 'shop/*'
        eventproc user list
    """


@user.command()
@user_argument
@click.option("--no-password", is_flag=True, help="The user has tokens only; see `user add-token`.")
@output_option()
@pass_settings
def add(settings: Settings, name: str, no_password: bool, output: str) -> None:
    """Add a user, who may do nothing yet.

    On a terminal the command asks for the password twice. Otherwise it reads the first line of standard input.

    Examples:
        eventproc user add ann
        eventproc user add ann < password.txt
        eventproc user add robot --no-password
    """
    check_user_name(name)
    given = None if no_password else _password_of_input()
    session.run(settings, lambda ep: ep.users.add(name, password=given))
    show_done(settings, {"done": "add", "target": name}, output, f"added user {name}")


@user.command("list")
@watch_option
@output_option()
@pass_settings
def list_(settings: Settings, output: str) -> None:
    """List the users.

    Examples:
        eventproc user list
        eventproc user list --output json
    """

    def show(found: list[UserInfo]) -> None:
        show_rows([described(each) for each in found], COLUMNS, output)

    show_found(settings, lambda ep: ep.users.list(), show)


@user.command()
@user_argument
@watch_option
@output_option()
@pass_settings
def describe(settings: Settings, name: str, output: str) -> None:
    """Show a user with its grants, and the names of its tokens.

    Examples:
        eventproc user describe ann
    """

    def show(found: UserInfo) -> None:
        show_with_tables(described(found), [("grants", GRANT_COLUMNS), ("tokens", TOKEN_COLUMNS)], output)

    show_found(settings, lambda ep: ep.users.get(name), show)


@user.command()
@user_argument
@click.argument("permission", type=click.Choice([each.value for each in Permission]))
@pattern_argument
@output_option()
@pass_settings
def grant(settings: Settings, name: str, permission: str, pattern: str, output: str) -> None:
    """Give a user a permission on PATTERN, in place of the one that it has there.

    READ shows and reads; READ_UPDATE also writes, changes and deletes. PATTERN is SCOPE/NAME for a stream, a reader
    group or a table; SCOPE for listing, creating and deleting what is in a scope; or * for everything, which alone
    allows creating and deleting scopes. In names, * stands for any characters; quote it.

    Examples:
        eventproc user grant ann READ shop/orders
        eventproc user grant ann READ_UPDATE 'shop/*'
        eventproc user grant admin READ_UPDATE '*'
    """
    given = Permission(permission)
    session.run(settings, lambda ep: ep.users.grant(name, given, pattern))
    row: Row = {"done": "grant", "target": name, "permission": given.value, "pattern": pattern}
    show_done(settings, row, output, f"user {name} has {given} on {pattern}")


@user.command()
@user_argument
@pattern_argument
@output_option()
@pass_settings
def revoke(settings: Settings, name: str, pattern: str, output: str) -> None:
    """Take away what `user grant` gave a user on exactly this PATTERN.

    Examples:
        eventproc user revoke ann 'shop/*'
    """
    session.run(settings, lambda ep: ep.users.revoke(name, pattern))
    row: Row = {"done": "revoke", "target": name, "pattern": pattern}
    show_done(settings, row, output, f"user {name} has no grant on {pattern} any more")


@user.command()
@user_argument
@click.option("--remove", is_flag=True, help="The user has no password any more, and keeps its tokens.")
@output_option()
@pass_settings
def password(settings: Settings, name: str, remove: bool, output: str) -> None:
    """Change the password of a user, which is read as by `user add`.

    Examples:
        eventproc user password ann
        eventproc user password robot --remove
    """
    given = None if remove else _password_of_input()
    session.run(settings, lambda ep: ep.users.set_password(name, given))
    done = "removed the password" if remove else "changed the password"
    show_done(settings, {"done": "password", "target": name}, output, f"{done} of user {name}")


@user.command("add-token")
@user_argument
@click.argument("token", metavar="TOKEN-NAME")
@click.option(
    "--expires-in",
    type=DurationParam(least=1),
    metavar="SECONDS",
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
    life_ms = None if expires_in is None else round(expires_in * 1000)
    made = session.run(settings, lambda ep: ep.users.add_token(name, token, life_ms=life_ms))
    if output == TABLE:
        click.echo(made.text)
        note(
            settings, f"added token {token} of user {name}; keep it in a safe place, it cannot be shown again"
        )
    else:
        show_one(described(made), output)


@user.command("delete-token")
@user_argument
@click.argument("token", metavar="TOKEN-NAME")
@output_option()
@pass_settings
def delete_token(settings: Settings, name: str, token: str, output: str) -> None:
    """Delete a token of a user.

    Examples:
        eventproc user delete-token ann laptop
    """
    session.run(settings, lambda ep: ep.users.delete_token(name, token))
    row: Row = {"done": "delete-token", "target": name, "token": token}
    show_done(settings, row, output, f"deleted token {token} of user {name}")


@user.command()
@user_argument
@destructive
@output_option()
@pass_settings
def delete(settings: Settings, name: str, yes: bool, dry_run: bool, output: str) -> None:
    """Delete a user with its grants and tokens.

    Running servers continue to ask for credentials when the last user is deleted.

    Examples:
        eventproc user delete ann --dry-run
        eventproc user delete ann
    """

    async def look(ep: Eventproc) -> Row:
        found = await ep.users.get(name)
        return {
            "dry_run": True,
            "would": "delete",
            "target": name,
            "already_done": False,
            "grants": len(found.grants),
            "tokens": len(found.tokens),
        }

    if is_confirmed(settings, Consent(yes, dry_run), f"Delete user {name}", look, output):
        session.run(settings, lambda ep: ep.users.delete(name))
        show_done(settings, {"done": "delete", "target": name}, output, f"deleted user {name}")


def _password_of_input() -> str:
    """Return the password that a person types, or the first line of standard input."""
    if sys.stdin.isatty():
        text: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        return text
    return sys.stdin.readline().rstrip("\r\n")
