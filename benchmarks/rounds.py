"""Rounds: ours and its floor in turn, each in a fresh process and a fresh directory; medians, and the verdict."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Final

import attrs
import psutil

from benchmarks.cases import Case, Class
from benchmarks.samples import Sample

ROUNDS_COUNT: Final = 3
"""Rounds of a measurement whose bar is met."""

ROUNDS_WORST: Final = 10
"""Rounds of a measurement whose worst round must meet the bar, unless the run is a quick one."""

ROUNDS_MAX: Final = 5
"""Rounds before a bar counts as missed: a machine that is busy with something else spoils one, rarely three."""

SIDE_S_MAX: Final = 300
"""How long one side of one round may take: one of Spark's takes 40 s on a quiet machine."""

_MEMORY: Final = frozenset({"tmpfs", "ramfs"})


@attrs.frozen
class CaseResult:
    """Medians of one measurement in one class. peers: of those that are installed, by their names."""

    case: Case
    of: Class
    ours: Sample
    floor: Sample
    peers: Mapping[str, Sample] = MappingProxyType({})

    @property
    def ratio(self) -> float:
        """Ours as a fraction of the floor."""
        return self.ours.value / self.floor.value

    @property
    def ahead_of(self) -> float | None:
        """What the best peer reached, in this run or an earlier one; None without one."""
        if self.peers:
            return max(each.value for each in self.peers.values())
        return None if self.case.recorded is None else self.case.recorded.values[self.of]

    @property
    def has_bar(self) -> bool:
        """Whether anything must be reached: a bar of this class, or what a peer reached."""
        return self._peer_bar is not None or self.case.bar_of(self.of) is not None

    @property
    def _peer_bar(self) -> float | None:
        recorded = self.case.recorded
        is_only_printed = not self.peers and recorded is not None and not recorded.is_bar
        return None if is_only_printed else self.ahead_of

    @property
    def is_ahead(self) -> bool:
        """Whether ours reached what the peer did; True without one that is a bar."""
        return self._peer_bar is None or self.ours.value >= self._peer_bar

    @property
    def met(self) -> bool:
        """Whether the bar is met, and ours is ahead of the peer; True where there is none."""
        return self.is_ahead and self.case.meets(self.of, self.ours.value, self.ratio)

    def as_line(self) -> str:
        """Return the result as one line of JSON."""
        return json.dumps(
            {
                "name": self.case.name,
                "class": self.of.value,
                "ours": round(self.ours.value, 3),
                "floor": round(self.floor.value, 3),
                "ratio": round(self.ratio, 3),
                "bar": self.case.bar_of(self.of),
                "peer": None if self.ahead_of is None else round(self.ahead_of, 3),
                "peers": {name: round(each.value, 3) for name, each in self.peers.items()},
                "met": self.met,
                "unit": self.case.unit,
                "cpu_us": round(self.ours.cpu_us, 2),
                "rss_mb": round(self.ours.rss_mb, 1),
            }
        )


def disk_directory() -> Path:
    """Return a directory for temporary files that lies on a disk, else the system's own choice."""
    chosen = Path(tempfile.gettempdir())
    for candidate in (chosen, Path("/var/tmp"), Path.cwd()):
        if candidate.is_dir() and _file_system(candidate) not in _MEMORY:
            return candidate
    return chosen


def measure(
    case: Case, of: Class, count: int, parent: Path, note: Callable[[str], None], *, quick: bool
) -> CaseResult:
    """Run ROUNDS_COUNT rounds, more while the bar is missed, and return the medians, or the worst of ours."""
    rounds_min = ROUNDS_WORST if case.worst and not quick else ROUNDS_COUNT
    ours: list[Sample] = []
    floor: list[Sample] = []
    measured = [each for each in case.peers if of.durability in each.durabilities and each.is_installed()]
    peers: dict[str, list[Sample]] = {each.name: [] for each in measured}
    all_sides = [("ours", ours), ("floor", floor), *peers.items()]
    bounds = {each.name: each.count_max for each in case.peers}
    while True:
        # The side that goes first changes from round to round: the second finds a warmer disk.
        for side, samples in all_sides[:: -1 if len(ours) % 2 else 1]:
            note(f"{case.name} {of.value}, round {len(samples) + 1}: {side}")
            samples.append(_run(case, of, side, min(count, bounds.get(side) or count), parent))
        if len(ours) < rounds_min:
            continue
        chosen = max(ours, key=lambda sample: sample.value) if case.worst else _median(ours)
        result = CaseResult(
            case, of, chosen, _median(floor), {name: _median(each) for name, each in peers.items()}
        )
        if result.met or case.worst or len(ours) == ROUNDS_MAX:
            return result


def _run(case: Case, of: Class, side: str, count: int, parent: Path) -> Sample:
    directory = Path(tempfile.mkdtemp(prefix="eventproc-bench-", dir=parent))
    wanted = {
        "name": case.name,
        "side": side,
        "directory": str(directory),
        "durability": of.durability,
        "count": count,
    }
    try:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.side", json.dumps(wanted)],
            stdout=subprocess.PIPE,
            check=True,
            timeout=SIDE_S_MAX,
        )
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return Sample(**json.loads(done.stdout))


def _median(samples: list[Sample]) -> Sample:
    return Sample(
        value=median(sample.value for sample in samples),
        cpu_us=median(sample.cpu_us for sample in samples),
        rss_mb=median(sample.rss_mb for sample in samples),
    )


def _file_system(directory: Path) -> str:
    """Return the type of the file system that holds `directory`."""
    where = directory.resolve()
    mounts = {Path(mount.mountpoint): mount.fstype for mount in psutil.disk_partitions(all=True)}
    return next((mounts[path] for path in (where, *where.parents) if path in mounts), "")
