"""Names of scopes and streams: which names are valid, and the pair `scope/stream`.

The characters are those that no shell needs to quote in a file name, so a name can be part of a path or a URL
unchanged. A leading "_" is reserved for the system's own scopes and streams.
"""

from __future__ import annotations

import re
from typing import Final

import attrs

from eventproc.store.model.argument_checks import check_instance, check_str
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.limits import SCOPE_NAME_CHARS_MAX, STREAM_NAME_CHARS_MAX

_ALPHABET: Final = re.compile(r"[A-Za-z0-9._-]+")


def check_scope_name(text: str, *, internal: bool = False) -> str:
    """Return `text` if it may name a scope; `internal` allows a leading "_". Raises InvalidArgument."""
    return _check_name("scope name", text, SCOPE_NAME_CHARS_MAX, internal=internal)


def check_stream_name(text: str, *, internal: bool = False) -> str:
    """Return `text` if it may name a stream; `internal` allows a leading "_". Raises InvalidArgument."""
    return _check_name("stream name", text, STREAM_NAME_CHARS_MAX, internal=internal)


@attrs.frozen(order=True)
class StreamName:
    """The full name of a stream, sorted by scope and then stream; `str()` gives `scope/stream`.

    The constructor checks nothing; use `parse` for names from users.
    """

    scope: str
    stream: str

    @classmethod
    def parse(cls, text: str, *, internal: bool = False) -> StreamName:
        """Return the name for `text`, "scope/stream". Raises InvalidArgument."""
        reason = "it must be str, and look like scope/stream"
        scope, slash, stream = check_instance(str, "stream name", text, reason).partition("/")
        if not slash or "/" in stream:
            raise InvalidArgument(what="stream name", value=text, reason="it must look like scope/stream")
        return cls(
            scope=check_scope_name(scope, internal=internal),
            stream=check_stream_name(stream, internal=internal),
        )

    def __str__(self) -> str:
        return f"{self.scope}/{self.stream}"


def check_full_name(kind: str, text: str) -> str:
    """Return `text` if it is the full name, "scope/name", of a group or schedule: `kind`. Raises InvalidArgument."""
    check_str(kind, text)
    try:
        return str(StreamName.parse(text))
    except InvalidArgument as why:
        reason = why.reason if text.count("/") == 1 else f"it must look like scope/{kind}"
        raise InvalidArgument(what=kind, value=text, reason=reason) from None


def _check_name(what: str, text: str, chars_max: int, *, internal: bool) -> str:
    if not check_str(what, text):
        reason = "it is empty"
    elif len(text) > chars_max:
        reason = f"it has {len(text)} characters, at most {chars_max} are possible"
    elif not _ALPHABET.fullmatch(text):
        reason = "only letters A-Z and a-z, digits, '.', '_' and '-' are possible"
    elif text in {".", ".."}:
        reason = "it is the name of a directory in paths"
    elif text.startswith("_") and not internal:
        reason = "names that begin with '_' are the system's own"
    else:
        return text
    raise InvalidArgument(what=what, value=text, reason=reason)
