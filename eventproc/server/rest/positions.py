"""Ids of events of the change feed: places in the internal stream of requests, to resume at.

A place counts the requests of everybody. A caller that may not read them all therefore gets places that are sealed:
only a server of the directory can read them, and two of the same place have nothing in common.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from eventproc.store.catalog import SYSTEM_EPOCH
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.ids import SegmentId

Position: TypeAlias = Mapping[SegmentId, int]
"""An offset in each segment of the stream of requests. Everything before it was reported with its outcome."""

NONCE_BYTES: Final = 12
OFFSET_BYTES: Final = 8
TAG_BYTES: Final = 16
SEALED_CHARS: Final = 2 * (NONCE_BYTES + OFFSET_BYTES * len(SYSTEM_EPOCH.ids) + TAG_BYTES)
"""Length of a sealed place, in hexadecimal digits."""

PATTERN: Final = rf"[0-9]{{1,18}}-[0-9]{{1,18}}|[0-9a-f]{{{SEALED_CHARS}}}"
"""What an id looks like: a place, or a sealed one."""

_PLAIN: Final = re.compile(r"(\d{1,18})-(\d{1,18})", re.ASCII)
_SEALED: Final = re.compile(rf"[0-9a-f]{{{SEALED_CHARS}}}", re.ASCII)


def format_position(position: Position) -> str:
    """Return a place as an id."""
    return "-".join(str(position[segment]) for segment in SYSTEM_EPOCH.ids)


class PositionSeal:
    """Seals places with a key that all servers of the directory have. random: returns so many random bytes."""

    def __init__(self, key: bytes, random: Callable[[int], bytes]) -> None:
        self._cipher = AESGCM(key)
        self._random = random

    def seal(self, position: Position) -> str:
        """Return a place as an id that says nothing of it."""
        nonce = self._random(NONCE_BYTES)
        plain = b"".join(position[each].to_bytes(OFFSET_BYTES, "big") for each in SYSTEM_EPOCH.ids)
        return (nonce + self._cipher.encrypt(nonce, plain, None)).hex()

    def parse(self, text: str, *, sees_all: bool) -> Position:
        """Return the place that an id names. Raises InvalidArgument.

        sees_all: whether the caller may read all requests, and may name places that are not sealed.
        """
        if sees_all and (match := _PLAIN.fullmatch(text)) is not None:
            return dict(zip(SYSTEM_EPOCH.ids, map(int, match.groups()), strict=True))
        if _SEALED.fullmatch(text) is None:
            raise _unknown(text)
        sealed = bytes.fromhex(text)
        try:
            plain = self._cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], None)
        except InvalidTag:
            raise _unknown(text) from None
        offsets = (plain[at : at + OFFSET_BYTES] for at in range(0, len(plain), OFFSET_BYTES))
        return {
            each: int.from_bytes(offset, "big")
            for each, offset in zip(SYSTEM_EPOCH.ids, offsets, strict=True)
        }


def _unknown(text: str) -> InvalidArgument:
    return invalid_argument("Last-Event-ID", text, "it is no id of an event of this stream; leave it out")
