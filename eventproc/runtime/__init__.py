"""Opening a directory: everything put together."""

from __future__ import annotations

from eventproc.runtime.opening import open, open_in_store, open_memory
from eventproc.runtime.requests import Requests
from eventproc.runtime.system import Eventproc
from eventproc.store.address import store_address

__all__ = ["Eventproc", "Requests", "open", "open_in_store", "open_memory", "store_address"]
