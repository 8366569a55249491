"""SCRAM (RFC 5802, RFC 7677): what is stored of a password, so that a client can prove that it knows it.

A verifier has two keys that are derived from the password, slowly. One verifies the proof of a client; with the other
one the server proves to the client that it knows the user. Neither can be turned back into the password.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Mapping
from hashlib import new, pbkdf2_hmac
from types import MappingProxyType
from typing import Final, NamedTuple

import attrs

from eventproc.store.database import Tx
from eventproc.store.records import RecordKind, create, find

SALT_BYTES: Final = 16
"""Random bytes that make verifiers of the same password differ."""

SECRET_BYTES: Final = 32
"""Random bytes of the secret from which the verifiers of unknown users follow."""


class _Hash(NamedTuple):
    """The hash function of a mechanism, by its name in `hashlib`, and how often the derivation of keys repeats it."""

    name: str
    iterations: int


_HASHES: Final[Mapping[str, _Hash]] = MappingProxyType(
    {"SCRAM-SHA-256": _Hash("sha256", 600_000), "SCRAM-SHA-512": _Hash("sha512", 210_000)}
)
"""The mechanisms. Iterations: what OWASP asks for. Each login costs a client 0.3 s (SHA-256) or 0.2 s (SHA-512) of CPU
time, and librdkafka three times that. Higher: librdkafka and kafka-python refuse more than 1,000,000; lower: a thief of
the database tries more passwords per second."""

SCRAM_MECHANISMS: Final = tuple(_HASHES)
"""Names of the mechanisms, as SASL has them."""


@attrs.frozen(kw_only=True)
class ScramVerifier:
    """What is stored of a password for one mechanism. salt, stored_key, server_key: in base64."""

    mechanism: str
    iterations: int
    salt: str
    stored_key: str
    server_key: str


@attrs.frozen
class ScramSecret:
    """From what the verifiers of unknown users follow, in base64. It never changes: theirs must not change either."""

    secret: str


SECRET: Final = RecordKind(name="scram secret", value=ScramSecret)
_ONLY: Final = "only"


def new_verifiers(password: str, random_bytes: Callable[[int], bytes]) -> tuple[ScramVerifier, ...]:
    """Return the verifiers of a password, of each mechanism. Takes some 0.5 s of CPU time."""
    return tuple(
        [
            make_verifier(password, each, random_bytes(SALT_BYTES), _HASHES[each].iterations)
            for each in _HASHES
        ]
    )


def make_verifier(password: str, mechanism: str, salt: bytes, iterations: int) -> ScramVerifier:
    """Return the verifier of a password.

    The password is taken as it is: Kafka's clients do not normalize it, although RFC 5802 asks them to.
    """
    hashed = _HASHES[mechanism].name
    salted = pbkdf2_hmac(hashed, password.encode(), salt, iterations)
    stored_key = new(hashed, hmac.digest(salted, b"Client Key", hashed)).digest()
    return _verifier(mechanism, iterations, salt, stored_key, hmac.digest(salted, b"Server Key", hashed))


def verifier_of_nobody(secret: bytes, name: str, mechanism: str) -> ScramVerifier:
    """Return the verifier for a user that is unknown or has none: always the same, and no password fits it."""
    hashed, iterations = _HASHES[mechanism]
    salt, stored_key, server_key = [
        hmac.digest(secret, f"{part} {mechanism} {name}".encode(), hashed)
        for part in ("salt", "stored", "server")
    ]
    return _verifier(mechanism, iterations, salt[:SALT_BYTES], stored_key, server_key)


def find_secret(tx: Tx) -> bytes | None:
    """Return the secret of the directory, if it has one."""
    found = find(tx, SECRET, _ONLY)
    return None if found is None else base64.b64decode(found.value.secret)


def make_secret(tx: Tx) -> bytes:
    """Return the secret of the directory. Makes it, unless another server did so meanwhile."""
    if (known := find_secret(tx)) is not None:
        return known
    made = tx.clock.random_bytes(SECRET_BYTES)
    create(tx, SECRET, _ONLY, ScramSecret(_text(made)))
    return made


def _verifier(
    mechanism: str, iterations: int, salt: bytes, stored_key: bytes, server_key: bytes
) -> ScramVerifier:
    return ScramVerifier(
        mechanism=mechanism,
        iterations=iterations,
        salt=_text(salt),
        stored_key=_text(stored_key),
        server_key=_text(server_key),
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
