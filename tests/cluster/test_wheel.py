"""The timer wheel against a dictionary of deadlines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eventproc.cluster.timer_wheel import SLOTS, TICK_MS, TimerWheel

TURN_MS = SLOTS * TICK_MS
TIMES = st.integers(0, 3 * TURN_MS)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("arm"), st.integers(0, 5), TIMES),
        st.tuples(st.just("disarm"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("pass"), st.just(0), st.one_of(st.integers(0, 500), TIMES)),
    ),
    max_size=40,
)


@given(STEPS, st.integers(0, 10**9))
def test_timer_is_due_once_at_its_tick(steps: list[tuple[str, int, int]], start_ms: int) -> None:
    now_ms = start_ms
    wheel: TimerWheel[int, int] = TimerWheel(now_ms)
    twin: dict[int, int] = {}
    for what, key, value in steps:
        if what == "arm":
            wheel.arm(key, now_ms + value, value)
            twin[key] = max(-(-(now_ms + value) // TICK_MS), now_ms // TICK_MS + 1) * TICK_MS
        elif what == "disarm":
            wheel.disarm(key)
            twin.pop(key, None)
        else:
            pause_ms = wheel.pause_ms(now_ms, value)
            nearest = min([due - now_ms for due in twin.values()], default=value)
            assert pause_ms == min(nearest, value)
            now_ms += value
            due = {key for key, at in twin.items() if at <= now_ms}
            assert {key for key, _ in wheel.take_due(now_ms)} == due
            for key in due:
                del twin[key]
        assert len(wheel) == len(twin)


def test_only_what_is_kept_is_due() -> None:
    wheel: TimerWheel[str, None] = TimerWheel(0)
    for key in "abc":
        wheel.arm(key, 10, None)
    wheel.keep({"b", "unknown"})
    assert wheel.take_due(TICK_MS) == [("b", None)]
    assert wheel.take_due(TURN_MS) == []
