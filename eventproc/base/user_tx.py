"""Whether a thread runs a function of the user in a transaction, such as `on_commit`."""

from __future__ import annotations

import threading
from typing import Final


class _OfThread(threading.local):
    in_tx = False


OF_THREAD: Final = _OfThread()


def is_in_tx() -> bool:
    """Return whether this thread runs such a function. Every write waits for the end of its transaction."""
    return OF_THREAD.in_tx
