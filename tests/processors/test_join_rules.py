"""Joins beside a naive twin: which events are partners, which are late, and when one is forgotten."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from eventproc.store.model.joins import (
    JoinRule,
    KeptEvent,
    KeptEvents,
    forget,
    forgotten_at,
    is_late,
    keep,
    next_forgotten,
)
from eventproc.store.model.limits import EVENT_TIME_MAX

LOOKS = st.sampled_from(["no", "joined only", "all"])
"""What is forgotten after an event: the timer of a key may be called much later than it is due."""
EVENTS = st.lists(st.tuples(st.integers(-5, 30), st.booleans(), st.integers(0, 3), LOOKS), max_size=40)


@given(EVENTS, st.integers(0, 5), st.integers(0, 5))
def test_an_event_that_is_not_late_finds_all_its_partners(
    events: list[tuple[int, bool, int, str]], within: int, grace: int
) -> None:
    """The twin forgets nothing: it makes the pairs of all events that were not late, at the end."""
    rule, kept = JoinRule(within, grace), KeptEvents()
    came: list[tuple[int, bool, str]] = []
    pairs: list[tuple[str, str]] = []
    singles: list[str] = []
    watermark: int | None = None
    for number, (time, is_left, step, looks) in enumerate(events):
        name = str(number)
        assert is_late(rule, time, watermark) == (watermark is not None and time + grace < watermark)
        if not is_late(rule, time, watermark):
            partners = [each.payload for each in keep(rule, kept, KeptEvent(time, name), is_left=is_left)]
            pairs += [(name, each) if is_left else (each, name) for each in partners]
            came.append((time, is_left, name))
        watermark = step if watermark is None else watermark + step
        due = next_forgotten(rule, kept)
        if looks != "no":
            found = forget(rule, kept, watermark, joined_only=looks != "all")
            assert looks != "all" or bool(found) == (due is not None and due <= watermark)
            assert looks == "all" or all(each.event.has_partner for each in found)
            assert [each.event.time for each in found] == sorted(each.event.time for each in found)
            singles += [each.event.payload for each in found if not each.event.has_partner]
    singles += [each.event.payload for each in forget(rule, kept, 10**6) if not each.event.has_partner]
    assert kept == KeptEvents()
    assert sorted(pairs) == sorted(
        (left, right)
        for left_time, is_left, left in came
        for right_time, is_other_left, right in came
        if is_left and not is_other_left and abs(left_time - right_time) <= within
    )
    joined = {each for pair in pairs for each in pair}
    assert sorted(singles) == sorted(name for _, _, name in came if name not in joined)


@pytest.mark.parametrize(("within", "grace"), [(0, 0), (10, 0), (10, 5), (0, 5)])
def test_an_event_is_forgotten_when_its_last_partner_would_be_late(within: int, grace: int) -> None:
    rule = JoinRule(within, grace)
    last_partner = 100 + within
    for watermark in range(90, 130):
        is_forgotten = forgotten_at(rule, 100) <= watermark
        assert is_forgotten == is_late(rule, last_partner, watermark) == (watermark > 100 + within + grace)


def test_partners_are_at_most_so_far_apart() -> None:
    rule, kept = JoinRule(10, 0), KeptEvents()
    for time in (89, 90, 110, 111):
        assert keep(rule, kept, KeptEvent(time, str(time)), is_left=True) == []
    partners = keep(rule, kept, KeptEvent(100, ""), is_left=False)
    assert [each.time for each in partners] == [90, 110]
    assert [each.has_partner for each in kept.left] == [False, True, True, False]
    assert [each.has_partner for each in kept.right] == [True]


def test_an_event_is_kept_if_event_time_never_passes_it() -> None:
    rule, kept = JoinRule(EVENT_TIME_MAX, 0), KeptEvents()
    keep(rule, kept, KeptEvent(0, ""), is_left=True)
    assert next_forgotten(rule, kept) is None
    assert forget(rule, kept, EVENT_TIME_MAX) == []
    keep(rule, kept, KeptEvent(-1, ""), is_left=True)
    assert next_forgotten(rule, kept) == EVENT_TIME_MAX
    assert [each.event.time for each in forget(rule, kept, EVENT_TIME_MAX)] == [-1]


def test_nothing_is_late_or_forgotten_before_event_time_is_known() -> None:
    rule, kept = JoinRule(0, 0), KeptEvents()
    keep(rule, kept, KeptEvent(-1_000, ""), is_left=True)
    assert not is_late(rule, -1_000, None)
    assert forget(rule, kept, None) == []
