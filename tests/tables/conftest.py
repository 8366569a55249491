"""Each test of this folder runs on both forms of the database."""

from __future__ import annotations

from tests.support.stores import anyio_backend, db, form, world

__all__ = ["anyio_backend", "db", "form", "world"]
