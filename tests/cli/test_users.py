"""`eventproc user`: users, their passwords, grants and tokens; and what `eventproc serve` refuses without them."""

from __future__ import annotations

from pathlib import Path

import anyio
import attrs
import pytest

import eventproc
from eventproc.describe import UserInfo
from eventproc.server.access.authority import NotAuthenticated
from eventproc.store.access import users
from eventproc.store.access.passwords import is_password
from tests.cli.conftest import Cli
from tests.server.access_support import loaded

PASSWORD = b"correct horse\n"


def stored(cli: Cli, name: str = "ann") -> users.User:
    async def look() -> users.User:
        async with eventproc.open(cli.directory, host=False) as ep:
            return await ep.db.read(lambda tx: users.get_user(tx, name))

    return anyio.run(look)


def test_a_password_is_read_from_standard_input_and_kept_as_a_hash(cli: Cli) -> None:
    done = cli("user", "add", "ann", stdin=PASSWORD)
    assert (done.code, done.out, done.err) == (0, "", "added user ann\n")
    hashed = stored(cli).password
    assert hashed is not None
    assert is_password(hashed, "correct horse")
    assert cli("user", "list", "-o", "json").json()[0]["has_password"] is True
    cli("user", "password", "ann", stdin=b"another password\n").ok()
    assert is_password(stored(cli).password or "", "another password")
    assert stored(cli).scram == ()
    cli("user", "password", "ann", "--scram", stdin=b"another password\n").ok()
    assert cli("user", "describe", "ann", "-o", "json").json()["has_scram"] is True
    cli("user", "password", "ann", "--remove").ok()
    assert (stored(cli).password, stored(cli).scram) == (None, ())
    assert "no password" in cli("user", "add", "bob", "--no-password", "--scram").refused(2)


def test_a_password_that_is_too_short_or_missing_adds_no_user(cli: Cli) -> None:
    for given in (b"", b"\n", b"short\n"):
        why = cli("user", "add", "ann", stdin=given).refused(2)
        assert "at least 8 characters" in why
    assert cli("user", "list", "-o", "json").json() == []


def test_no_command_takes_a_password_as_an_argument(cli: Cli) -> None:
    for arguments in (("add", "ann", "secret-password"), ("password", "ann", "secret-password")):
        assert "secret-password" in cli("user", *arguments).refused(2)  # unexpected
        assert "--password" in cli("user", arguments[0], "ann", "--password", "x").refused(2)


def test_grants_are_given_replaced_shown_and_revoked(cli: Cli) -> None:
    cli("user", "add", "ann", "--no-password").ok()
    cli("user", "grant", "ann", "READ", "shop/*").ok()
    cli("user", "grant", "ann", "READ_UPDATE", "shop/*").ok()
    cli("user", "grant", "ann", "READ", "shop").ok()
    assert cli("user", "describe", "ann", "-o", "json").json()["grants"] == [
        {"pattern": "shop", "permission": "READ"},
        {"pattern": "shop/*", "permission": "READ_UPDATE"},
    ]
    listed = cli("user", "list", "-o", "json").json()[0]
    assert listed == cli("user", "describe", "ann", "-o", "json").json()
    assert list(listed) == [each.name for each in attrs.fields(UserInfo)]
    assert cli("user", "list").ok().splitlines()[1].split()[:4] == ["ann", "no", "2", "-"]
    cli("user", "revoke", "ann", "shop").ok()
    assert "shop" in cli("user", "revoke", "ann", "shop").refused(3)
    assert [each.pattern for each in stored(cli).grants] == ["shop/*"]
    assert "SCOPE/NAME" in cli("user", "grant", "ann", "READ", "_system/*").refused(2)
    assert "READ_UPDATE" in cli("user", "grant", "ann", "ALL", "*").refused(2)


def test_a_token_is_printed_once_and_is_valid_until_it_is_deleted(cli: Cli) -> None:
    cli("user", "add", "ann", "--no-password").ok()
    token = cli("user", "add-token", "ann", "laptop", "--expires-in", "3600").ok().strip()
    shown = cli("user", "describe", "ann").ok()
    assert "laptop" in shown
    assert token.rpartition("_")[2] not in shown

    async def is_valid() -> bool:
        async with eventproc.open(cli.directory, host=False) as ep:
            authority = await loaded(ep)
            try:
                return (await authority.authenticate(f"Bearer {token}")).name == "ann"
            except NotAuthenticated:
                return False

    assert anyio.run(is_valid)
    cli("user", "delete-token", "ann", "laptop").ok()
    assert not anyio.run(is_valid)
    assert "laptop" in cli("user", "delete-token", "ann", "laptop").refused(3)


def test_a_user_that_exists_is_not_added_again_and_one_that_was_deleted_is_gone(cli: Cli) -> None:
    cli("user", "add", "ann", "--no-password").ok()
    assert "ann" in cli("user", "add", "ann", "--no-password").refused(4)
    cli("user", "delete", "ann", "--yes").ok()
    assert "`eventproc user list`" in cli("user", "describe", "ann").refused(3)


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        (("--listen", "0.0.0.0", "--advertise", "db.example.org"), "eventproc user add NAME"),
        (("--listen", "0.0.0.0"), "--advertise HOST"),
        (("--listen", "example.org"), "eventproc user add NAME"),
        (("--rest", "0.0.0.0:0"), "eventproc user add NAME"),
        (("--key", __file__), "--certificate and --key belong together"),
        (("--certificate", __file__, "--key", __file__), "a certificate in PEM"),
        (("--certificate", "missing.pem", "--key", __file__), "missing.pem"),
    ],
)
def test_serve_refuses_what_is_not_safe_with_the_remedy(
    cli: Cli, options: tuple[str, ...], remedy: str
) -> None:
    ports = ("--controller-port", "0", "--segment-store-port", "0")
    assert remedy in cli("serve", *ports, *options).refused(2)


def test_other_machines_connect_only_with_users_and_encryption(cli: Cli) -> None:
    cli("user", "add", "ann", "--no-password").ok()
    ports = ("--controller-port", "0", "--segment-store-port", "0")
    listen = ("--listen", "0.0.0.0", "--advertise", "db.example.org")
    assert "--certificate" in cli("serve", *ports, *listen).refused(2)
    Path(cli.directory).chmod(0o755)
    assert "chmod o=" in cli("serve", *ports, *listen, "--plain").refused(6)
