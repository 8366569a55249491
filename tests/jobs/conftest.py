"""Each test of this folder runs on both forms of the database unless it says otherwise."""

from __future__ import annotations

from tests.support.stores import anyio_backend, ep, form

__all__ = ["anyio_backend", "ep", "form"]
