"""The log of `eventproc run` on stderr: text for people, JSON lines for programs, or what the app configured itself.

An app configures logging itself if the root logger has a handler after its import. A handler that a bare
`logging.basicConfig()` adds does not count: `logging.warning()` at import time adds it too. Handlers of such an app
stay as they are, and so does its level, unless `--log-level` is given. A level that an app sets on the root logger
without a handler stays, too.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from eventproc.cli.exit_codes import FAILED, Signalled, error_line, exit_code
from eventproc.cli.options import Settings
from eventproc.cli.output.tables import iso_time
from eventproc.processors.observe.telemetry import HANDLER_LOG

STANDARD_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""Attributes of every log record. Others are fields that the caller added."""


class ServerLog:
    """The log of this process. Used as `with log.importing(): load the apps`, then `log.install()`."""

    def __init__(
        self,
        settings: Settings,
        level: str | None,
        log_format: str | None = None,
        *,
        worker: int | None = None,
    ) -> None:
        """level, log_format: `--log-level` and `--log-format`; None if not given.

        worker: number of this process among those of `run --workers`; None: the log does not name one.
        """
        self._settings = settings
        self._level = level
        self._format = log_format
        self._handler = logging.StreamHandler()
        formatter = JsonFormatter if log_format == "json" else TextFormatter
        self._handler.setFormatter(formatter(worker=worker))

    @contextmanager
    def importing(self) -> Iterator[None]:
        """Print what apps log during their import. It does not keep them from configuring logging."""
        before, logging.lastResort = logging.lastResort, self._handler
        self._handler.setLevel(logging.WARNING)
        try:
            yield
        finally:
            logging.lastResort = before
            self._handler.setLevel(logging.NOTSET)

    def install(self) -> None:
        """Print the log of this process from now on, unless an app has configured logging.

        Raises click.UsageError if an app has, and `--log-format` is given.
        """
        root = logging.root
        if any(_is_bare(handler) for handler in root.handlers):
            root.handlers.clear()
        if root.handlers and self._format is not None:
            raise click.UsageError(
                "the app configures logging itself (the root logger has a handler after its import): leave "
                "--log-format out, or remove the app's configuration"
            )
        if not root.handlers:
            root.addHandler(self._handler)
            if root.level == logging.WARNING:  # nobody has set it
                root.setLevel(self._default_level())
        if self._level is not None:
            root.setLevel(self._level.upper())
        if self._settings.debug:
            logging.getLogger("eventproc").setLevel(logging.DEBUG)
        for name in ("aiosqlite", "asyncio"):  # the first one logs each statement
            if logging.getLogger(name).level == logging.NOTSET:
                logging.getLogger(name).setLevel(logging.INFO)

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """End the command for what the block raises; a log in JSON gets the error line as a record."""
        from eventproc.base.tasks import first_leaf
        from eventproc.processors import ProcessorFailed

        try:
            yield
        except ProcessorFailed:  # the log has the reason
            if self._settings.debug:
                raise
            raise click.exceptions.Exit(FAILED) from None
        except (click.exceptions.Exit, click.Abort, Signalled):
            raise
        except Exception as why:
            if self._format != "json":
                raise
            error = first_leaf(why)
            self.report(error_line(error).removeprefix("eventproc: "), error)
            raise click.exceptions.Exit(exit_code(error)) from None

    def report(self, text: str, why: BaseException) -> None:
        """Print the error that ends the command, in the form of the log."""
        traced = (type(why), why, why.__traceback__) if self._settings.debug else None
        record = logging.LogRecord("eventproc.run", logging.ERROR, "", 0, text, (), traced)
        self._handler.handle(record)

    def _default_level(self) -> int:
        return logging.ERROR if self._settings.quiet else logging.INFO


def _is_bare(handler: logging.Handler) -> bool:
    """Return whether a bare `basicConfig()` has added the handler."""
    plain = handler.formatter is not None and handler.formatter._fmt == logging.BASIC_FORMAT
    return type(handler) is logging.StreamHandler and plain and logging.root.level == logging.WARNING


class TextFormatter(logging.Formatter):
    """Formats a record as time, level, worker, logger, and the message with the event that it is about."""

    def __init__(self, *, worker: int | None = None) -> None:
        super().__init__()
        self._worker = "" if worker is None else f"[{worker}] "

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the standard library's name
        """Return the record without its traceback, which `format` appends."""
        time = iso_time(round(record.created * 1000))
        message = f"{event_prefix(record)}{record.message}"
        return f"{time} {record.levelname:<7} {self._worker}{record.name}: {message}"


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object in one line.

    Fields: time, level, logger, message; worker; those that the caller added, such as processor, stream, segment,
    offset, number, key and attempt; and error_type, error and traceback of an exception.
    """

    def __init__(self, *, worker: int | None = None) -> None:
        super().__init__()
        self._worker = worker

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        row: dict[str, object] = {
            "time": iso_time(round(record.created * 1000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._worker is not None:
            row["worker"] = self._worker
        row |= {
            name: value
            for name, value in vars(record).items()
            if name not in STANDARD_FIELDS and name not in row
        }
        if record.exc_info and (why := record.exc_info[1]) is not None:
            row["error_type"] = type(why).__qualname__
            row["error"] = str(why)
            row["traceback"] = record.exc_text or "".join(traceback.format_exception(why))
        if record.stack_info:
            row["stack"] = record.stack_info
        return json.dumps(row, ensure_ascii=False, default=str, skipkeys=True)


def event_prefix(record: logging.LogRecord) -> str:
    """Return "NAME: STREAM segment ID event NUMBER (key KEY): " for what a handler logs, else ""."""
    if record.name != HANDLER_LOG.name:  # the library's own messages name the event in their text
        return ""
    fields = vars(record)
    key = "" if fields["key"] is None else f" (key {fields['key']!r})"
    where = f"{fields['stream']} segment {fields['segment']} event {fields['number']}"
    return f"{fields['processor']}: {where}{key}: "
