"""Durable, elastic streams and ordered event processing inside a Python process."""

from __future__ import annotations

from eventproc._version import __version__

__all__ = ["__version__"]
