"""The users of the directory, for an administrator: /eventproc/v1/users.

Without users a server trusts every program of its machine. One of them could then add the first user, and so lock out
all others. A change therefore needs a caller that is a user; the first one is added at the shell.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import attrs

from eventproc.runtime.users import TOKEN_LIFE_MS_MAX, NewToken, UserInfo, Users
from eventproc.server.rest.method_answers import Target, calling, listing
from eventproc.server.rest.routes import RestCall
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

    token: str
    life_ms: Annotated[int, Limits(1, TOKEN_LIFE_MS_MAX)] | None = None


def _changeable(call: RestCall) -> Users:
    if call.caller.user is None:
        raise NotSupported(what=NO_USERS, remedy=FIRST_USER)
    return call.ep.users


USERS: Final = Target(lambda call: call.ep.users)
CHANGEABLE: Final = Target(_changeable)

list_users = listing("list_users", Users.list, USERS, UserInfo)
describe_user = calling("describe_user", Users.get, USERS, UserInfo, user=UserName)
add_user = calling("add_user", Users.add, CHANGEABLE, UserInfo, body=UserBody)
delete_user = calling("delete_user", Users.delete, CHANGEABLE, type(None), user=UserName)
set_password = calling(
    "set_password", Users.set_password, CHANGEABLE, type(None), user=UserName, body=PasswordBody
)
grant_permission = calling(
    "grant_permission", Users.grant, CHANGEABLE, UserInfo, user=UserName, body=GrantBody
)
revoke_permission = calling(
    *("revoke_permission", Users.revoke, CHANGEABLE, UserInfo),
    user=UserName,
    pattern=Annotated[str, Limits(about="The pattern as it was given.")],
)
add_token = calling("add_token", Users.add_token, CHANGEABLE, NewToken, user=UserName, body=TokenBody)
delete_token = calling(
    *("delete_token", Users.delete_token, CHANGEABLE, type(None)),
    user=UserName,
    token=Annotated[str, Limits(about="Name of the token.")],
)
