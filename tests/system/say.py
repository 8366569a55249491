"""How a worker speaks: whole lines on standard output, from any thread and any forked child."""

from __future__ import annotations

import logging
import os


def say(line: str) -> None:
    os.write(1, line.replace("\n", " / ").encode() + b"\n")


class SayHandler(logging.Handler):
    """Says what is logged."""

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler.emit`."""
        say(f"log {record.name} {record.getMessage()}")
