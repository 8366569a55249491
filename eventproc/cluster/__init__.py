"""Who of all open instances does what only one may do."""

from __future__ import annotations

from eventproc.cluster.host import run_host

__all__ = ["run_host"]
