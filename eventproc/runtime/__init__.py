"""Opening a directory: everything put together."""

from __future__ import annotations

from eventproc.runtime.opening import open as open, open_in_store as open_in_store, open_memory as open_memory
from eventproc.runtime.requests import Requests as Requests
from eventproc.runtime.system import Eventproc as Eventproc
from eventproc.store.address import store_address as store_address
