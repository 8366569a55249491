"""A record of tests: a number that only grows by one."""

from __future__ import annotations

import attrs


@attrs.frozen
class CountedSteps:
    """A number."""

    number: int
