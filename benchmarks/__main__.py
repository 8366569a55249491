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
                result = measure(case, of, count, parent, status.update)
                results.append(result)
                print(result.as_line(), flush=True)
    console.print(_table(results))
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
    for heading in ("ours", "floor", "ratio", "bar", "", "CPU us", "peak MB"):
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
            ("ok" if result.met else "MISSED") if result.case.bar_of(result.of) is not None else "",
            _number(result.ours.cpu_us),
            f"{result.ours.rss_mb:.0f}",
        )
    return table


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
