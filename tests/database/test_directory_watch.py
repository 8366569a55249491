"""Every change of a directory is detected, even if its file system has coarse times."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from eventproc.base.clock import SystemClock
from eventproc.store.database.files import COARSE_SETTLED_MS, SETTLED_MS, DirectoryWatch


class AgeClock(SystemClock):
    """A clock with a chosen age of the last change of the directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.age_ms = 0
        self._directory = directory

    def wall_ms(self) -> int:
        return self._directory.stat().st_ctime_ns // 1_000_000 + self.age_ms


@pytest.fixture
def clock(tmp_path: Path) -> AgeClock:
    return AgeClock(tmp_path)


def looked_at(entries: DirectoryWatch) -> bool:
    """List the entries if they may have changed; return whether they may."""
    differs = entries.may_have_changed()
    if differs:
        entries.mark_seen()
    return differs


def test_entries_are_listed_until_their_last_change_is_settled(tmp_path: Path, clock: AgeClock) -> None:
    entries = DirectoryWatch(tmp_path, clock)
    clock.age_ms = SETTLED_MS
    assert [looked_at(entries) for _ in range(2)] == [True, True]
    clock.age_ms = COARSE_SETTLED_MS + 1
    assert [looked_at(entries) for _ in range(2)] == [True, False]


def test_a_change_that_settles_during_the_listing_is_listed_again(tmp_path: Path, clock: AgeClock) -> None:
    entries = DirectoryWatch(tmp_path, clock)
    assert entries.may_have_changed()
    clock.age_ms = COARSE_SETTLED_MS + 1  # the thread stood still
    entries.mark_seen()
    assert entries.may_have_changed()


@pytest.mark.parametrize(("age_ms", "believed"), [(COARSE_SETTLED_MS, False), (COARSE_SETTLED_MS + 1, True)])
def test_times_of_whole_seconds_are_trusted_later(
    tmp_path: Path, clock: AgeClock, age_ms: int, believed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = os.stat

    def coarse(path: str) -> SimpleNamespace:
        found = stat(path)
        seconds_ns = found.st_ctime_ns // 1_000_000_000 * 1_000_000_000
        return SimpleNamespace(st_dev=found.st_dev, st_ino=found.st_ino, st_ctime_ns=seconds_ns)

    entries = DirectoryWatch(tmp_path, clock)
    before = clock.wall_ms()
    monkeypatch.setattr(os, "stat", coarse)
    monkeypatch.setattr(clock, "wall_ms", lambda: before // 1000 * 1000 + age_ms)
    assert looked_at(entries)
    assert looked_at(entries) is not believed


def test_a_removed_directory_always_counts_as_changed(tmp_path: Path, clock: AgeClock) -> None:
    entries = DirectoryWatch(tmp_path / "gone", clock)
    assert [looked_at(entries) for _ in range(2)] == [True, True]
