"""The policies of streams while instances die: each stream is looked at soon after a death, and its policy is kept.

The stream of `SystemSimulation` is scaled by its rate, so its readers, processors and transactions meet scales that
nobody asked for. A second stream keeps its newest events only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final
from unittest.mock import patch

import anyio

from eventproc import RetentionPolicy, ScalingPolicy
from eventproc.cluster import policies
from eventproc.cluster.policies import FAILED_MS
from eventproc.runtime import Eventproc
from eventproc.store.database import Tx
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.requests import RequestOrigin, RequestStatus
from eventproc.testing import SimulatedWorld
from eventproc.workflows.policies import PassedOffsets, PolicyLook, look_at_stream
from eventproc.workflows.policies.look import LOOKS_A_WINDOW
from eventproc.workflows.requests import TruncateStream
from tests.support.reading import payloads_of

WINDOW_MS: Final = 4_000
PERIOD_MS: Final = WINDOW_MS // LOOKS_A_WINDOW
SCALED: Final = ScalingPolicy.by_event_rate(1, factor=2, segments_max=6, window_ms=WINDOW_MS)
KEPT: Final = "s/kept"
KEPT_BYTES: Final = 200
SUSPENDED_MS_MAX: Final = 15_000
"""Longest suspension. A suspended instance keeps its streams."""

POLL_MS: Final = 100
"""How late a death is noted, at most."""


class PolicyWatch:
    """When the policies of which stream were looked at, and when instances died, in virtual ms.

    is_disturbed: whether instances are also suspended, and meet full disks and busy locks, for which the loop of the
        policies waits.
    """

    def __init__(self, *, is_disturbed: bool) -> None:
        self.bound_ms = 2 * PERIOD_MS + (FAILED_MS + SUSPENDED_MS_MAX if is_disturbed else 0)
        self.looks: dict[str, list[int]] = {}
        self.deaths: list[int] = []

    @contextmanager
    def noting_looks(self) -> Iterator[None]:
        """Note every look that an instance takes in the block."""

        def look(tx: Tx, name: str, passed: PassedOffsets | None) -> PolicyLook | None:
            self.looks.setdefault(name, []).append(tx.monotonic_ms)
            return look_at_stream(tx, name, passed)

        with patch.object(policies, "look_at_stream", look):
            yield

    async def note_deaths(self, world: SimulatedWorld) -> None:
        """Note deaths until cancelled."""
        while True:
            self.deaths += [world.clock.monotonic_ms()] * (world.deaths - len(self.deaths))
            await anyio.sleep(POLL_MS / 1000)

    async def have_run(self) -> None:
        """Return when the policies must have run since the last death and the last write."""
        await anyio.sleep(POLL_MS / 1000)  # the last death is noted
        await anyio.sleep(self.bound_ms / 1000)

    def check(self, *names: str) -> None:
        """Assert that the policies of these streams ran within two periods of each death."""
        for name in names:
            looks = self.looks[name]
            for death in self.deaths:
                soon = [each for each in looks if death - POLL_MS <= each <= death + self.bound_ms]
                assert soon, f"{name}: no look within {self.bound_ms} ms of the death at {death}: {looks}"


async def create_kept(ep: Eventproc) -> None:
    """Create the stream that keeps its newest events only."""
    await ep.create_stream(KEPT, retention=RetentionPolicy(size_bytes=KEPT_BYTES), scaling=SCALED)


async def write_kept(ep: Eventproc, number: int) -> None:
    """Write the event of this number. Repeating it changes nothing."""
    async with (await ep.stream(KEPT)).writer(name="keeper") as writer:
        await writer.write_many([(b"%d" % number, "key")], sequence=number + 1)


async def check_kept(ep: Eventproc, written: int) -> None:
    """Assert that the kept stream has exactly the newest of these events, as many as its policy keeps, in order."""
    numbers = [int(payload) for payload in await payloads_of(await ep.stream(KEPT))]
    assert numbers == list(range(written - len(numbers), written))
    look = await ep.db.read(partial(look_at_stream, name=KEPT))
    assert look is not None
    assert not [each for each in look.requests if isinstance(each, TruncateStream)], "the policy is kept"
    size_bytes = sum(FRAME_BYTES + len(str(each)) for each in range(written))
    assert sum(FRAME_BYTES + len(str(each)) for each in numbers) >= min(KEPT_BYTES, size_bytes)
    assert len(numbers) < written, "the policy truncated"


async def scales_of_policies(ep: Eventproc) -> int:
    """Return how many scales the policies asked for and got."""
    found = await ep.requests.list(limit=10_000)
    return sum(
        each.kind == "scale" and each.origin is RequestOrigin.POLICY and each.status is RequestStatus.DONE
        for each in found
    )
