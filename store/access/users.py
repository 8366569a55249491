"""Users in the directory's store: their grants, the hashes of their password, and those of their tokens.

A user is a record, and every change of one counts up a number, which servers watch. Nothing here can be turned back
into a password or a token.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Hashable, Iterable
from hashlib import sha256
from typing import Final

import attrs

from eventproc.store.access.permissions import EVERYTHING, Grant, Permission, ReadableNames, check_pattern
from eventproc.store.access.scram import ScramVerifier
from eventproc.store.database import Tx, Watch
from eventproc.store.model.argument_checks import check_str, invalid_argument
from eventproc.store.model.errors import NotFound
from eventproc.store.model.list_pages import COMPLETE, ListPage
from eventproc.store.records import RecordKind, create, delete, find, get, keys, replace

NAME_CHARS_MAX: Final = 255
"""Longest name of a user, or of a token."""

USERS_MAX: Final = 1_000
"""Users of a directory. Higher: servers read more when one of them changes, and hold more in memory."""

GRANTS_MAX: Final = 1_000
"""Grants of a user. Higher: each call compares its resource with more patterns."""

TOKENS_MAX: Final = 100
"""Tokens of a user. Higher: servers hold more in memory."""

TOKEN_PREFIX: Final = "ep1"
"""Begins every token, so that scanners for secrets can recognise one. The version of its form."""

TOKEN_ID_BYTES: Final = 8
"""Random bytes by which a server finds a token."""

TOKEN_SECRET_BYTES: Final = 32
"""Random bytes of a token that nobody can guess."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]*", re.ASCII)
_ONLY: Final = "only"


@attrs.frozen(kw_only=True)
class ApiToken:
    """A token of a user. digest: SHA-256 of its secret, in hex. expires_ms: in ms since 1970; None: never."""

    id: str
    name: str
    digest: str
    created_ms: int
    expires_ms: int | None = None


@attrs.frozen(kw_only=True)
class User:
    """A user. password: its hash by Argon2; None: the user has tokens only. scram: the verifiers of this password."""

    name: str
    created_ms: int
    password: str | None = None
    grants: tuple[Grant, ...] = ()
    tokens: tuple[ApiToken, ...] = ()
    scram: tuple[ScramVerifier, ...] = ()

    def may(self, permission: Permission, resource: str) -> bool:
        """Return whether a grant gives this permission on a resource."""
        return any(each.allows(permission, resource) for each in self.grants)

    @property
    def readable(self) -> ReadableNames | None:
        """The filter of the lists that the user sees; None if it may read everything."""
        return None if self.may(Permission.READ, EVERYTHING) else ReadableNames(self.grants)


@attrs.frozen
class Changes:
    """How often users, or the keys of delegation tokens, have changed."""

    count: int


CHANGES: Final = RecordKind(name="access changes", value=Changes)
USER: Final = RecordKind(name="user", value=User)


def check_user_name(text: str) -> str:
    """Return `text` if it may name a user. Raises InvalidArgument."""
    return _check_name("user name", text)


def add_user(
    tx: Tx,
    name: str,
    password: str | None,
    grants: Iterable[Grant] = (),
    scram: tuple[ScramVerifier, ...] = (),
) -> User:
    """Create a user. password: its hash; scram: its verifiers. Raises AlreadyExists, InvalidArgument."""
    check_user_name(name)
    if len(keys(tx, USER)) >= USERS_MAX:
        raise invalid_argument(
            "user name", name, f"the directory has {USERS_MAX:,} users, which is the limit"
        )
    made = User(name=name, created_ms=tx.now_ms, password=password, grants=tuple(grants), scram=scram)
    create(tx, USER, name, made)
    note_change(tx)
    return made


def list_users(tx: Tx, page: ListPage = COMPLETE) -> list[User]:
    """Return the users by name."""
    names = keys(tx, USER, prefix=page.prefix, after=page.after or "", limit=page.most)
    return [get(tx, USER, name).value for name in names]


def get_user(tx: Tx, name: str) -> User:
    """Return a user. Raises NotFound, InvalidArgument."""
    return get(tx, USER, check_user_name(name)).value


def delete_user(tx: Tx, name: str) -> None:
    """Delete a user with its grants and tokens. Raises NotFound, InvalidArgument."""
    delete(tx, USER, get(tx, USER, check_user_name(name)))
    note_change(tx)


def set_password(tx: Tx, name: str, password: str | None, scram: tuple[ScramVerifier, ...] = ()) -> None:
    """Replace the hash and the verifiers of a user's password; None removes it. Raises NotFound, InvalidArgument."""
    _change(tx, name, lambda user: attrs.evolve(user, password=password, scram=scram))


def grant(tx: Tx, name: str, given: Grant) -> bool:
    """Give a user a permission on a pattern, in place of the one that it has there; return whether that is a change.

    Raises NotFound, InvalidArgument.
    """
    check_pattern(given.pattern)

    def give(user: User) -> User:
        if given in user.grants:
            return user
        others = [each for each in user.grants if each.pattern != given.pattern]
        if len(others) >= GRANTS_MAX:
            raise invalid_argument("pattern", given.pattern, f"a user has at most {GRANTS_MAX:,} grants")
        return attrs.evolve(user, grants=tuple(sorted([*others, given], key=lambda each: each.pattern)))

    return _change(tx, name, give)


def revoke(tx: Tx, name: str, pattern: str) -> None:
    """Take a user's grant on exactly this pattern away. Raises NotFound, InvalidArgument."""

    def take(user: User) -> User:
        left = tuple([each for each in user.grants if each.pattern != pattern])
        if len(left) == len(user.grants):
            raise NotFound(kind=f"grant of user {name}", name=pattern)
        return attrs.evolve(user, grants=left)

    _change(tx, name, take)


def add_token(tx: Tx, name: str, token: ApiToken) -> None:
    """Give a user a token. Raises NotFound, InvalidArgument if the user has one of that name."""
    _check_name("token name", token.name)

    def add(user: User) -> User:
        if token.name in [each.name for each in user.tokens]:
            raise invalid_argument(
                "token name", token.name, f"user {name} has a token of that name; delete it first"
            )
        if len(user.tokens) >= TOKENS_MAX:
            raise invalid_argument("token name", token.name, f"a user has at most {TOKENS_MAX} tokens")
        return attrs.evolve(user, tokens=(*user.tokens, token))

    _change(tx, name, add)


def delete_token(tx: Tx, name: str, token: str) -> None:
    """Delete a user's token of this name. Raises NotFound, InvalidArgument."""

    def take(user: User) -> User:
        left = tuple([each for each in user.tokens if each.name != token])
        if len(left) == len(user.tokens):
            raise NotFound(kind=f"token of user {name}", name=token)
        return attrs.evolve(user, tokens=left)

    _change(tx, name, take)


def new_token(tx: Tx, name: str, life_ms: int | None) -> tuple[str, ApiToken]:
    """Return the text of a new token, which nobody can find again, and what is stored of it.

    life_ms: how long it is valid; None: until it is deleted.
    """
    identifier = tx.clock.random_bytes(TOKEN_ID_BYTES).hex()
    secret = base64.urlsafe_b64encode(tx.clock.random_bytes(TOKEN_SECRET_BYTES)).decode().rstrip("=")
    expires_ms = None if life_ms is None else tx.now_ms + life_ms
    stored = ApiToken(
        id=identifier, name=name, digest=digest_of(secret), created_ms=tx.now_ms, expires_ms=expires_ms
    )
    return f"{TOKEN_PREFIX}_{identifier}_{secret}", stored


def digest_of(secret: str) -> str:
    """Return what is stored of the secret of a token. It is random, so that a fast hash suffices."""
    return sha256(secret.encode()).hexdigest()


def note_change(tx: Tx) -> None:
    """Wake the servers of the directory, which read all users again."""
    if (before := find(tx, CHANGES, _ONLY)) is None:
        create(tx, CHANGES, _ONLY, Changes(1))
    else:
        replace(tx, CHANGES, before, Changes(before.value.count + 1))
    tx.wake(WATCH.channel)


def _probe(tx: Tx) -> Hashable:
    found = find(tx, CHANGES, _ONLY)
    return 0 if found is None else found.value.count


WATCH: Final = Watch(("users",), _probe)
"""What to subscribe to in order to learn of changes."""


def _change(tx: Tx, name: str, change: Callable[[User], User]) -> bool:
    before = get(tx, USER, check_user_name(name))
    after = change(before.value)
    if after == before.value:
        return False
    replace(tx, USER, before, after)
    note_change(tx)
    return True


def _check_name(what: str, text: str) -> str:
    if len(check_str(what, text)) <= NAME_CHARS_MAX and _NAME.fullmatch(text):
        return text
    reason = (
        f"it must have 1 to {NAME_CHARS_MAX} letters, digits, or . _ @ -, and begin with a letter or digit"
    )
    raise invalid_argument(what, text, reason)
