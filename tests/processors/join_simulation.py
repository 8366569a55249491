"""A join in several apps, and all that may happen to it, from a seed.

What must hold, whatever happened: the pairs are those of all events that were not late and not given up, each once; an
event without a partner is reported once, when event time has passed it; and in the end exactly the events are kept that
event time has not passed.
"""

from __future__ import annotations

import json
from collections import Counter

import anyio

from eventproc import App, Context, Eventproc
from eventproc.store.model.joins import JoinRule, KeptEvents, forgotten_at
from eventproc.windows import Pair, Single
from tests.processors.simulation import STREAM, ProcessorPlan
from tests.processors.support import events
from tests.processors.window_simulation import LATE, WindowSimulation


class JoinSimulation(WindowSimulation):
    """The simulation of windows, whose events with even numbers are joined with those with odd ones."""

    def __init__(self, seed: int, plan: ProcessorPlan) -> None:
        super().__init__(seed, plan)
        self.rule = JoinRule(self.random.choice([0, 1_000, 10_000]), self.random.choice([0, 3_000]))

    def app(self) -> App:
        """Return the join, as an app of one process."""
        app = App()

        async def join(pair: Pair, context: Context) -> None:
            if self.random.random() < 0.3:
                await anyio.sleep(self.plan.pace * self.random.choice([0, 0.1]))
            if not self.plan.calm and self.random.random() < 0.05:
                raise ValueError("now and then")
            context.emit(self.plan.out, json.dumps([int(pair.left), int(pair.right)]).encode(), key=pair.key)

        async def give_up(single: Single, context: Context) -> None:
            await anyio.sleep(self.plan.pace * self.random.choice([0, 0.02]))
            if not self.plan.calm and context.attempt == 1 and self.random.random() < 0.1:
                raise ValueError("now and then")  # a timer that fails for ever stops the processor
            assert single.is_left == (int(single.payload) % 2 == 0)
            context.emit(self.plan.out, json.dumps([int(single.payload)]).encode(), key=single.key)

        app.join(
            STREAM,
            is_left=lambda event: int(event.payload) % 2 == 0,
            within_ms=self.rule.within_ms,
            grace_ms=self.rule.grace_ms,
            on_single=give_up,
            **self.options(),
        )(join)
        return app

    async def check_end(self, ep: Eventproc) -> None:
        """Assert that each pair was made once, and what became of the events without a partner."""
        await self.run_until_silent(ep)
        letters = await ep.dead_letters(self.plan.group).list(limit=1000)
        lost = Counter((each.key, int(each.payload)) for each in letters)
        late = Counter((event.key, int(event.payload)) for event in await events(ep, LATE))
        found = Counter((event.key, *json.loads(event.payload)) for event in await events(ep, self.plan.out))
        assert max([*lost.values(), *late.values(), *found.values()], default=1) == 1, "each once"
        assert not lost.keys() & late.keys()
        joined = {each: time for each, time in self.time_of.items() if each not in lost and each not in late}
        pairs = {
            (key, left, right)
            for (key, left), left_time in joined.items()
            for (other, right), right_time in joined.items()
            if other == key
            and left % 2 == 0
            and right % 2 == 1
            and abs(left_time - right_time) <= self.rule.within_ms
        }
        assert {each for each in found if len(each) == 3} == pairs
        with_partner = {(key, number) for key, *numbers in pairs for number in numbers}
        watermark = (await ep.state(self.plan.group).describe()).watermark_ms
        assert watermark is not None
        over = {each for each, time in joined.items() if forgotten_at(self.rule, time) <= watermark}
        assert {each for each in found if len(each) == 2} == over - with_partner
        assert await self._kept(ep) == joined.keys() - over

    async def _kept(self, ep: Eventproc) -> set[tuple[str, int]]:
        states = await ep.state(self.plan.group, KeptEvents).list(limit=1000)
        return {
            (state.key, int(event.payload))
            for state in states
            for event in (*state.value.left, *state.value.right)
        }
