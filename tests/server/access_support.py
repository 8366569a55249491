"""Users for tests: each has a token, because passwords take time."""

from __future__ import annotations

from collections.abc import Mapping

import httpx

from eventproc.runtime import Eventproc
from eventproc.server.access.authority import Authority
from eventproc.server.access.needs import Place
from eventproc.server.rest.application import METRICS_PATH as METRICS_PATH, RestAnswers, rest_application
from eventproc.server.rest.route_table import ROUTES
from eventproc.store.access import users
from eventproc.store.access.permissions import Grant, Permission
from eventproc.store.database import Tx

READ, UPDATE = Permission.READ, Permission.READ_UPDATE

LISTS = [
    each.path
    for each in ROUTES
    if each.need.place is Place.USER and {"after", "limit"} <= {part.name for part in each.parameters}
]
"""Lists over REST that every user may ask for."""

GRANTS: Mapping[str, tuple[Permission, str] | None] = {
    "nobody": None,
    "stream-reader": (READ, "s/t"),
    "stream-writer": (UPDATE, "s/t"),
    "scope-reader": (READ, "s"),
    "scope-writer": (UPDATE, "s"),
    "reader-of-others": (READ, "other/*"),
    "writer-of-others": (UPDATE, "other*"),
    "server-reader": (READ, "*"),
    "administrator": (UPDATE, "*"),
}
"""One user for each way to be permitted, and for each way not to be."""


MAY: Mapping[str, Mapping[str, Permission]] = {
    "nobody": {},
    "stream-reader": {"s/t": READ},
    "stream-writer": {"s/t": UPDATE},
    "scope-reader": {"s": READ},
    "scope-writer": {"s": UPDATE},
    "reader-of-others": {"other/t": READ},
    "writer-of-others": {"other": UPDATE},
    "server-reader": {"s/t": READ, "s": READ, "other/t": READ, "other": READ, "*": READ},
    "administrator": {"s/t": UPDATE, "s": UPDATE, "other/t": UPDATE, "other": UPDATE, "*": UPDATE},
}
"""What each user should be able to do with each resource of the tests; written by hand, without looking at patterns."""


def may(user: str, permission: Permission, resource: str) -> bool:
    """Return what a user of GRANTS should be able to do with a resource."""
    found = MAY[user].get(resource)
    return found is permission or found is UPDATE


async def add_users(ep: Eventproc) -> dict[str, str]:
    """Add the users of GRANTS; return the token of each."""

    def add(tx: Tx) -> dict[str, str]:
        return {name: add_user(tx, name, given) for name, given in GRANTS.items()}

    return await ep.db.write(add)


def add_user(tx: Tx, name: str, *given: tuple[Permission, str] | None) -> str:
    """Add a user with a token, and return that."""
    users.add_user(tx, name, None, [Grant(each[1], each[0]) for each in given if each is not None])
    text, token = users.new_token(tx, "only", None)
    users.add_token(tx, name, token)
    return text


async def loaded(ep: Eventproc) -> Authority:
    """Return an authority that knows the users of this moment."""
    authority = Authority(ep.db)
    await authority.load()
    return authority


async def tenant(ep: Eventproc, *patterns: str) -> httpx.AsyncClient:
    """Return REST as a new user calls it that has READ on some patterns; on the names of the scope `a` unless given."""
    given = [(READ, each) for each in patterns or ("a/*",)]
    token = await ep.db.write(lambda tx: add_user(tx, "ann", *given))
    transport = httpx.ASGITransport(rest_application(RestAnswers(ep, await loaded(ep), "127.0.0.1")))
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.AsyncClient(transport=transport, base_url="http://anything", headers=headers)
