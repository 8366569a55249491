"""Where the process enters: from its first instruction on, Ctrl-C ends it quietly.

Importing the rest takes a few tenths of a second. An interrupt in the middle of an import would be a
traceback; worse, in the middle of making a class Python turns it into another error. So until there is
something that must be ended in order (`signals.watched`), the process just leaves: it has done nothing yet,
or nothing that a death at any instruction could harm. Imports nothing at its head but what Python itself did.
"""

from __future__ import annotations

import os

INTERRUPTED = 130
"""128 and the number of SIGINT, as shells say it."""


def main() -> int:
    """Run the command line of this process and return its exit code. Main thread only."""
    try:
        import signal

        if (
            signal.getsignal(signal.SIGINT) is signal.default_int_handler
        ):  # not one whom a shell told to ignore it
            signal.signal(signal.SIGINT, _leave)
        from eventproc.cli.main import main

        return main()
    except KeyboardInterrupt:
        _leave()
        raise


def _leave(*_: object) -> None:
    os._exit(INTERRUPTED)
