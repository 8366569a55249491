"""The users of a directory over REST: administered by a user who may, in force immediately."""

from __future__ import annotations

from eventproc.runtime import Eventproc
from tests.server.access_support import UPDATE, add_user, loaded
from tests.server.rest_client import RestInMemory

PATH = "/eventproc/v1/users"


async def test_an_administrator_gives_a_user_permissions_and_a_token_that_is_valid(ep: Eventproc) -> None:
    token = await ep.db.write(lambda tx: add_user(tx, "admin", (UPDATE, "*")))
    authority = await loaded(ep)
    admin = RestInMemory(ep, authority, token)
    made = await admin.call("POST", PATH, {"name": "ann", "password": "correct horse"})
    assert (made.status, made.body["has_password"], made.body["grants"]) == (201, True, [])
    assert (await admin.call("POST", PATH, {"name": "ann"})).status == 409
    body = {"pattern": "shop/*", "permission": "READ_UPDATE"}
    assert (await admin.ok("POST", f"{PATH}/ann/grants", body))["grants"] == [body]
    given = await admin.call("POST", f"{PATH}/ann/tokens", {"token": "laptop"})
    assert (given.status, given.body["user"], given.body["expires_ms"]) == (201, "ann", None)
    await authority.load()
    caller = await authority.authenticate(f"Bearer {given.body['text']}")
    assert (caller.name, caller.may(UPDATE, "shop/orders")) == ("ann", True)
    shown = await admin.ok("GET", f"{PATH}/ann")
    assert [each["name"] for each in shown["tokens"]] == ["laptop"]
    assert given.body["text"] not in str(shown)
    assert "argon2" not in str(shown)
    assert (await admin.call("PUT", f"{PATH}/ann/password", {"password": None})).status == 204
    assert (await admin.call("DELETE", f"{PATH}/ann/tokens/laptop")).status == 204
    assert (await admin.ok("DELETE", f"{PATH}/ann/grants?pattern=shop/*"))["grants"] == []
    assert (await admin.call("DELETE", f"{PATH}/ann")).status == 204
    assert (await admin.call("GET", f"{PATH}/ann")).status == 404
    page = await admin.ok("GET", f"{PATH}?limit=1")
    assert ([each["name"] for each in page["items"]], page["next"]) == (["admin"], None)


async def test_a_password_that_is_too_short_is_refused_and_not_repeated(ep: Eventproc) -> None:
    token = await ep.db.write(lambda tx: add_user(tx, "b", (UPDATE, "*")))
    admin = RestInMemory(ep, await loaded(ep), token)
    problem = await admin.call("POST", PATH, {"name": "ann", "password": "secret"})
    assert problem.status == 400
    assert "secret" not in str(problem.body)
    assert (await admin.call("GET", f"{PATH}/ann")).status == 404


async def test_the_first_user_is_not_added_by_a_caller_that_nobody_vouches_for(ep: Eventproc) -> None:
    anybody = RestInMemory(ep, await loaded(ep))
    for method, path, body in (
        ("POST", "", {"name": "ann"}),
        ("POST", "/ann/tokens", {"token": "laptop"}),
        ("DELETE", "/ann", None),
    ):
        problem = await anybody.call(method, PATH + path, body)
        assert problem.status == 400
        assert "eventproc user add" in problem.body["detail"]
    assert await ep.users.list() == []
