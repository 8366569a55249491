"""Order and completeness per key: what a reader saw against what was written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def order_violations(seen: Iterable[tuple[str | None, int]], expected: Mapping[str | None, int]) -> list[str]:
    """Return one line for each key whose events were not seen exactly once, in order.

    seen: (key, count) of each event in the order of reading, where the writer counted each key's events
    from 0. expected: how many events of each key there are. Empty: nothing lost, doubled or reordered.
    """
    found: dict[str | None, list[int]] = {}
    for key, count in seen:
        found.setdefault(key, []).append(count)
    problems = []
    for key in {**found, **expected}:
        numbers, wanted = found.get(key, []), list(range(expected.get(key, 0)))
        if numbers == wanted:
            continue
        lost, extra = sorted(set(wanted) - set(numbers)), len(numbers) - len(set(numbers))
        what = "out of order" if sorted(numbers) == wanted else f"lost {lost[:5]}, {extra} doubled"
        problems.append(f"key {key!r}: {what}; read {len(numbers)} of {len(wanted)}")
    return problems
