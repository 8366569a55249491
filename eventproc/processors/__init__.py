"""Event processing: the core that runs handlers over events, in the order they need."""

from __future__ import annotations

from eventproc.processors.keyed import KeyedWorkers

__all__ = ["KeyedWorkers"]
