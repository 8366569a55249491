"""What a demo run gets, and what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs

from eventproc.cli.demo.ledger import DemoLedger
from eventproc.cli.demo.producer import Produced, ProducerTask, produce_in_process


@attrs.frozen
class DemoTask:
    """What to do: send a CSV file through a stream, or a topic, in `directory`. key: column with the routing key."""

    file: Path
    key: str
    mean_of: str | None
    directory: Path
    durability: str | None

    async def produce_into(self, stream: str, durability: str) -> Produced:
        """Write all rows in a process of its own. Raises as `produce_in_process`."""
        return await produce_in_process(ProducerTask(self.file, self.key, self.directory, stream, durability))


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
