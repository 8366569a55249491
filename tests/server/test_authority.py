"""Who calls: passwords, tokens, delegation tokens, and what a change of users does to a server that runs."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import anyio
import jwt
import pytest
from scramp import ScramMechanism

import eventproc
from eventproc.base.clock import SystemClock
from eventproc.runtime import Eventproc
from eventproc.server.access import authority as authority_module, delegation as delegation_module
from eventproc.server.access.authority import (
    MISSING,
    PASSWORDS_WAITING_MAX,
    REMEMBER_MS,
    TRUSTED,
    WRONG,
    WRONG_PROOF,
    WRONG_PROOF_S,
    Authority,
    NotAuthenticated,
    NotPermitted,
    TooManyPasswords,
)
from eventproc.server.access.delegation import (
    CLOCK_SKEW_MS,
    KEY_LIFE_MS,
    TOKEN_LIFE_MS,
    TokenExpired,
    TokenRefused,
    TokenSigner,
    current_keys,
    renew_keys,
)
from eventproc.store.access import users
from eventproc.store.access.passwords import hash_of_nobody, hash_password, is_password
from eventproc.store.access.permissions import Grant
from eventproc.store.access.scram import SALT_BYTES, make_verifier, new_verifiers
from eventproc.store.database import Tx
from eventproc.store.model.errors import InvalidArgument
from eventproc.testing import VirtualClock
from eventproc.testing.crash import PATIENCE_S
from tests.groups.support import eventually
from tests.server.access_support import READ, UPDATE, add_user, loaded
from tests.support.virtual_time import clock_of

PASSWORD = "correct horse battery"


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture
async def ep() -> AsyncIterator[Eventproc]:
    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        yield ep


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hashes that passwords are compared with; the comparison takes no time."""
    seen: list[str] = []

    def compare(hashed: str, password: str) -> bool:
        seen.append(hashed)
        return hashed == f"hash of {password}"

    monkeypatch.setattr(authority_module, "is_password", compare)
    return seen


async def add(ep: Eventproc, name: str = "ann", password: str | None = f"hash of {PASSWORD}") -> None:
    await ep.db.write(lambda tx: users.add_user(tx, name, password, [Grant("s/*", UPDATE)]))


async def refusal(authority: Authority, header: str | None) -> str:
    with pytest.raises(NotAuthenticated) as why:
        await authority.authenticate(header)
    return str(why.value)


# Passwords.


def test_a_hash_is_of_one_password_and_differs_each_time() -> None:
    hashed = hash_password(PASSWORD)
    assert hashed.startswith("$argon2id$")
    assert hash_password(PASSWORD) != hashed
    assert is_password(hashed, PASSWORD)
    assert not is_password(hashed, PASSWORD + " ")
    assert not is_password("no hash", PASSWORD)
    assert (
        hash_of_nobody().rpartition("$")[0].rpartition("$")[0] == hashed.rpartition("$")[0].rpartition("$")[0]
    )


@pytest.mark.parametrize("password", ["", "short", "x" * 1_025, "ep1_0123456789abcdef_x"])
def test_a_password_that_is_refused_is_not_in_the_error(password: str) -> None:
    with pytest.raises(InvalidArgument) as why:
        hash_password(password)
    assert not password or password not in str(why.value)


@pytest.mark.acceptance("G2")
async def test_every_caller_is_trusted_until_the_directory_has_a_user(
    ep: Eventproc, checked: list[str]
) -> None:
    authority = await loaded(ep)
    assert await authority.authenticate(None) is TRUSTED
    assert await authority.authenticate(basic("ann", "wrong")) is TRUSTED
    assert authority.delegation_token(TRUSTED, "s/t") == ""
    assert authority.verify_token("", UPDATE, "s/t") is None
    await add(ep)
    await authority.load()
    assert await refusal(authority, None) == MISSING
    assert (await authority.authenticate(basic("ann", PASSWORD))).name == "ann"
    assert checked == [f"hash of {PASSWORD}"]


async def test_an_unknown_user_costs_a_comparison_and_gets_the_words_of_a_wrong_password(
    ep: Eventproc, checked: list[str]
) -> None:
    await add(ep)
    await add(ep, "robot", None)
    authority = await loaded(ep)
    wrong = [basic("ann", "wrong"), basic("bob", PASSWORD), basic("robot", PASSWORD), basic("", "")]
    assert {await refusal(authority, each) for each in wrong} == {WRONG}
    assert checked == [f"hash of {PASSWORD}", *[hash_of_nobody()] * 3]


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Basic",
        "Basic ???",
        "Basic \xe9",
        "Basic /w==",
        "Basic YW5u",
        "Bearer",
        "Digest x",
        "\0",
        "Bearer ep1__",
    ],
)
async def test_a_header_that_is_no_credentials_is_refused(
    ep: Eventproc, checked: list[str], header: str
) -> None:
    await add(ep)
    assert await refusal(await loaded(ep), header) in (MISSING, WRONG)
    assert checked == []


async def test_a_right_password_is_compared_again_after_some_minutes_or_when_it_changes(
    ep: Eventproc, checked: list[str]
) -> None:
    await add(ep)
    authority = await loaded(ep)
    for _ in range(3):
        await authority.authenticate(basic("ann", PASSWORD))
    assert len(checked) == 1
    clock_of(ep).advance(REMEMBER_MS)
    await authority.authenticate(basic("ann", PASSWORD))
    assert len(checked) == 2
    await ep.db.write(lambda tx: users.set_password(tx, "ann", "hash of another"))
    await authority.load()
    assert await refusal(authority, basic("ann", PASSWORD)) == WRONG
    assert (await authority.authenticate(basic("ann", "another"))).name == "ann"


async def test_passwords_are_compared_one_at_a_time_and_too_many_are_refused_for_the_moment(
    ep: Eventproc, checked: list[str]
) -> None:
    await add(ep)
    authority = await loaded(ep)
    refused: list[str] = []

    async def guess(number: int) -> None:
        try:
            await authority.authenticate(basic("ann", f"guess {number}"))
        except TooManyPasswords:
            refused.append("later")
        except NotAuthenticated:
            pass

    with anyio.fail_after(PATIENCE_S):
        async with authority._hashing, anyio.create_task_group() as tasks:
            for number in range(PASSWORDS_WAITING_MAX + 5):
                tasks.start_soon(guess, number)
            while len(refused) < 5:
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    assert checked == []


@pytest.mark.parametrize(("password", "outcome"), [(PASSWORD, "ann"), ("a guess", WRONG)])
async def test_any_number_of_calls_with_one_password_share_its_comparison(
    ep: Eventproc, checked: list[str], password: str, outcome: str
) -> None:
    await add(ep)
    authority = await loaded(ep)
    found: list[str] = []

    async def call() -> None:
        try:
            found.append((await authority.authenticate(basic("ann", password))).name)
        except NotAuthenticated as why:
            found.append(str(why))

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            for _ in range(PASSWORDS_WAITING_MAX + 5):
                tasks.start_soon(call)
    assert found == [outcome] * (PASSWORDS_WAITING_MAX + 5)
    assert checked == [f"hash of {PASSWORD}"]


async def test_a_call_that_leaves_while_its_password_waits_does_not_refuse_others_with_the_same_one(
    ep: Eventproc, checked: list[str]
) -> None:
    await add(ep)
    authority = await loaded(ep)
    first = anyio.CancelScope()
    found: list[str] = []

    async def leave() -> None:
        with first:
            await authority.authenticate(basic("ann", PASSWORD))

    async def call() -> None:
        found.append((await authority.authenticate(basic("ann", PASSWORD))).name)

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks, authority._hashing:
            tasks.start_soon(leave)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            first.cancel()
            await anyio.wait_all_tasks_blocked()
    assert found == ["ann"]
    assert checked == [f"hash of {PASSWORD}"]


@pytest.mark.parametrize("change", ["password", "removal", "replacement", "grant"])
async def test_a_user_who_changes_while_a_password_waits_is_as_after_the_change(
    ep: Eventproc, checked: list[str], change: str
) -> None:
    await add(ep)
    authority = await loaded(ep)
    found: list[str] = []

    async def call() -> None:
        try:
            caller = await authority.authenticate(basic("ann", PASSWORD))
            found.append("may write" if caller.may(UPDATE, "s/t") else "may not write")
        except NotAuthenticated as why:
            found.append(str(why))

    def make(tx: Tx) -> None:
        match change:
            case "password":
                users.set_password(tx, "ann", "hash of another")
            case "removal":
                users.delete_user(tx, "ann")
            case "replacement":
                users.delete_user(tx, "ann")
                users.add_user(tx, "ann", "hash of another", [Grant("s/*", UPDATE)])
            case _:
                users.grant(tx, "ann", Grant("s/*", READ))

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks, authority._hashing:
            tasks.start_soon(call)
            while not authority._waiting:
                await anyio.lowlevel.checkpoint()
            await ep.db.write(make)
            await authority.load()
    assert checked == [f"hash of {PASSWORD}"], "the password that was right when the call began"
    assert found == ["may not write" if change == "grant" else WRONG]


@pytest.mark.parametrize("given", ["{token}", "{token}:", "ann{token}", "{token}:x", "correct horse:x"])
async def test_a_secret_in_place_of_the_name_is_not_in_the_log(
    ep: Eventproc, checked: list[str], caplog: pytest.LogCaptureFixture, given: str
) -> None:
    token = await ep.db.write(lambda tx: add_user(tx, "ann", (READ, "s/t")))
    header = "Basic " + base64.b64encode(given.format(token=token).encode()).decode()
    assert await refusal(await loaded(ep), header) == WRONG
    assert "credentials were refused: Basic credentials" in caplog.text
    assert token not in caplog.text
    assert "horse" not in caplog.text


async def test_the_first_user_is_in_force_before_the_hash_of_nobody_is_made(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    authority = await loaded(ep)
    monkeypatch.setattr(authority_module, "hash_of_nobody", lambda: seen.append(authority.is_required))
    await add(ep)
    await authority.load()
    assert seen == [True]
    await add(ep, "bob")
    await authority.load()
    assert seen == [True], "it is made once"


async def test_a_directory_without_users_gets_no_key(ep: Eventproc) -> None:
    await loaded(ep)
    assert await ep.db.read(current_keys) is None


async def test_a_user_who_is_deleted_is_refused_and_the_last_one_does_not_open_the_server(
    ep: Eventproc, checked: list[str]
) -> None:
    await add(ep)
    authority = await loaded(ep)
    caller = await authority.authenticate(basic("ann", PASSWORD))
    token = authority.delegation_token(caller, "s/t")
    await ep.db.write(lambda tx: users.delete_user(tx, "ann"))
    await authority.load()
    assert await refusal(authority, basic("ann", PASSWORD)) == WRONG
    assert await refusal(authority, None) == MISSING
    with pytest.raises(TokenRefused):
        authority.verify_token(token, READ, "s/t")
    assert not (await loaded(ep)).is_required


async def test_a_server_follows_changes_of_users_while_it_runs(ep: Eventproc, checked: list[str]) -> None:
    authority = await loaded(ep)

    async def has_changed(name: str) -> bool:
        return name in authority._table.users

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(authority.watch)
            for name in ("ann", "bob"):
                await add(ep, name)
                await eventually(ep, partial(has_changed, name))
            tasks.cancel_scope.cancel()
    assert authority.is_required


# Tokens of users.


async def test_a_token_is_a_bearer_or_a_password_of_its_user_until_it_expires(
    ep: Eventproc, checked: list[str]
) -> None:
    await add(ep)
    await add(ep, "bob")

    def make(tx: Tx) -> str:
        text, made = users.new_token(tx, "ci", 60_000)
        users.add_token(tx, "ann", made)
        return text

    token = await ep.db.write(make)
    authority = await loaded(ep)
    assert (await authority.authenticate(f"Bearer {token}")).name == "ann"
    assert (await authority.authenticate(f"bearer  {token} ")).name == "ann"
    assert (await authority.authenticate(basic("ann", token))).name == "ann"
    wrong = [
        f"Bearer {token}x",
        f"Bearer x{token}",
        f"Bearer {token[:-1]}",
        basic("bob", token),
        basic("ann", f"{token}x"),
    ]
    assert {await refusal(authority, each) for each in wrong} == {WRONG}
    clock_of(ep).advance(60_000)
    assert await refusal(authority, f"Bearer {token}") == WRONG
    assert checked == []


async def test_no_record_has_a_token_or_a_password(ep: Eventproc) -> None:
    hashed = hash_password(PASSWORD)

    def make(tx: Tx) -> tuple[str, bytes]:
        users.add_user(tx, "ann", hashed)
        text, made = users.new_token(tx, "ci", None)
        users.add_token(tx, "ann", made)
        (body,) = tx.execute("SELECT body FROM record WHERE kind = 'user'").fetchone()
        return text, bytes(body)

    token, body = await ep.db.write(make)
    assert PASSWORD.encode() not in body
    assert token.rpartition("_")[2].encode() not in body


# SCRAM.


def test_a_verifier_is_that_of_the_standards() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    stored = make_verifier("pencil", "SCRAM-SHA-256", salt, 4096)
    keys = base64.b64decode(stored.stored_key), base64.b64decode(stored.server_key)
    nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    server: Any = ScramMechanism(stored.mechanism).make_server(lambda _: (salt, *keys, 4096), s_nonce=nonce)
    server.set_client_first("n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    # The messages of section 3 of RFC 7677.
    assert server.get_server_first() == f"r=rOprNGfwEbeRWgbNEkqO{nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    server.set_client_final(f"c=biws,r=rOprNGfwEbeRWgbNEkqO{nonce},p={proof}")
    assert server.get_server_final() == "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_verifiers_of_the_same_password_differ_and_their_number_of_iterations_is_one_that_clients_take() -> (
    None
):
    first, second = (new_verifiers(PASSWORD, SystemClock().random_bytes) for _ in range(2))
    assert [each.mechanism for each in first] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    parts = [(each.salt, each.stored_key, each.server_key) for each in (*first, *second)]
    assert len({part for each in parts for part in each}) == 12
    assert all(100_000 < each.iterations <= 1_000_000 for each in first)


async def test_users_without_verifiers_and_unknown_ones_look_as_others_on_each_server_and_for_ever(
    ep: Eventproc,
) -> None:
    stored = make_verifier(PASSWORD, "SCRAM-SHA-256", b"s" * SALT_BYTES, 600_000)
    await ep.db.write(lambda tx: users.add_user(tx, "ann", "hash", scram=(stored,)))
    await add(ep, "bob")
    server, other = await loaded(ep), await loaded(ep)
    assert server.verifier_of("ann", "SCRAM-SHA-256") == stored
    made = [server.verifier_of(name, "SCRAM-SHA-256") for name in ("bob", "carl", "carla")]
    made.append(server.verifier_of("ann", "SCRAM-SHA-512"))
    assert made[:3] == [other.verifier_of(name, "SCRAM-SHA-256") for name in ("bob", "carl", "carla")]
    assert len({each.salt for each in made}) == 4
    assert {each.iterations for each in made[:3]} == {600_000}
    assert {len(base64.b64decode(each.salt)) for each in made} == {SALT_BYTES}
    assert {len(base64.b64decode(each.stored_key)) for each in made} == {32, 64}


async def test_a_wrong_proof_lets_others_wait_and_the_log_alone_says_why(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stored = make_verifier(PASSWORD, "SCRAM-SHA-256", b"s" * SALT_BYTES, 4_096)
    await ep.db.write(lambda tx: users.add_user(tx, "ann", "hash", scram=(stored,)))
    await add(ep, "bob")
    authority = await loaded(ep)
    pauses, pause = list[float](), anyio.sleep

    async def note(seconds: float) -> None:
        assert authority._hashing.locked()
        leaving.cancel()  # the peer leaves: the time is not saved
        await pause(0)
        pauses.append(seconds)

    monkeypatch.setattr(anyio, "sleep", note)
    assert (await authority.authenticate_proof("ann", stored, lambda: True)).name == "ann"
    assert pauses == []
    for name, reason in (
        ("ann", "user ann by SCRAM: the password is wrong"),
        ("bob", "user bob by SCRAM: it has no verifiers; set its password again"),
        ("carl", "user carl by SCRAM: there is no such user"),
        ("ep1_secret", "a proof without the name of a user by SCRAM: there is no such user"),
    ):
        with anyio.CancelScope() as leaving, pytest.raises(NotAuthenticated) as why:
            await authority.authenticate_proof(name, stored, lambda: False)
        assert str(why.value) == WRONG_PROOF
        assert reason in caplog.text
    assert "ep1_secret" not in caplog.text
    assert pauses == [WRONG_PROOF_S] * 4
    monkeypatch.setattr(authority, "_waiting", PASSWORDS_WAITING_MAX)
    with pytest.raises(TooManyPasswords):
        await authority.authenticate_proof("ann", stored, lambda: True)


async def test_a_proof_ends_with_the_password_and_with_the_user(ep: Eventproc) -> None:
    stored, other = (
        make_verifier(PASSWORD, "SCRAM-SHA-256", salt * SALT_BYTES, 4_096) for salt in (b"s", b"t")
    )
    await ep.db.write(lambda tx: users.add_user(tx, "ann", "hash", scram=(stored,)))
    authority = await loaded(ep)
    assert authority.proved("ann", stored).name == "ann"
    await ep.db.write(lambda tx: users.set_password(tx, "ann", "hash", (other,)))
    await authority.load()
    with pytest.raises(NotAuthenticated):
        authority.proved("ann", stored)
    assert authority.proved("ann", other).name == "ann"
    await ep.db.write(lambda tx: users.delete_user(tx, "ann"))
    await authority.load()
    with pytest.raises(NotAuthenticated):
        authority.proved("ann", other)


# Records.


@pytest.mark.parametrize("limit", ["USERS_MAX", "GRANTS_MAX", "TOKENS_MAX"])
async def test_users_grants_and_tokens_have_limits(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    await ep.db.write(lambda tx: add_user(tx, "ann", (READ, "s/t")))
    monkeypatch.setattr(users, limit, 1)
    change = {
        "USERS_MAX": lambda tx: users.add_user(tx, "bob", None),
        "GRANTS_MAX": lambda tx: users.grant(tx, "ann", Grant("s/u", READ)),
        "TOKENS_MAX": lambda tx: users.add_token(tx, "ann", users.new_token(tx, "second", None)[1]),
    }[limit]
    with pytest.raises(InvalidArgument, match=r"limit|at most"):
        await ep.db.write(change)


# Delegation tokens.


async def delegated(ep: Eventproc, authority: Authority, user: str, resource: str = "s/t") -> str:
    name = user

    def make(tx: Tx) -> str:
        text, made = users.new_token(tx, f"for {resource}".replace(" ", "-").replace("/", "-"), None)
        users.add_token(tx, name, made)
        return text

    token = await ep.db.write(make)
    await authority.load()
    return authority.delegation_token(await authority.authenticate(f"Bearer {token}"), resource)


async def test_a_delegation_token_is_a_jwt_that_its_client_can_read(ep: Eventproc) -> None:
    await add(ep)
    token = await delegated(ep, await loaded(ep), "ann")
    parts = token.split(".")
    assert len(parts) == 3
    claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    assert claims["exp"] * 1000 <= clock_of(ep).wall_ms() + TOKEN_LIFE_MS < claims["exp"] * 1000 + 1000


async def test_a_delegation_token_is_for_one_resource_and_at_most_what_its_user_may(ep: Eventproc) -> None:
    await ep.db.write(lambda tx: add_user(tx, "reader", (READ, "s/*")))
    await ep.db.write(lambda tx: add_user(tx, "writer", (UPDATE, "s/*")))
    authority = await loaded(ep)
    reads, writes = await delegated(ep, authority, "reader"), await delegated(ep, authority, "writer")
    assert authority.verify_token(reads, READ, "s/t") is not None
    assert authority.verify_token(writes, READ, "s/t") is not None
    assert authority.verify_token(writes, UPDATE, "s/t") is not None
    for token, permission, resource in ((reads, UPDATE, "s/t"), (writes, READ, "s/u"), ("", READ, "s/t")):
        with pytest.raises(TokenRefused) as why:
            authority.verify_token(token, permission, resource)
        assert not isinstance(why.value, TokenExpired)
    with pytest.raises(NotPermitted):
        await delegated(ep, authority, "reader", "other/t")


async def test_an_expired_token_asks_for_another_one_and_a_revoked_grant_ends_both(ep: Eventproc) -> None:
    await add(ep)
    authority = await loaded(ep)
    token = await delegated(ep, authority, "ann")
    held = authority.verify_token(token, UPDATE, "s/t")
    assert authority.still_allows(held)
    clock_of(ep).advance(TOKEN_LIFE_MS + CLOCK_SKEW_MS)
    assert not authority.still_allows(held)
    with pytest.raises(TokenExpired):
        authority.verify_token(token, UPDATE, "s/t")
    renewed = await delegated(ep, authority, "ann", "s/u")
    held = authority.verify_token(renewed, UPDATE, "s/u")
    await ep.db.write(lambda tx: users.grant(tx, "ann", Grant("s/*", READ)))
    await authority.load()
    assert not authority.still_allows(held)
    assert authority.verify_token(renewed, READ, "s/u") is not None
    with pytest.raises(TokenRefused):
        authority.verify_token(renewed, UPDATE, "s/u")


async def test_a_token_of_another_key_or_algorithm_or_content_is_refused(ep: Eventproc) -> None:
    await add(ep)
    authority = await loaded(ep)
    token = await delegated(ep, authority, "ann")
    head = jwt.get_unverified_header(token)
    claims = jwt.decode(token, options={"verify_signature": False})
    forged = [
        jwt.encode(claims, "k" * 32, algorithm="HS256", headers=head),
        jwt.encode(claims, "", algorithm="none", headers={"kid": head["kid"]}),
        jwt.encode({**claims, "aud": "other"}, "k" * 32, algorithm="HS256", headers=head),
        token[:-2],
        token.replace(".", ".x", 1),
        "a.b.c",
        "...",
        "\ud800",
    ]
    for each in forged:
        with pytest.raises(TokenRefused):
            authority.verify_token(each, READ, "s/t")


async def test_a_token_that_was_accepted_is_refused_as_soon_as_its_key_is_retired(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add(ep)
    authority = await loaded(ep)
    token = await delegated(ep, authority, "ann")
    assert authority.verify_token(token, UPDATE, "s/t") is not None
    with monkeypatch.context() as patch:
        patch.setattr(delegation_module, "KEY_LIFE_MS", 0)  # each renewal replaces a key
        await ep.db.write(renew_keys)
        await ep.db.write(renew_keys)
    await authority.load()
    with pytest.raises(TokenExpired):
        authority.verify_token(token, UPDATE, "s/t")


async def test_keys_are_replaced_each_day_and_the_previous_one_is_valid_until_the_next(ep: Eventproc) -> None:
    await add(ep)
    first = await loaded(ep)
    token = await delegated(ep, first, "ann")
    clock_of(ep).advance(KEY_LIFE_MS)
    assert await ep.db.read(current_keys) is None
    second = await loaded(ep)
    assert second._table.keys != first._table.keys
    assert (await loaded(ep))._table.keys == second._table.keys
    assert await ep.db.write(renew_keys) == second._table.keys
    assert second._table.signer is not None
    assert second._table.signer.verify(token).user == "ann"
    with pytest.raises(TokenExpired):  # a server that has not read the new key yet
        first.verify_token(await delegated(ep, second, "ann", "s/u"), READ, "s/u")
    clock_of(ep).advance(KEY_LIFE_MS)
    third = await loaded(ep)
    with pytest.raises(TokenExpired):
        third.verify_token(token, READ, "s/t")
    assert isinstance(third._table.signer, TokenSigner)
