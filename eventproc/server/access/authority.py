"""The authority of one serving process: who calls, what a caller may do, and delegation tokens.

It holds all users in memory and reads them again when they change, in this process or in another one. Authentication is
required from the moment a directory has its first user until the process ends, also if all users are deleted meanwhile.
"""

from __future__ import annotations

import base64
import hmac
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from hashlib import blake2b
from types import MappingProxyType
from typing import Final

import anyio
import attrs
from anyio import to_thread

from eventproc.base.clock import Clock
from eventproc.server.access.delegation import (
    CLOCK_SKEW_MS,
    TOKEN_LIFE_MS,
    Delegation,
    TokenExpired,
    TokenKeys,
    TokenRefused,
    TokenSigner,
    current_keys,
    renew_keys,
)
from eventproc.store.access.passwords import PASSWORD_BYTES_MAX, hash_of_nobody, is_password
from eventproc.store.access.permissions import Permission
from eventproc.store.access.scram import ScramVerifier, find_secret, make_secret, verifier_of_nobody
from eventproc.store.access.users import (
    TOKEN_PREFIX,
    WATCH,
    ApiToken,
    User,
    check_user_name,
    digest_of,
    list_users,
)
from eventproc.store.database import Database, Tx
from eventproc.store.model.errors import InvalidArgument, Retryable
from eventproc.store.model.list_pages import ListPage, NameFilter

LOG = logging.getLogger("eventproc.server.access")

REMEMBER_MS: Final = 300_000
"""How long a password that was right is not hashed again. Higher: fewer hashes; a changed password ends it at once."""

PASSWORDS_WAITING_MAX: Final = 64
"""Different passwords, and proofs of SCRAM, that wait for their comparison; further ones are refused for the moment.
Each password takes some 0.2 s, one at a time."""

WRONG_PROOF_S: Final = 0.2
"""How long a wrong proof of SCRAM lets all others wait, in s: as long as a wrong password, so that guesses are as slow.
Higher: a stranger keeps others waiting for longer; lower: more guesses per second."""

DECODED_MAX: Final = 4_096
"""Delegation tokens whose signature is known to be right, of about 1 kB each. Higher: more memory;
lower: more checks."""

LOOK_AGAIN_MS: Final = 3_600_000
"""How often the age of the key is looked at."""

RETRY_MS: Final = 1_000
"""How long to wait before users are read again after an error that is transient."""

WRONG: Final = "the credentials are wrong or have expired"
"""The same for an unknown user, a wrong password, and a token that is unknown or expired."""

WRONG_PROOF: Final = (
    "the credentials are wrong, or the password of the user was set without SCRAM: "
    "an administrator sets it again with `eventproc user password --scram`"
)
"""The same for an unknown user, a wrong password, and a user without verifiers; the log says which."""

OTHER_TOKEN: Final = "the token is not that of this page; open the address that `eventproc ui` has printed"

MISSING: Final = "credentials are required: Basic with a user and a password, or Bearer with a token"


class NotAuthenticated(Exception):
    """The caller has no credentials, or wrong ones."""


class NotPermitted(Exception):
    """The caller is known, and may not do that."""


class TooManyPasswords(Exception):
    """Too many passwords wait for their comparison; the caller may try again."""


@attrs.frozen
class Caller:
    """Who calls. user: None for a caller that is trusted because the directory has no users."""

    user: User | None = None

    @property
    def name(self) -> str:
        """Name of the user."""
        return "" if self.user is None else self.user.name

    def may(self, permission: Permission, resource: str) -> bool:
        """Return whether the caller has this permission on a resource."""
        return self.user is None or self.user.may(permission, resource)

    @property
    def readable(self) -> NameFilter | None:
        """The filter of all lists that the caller sees; None if it may read everything."""
        return None if self.user is None else self.user.readable

    def page(self, after: str | None, limit: int, prefix: str = "") -> ListPage:
        """Return the page of a list, with what the caller may read."""
        return ListPage(prefix, after, limit, self.readable)

    def verify(self, permission: Permission, resource: str) -> None:
        """Raise NotPermitted if the caller does not have this permission. Whether the resource exists is not said."""
        if not self.may(permission, resource):
            raise self._refusal(f"{permission} on {_shown(resource)}")

    def verify_streams(
        self, owner: str, streams: Iterable[str], permission: Permission = Permission.READ
    ) -> None:
        """Raise NotPermitted unless the caller has a permission on all streams of what it has named, such as a group.

        The error names none of them, because their names may be those of others.
        """
        if not all(self.may(permission, each) for each in streams):
            raise self._refusal(f"{permission} on all streams of {_shown(owner)}")

    def _refusal(self, needed: str) -> NotPermitted:
        LOG.warning("user %s was refused: no %s", self.name, needed)
        return NotPermitted(
            f"user {self.name} needs {needed}; an administrator gives it with `eventproc user grant`"
        )


TRUSTED: Final = Caller()
"""Any caller of a directory without users."""


@attrs.frozen
class _Table:
    """All users of one moment, the signer of delegation tokens, and the secret of SCRAM; None without users."""

    users: Mapping[str, User] = MappingProxyType({})
    tokens: Mapping[str, tuple[User, ApiToken]] = MappingProxyType({})
    keys: TokenKeys | None = None
    signer: TokenSigner | None = None
    secret: bytes | None = None

    @classmethod
    def of(cls, users: Iterable[User], keys: TokenKeys | None, secret: bytes | None) -> _Table:
        by_name = {each.name: each for each in users}
        tokens = {token.id: (user, token) for user in by_name.values() for token in user.tokens}
        return cls(by_name, tokens, keys, None if keys is None else TokenSigner(keys), secret)


@attrs.define(eq=False)
class _Comparison:
    """A password that is being compared. is_wrong: false also if nobody waited for its end."""

    is_wrong: bool = False
    ended: anyio.Event = attrs.field(factory=anyio.Event)


class Authority:
    """Decides for one open database. Call `load` first, and run `watch` as long as it is used."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._clock: Clock = db.clock
        self._table = _Table()
        self._is_required = False
        self._hashing = anyio.Lock()
        self._waiting = 0
        self._secret = db.clock.random_bytes(32)
        self._right: dict[bytes, int] = {}
        self._comparing: dict[bytes, _Comparison] = {}
        self._decoded: dict[str, Delegation] = {}

    @property
    def is_required(self) -> bool:
        """Whether callers need credentials: the directory has users, or had some since this server began."""
        return self._is_required

    @property
    def feed_key(self) -> bytes:
        """The key of sealed places in the change feed: the same for all servers of a directory that has users."""
        return blake2b(self._table.secret or self._secret, person=b"change feed", digest_size=32).digest()

    async def load(self) -> None:
        """Read all users, and renew the key of delegation tokens if that is due."""
        users, keys, secret = await self._db.read(_read)
        if users and (keys is None or secret is None):
            keys, secret = await self._db.write(_make_secrets)
        self._table = _Table.of(users, keys, secret)
        self._decoded.clear()
        if users and not self._is_required:
            self._is_required = True
            await to_thread.run_sync(hash_of_nobody)  # so that the first unknown user does not take longer

    async def watch(self) -> None:
        """Follow the changes of users until cancelled."""
        with self._db.subscribe([WATCH]) as changes:
            wait_ms = 0
            while True:
                await changes.wait(wait_ms)
                try:
                    await self.load()
                    wait_ms = LOOK_AGAIN_MS
                except Retryable as why:
                    LOG.warning("cannot read the users; trying again: %s", why)
                    wait_ms = RETRY_MS

    async def authenticate(self, header: str | None) -> Caller:
        """Return who sends this `Authorization`. Raises NotAuthenticated, TooManyPasswords.

        Cost: 0.2 s of a thread for a password that was not seen within five minutes; else some microseconds.
        """
        if not self._is_required:
            return TRUSTED
        if not header:
            raise NotAuthenticated(MISSING)
        scheme, _, given = header.partition(" ")
        match scheme.lower():
            case "basic":
                found = await self._by_password(given.strip())
            case "bearer":
                found = self._by_token(given.strip())
            case _:
                raise NotAuthenticated(MISSING)
        if found is None:
            LOG.warning("credentials were refused: %s", _about(scheme, given))
            raise NotAuthenticated(WRONG)
        return Caller(found)

    async def _by_password(self, given: str) -> User | None:
        try:
            name, colon, password = base64.b64decode(given, validate=True).decode().partition(":")
        except ValueError:  # it is not base64, or not UTF-8
            return None
        if not colon or len(password.encode()) > PASSWORD_BYTES_MAX:
            return None
        if password.startswith(f"{TOKEN_PREFIX}_"):  # for clients that know only users and passwords
            found = self._by_token(password)
            return found if found is not None and found.name == name else None
        user = self._table.users.get(name)
        stored = None if user is None else user.password
        key = blake2b(f"{name}\0{password}\0{stored}".encode(), key=self._secret).digest()
        while not self._is_remembered(key):
            # A client that begins with many calls sends the same password with each: one comparison is enough.
            if (known := self._comparing.get(key)) is None:
                known = await self._compare(key, stored, password)
            else:
                await known.ended.wait()
            if known.is_wrong:
                return None
        user = self._table.users.get(name)  # it may have changed meanwhile
        return user if user is not None and user.password == stored else None

    async def _compare(self, key: bytes, stored: str | None, password: str) -> _Comparison:
        """Compare a password in its turn, and remember it if it is right. Raises TooManyPasswords."""
        comparison = self._comparing[key] = _Comparison()
        try:
            async with self._turn():
                comparison.is_wrong = not await to_thread.run_sync(_is_right, stored, password)
                if not comparison.is_wrong:
                    self._remember(key)
        finally:
            del self._comparing[key]
            comparison.ended.set()
        return comparison

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Compare one password or proof at a time while the block runs. Raises TooManyPasswords."""
        if self._waiting >= PASSWORDS_WAITING_MAX:
            raise TooManyPasswords("too many passwords are being checked; try again")
        self._waiting += 1
        try:
            async with self._hashing:
                yield
        finally:
            self._waiting -= 1

    def _is_remembered(self, key: bytes) -> bool:
        return self._right.get(key, 0) > self._clock.monotonic_ms()

    def _remember(self, key: bytes) -> None:
        now_ms = self._clock.monotonic_ms()
        self._right = {each: until_ms for each, until_ms in self._right.items() if until_ms > now_ms}
        self._right[key] = now_ms + REMEMBER_MS

    def _by_token(self, given: str) -> User | None:
        prefix, _, rest = given.partition("_")
        identifier, _, secret = rest.partition("_")
        user, token = self._table.tokens.get(identifier, (None, None))
        digest = digest_of(secret)
        is_right = hmac.compare_digest(digest, digest_of("nothing") if token is None else token.digest)
        if prefix != TOKEN_PREFIX or token is None or not is_right:
            return None
        expires_ms = token.expires_ms
        return None if expires_ms is not None and self._clock.wall_ms() >= expires_ms else user

    # SCRAM.

    def verifier_of(self, name: str, mechanism: str) -> ScramVerifier:
        """Return what verifies a user's proof; for a user without it what looks the same, and what no proof fits."""
        made = verifier_of_nobody(self._table.secret or self._secret, name, mechanism)
        user = self._table.users.get(name)
        return next((each for each in (user.scram if user else ()) if each.mechanism == mechanism), made)

    async def authenticate_proof(
        self, name: str, verifier: ScramVerifier, is_right: Callable[[], bool]
    ) -> Caller:
        """Return the user whose client proves that it knows the password. Raises NotAuthenticated, TooManyPasswords.

        is_right: compares the proof. Cost: microseconds, but a wrong proof lets further ones and passwords wait.
        """
        async with self._turn():
            if not is_right():
                with anyio.CancelScope(shield=True):  # a peer that leaves does not save the time
                    await anyio.sleep(WRONG_PROOF_S)
                about = _about_user(name, "a proof")
                LOG.warning("credentials were refused: %s by SCRAM: %s", about, self._why(name))
                raise NotAuthenticated(WRONG_PROOF)
        return self.proved(name, verifier)

    def proved(self, name: str, verifier: ScramVerifier) -> Caller:
        """Return the user that had this verifier. Raises NotAuthenticated if the user does not have it any more."""
        user = self._table.users.get(name)
        if user is None or verifier not in user.scram:
            LOG.warning("credentials were refused: user %s was deleted or has another password", _shown(name))
            raise NotAuthenticated(WRONG_PROOF)
        return Caller(user)

    def _why(self, name: str) -> str:
        """Return why a proof is wrong, for the log."""
        user = self._table.users.get(name)
        if user is None:
            return "there is no such user"
        if not user.scram:
            return (
                f"it has no verifiers; set its password again with `eventproc user password {name} --scram`"
            )
        return "the password is wrong"

    # Delegation tokens.

    def delegation_token(self, caller: Caller, resource: str) -> str:
        """Return a token for what the caller may do with a resource; "" if no authentication is required.

        Raises NotPermitted if that is nothing.
        """
        signer = self._table.signer
        if caller.user is None or signer is None:
            return ""
        caller.verify(Permission.READ, resource)
        can_update = caller.may(Permission.READ_UPDATE, resource)
        permission = Permission.READ_UPDATE if can_update else Permission.READ
        expires_ms = self._clock.wall_ms() + TOKEN_LIFE_MS
        return signer.sign(Delegation(caller.name, resource, permission, expires_ms))

    def verify_token(self, token: str, permission: Permission, *resources: str) -> Delegation | None:
        """Return what allows a command of the segment store; None if no authentication is required.

        resources: the token must be for one of them.

        Raises TokenRefused; TokenExpired if another token helps.
        """
        if not self._is_required:
            return None
        found = self._decoded.get(token)
        if found is None:
            signer = self._table.signer
            if signer is None:  # all users were deleted
                raise TokenRefused("the directory has no users any more")
            found = signer.verify(token)
            if len(self._decoded) >= DECODED_MAX:
                self._decoded.clear()
            self._decoded[token] = found
        if found.resource not in resources or not found.permission.includes(permission):
            raise TokenRefused(f"the token of user {_shown(found.user)} does not give {permission} on this")
        if not self._has_time(found):
            raise TokenExpired(f"the token of user {found.user} has expired")
        if not self._is_permitted(found, permission):
            raise TokenRefused(f"user {found.user} has no {permission} on this any more")
        return found

    def still_allows(self, found: Delegation | None) -> bool:
        """Return whether what `verify_token` returned still holds: the time, the user, and the grant."""
        if found is None:
            return not self._is_required
        return self._has_time(found) and self._is_permitted(found, found.permission)

    def _has_time(self, found: Delegation) -> bool:
        return self._clock.wall_ms() < found.expires_ms + CLOCK_SKEW_MS

    def _is_permitted(self, found: Delegation, permission: Permission) -> bool:
        user = self._table.users.get(found.user)
        return user is not None and user.may(permission, found.resource)


class TokenAuthority(Authority):
    """Trusts the callers that have one token, which the page of a person has who opened the store; nobody else."""

    def __init__(self, db: Database, token: str) -> None:
        super().__init__(db)
        self._token = token.encode()

    async def authenticate(self, header: str | None) -> Caller:
        """Return the caller that is trusted. Raises NotAuthenticated."""
        given = (header or "").removeprefix("Bearer ").encode()
        if not hmac.compare_digest(given, self._token):
            raise NotAuthenticated(OTHER_TOKEN if header else MISSING)
        return TRUSTED


def _read(tx: Tx) -> tuple[list[User], TokenKeys | None, bytes | None]:
    return list_users(tx), current_keys(tx), find_secret(tx)


def _make_secrets(tx: Tx) -> tuple[TokenKeys, bytes]:
    return renew_keys(tx), make_secret(tx)


def _is_right(stored: str | None, password: str) -> bool:
    """Return whether a password is that of a stored hash; it takes the same time if there is none."""
    return is_password(stored or hash_of_nobody(), password) and stored is not None


def _about(scheme: str, given: str) -> str:
    """Return what the log may say of refused credentials: the name of the user, never a secret."""
    if scheme.lower() != "basic":
        return "a token"
    try:
        name, colon, _ = base64.b64decode(given.strip(), validate=True).decode().partition(":")
        return _about_user(name if colon else "", "Basic credentials")
    except ValueError:
        return "Basic credentials that are not base64"


def _about_user(name: str, given: str) -> str:
    """Return what the log may say of a name that was given with credentials: some give a secret in its place."""
    try:
        if not name.startswith(f"{TOKEN_PREFIX}_"):
            return f"user {check_user_name(name)}"
    except InvalidArgument:
        pass
    return f"{given} without the name of a user"


def _shown(text: str) -> str:
    """Return a text of a caller for one line of a log or an error."""
    return repr(text[:100])[1:-1]
