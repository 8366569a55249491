"""The host: which of the open instances runs the internal processors of a directory, and what it runs."""

from __future__ import annotations

from eventproc.cluster.host import run_host

__all__ = ["run_host"]
