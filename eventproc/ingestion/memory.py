"""What a supervisor remembers between two runs. All else follows from its groups, tasks and offsets."""

from __future__ import annotations

import attrs

from eventproc.ingestion.health import Health
from eventproc.store.records import from_json, to_json


@attrs.frozen(kw_only=True)
class LagSample:
    """The lag at one moment, aggregated over the partitions."""

    at_ms: int
    lag: int


@attrs.frozen(kw_only=True)
class Memory:
    """What a supervisor remembers. All times are wall times in ms.

    next_group, next_task: numbers of the next ones, for their names. task_count: what the autoscaler chose; None: the
    spec's. scaled_from: what the spec said about it then; if the spec says something else, its number counts again.
    handoff: groups that end in the next run. idle_since_ms: since when nothing was written or left to read.
    tails: sum of the tails at the last run. samples: of the lag, the oldest first.
    """

    health: Health = attrs.field(factory=Health)
    next_group: int = 0
    next_task: int = 0
    task_count: int | None = None
    scaled_from: str | None = None
    handoff: tuple[int, ...] = ()
    last_run_ms: int | None = None
    last_scale_ms: int | None = None
    last_scale_reason: str | None = None
    idle_since_ms: int | None = None
    tails: int | None = None
    samples: tuple[LagSample, ...] = ()
    next_sample_ms: int = 0
    next_scale_ms: int | None = None

    def encode(self) -> str:
        """Return the memory as JSON."""
        return to_json(self).decode()

    @classmethod
    def decode(cls, text: str) -> Memory:
        """Return the memory that `encode` wrote."""
        return from_json(text.encode(), cls)
