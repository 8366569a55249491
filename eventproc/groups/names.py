"""Names of groups, readers and checkpoints: which are valid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from eventproc.store.model.argument_checks import check_iterable, check_str, invalid_argument
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.names import StreamName

ID_CHARS_MAX: Final = 255
"""Characters of a reader's id, which is in every row of a segment that it owns, and of a checkpoint's name."""

AUTOMATIC: Final = "auto-"
"""Prefix of the names of automatic checkpoints, and of no others."""


def group_name(text: str, streams: Sequence[str] = ()) -> str:
    """Return the full name "scope/group"; a bare one takes the scope of the first stream. Raises InvalidArgument."""
    full = check_str("group", text)
    if "/" not in text and streams:
        full = f"{stream_names(streams)[0].partition('/')[0]}/{text}"
    try:
        return str(StreamName.parse(full))
    except InvalidArgument as why:
        reason = why.reason if full.count("/") == 1 else "it must look like scope/group"
        raise invalid_argument("group", text, reason) from None


def stream_names(streams: Sequence[str]) -> list[str]:
    """Return the names of a group's streams. Raises InvalidArgument: none, a duplicate, or an invalid name."""
    names = [
        str(StreamName.parse(each))
        for each in check_iterable("streams", streams, "a sequence of names is needed")
    ]
    if not names:
        raise invalid_argument("streams", streams, "a group reads at least one stream")
    if len(set(names)) < len(names):
        raise invalid_argument("streams", streams, "a stream is named twice")
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
