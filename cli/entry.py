"""The entry point of the process: Ctrl-C ends it without a traceback from its first instruction on.

Importing the rest takes a few tenths of a second. An interrupt during an import would print a traceback, and Python
may even turn it into another error. So until a command has work that must be cleaned up (`signals.run_with_signals`),
SIGINT ends the process immediately. At its head this module imports only what Python itself has imported.
"""

from __future__ import annotations

import os

INTERRUPTED = 130
"""128 plus the number of SIGINT, as in shells."""


def main() -> int:
    """Run the command line of this process and return its exit code. Main thread only."""
    try:
        import signal

        # A shell may have set it to be ignored; then it stays ignored.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _leave)
        from eventproc.cli.main import main

        return main()
    except KeyboardInterrupt:
        _leave()
        raise


def _leave(*_: object) -> None:
    os._exit(INTERRUPTED)
