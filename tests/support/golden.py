"""Golden scripts: text files of steps and their results, for a person to read and check.

A line is a step, such as `watermark 12:01:00`. The lines behind it that begin with `->` are its results. A line that
begins with `#` is a comment. A test plays the steps and compares the results; `--rewrite` writes those that it found
into the file. The commit that rewrites a script explains each line of its diff.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest

UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000}


class GoldenScript:
    """One file, whose steps a test plays in their order."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._before = path.read_text()
        self._lines: list[str] = []

    def steps(self) -> Iterator[list[str]]:
        """Yield the words of each step; the caller says with `found` what it led to before it takes the next one."""
        for line in self._before.splitlines():
            if line.startswith("->"):
                continue
            self._lines.append(line)
            if line and not line.startswith("#"):
                yield line.split()

    def found(self, results: Iterable[str]) -> None:
        """Note the results of the step."""
        self._lines += [f"-> {each}" for each in results]

    def verify(self, request: pytest.FixtureRequest) -> None:
        """Assert that the results are those of the file, or write them into it."""
        after = "".join(f"{line}\n" for line in self._lines)
        if request.config.getoption("--rewrite"):
            self._path.write_text(after)
        assert after == self._path.read_text(), self._path.name


def parse_time(text: str) -> int:
    """Return the ms of a time of the first day, such as "12:00:01.500"."""
    hours, minutes, seconds = text.split(":")
    return (int(hours) * 60 + int(minutes)) * 60_000 + round(float(seconds) * 1_000)


def format_time(time_ms: int) -> str:
    """Return the text of a time, without fractions that are zero."""
    seconds, ms = divmod(time_ms, 1_000)
    text = f"{seconds // 3_600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{ms:03}" if ms else text


def parse_duration(text: str) -> int:
    """Return the ms of a duration, such as "90s"."""
    found = re.fullmatch(r"(\d+)(ms|s|m)", text)
    assert found is not None, f"{text!r} is no duration such as 90s"
    return int(found[1]) * UNITS_MS[found[2]]


def parse_durations(words: Iterable[str]) -> dict[str, int]:
    """Return the arguments in ms that words such as "grace=5s" are."""
    pairs = (word.split("=") for word in words)
    return {f"{name}_ms": parse_duration(text) for name, text in pairs}
