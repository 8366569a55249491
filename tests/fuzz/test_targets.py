"""The targets of `make fuzz`, briefly and without it: inputs that were defects, samples, and samples with changes."""

from __future__ import annotations

import logging
import tracemalloc
from collections.abc import Iterator
from random import Random
from typing import Final

import pytest

from tests.fuzz.requests import ANSWERS
from tests.fuzz.targets import MEMORY_FACTOR, TARGETS
from tests.server.test_wire_fuzz import mutated

LONG_SHARE: Final = 0.02
LONG_BYTES: Final = 2**15
TAILS: Final = (b"\0", b"\1", b"\xff", b"[", b"1", b"*a", b'{"a":', b",0.1=1")
"""What follows, LONG_BYTES times, after a share of the inputs: counts and nesting have no other end."""


@pytest.fixture(scope="module", autouse=True)
def _discarded() -> Iterator[None]:
    """Be silent about refusals, and discard the directory that answers calls."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
    ANSWERS.close()


@pytest.mark.parametrize("name", TARGETS)
def test_what_was_a_defect_once_is_none(name: str) -> None:
    for data in TARGETS[name].found:
        TARGETS[name].check(data)


@pytest.mark.hunt(seeds=2)
@pytest.mark.parametrize("name", TARGETS)
def test_an_input_is_accepted_or_refused_within_bounded_memory(name: str, seed: int) -> None:
    target, random = TARGETS[name], Random(seed)
    target.check(target.sample(random))  # imports what it needs
    tracemalloc.start()
    try:
        for _ in range(target.inputs):
            data = mutated(target.sample(random), random)
            if random.random() < LONG_SHARE:
                data += random.choice(TAILS) * LONG_BYTES
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            target.check(data)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before <= target.memory_bytes + MEMORY_FACTOR * len(data), data
    finally:
        tracemalloc.stop()
