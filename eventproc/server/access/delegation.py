"""Delegation tokens: the controller signs what a user may do with a stream, and any segment store verifies it.

A token is a JWT (HS256) for one user and one resource, valid for ten minutes. The keys are in the directory's store, so
that every serving process knows them. They are replaced once a day; the previous key is valid for a day more.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

import attrs
import jwt

from eventproc.store.access.permissions import Permission
from eventproc.store.access.users import note_change
from eventproc.store.database import Tx
from eventproc.store.records import RecordKind, create, find, replace

TOKEN_LIFE_MS: Final = 600_000
"""How long a delegation token is valid. Clients ask for another one before. Higher: a stolen one is of use for longer;
lower: more calls."""

CLOCK_SKEW_MS: Final = 60_000
"""How long a token is accepted after its end, in ms: the clock of a client may be that much behind. The Rust client
repeats a token that it thinks valid without end, and asks for another one only after its own clock has passed the end.
"""

KEY_LIFE_MS: Final = 86_400_000
"""After what time a key is replaced. Must be longer than TOKEN_LIFE_MS: the previous key verifies until the next."""

KEY_BYTES: Final = 32
"""Length of a key: that of the hash, as RFC 7518 asks for."""

AUDIENCE: Final = "segmentstore"
"""Who accepts the tokens, as Pravega names it."""

_ALGORITHM: Final = "HS256"
_CLAIMS: Final = ("sub", "aud", "exp", "resource", "permission")


class TokenRefused(Exception):
    """A delegation token is missing or wrong, or does not allow the command. Its text is for the log."""


class TokenExpired(TokenRefused):
    """A delegation token was valid before; the client should ask for another one."""


@attrs.frozen
class TokenKeys:
    """The key that signs, the one before it, both base64, and when the first one was made (wall, in ms)."""

    current: str
    made_ms: int
    previous: str | None = None


@attrs.frozen
class Delegation:
    """What a token says: a user may do this with a resource until a time (wall, in ms)."""

    user: str
    resource: str
    permission: Permission
    expires_ms: int


KEYS: Final = RecordKind(name="token keys", value=TokenKeys)
_ONLY: Final = "only"


def current_keys(tx: Tx) -> TokenKeys | None:
    """Return the keys, or None if there are none, or the current one should be replaced."""
    found = find(tx, KEYS, _ONLY)
    if found is None or tx.now_ms - found.value.made_ms >= KEY_LIFE_MS:
        return None
    return found.value


def renew_keys(tx: Tx) -> TokenKeys:
    """Make or replace the current key, unless another server did it meanwhile; return the keys."""
    if (known := current_keys(tx)) is not None:
        return known
    key = base64.b64encode(tx.clock.random_bytes(KEY_BYTES)).decode()
    before = find(tx, KEYS, _ONLY)
    made = TokenKeys(key, tx.now_ms, None if before is None else before.value.current)
    if before is None:
        create(tx, KEYS, _ONLY, made)
    else:
        replace(tx, KEYS, before, made)
    note_change(tx)
    return made


class TokenSigner:
    """Signs and verifies with keys of one moment."""

    def __init__(self, keys: TokenKeys) -> None:
        known = [keys.current, *([] if keys.previous is None else [keys.previous])]
        self._keys: Mapping[str, bytes] = {_id_of(each): base64.b64decode(each) for each in known}
        self._current = _id_of(keys.current)

    def sign(self, delegation: Delegation) -> str:
        """Return a token. Its time is rounded down to seconds."""
        claims = {
            "sub": delegation.user,
            "aud": AUDIENCE,
            "exp": delegation.expires_ms // 1000,
            "resource": delegation.resource,
            "permission": delegation.permission.value,
        }
        key = self._keys[self._current]
        return jwt.encode(claims, key, algorithm=_ALGORITHM, headers={"kid": self._current})

    def verify(self, token: str) -> Delegation:
        """Return what a token says; whether it has expired is for the caller to see. Raises TokenRefused.

        A token of an unknown key raises TokenExpired: its key was replaced, or is so new that this server has not read
        it yet. A new token helps in both cases.
        """
        if not token:
            raise TokenRefused("a delegation token is required")
        try:
            key = self._keys.get(str(jwt.get_unverified_header(token).get("kid")))
            if key is None:
                raise TokenExpired("the key of the token is unknown")
            options: Any = {"require": _CLAIMS, "verify_exp": False}
            claims = jwt.decode(token, key, algorithms=[_ALGORITHM], audience=AUDIENCE, options=options)
            permission, expires_s = Permission(claims["permission"]), int(claims["exp"])
        except (jwt.PyJWTError, ValueError) as why:
            raise TokenRefused(f"the token is not valid: {type(why).__name__}") from None
        return Delegation(str(claims["sub"]), str(claims["resource"]), permission, expires_s * 1000)


def _id_of(key: str) -> str:
    """Return the name of a key, which does not tell the key."""
    return sha256(b"id of " + key.encode()).hexdigest()[:16]
