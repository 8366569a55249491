"""A bounded cache drops what was not used for longest, and keeps nothing that is larger than its bound."""

from __future__ import annotations

from eventproc.base.bounded_cache import BoundedCache


def test_the_oldest_values_are_dropped_when_their_sizes_exceed_the_bound() -> None:
    cache = BoundedCache[int, bytes](25, len)
    for number in range(4):
        cache.keep(number, bytes(10))
    assert [number for number in range(4) if cache.find(number) is not None] == [2, 3]


def test_a_value_that_was_used_is_the_newest_and_one_that_was_only_found_is_not() -> None:
    cache = BoundedCache[str, int](2)
    cache.keep("used", 1)
    cache.keep("found", 2)
    assert (cache.use("used"), cache.use("unknown"), cache.find("found")) == (1, None, 2)
    cache.keep("new", 3)
    assert [cache.find(key) for key in ("used", "found", "new")] == [1, None, 3]


def test_replaced_and_forgotten_values_no_longer_count() -> None:
    cache = BoundedCache[str, bytes](20, len)
    cache.keep("a", bytes(15))
    cache.keep("a", bytes(5))
    cache.keep("b", bytes(15))
    assert cache.find("a") == bytes(5)
    cache.forget("b")
    cache.forget("b")
    cache.keep("c", bytes(15))
    assert [cache.find(key) for key in "abc"] == [bytes(5), None, bytes(15)]


def test_a_value_above_the_bound_is_not_kept_and_drops_only_the_older_one_of_its_key() -> None:
    cache = BoundedCache[str, bytes](20, len)
    cache.keep("a", bytes(5))
    cache.keep("b", bytes(5))
    cache.keep("b", bytes(21))
    assert [cache.find(key) for key in "ab"] == [bytes(5), None]
