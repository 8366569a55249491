"""What a demo run gets, what it has, and what it returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs

from eventproc.cli.demo.cpu_times import CpuTimes
from eventproc.cli.demo.ledger import DemoLedger
from eventproc.cli.demo.producer import Produced, produce_in_process
from eventproc.runtime import Eventproc


@attrs.frozen
class DemoTask:
    """What to do: send a CSV file through a stream, or a topic, in `directory`. key: column with the routing key."""

    file: Path
    key: str
    mean_of: str | None
    directory: Path
    durability: str | None

    async def produce_into(self, stream: str) -> Produced:
        """Write all rows in a process of its own. Raises as `produce_in_process`."""
        return await produce_in_process(self.file, self.key, self.directory, stream)


@attrs.frozen
class DemoReport:
    """The result of the run.

    ledger: what the handler counted. facts: what else is shown, by name, such as the number of epochs. cpu_seconds:
    CPU time by step, of the measured processes. missed: what the demo was to show and did not; empty if nothing.
    """

    produced: Produced
    ledger: DemoLedger
    facts: Mapping[str, int]
    cpu_seconds: Mapping[str, float]
    missed: str = ""

    @property
    def flawless(self) -> bool:
        """Whether every row was written and processed once, and in order."""
        ledger = self.ledger
        is_complete = self.produced.rows == self.produced.written == ledger.processed
        return is_complete and not ledger.duplicates and not ledger.order_violations


class DemoRun(ABC):
    """One run of a demo in a scope of its own. Use it once."""

    rest = "process"
    """Name of the CPU time of this process that is not measured."""

    def __init__(
        self, task: DemoTask, system: Eventproc, scope: str, show: Callable[[int, str], None]
    ) -> None:
        self._task = task
        self._system = system
        self._scope = scope
        self._show = show
        self._cpu = CpuTimes(rest=self.rest)
        self._ledger = DemoLedger(self._cpu, key=task.key, mean_of=task.mean_of)
        self._produced = Produced(rows=0, written=0, cpu_seconds={})

    @abstractmethod
    async def run(self) -> DemoReport:
        """Write, process and count all rows."""

    def _report(self, facts: Mapping[str, int], missed: str = "") -> DemoReport:
        cpu_seconds = {**self._produced.cpu_seconds, **self._cpu.seconds()}
        return DemoReport(self._produced, self._ledger, facts, cpu_seconds, missed)
