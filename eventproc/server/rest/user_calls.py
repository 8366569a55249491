"""The users of the directory, for an administrator: /eventproc/v1/users.

Without users a server trusts every program of its machine. One of them could then add the first user, and so lock out
all others. A change therefore needs a caller that is a user; the first one is added at the shell.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import attrs

from eventproc.runtime.users import TOKEN_LIFE_MS_MAX, NewToken, UserInfo
from eventproc.server.rest.routes import PAGE, After, Page, PageLimit, RestCall, page_of
from eventproc.store.access.permissions import Permission
from eventproc.store.model.errors import NotSupported
from eventproc.store.records.plain import Limits

UserName: TypeAlias = Annotated[str, Limits(about="Name of the user.")]

NO_USERS: Final = "a change of users through a server that knows none"
FIRST_USER: Final = "add the first one at the shell of the server, with `eventproc user add NAME`"


@attrs.frozen(kw_only=True)
class UserBody:
    """A user to add. password: at least 8 characters; null: the user has tokens only."""

    name: str
    password: str | None = None


@attrs.frozen
class PasswordBody:
    """The new password; null: the user has none any more."""

    password: str | None


@attrs.frozen
class GrantBody:
    """A permission on a pattern."""

    pattern: str
    permission: Permission


@attrs.frozen(kw_only=True)
class TokenBody:
    """A token to make. life_ms: how long it is valid; null: until it is deleted."""

    name: str
    life_ms: Annotated[int, Limits(1, TOKEN_LIFE_MS_MAX)] | None = None


async def list_users(call: RestCall, after: After = None, limit: PageLimit = PAGE) -> Page[UserInfo]:
    """List users by name, with their grants and the names of their tokens."""
    found = await call.ep.users.list(after=after, limit=limit + 1)
    return page_of(found, limit, lambda each: each.name)


async def describe_user(call: RestCall, user: UserName) -> UserInfo:
    """Show a user with its grants, and the names of its tokens."""
    return await call.ep.users.get(user)


async def add_user(call: RestCall, body: UserBody) -> UserInfo:
    """Add a user, who may do nothing yet."""
    _verify_users(call)
    return await call.ep.users.add(body.name, password=body.password)


async def delete_user(call: RestCall, user: UserName) -> None:
    """Delete a user with its grants and tokens."""
    _verify_users(call)
    await call.ep.users.delete(user)


async def set_password(call: RestCall, user: UserName, body: PasswordBody) -> None:
    """Change or remove the password of a user."""
    _verify_users(call)
    await call.ep.users.set_password(user, body.password)


async def grant_permission(call: RestCall, user: UserName, body: GrantBody) -> UserInfo:
    """Give a user a permission on a pattern, in place of the one that it has there."""
    _verify_users(call)
    return await call.ep.users.grant(user, body.permission, body.pattern)


async def revoke_permission(
    call: RestCall, user: UserName, pattern: Annotated[str, Limits(about="The pattern as it was given.")]
) -> UserInfo:
    """Take away a user's permission on exactly this pattern."""
    _verify_users(call)
    return await call.ep.users.revoke(user, pattern)


async def add_token(call: RestCall, user: UserName, body: TokenBody) -> NewToken:
    """Make a token for a user; its text cannot be shown again."""
    _verify_users(call)
    return await call.ep.users.add_token(user, body.name, life_ms=body.life_ms)


async def delete_token(
    call: RestCall, user: UserName, token: Annotated[str, Limits(about="Name of the token.")]
) -> None:
    """Delete a token of a user."""
    _verify_users(call)
    await call.ep.users.delete_token(user, token)


def _verify_users(call: RestCall) -> None:
    if call.caller.user is None:
        raise NotSupported(what=NO_USERS, remedy=FIRST_USER)
