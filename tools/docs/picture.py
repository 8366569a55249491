"""docs/examples/stream.svg: what `eventproc stream plot` draws of a stream that a policy scaled, in virtual time."""

from __future__ import annotations

from math import pi, sin
from typing import Final

import anyio

import eventproc
from eventproc.testing import VirtualClock, run_seeded

PATH: Final = "examples/stream.svg"
"""Below docs/."""

SECONDS: Final = 300
PEAK: Final = 40
"""Events a second at the highest rate; there is one a second at the lowest."""

BEGINS_MS: Final = 1_767_261_600_000
KEYS: Final = 101

BACKGROUND: Final = ' style="background:#ffffff"'
"""Without it, a viewer with a dark background shows black texts on it. The site leaves it out (tools/docs/site.py)."""


def render() -> str:
    """Return the picture, for a file."""
    return run_seeded(_picture, seed=1).replace("<svg", f"<svg{BACKGROUND}", 1)


async def _picture() -> str:
    """Write five minutes of events, more and then fewer of them; a group has read half of them."""
    async with eventproc.open_memory(clock=VirtualClock(start_ms=BEGINS_MS)) as ep:
        await ep.create_scope("shop")
        policy = eventproc.ScalingPolicy.by_event_rate(7, segments_max=8, window_ms=6_000)
        orders = await ep.create_stream("shop/orders", scaling=policy)
        read = await orders.head()
        async with orders.writer() as writer:
            for second in range(SECONDS):
                if second == SECONDS * 11 // 20:
                    read = await orders.tail()
                count = 1 + round(PEAK * max(0.0, sin(pi * second / (SECONDS * 2 / 3))))
                await writer.write_many(
                    [(b"1 apple", f"customer-{each * 37 % KEYS}") for each in range(count)]
                )
                await anyio.sleep(1)
        await ep.create_group("shop/billing", [orders], start=read)
        return (await orders.plot()).svg()
