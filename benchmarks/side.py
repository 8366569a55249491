"""One side of one measurement in a process of its own: `python -m benchmarks.side '{...}'` prints a sample.

A process of its own, so that its CPU time and its peak memory are of nothing else.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import anyio
import attrs

from benchmarks.cases import CASES
from benchmarks.samples import Task


def main() -> None:
    """Run what the argument names and print the sample as JSON."""
    wanted = json.loads(sys.argv[1])
    case = CASES[wanted["name"]]
    sides = {"ours": case.ours, "floor": case.floor, **{each.name: each.side for each in case.peers}}
    task = Task(directory=Path(wanted["directory"]), durability=wanted["durability"], count=wanted["count"])
    print(json.dumps(attrs.asdict(anyio.run(sides[wanted["side"]], task))))


if __name__ == "__main__":
    main()
