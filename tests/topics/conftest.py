"""A system in memory with a scope; every invariant is checked when the test is over."""

from __future__ import annotations

from tests.support.memory import ep as ep  # a fixture
