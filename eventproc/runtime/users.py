"""Users of the endpoints: who may call `eventproc serve`, and do what."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import anyio
import attrs
from anyio import to_thread
from typing_extensions import Unpack

from eventproc.store.access import users
from eventproc.store.access.permissions import Grant, Permission
from eventproc.store.access.scram import ScramVerifier, new_verifiers
from eventproc.store.database import Database, Tx
from eventproc.store.model.argument_checks import (
    check_choice,
    check_instance,
    check_int,
    check_str,
    invalid_argument,
)
from eventproc.store.model.errors import NotSupported
from eventproc.store.model.list_pages import ListPage, PageOptions
from eventproc.store.model.short_repr import short_repr_of_fields

TOKEN_LIFE_MS_MAX: Final = 100 * 365 * 24 * 3600 * 1000
"""Longest life of a token that ends, in ms: 100 years. Higher: the time of its end could exceed what is stored."""


@attrs.frozen(kw_only=True)
class TokenInfo:
    """A token of a user, without its secret. Times: in ms since 1970. expires_ms: None: when it is deleted."""

    name: str
    created_ms: int
    expires_ms: int | None

    __repr__ = short_repr_of_fields


@attrs.frozen(kw_only=True)
class UserInfo:
    """A user, its grants by pattern, and its tokens in the order of their creation.

    has_scram: whether clients of Kafka may show the password by SCRAM.
    """

    name: str
    created_ms: int
    has_password: bool
    has_scram: bool
    grants: tuple[Grant, ...]
    tokens: tuple[TokenInfo, ...]

    __repr__ = short_repr_of_fields


@attrs.frozen(kw_only=True)
class NewToken:
    """A token that was just made. text: what a program sends; nobody can find it again."""

    user: str
    name: str
    text: str = attrs.field(repr=False)
    expires_ms: int | None

    __repr__ = short_repr_of_fields


class _StoredPassword(NamedTuple):
    """What is stored of a password: its hash, and its verifiers."""

    hashed: str | None = None
    scram: tuple[ScramVerifier, ...] = ()


class Users:
    """The users of a directory; `ep.users`. Running servers follow each change immediately.

    As soon as a directory has a user, its servers ask every caller for credentials. A process that may write the files
    of the directory, as this one, needs no user.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._hashing = anyio.Lock()  # one hash at a time: each takes 64 MiB

    def __repr__(self) -> str:
        return f"Users({self._db.name!r})"

    async def add(self, name: str, *, password: str | None = None, scram: bool = False) -> UserInfo:
        """Add a user, who may do nothing yet.

        Args:
            name: 1 to 255 letters, digits, or . _ @ -; the first one is a letter or digit.
            password: at least 8 characters. None (default): the user has tokens only.
            scram: whether clients of Kafka may show the password by SCRAM-SHA-256 and SCRAM-SHA-512. What is stored for
                that is easier to guess from than the hash of the password. Default: False.

        Raises:
            AlreadyExists: there is a user of that name.
            InvalidArgument: the name or the password is not valid, there is none for `scram`, or the directory has
                1,000 users.
            NotSupported: there is a password, and the extra `server` is not installed.

        Cost:
            With a password, 0.2 s of CPU time in a thread, and 64 MiB; with `scram` 0.5 s more.
        """
        users.check_user_name(name)
        hashed, verifiers = await self._hash(password, scram)
        add = partial(users.add_user, name=name, password=hashed, scram=verifiers)
        return _info(await self._db.write(add))

    async def get(self, name: str) -> UserInfo:
        """Return a user.

        Args:
            name: its name.

        Raises:
            NotFound: there is no such user.
        """
        return _info(await self._db.read(partial(users.get_user, name=name)))

    async def list(self, **options: Unpack[PageOptions]) -> builtins.list[UserInfo]:
        """Return the users by name.

        Args:
            options: see `PageOptions`.

        Raises:
            InvalidArgument: an argument has the wrong type, or the limit is not positive.
        """
        look = partial(users.list_users, page=ListPage.of(**options))
        return [_info(each) for each in await self._db.read(look)]

    async def delete(self, name: str) -> None:
        """Delete a user with its grants and tokens.

        Running servers continue to ask for credentials when the last user is deleted.

        Args:
            name: its name.

        Raises:
            NotFound: there is no such user.
        """
        await self._db.write(partial(users.delete_user, name=name))

    async def set_password(self, name: str, password: str | None, *, scram: bool = False) -> None:
        """Change the password of a user.

        Args:
            name: the user.
            password: at least 8 characters. None: the user has no password any more, and keeps its tokens.
            scram: as of `add`, also for a user that had it before. Default: False.

        Raises:
            NotFound: there is no such user.
            InvalidArgument: the password is too short or too long, or there is none for `scram`.
            NotSupported: there is a password, and the extra `server` is not installed.

        Cost:
            With a password, 0.2 s of CPU time in a thread, and 64 MiB; with `scram` 0.5 s more.
        """
        users.check_user_name(name)
        hashed, verifiers = await self._hash(password, scram)
        await self._db.write(partial(users.set_password, name=name, password=hashed, scram=verifiers))

    async def grant(self, name: str, permission: Permission, pattern: str) -> UserInfo:
        """Give a user a permission on a pattern, in place of the one that it has there, and return the user.

        Args:
            name: the user.
            permission: READ shows and reads; READ_UPDATE also writes, changes and deletes.
            pattern: SCOPE/NAME for a stream, a reader group, a schedule or a table; SCOPE for listing, creating and
                deleting what is in a scope; or `*` for everything. In names, `*` stands for any characters.

        Raises:
            NotFound: there is no such user.
            InvalidArgument: the permission or the pattern is not valid, or the user has 1,000 grants.
        """
        given = Grant(check_str("pattern", pattern), check_choice("permission", permission, Permission))

        def give(tx: Tx) -> users.User:
            users.grant(tx, name, given)
            return users.get_user(tx, name)

        return await self._changed(give)

    async def revoke(self, name: str, pattern: str) -> UserInfo:
        """Take away what `grant` gave a user on exactly this pattern, and return the user.

        Args:
            name: the user.
            pattern: as it was given.

        Raises:
            NotFound: there is no such user, or it has no such grant.
        """
        check_str("pattern", pattern)

        def take(tx: Tx) -> users.User:
            users.revoke(tx, name, pattern)
            return users.get_user(tx, name)

        return await self._changed(take)

    async def add_token(self, name: str, token: str, *, life_ms: int | None = None) -> NewToken:
        """Make a token for a user, and return it; its text cannot be shown again.

        A program sends the text as `Authorization: Bearer TEXT`, or in place of the user's password.

        Args:
            name: the user.
            token: the name of the token, of the same characters as that of a user.
            life_ms: how long it is valid, in ms, up to 100 years. None (default): until it is deleted.

        Raises:
            NotFound: there is no such user.
            InvalidArgument: an argument is not valid, or the user has a token of that name, or 100 tokens.
        """
        if life_ms is not None:
            life_ms = check_int(
                "life of a token", life_ms, least=1, most=TOKEN_LIFE_MS_MAX, unit="milliseconds"
            )

        def make(tx: Tx) -> NewToken:
            text, made = users.new_token(tx, token, life_ms)
            users.add_token(tx, name, made)
            return NewToken(user=name, name=token, text=text, expires_ms=made.expires_ms)

        return await self._db.write(make)

    async def delete_token(self, name: str, token: str) -> None:
        """Delete a token of a user.

        Args:
            name: the user.
            token: the name of the token.

        Raises:
            NotFound: there is no such user, or it has no such token.
        """
        check_str("token name", token)
        await self._db.write(partial(users.delete_token, name=name, token=token))

    async def _changed(self, change: Callable[[Tx], users.User]) -> UserInfo:
        return _info(await self._db.write(change))

    async def _hash(self, password: str | None, scram: bool) -> _StoredPassword:
        check_instance(bool, "scram", scram, "it must be True or False")
        if password is None:
            if scram:
                raise invalid_argument("scram", scram, "the user has no password to show by it")
            return _StoredPassword()
        try:
            from eventproc.store.access.passwords import hash_password  # few programs have its library
        except ImportError as why:
            what = f"a password without the package {why.name}"
            raise NotSupported(what=what, remedy="pip install 'eventproc[server]'") from None
        async with self._hashing:
            hashed = await to_thread.run_sync(hash_password, password)
            if not scram:
                return _StoredPassword(hashed)
            random_bytes = self._db.clock.random_bytes
            return _StoredPassword(hashed, await to_thread.run_sync(new_verifiers, password, random_bytes))


def _info(user: users.User) -> UserInfo:
    return UserInfo(
        name=user.name,
        created_ms=user.created_ms,
        has_password=user.password is not None,
        has_scram=bool(user.scram),
        grants=user.grants,
        tokens=tuple(
            [
                TokenInfo(name=each.name, created_ms=each.created_ms, expires_ms=each.expires_ms)
                for each in user.tokens
            ]
        ),
    )
