"""Live through seeds: `python -m tests.simulation COUNT [FIRST]`. Used by `make simulate SEEDS=n`.

Prints a line per seed with the digest of its trace, and at the end how much happened. A seed that lacked a kind of
event does not count, and a further one runs instead.
"""

from __future__ import annotations

import logging
import os
import sys
import time

import attrs

from eventproc.testing import VirtualRuntime
from tests.simulation.system import Happened, SystemSimulation


def live(seed: int) -> SystemSimulation:
    """Live through a seed, on trio if it is even, else on asyncio. Raises what did not hold."""
    simulation = SystemSimulation(seed)
    VirtualRuntime(seed=seed, backend="asyncio" if seed % 2 else "trio").run(simulation.run)
    return simulation


def main(wanted: int, first: int) -> int:
    """Run seeds from `first` on until `wanted` counted; return the exit code."""
    logging.disable(logging.CRITICAL)
    total, counted, failed, seed = Happened(), 0, list[int](), first
    began = time.perf_counter()
    while counted < wanted:
        seed_began = time.perf_counter()
        try:
            simulation = live(seed)
        except (Exception, BaseExceptionGroup) as why:
            failed.append(seed)
            counted += 1
            _say(f"seed {seed}: FAILED {why!r}")
        else:
            _say(f"seed {seed}: trace {simulation.trace}, {time.perf_counter() - seed_began:.1f} s")
            counted += simulation.happened.counts
            both = zip(attrs.astuple(total), attrs.astuple(simulation.happened), strict=True)
            total = Happened(*map(sum, both))
        seed += 1
    took_s = time.perf_counter() - began
    _say(
        f"{counted} seeds in {took_s:.0f} s ({took_s / counted:.1f} s each): {total.deaths} deaths,"
        f" {total.takeovers} takeovers, {total.scales} scales, {total.policy_scales} of policies,"
        f" {total.commits} commits, {total.checked} checked for their rows, {total.truncations} truncations;"
        f" {len(failed)} failed{f': {failed}' if failed else ''}"
    )
    return bool(failed)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a schedule
        command = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
