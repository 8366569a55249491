"""What something measured over a long run, by the part of the run in which it was: does it grow?"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import psutil

PARTS: Final = 5
"""How many parts a run has. The first one is that in which caches fill."""

GROWTH: Final = 1.2
"""Quotient of the last part and the second one up to which something is flat, beside what each measure may vary."""


class SamplesByPart:
    """Samples of measures, each in the part of the run in which it was taken, from 0 on."""

    def __init__(self) -> None:
        self._samples: defaultdict[str, defaultdict[int, list[float]]] = defaultdict(
            lambda: defaultdict(list)
        )

    def note(self, measure: str, part: int, value: float) -> None:
        """Take a sample. A part beyond the last one counts as the last."""
        self._samples[measure][min(part, PARTS - 1)].append(value)

    def lines(self) -> Iterator[str]:
        """Yield a line for each measure, with its median in each part."""
        for measure, by_part in sorted(self._samples.items()):
            medians = [f"{each + 1}: {statistics.median(by_part[each]):,.1f}" for each in sorted(by_part)]
            yield f"{measure}, by fifth: {', '.join(medians)}"

    def growing(self, allowances: dict[str, float]) -> list[str]:
        """Return the measures that grow from the second part to the last one.

        allowances: how much a measure may grow besides, by the end of its name; those that are not named may do what
        they want.
        """
        return [
            measure
            for measure, by_part in sorted(self._samples.items())
            for end, allowance in allowances.items()
            if measure.endswith(end) and {1, PARTS - 1} <= by_part.keys()
            if statistics.median(by_part[PARTS - 1]) > statistics.median(by_part[1]) * GROWTH + allowance
        ]


def mebibytes(pid: int) -> float:
    """Return the memory of a process in MiB; 0 if it has ended."""
    try:
        return float(psutil.Process(pid).memory_info().rss) / 2**20
    except psutil.NoSuchProcess:
        return 0.0
