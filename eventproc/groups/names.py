"""Names of groups, readers and checkpoints: which are valid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from typing import Final

from eventproc.store.model.argument_checks import check_iterable, check_str, invalid_argument
from eventproc.store.model.names import StreamName, check_full_name

ID_CHARS_MAX: Final = 255
"""Characters of a reader's id, which is in every row of a segment that it owns, and of a checkpoint's name."""

AUTOMATIC: Final = "auto-"
"""Prefix of the names of automatic checkpoints, and of no others."""


def group_name(text: str, streams: Sequence[str] = ()) -> str:
    """Return the full name "scope/group"; a bare one takes the scope of the first stream. Raises InvalidArgument."""
    full = check_str("group", text)
    if "/" not in text and streams:
        full = f"{stream_names(streams)[0].partition('/')[0]}/{text}"
    return check_full_name("group", full)


def stream_names(streams: Sequence[str]) -> list[str]:
    """Return the names of a group's streams. Raises InvalidArgument: none, a duplicate, or an invalid name."""
    names = [
        str(StreamName.parse(each))
        for each in check_iterable("streams", streams, "a sequence of names is needed")
    ]
    if not names:
        raise invalid_argument("streams", streams, "a group reads at least one stream")
    ((most, count),) = Counter(names).most_common(1)
    if count > 1:
        raise invalid_argument("streams", most, "it is named twice")
    return names


def check_reader(reader: str) -> str:
    """Return `reader` if it is a valid id of a reader. Raises InvalidArgument."""
    return _check_id("reader", reader)


def check_checkpoint(name: str) -> str:
    """Return `name` if a caller may give that name to a checkpoint. Raises InvalidArgument."""
    if _check_id("checkpoint", name).startswith(AUTOMATIC):
        raise invalid_argument(
            "checkpoint", name, f"names that begin with {AUTOMATIC!r} are those of automatic ones"
        )
    return name


def _check_id(what: str, text: str) -> str:
    if not 0 < len(check_str(what, text)) <= ID_CHARS_MAX:
        raise invalid_argument(what, text, f"it must have 1 to {ID_CHARS_MAX} characters")
    if not text.isprintable() or text != text.strip():
        raise invalid_argument(
            what, text, "it must be printable, on one line, and not begin or end with a blank"
        )
    return text


PATTERN_CHARS: Final = frozenset("*?[")
"""Characters that make a name of a stream a pattern of names; no name contains one."""


def is_pattern(name: str) -> bool:
    """Return whether `name` stands for every stream whose name matches it, such as "shop/orders-*"."""
    return not PATTERN_CHARS.isdisjoint(name)


def subscribes(subscription: Collection[str] | None, stream: str) -> bool:
    """Return whether a reader with this subscription (names and patterns; None: everything) reads the stream."""
    if subscription is None or stream in subscription:
        return True
    return any(fnmatchcase(stream, each) for each in subscription if is_pattern(each))


def check_subscription(subscription: Sequence[str]) -> tuple[str, ...]:
    """Return the names and patterns, sorted. Raises InvalidArgument: none, a duplicate, or an invalid one."""
    reason = "a sequence of names, or of patterns such as shop/orders-*, is needed"
    parts = list(check_iterable("subscription", subscription, reason))
    for each in parts:
        check_str("subscription", each)
        scope, slash, _ = each.partition("/")
        if not is_pattern(each):
            StreamName.parse(each)
        elif not slash or is_pattern(scope):
            raise invalid_argument("subscription", each, "a pattern names its scope: shop/orders-*")
    if not parts:
        raise invalid_argument("subscription", subscription, "it names at least one stream or pattern")
    if len(set(parts)) < len(parts):
        raise invalid_argument("subscription", subscription, "a stream is named twice")
    return tuple(sorted(parts))
