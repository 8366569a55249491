"""Run the measurements: a table for people on stderr, one JSON object per line and measurement on stdout.

Exit code 1 when a bar is missed, so that a gate can rest on it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.cases import CASES
from benchmarks.rounds import CaseResult, disk_directory, measure

TABLE_CHARS: Final = 120
"""Width of the table where there is no terminal to fill."""


def main() -> int:
    """Measure what the arguments name; return the exit code."""
    arguments = _arguments()
    parent = arguments.directory or disk_directory()
    console = Console(stderr=True)
    if not console.is_terminal:
        console = Console(stderr=True, width=TABLE_CHARS)
    results: list[CaseResult] = []
    with console.status("starting") as status:
        for name in arguments.names or CASES:
            case = CASES[name]
            count = case.quick_count if arguments.quick else case.count
            if not count:
                continue
            for of in case.classes:
                result = measure(case, of, count, parent, status.update, quick=arguments.quick)
                results.append(result)
                print(result.as_line(), flush=True)
    console.print(_table(results))
    for note in _notes(results):
        console.print(note)
    missed = [f"{result.case.name} {result.of.value}" for result in results if not result.met]
    if missed:
        console.print(f"below their bars: {', '.join(missed)}")
    return 1 if missed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure, each beside its floor."
    )
    parser.add_argument("--quick", action="store_true", help="fewer operations: about five minutes")
    parser.add_argument("--directory", type=Path, help="where to make temporary directories; must be a disk")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of: {', '.join(CASES)}; default all")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - CASES.keys():
        parser.error(f"no such measurement: {', '.join(sorted(unknown))}")
    return arguments


def _table(results: list[CaseResult]) -> Table:
    table = Table(
        "measurement", "class", "unit", title="medians; class F: survives power loss, P: a dead process"
    )
    for heading in ("ours", "floor", "ratio", "bar", "peer", "", "CPU us", "peak MB"):
        table.add_column(heading, justify="right")
    for result in results:
        table.add_row(
            result.case.name,
            result.of.value,
            result.case.unit,
            _number(result.ours.value),
            _number(result.floor.value),
            f"{result.ratio:.2f}",
            _bar(result),
            _peer(result),
            _verdict(result),
            _number(result.ours.cpu_us),
            f"{result.ours.rss_mb:.0f}",
        )
    return table


def _peer(result: CaseResult) -> str:
    """Return the figures of the peers; with an asterisk if it is of an earlier run."""
    if result.peers:
        return ", ".join(f"{name} {_number(each.value)}" for name, each in result.peers.items())
    if result.ahead_of is None:
        return "not installed" if result.case.peers else ""
    return f"{_number(result.ahead_of)}*"


def _verdict(result: CaseResult) -> str:
    if not result.has_bar:
        return ""
    return "ok" if result.met else "MISSED"


def _notes(results: list[CaseResult]) -> list[str]:
    """Return a line for each peer in the table."""
    cases = {result.case.name: result.case for result in results}.values()
    peers = {peer.name: peer.settings for case in cases for peer in case.peers}
    earlier = {case.recorded.name: case.recorded.source for case in cases if case.recorded is not None}
    return [
        *(f"peer {name}: {settings}" for name, settings in peers.items()),
        *(f"peer {name} (*): {source}" for name, source in earlier.items()),
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _bar(result: CaseResult) -> str:
    bar = result.case.bar_of(result.of)
    if bar is None:
        return "none"
    besides = f", ours >= {result.case.value_min:,g}" if result.case.value_min else ""
    return f"{result.case.kind.value} {bar:g}{besides}"


if __name__ == "__main__":
    sys.exit(main())
