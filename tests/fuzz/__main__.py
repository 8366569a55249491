"""Fuzz the parsers: `python -m tests.fuzz INPUTS [TARGET ...] [-OPTION ...]`. Used by `make fuzz`.

Each target runs in a process of its own, which libFuzzer guides by the branches that its inputs reach. What it has
found stays in build/fuzz/TARGET, and is where the next run begins.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import FunctionType
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from tests.fuzz.targets import FuzzTarget

FOLDER: Final = Path("build/fuzz")
SAMPLES: Final = 300
"""Well-formed inputs with which a target begins."""

OPTIONS: Final = ("-max_len=2048", "-timeout=60", "-rss_limit_mb=2048", "-print_final_stats=1")
"""Of libFuzzer: longest input in bytes, longest time of an input in s, memory of a process in MiB."""

GUIDING: Final = (
    *("eventproc.server.", "eventproc.store.model.", "eventproc.store.segments.", "eventproc.store.access."),
    *("eventproc.streams.position_texts", "eventproc.groups.position_texts", "eventproc.ingestion.spec"),
    *("eventproc.spark.", "eventproc.cli.input.", "kafka.protocol.schemas.", "jwt.", "scramp."),
)
"""Modules whose branches guide libFuzzer. Those of tests do not."""


def main(inputs: int, arguments: list[str]) -> int:
    """Fuzz targets one after the other, each in a child of this process; return how many have failed.

    arguments: names of targets, none for all; and options of libFuzzer, such as -max_total_time=60.
    """
    from atheris.instrument_bytecode import instrument_func

    warnings.simplefilter("ignore", DeprecationWarning)
    logging.disable(logging.CRITICAL)
    from tests.fuzz.targets import TARGETS

    for function in _guiding_functions():
        instrument_func(function)
    names = [each for each in arguments if not each.startswith("-")] or [*TARGETS]
    options = [f"-runs={inputs}", *OPTIONS, *(each for each in arguments if each.startswith("-"))]
    failed: list[str] = []
    for name in names:
        sys.stdout.write(f"{name}: fuzzing\n")
        sys.stdout.flush()
        if (child := os.fork()) == 0:
            _fuzz(name, TARGETS[name], options)
        if os.waitpid(child, 0)[1]:
            failed.append(name)
    sys.stdout.write(f"{inputs:,} inputs for each target; failed: {', '.join(failed) or 'none'}\n")
    return len(failed)


def _fuzz(name: str, target: FuzzTarget, options: list[str]) -> NoReturn:
    """Fuzz a target, and end the process. It begins with samples, and with what earlier runs have found."""
    import atheris

    folder, random = FOLDER / name, Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    samples = [*target.found, *(target.sample(random) for _ in range(SAMPLES))]
    for number, data in enumerate(samples):
        (folder / f"sample-{number}").write_bytes(data)
    atheris.Setup([name, str(folder), f"-artifact_prefix={folder}-", *options], target.check)
    atheris.Fuzz()
    os._exit(0)


def _guiding_functions() -> Iterator[FunctionType]:
    """Yield the functions of the modules that guide."""
    modules = [module for name, module in sorted(sys.modules.items()) if name.startswith(GUIDING)]
    for module in modules:
        classes = [each for each in vars(module).values() if isinstance(each, type)]
        for found in (*vars(module).values(), *(each for kind in classes for each in vars(kind).values())):
            function = getattr(found, "__func__", found)  # of a class method
            if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                yield function


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
