"""Passwords: hashed with Argon2id by the library argon2-cffi, and compared."""

from __future__ import annotations

from functools import cache
from typing import Final, cast

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError

from eventproc.store.access.users import TOKEN_PREFIX
from eventproc.store.model.argument_checks import invalid_argument

PASSWORD_CHARS_MIN: Final = 8
"""Shortest password, as NIST SP 800-63B has it. A server tries some 5 passwords per second."""

PASSWORD_BYTES_MAX: Final = 1_024
"""Longest password. Higher: more work for each wrong one."""

_HASHER: Final = PasswordHasher()  # the library's defaults: those of RFC 9106 for 64 MiB of memory


@cache
def hash_of_nobody() -> str:
    """Return a hash to compare for an unknown user, so that the answer takes the same time."""
    return _HASHER.hash("the password of a user that does not exist")


def hash_password(password: str) -> str:
    """Return the hash of a password, with its salt and parameters. Takes some 0.2 s of CPU time and 64 MiB.

    Raises InvalidArgument if it is too short or too long; the error does not contain it.
    """
    if not isinstance(cast("object", password), str):
        raise invalid_argument("password", "(hidden)", "it must be str")
    try:
        length = len(password.encode())
    except UnicodeEncodeError:
        raise invalid_argument("password", "(hidden)", "it has half a surrogate pair") from None
    if password.startswith(f"{TOKEN_PREFIX}_"):
        reason = "it must not look like a token, which servers would not compare with it"
        raise invalid_argument("password", "(hidden)", reason)
    if len(password) < PASSWORD_CHARS_MIN or length > PASSWORD_BYTES_MAX:
        reason = (
            f"it must have at least {PASSWORD_CHARS_MIN} characters, and at most {PASSWORD_BYTES_MAX:,} bytes"
        )
        raise invalid_argument("password", "(hidden)", reason)
    return _HASHER.hash(password)


def is_password(hashed: str, password: str) -> bool:
    """Return whether a hash is that of a password. Takes as long as `hash_password`, also for a wrong one."""
    try:
        return _HASHER.verify(hashed, password)
    except (Argon2Error, InvalidHashError):
        return False
