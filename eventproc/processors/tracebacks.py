"""Tracebacks of the user's code: without the frames of the libraries that call it, and of bounded size.

The standard `traceback` module formats chained errors and exception groups. Here only the frames are chosen.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from functools import cache
from os import sep
from pathlib import Path
from traceback import FrameSummary, StackSummary, TracebackException, walk_stack
from typing import Final

TRACEBACK_BYTES_MAX: Final = 8 * 2**10
"""Longest traceback that a log record or a dead letter keeps, in bytes: about 50 frames. Higher: a page of 100 dead
letters reads so much for each. Lower: the ends of long chains of errors are left out."""

HEAD_BYTES: Final = TRACEBACK_BYTES_MAX // 4
"""Bytes kept of the beginning of a longer traceback. The rest is for its end, which has the frames nearest to the
error, and the error."""

LIBRARIES: Final = (
    "eventproc",
    "anyio",
    "asyncio",
    "trio",
    "outcome",
    "tenacity",
    "aiosqlite",
    "concurrent.futures",
    "threading",
)
"""Packages whose frames are cut."""

GENERATED: Final = ("<attrs generated", "<cattrs generated")
"""Beginnings of the file names of generated functions, whose frames are cut too."""

CODEC_LIBRARIES: Final = ("json", "cattrs", "pydantic", "msgspec")
"""Packages whose frames are cut where eventproc called them: the built-in codecs do."""


def user_traceback(error: BaseException) -> str:
    """Return the traceback of an error, with its causes, contexts and the errors of groups.

    It is at most TRACEBACK_BYTES_MAX long, and has the frames of the user's code. If there are none, an error of
    eventproc is only named, and any other one is shown with all frames.
    Cost: about 0.1 ms; source lines are read from the disk once.
    """
    shown = TracebackException.from_exception(error, lookup_lines=False, compact=True)
    every = list(_chain(shown))
    libraries, codecs = (*_files(LIBRARIES), *GENERATED), _files(CODEC_LIBRARIES)
    kept = [_kept(each.stack, libraries, codecs) for each in every]
    if not any(kept) and type(error).__module__.startswith("eventproc."):
        return _bounded("".join(shown.format_exception_only()).rstrip("\n"))
    if any(kept):
        for each, frames in zip(every, kept, strict=True):
            if frames:
                each.stack[:] = frames
            else:
                each.stack = None  # type: ignore[assignment]  # `format` then leaves its heading out
    return _bounded("".join(shown.format()).rstrip("\n"))


def user_stack(thread: int | None) -> str:
    """Return where the user's code on a thread is now, as in a traceback; nothing if it has none there."""
    frame = sys._current_frames().get(thread or 0)
    if frame is None:
        return ""
    frames = StackSummary.extract(walk_stack(frame), lookup_lines=False)
    frames.reverse()
    kept = _kept(frames, (*_files(LIBRARIES), *GENERATED), _files(CODEC_LIBRARIES))
    if not kept:
        return ""
    return _bounded(f"The call is here:\n{''.join(StackSummary.from_list(kept).format())}".rstrip("\n"))


def add_user_traceback(record: logging.LogRecord) -> bool:
    """Give a log record the traceback of the user's code; a filter of a logger.

    Formatters use `exc_text` where it is set. `exc_info` stays complete for handlers that report errors elsewhere. The
    field `traceback` of the record is used if its caller has formatted the error already.
    """
    if record.exc_info and record.exc_info[1] is not None and not record.exc_text:
        text: str | None = getattr(record, "traceback", None)
        record.exc_text = user_traceback(record.exc_info[1]) if text is None else text
    return True


def _chain(shown: TracebackException) -> Iterator[TracebackException]:
    """Yield a formatted error, those it was caused by or raised beside, and those in its group."""
    waiting: list[TracebackException | None] = [shown]
    while waiting:
        if (each := waiting.pop()) is not None:
            yield each
            waiting += [each.__cause__, each.__context__, *(each.exceptions or ())]


def _kept(
    frames: list[FrameSummary], libraries: tuple[str, ...], codecs: tuple[str, ...]
) -> list[FrameSummary]:
    kept: list[FrameSummary] = []
    is_cut = False
    for frame in frames:
        is_cut = frame.filename.startswith(libraries) or (is_cut and frame.filename.startswith(codecs))
        if not is_cut:
            kept.append(frame)
    return kept


def _files(packages: tuple[str, ...]) -> tuple[str, ...]:
    """Return how the names of the files of these packages begin, of those that are imported."""
    return tuple(found for each in packages if each in sys.modules and (found := _files_of(each)))


@cache
def _files_of(package: str) -> str:
    """Return how the names of the files of an imported package begin; the name of the file if it is a module."""
    module = sys.modules[package]
    file = module.__file__ or ""
    return f"{Path(file).parent}{sep}" if hasattr(module, "__path__") else file


def _bounded(text: str) -> str:
    """Return the beginning and the end of a text that is too long, in whole lines where possible."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= TRACEBACK_BYTES_MAX:
        return data.decode()
    head = data[:HEAD_BYTES].rpartition(b"\n")[0] or data[:HEAD_BYTES]
    note = b"\n... %d bytes are left out ...\n"
    room = TRACEBACK_BYTES_MAX - len(head) - len(note % len(data))
    tail = data[-room:]
    tail = tail.partition(b"\n")[2] or tail
    left_out = note % (len(data) - len(head) - len(tail))
    return (head + left_out + tail).decode("utf-8", "ignore")
