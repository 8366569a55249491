"""The users of a directory over REST: administered by a user who may, in force immediately."""

from __future__ import annotations

from typing import Any

import httpx

from eventproc.runtime import Eventproc
from eventproc.server.access.authority import Authority
from eventproc.server.rest.application import RestAnswers, rest_application
from tests.server.access_support import UPDATE, add_user, loaded

PATH = "/eventproc/v1/users"


class Administrator:
    """Calls of a user who may do everything."""

    def __init__(self, ep: Eventproc, authority: Authority, token: str = "") -> None:
        transport = httpx.ASGITransport(rest_application(RestAnswers(ep, authority, "127.0.0.1")))
        self.http = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    async def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        found = await self.http.request(method, f"{PATH}{path}", headers=self._headers, json=body)
        return found.status_code, found.json() if found.text else None


async def test_an_administrator_gives_a_user_permissions_and_a_token_that_is_valid(ep: Eventproc) -> None:
    token = await ep.db.write(lambda tx: add_user(tx, "admin", (UPDATE, "*")))
    authority = await loaded(ep)
    admin = Administrator(ep, authority, token)
    status, made = await admin.call("POST", "", {"name": "ann", "password": "correct horse"})
    assert (status, made["has_password"], made["grants"]) == (201, True, [])
    assert (await admin.call("POST", "", {"name": "ann"}))[0] == 409
    body = {"pattern": "shop/*", "permission": "READ_UPDATE"}
    assert (await admin.call("POST", "/ann/grants", body))[1]["grants"] == [body]
    status, given = await admin.call("POST", "/ann/tokens", {"token": "laptop"})
    assert (status, given["user"], given["expires_ms"]) == (201, "ann", None)
    await authority.load()
    caller = await authority.authenticate(f"Bearer {given['text']}")
    assert (caller.name, caller.may(UPDATE, "shop/orders")) == ("ann", True)
    shown = (await admin.call("GET", "/ann"))[1]
    assert [each["name"] for each in shown["tokens"]] == ["laptop"]
    assert given["text"] not in str(shown)
    assert "argon2" not in str(shown)
    assert (await admin.call("PUT", "/ann/password", {"password": None})) == (204, None)
    assert (await admin.call("DELETE", "/ann/tokens/laptop"))[0] == 204
    assert (await admin.call("DELETE", "/ann/grants?pattern=shop/*"))[1]["grants"] == []
    assert (await admin.call("DELETE", "/ann"))[0] == 204
    assert (await admin.call("GET", "/ann"))[0] == 404
    status, page = await admin.call("GET", "?limit=1")
    assert (status, [each["name"] for each in page["items"]], page["next"]) == (200, ["admin"], None)


async def test_a_password_that_is_too_short_is_refused_and_not_repeated(ep: Eventproc) -> None:
    token = await ep.db.write(lambda tx: add_user(tx, "b", (UPDATE, "*")))
    admin = Administrator(ep, await loaded(ep), token)
    status, problem = await admin.call("POST", "", {"name": "ann", "password": "secret"})
    assert status == 400
    assert "secret" not in str(problem)
    assert (await admin.call("GET", "/ann"))[0] == 404


async def test_the_first_user_is_not_added_by_a_caller_that_nobody_vouches_for(ep: Eventproc) -> None:
    anybody = Administrator(ep, await loaded(ep))
    for method, path, body in (
        ("POST", "", {"name": "ann"}),
        ("POST", "/ann/tokens", {"token": "laptop"}),
        ("DELETE", "/ann", None),
    ):
        status, problem = await anybody.call(method, path, body)
        assert status == 400
        assert "eventproc user add" in problem["detail"]
    assert await ep.users.list() == []
