"""Windows beside naive twins: which ones an event has, which are closed, how sessions grow together."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from eventproc.errors import InvalidArgument
from eventproc.store.model.windows import (
    Span,
    WindowKind,
    closed,
    closes_at,
    is_closed,
    next_close,
    place,
    spans_of,
)
from eventproc.windows import Hopping, Sessions, Tumbling

TIMES = st.integers(-500, 500)


@given(TIMES, st.integers(1, 60), st.integers(1, 60), st.integers(-100, 100))
def test_an_event_has_the_windows_that_a_search_finds(time: int, size: int, every: int, offset: int) -> None:
    every = min(every, size)
    near = range(time - 2 * size, time + 2 * size)
    found = [
        Span(begins, begins + size)
        for begins in near
        if (begins - offset) % every == 0 and begins <= time < begins + size
    ]
    assert spans_of(Hopping(size, every, offset_ms=offset), time) == found
    if every == size:
        assert spans_of(Tumbling(size, offset_ms=offset), time) == found


@given(
    st.lists(st.tuples(TIMES, st.integers(0, 30)), max_size=40),
    st.integers(1, 60),
    st.integers(0, 30),
)
def test_sessions_are_the_groups_of_near_events(events: list[tuple[int, int]], gap: int, grace: int) -> None:
    """The twin keeps the times of all events that were not late, and sorts them into groups each time."""
    kind = Sessions(gap, lambda one, other: one + other, grace_ms=grace)
    open_ones: dict[Span, list[int]] = {}
    results: list[tuple[Span, list[int]]] = []
    twin: list[int] = []
    twin_results: list[tuple[Span, list[int]]] = []
    watermark: int | None = None
    for time, step in events:
        late = _group_of(time, [*twin, time], gap).ends + grace <= (
            -(10**9) if watermark is None else watermark
        )
        placed = place(kind, list(open_ones), time, watermark)
        assert bool(placed) != late
        for span, joined in placed:
            values = [value for each in joined for value in open_ones.pop(each)]
            open_ones[span] = [*values, time]
        if not late:
            twin.append(time)
        watermark = step if watermark is None else watermark + step
        results += [(span, sorted(open_ones.pop(span))) for span in closed(kind, open_ones, watermark)]
        while found := [g for g in _groups(twin, gap) if g[0].ends + grace <= watermark]:
            first = min(found, key=lambda each: (each[0].ends, each[0].begins))
            twin_results.append(first)
            twin = [each for each in twin if each not in first[1]]
        assert {span: sorted(times) for span, times in open_ones.items()} == dict(_groups(twin, gap))
        assert next_close(kind, open_ones) == min(
            (span.ends + grace for span, _ in _groups(twin, gap)), default=None
        )
    assert results == twin_results


def _groups(times: list[int], gap: int) -> list[tuple[Span, list[int]]]:
    groups: list[list[int]] = []
    for time in sorted(times):
        if groups and time - groups[-1][-1] < gap:
            groups[-1].append(time)
        else:
            groups.append([time])
    return [(Span(each[0], each[-1] + gap), each) for each in groups]


def _group_of(time: int, times: list[int], gap: int) -> Span:
    return next(span for span, group in _groups(times, gap) if time in group)


@pytest.mark.parametrize("kind", [Tumbling(10, grace_ms=5), Hopping(10, 5, grace_ms=5)])
def test_a_window_takes_events_until_the_watermark_reaches_its_end_and_grace(kind: WindowKind) -> None:
    span = Span(0, 10)
    assert not is_closed(kind, span, None)
    assert not is_closed(kind, span, 14)
    assert is_closed(kind, span, 15)
    assert [each.span for each in place(kind, [], 9, 14) if each.span == span] == [span]
    assert span not in [each.span for each in place(kind, [], 9, 15)]


def test_an_event_does_not_join_a_session_whose_result_is_due() -> None:
    kind, due, still_open = Sessions(10, max, grace_ms=5), Span(0, 10), Span(14, 24)
    assert place(kind, [due, still_open], 9, 14) == [(Span(0, 24), [due, still_open])]
    assert place(kind, [due, still_open], 9, 15) == [(Span(9, 24), [still_open])]
    assert place(kind, [due], 4, 20) == []


def test_windows_at_the_end_of_time_close_at_the_last_one() -> None:
    (span,) = spans_of(Tumbling(60_000), 2**63 - 1)
    assert closes_at(Tumbling(60_000), span) == 2**63 - 1


def test_a_span_is_read_from_its_text() -> None:
    assert Span.parse(str(Span(-60_000, 0))) == Span(-60_000, 0)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: Tumbling(0), "size_ms"),
        (lambda: Tumbling("60"), "size_ms"),  # type: ignore[arg-type]
        (lambda: Tumbling(1, grace_ms=-1), "grace_ms"),
        (lambda: Hopping(10, 20), "every_ms"),
        (lambda: Hopping(1_001, 1), "every_ms"),
        (lambda: Sessions(0, max), "gap_ms"),
        (lambda: Sessions(1, None), "merge"),  # type: ignore[arg-type]
    ],
)
def test_windows_that_cannot_be_are_refused(make: object, what: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        make()  # type: ignore[operator]
    assert refused.value.what == what
