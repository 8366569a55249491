"""Opening a directory: everything put together."""

from __future__ import annotations

from eventproc.runtime.requests import Requests
from eventproc.runtime.system import Eventproc, open, open_memory

__all__ = ["Eventproc", "Requests", "open", "open_memory"]
