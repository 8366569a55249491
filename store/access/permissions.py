"""Permissions on scopes and streams, as in Pravega: READ and READ_UPDATE, granted on patterns of names.

A *resource* is what a call works on: "scope/name" for a stream, a reader group, a schedule or a key-value table,
"scope" for the scope itself, without the names in it, and `*` for the server itself: its scopes, instances and tasks.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import Final

import attrs

from eventproc.store.model.argument_checks import check_str, invalid_argument
from eventproc.store.model.limits import SCOPE_NAME_CHARS_MAX, STREAM_NAME_CHARS_MAX
from eventproc.store.model.short_repr import short_repr_of_fields

EVERYTHING: Final = "*"
"""The pattern that covers every resource, and the resource of calls on the server itself."""

_PATTERN: Final = re.compile(r"[A-Za-z0-9.*-][A-Za-z0-9._*-]*(?:/[A-Za-z0-9._*-]+)?", re.ASCII)

PATTERN_CHARS_MAX: Final = SCOPE_NAME_CHARS_MAX + 1 + STREAM_NAME_CHARS_MAX
"""Longest pattern: that of a name without a wildcard."""

PATTERNS_CACHED: Final = 4_096
"""Compiled patterns that are kept, of about 1 kB each. Higher: more memory; lower: patterns are compiled again."""


class Permission(StrEnum):
    """What a caller may do with a resource."""

    READ = "READ"
    READ_UPDATE = "READ_UPDATE"

    def includes(self, other: Permission) -> bool:
        """Return whether this permission allows what `other` allows."""
        return self is Permission.READ_UPDATE or other is Permission.READ


@attrs.frozen
class Grant:
    """A permission on the resources that a pattern covers."""

    pattern: str
    permission: Permission

    __repr__ = short_repr_of_fields

    def allows(self, permission: Permission, resource: str) -> bool:
        """Return whether the grant gives this permission on a resource."""
        return self.permission.includes(permission) and covers(self.pattern, resource)


@attrs.frozen
class ReadableNames:
    """The names that some grants let their user read: the filter of all lists that it sees."""

    grants: tuple[Grant, ...]

    def allows(self, name: str) -> bool:
        """See `NameFilter`."""
        return any(each.allows(Permission.READ, name) for each in self.grants)

    def prefixes_in(self, scope: str) -> list[str]:
        """See `NameFilter`."""
        patterns = (each.pattern.partition("/") for each in self.grants)
        found: list[str] = []
        for each in sorted(
            {name.partition("*")[0] for first, _, name in patterns if name and covers(first, scope)}
        ):
            if not found or not each.startswith(found[-1]):
                found.append(each)
        return found


def check_pattern(text: str) -> str:
    """Return `text` if it is a pattern: SCOPE, SCOPE/NAME, or `*`, where `*` stands for any characters of a name.

    Raises InvalidArgument.
    """
    if len(check_str("pattern", text)) <= PATTERN_CHARS_MAX and _PATTERN.fullmatch(text):
        return text
    reason = "it must be *, SCOPE or SCOPE/NAME, where * stands for any characters; the scope `_system` is only in *"
    raise invalid_argument("pattern", text, reason)


def covers(pattern: str, resource: str) -> bool:
    """Return whether a pattern covers a resource. A wildcard matches within a name; only `*` alone covers everything.

    Scopes of the system, whose names begin with `_`, are covered by `*` only.
    """
    if pattern == EVERYTHING:
        return True
    if resource == EVERYTHING or resource.startswith("_") or len(resource) > PATTERN_CHARS_MAX:
        return False
    return _compiled(pattern).fullmatch(resource) is not None


@lru_cache(maxsize=PATTERNS_CACHED)
def _compiled(pattern: str) -> re.Pattern[str]:
    first, *others = map(re.escape, pattern.split("*"))
    if not others:
        return re.compile(first)
    *middle, last = others
    # The first place where a part fits is as good as any later one. The atomic groups try no other, because
    # a caller that chooses the name could otherwise keep the server busy for minutes.
    return re.compile(first + "".join(f"(?>[^/]*?{each})" for each in middle) + f"[^/]*{last}")
