"""What runs one processor in one process: it fetches events, calls the handler and commits progress."""

from __future__ import annotations
