"""What partitions get of one slice or batch."""

from __future__ import annotations

from hypothesis import given, strategies as st

from eventproc.spark.fair_shares import fair_shares

UNREAD = st.dictionaries(st.integers(), st.integers(1, 1_000), min_size=1, max_size=20)


@given(UNREAD, st.integers(1, 3_000))
def test_every_partition_gets_a_share_and_nothing_is_left_over(unread: dict[int, int], limit: int) -> None:
    shares = fair_shares(unread, limit)
    assert shares.keys() == unread.keys()
    assert all(1 <= share <= unread[key] for key, share in shares.items())
    assert sum(shares.values()) == max(min(limit, sum(unread.values())), len(unread))


@given(UNREAD, st.integers(1, 3_000))
def test_only_partitions_that_are_read_to_their_ends_get_less_than_others(
    unread: dict[int, int], limit: int
) -> None:
    shares = fair_shares(unread, limit)
    most = max(shares.values())
    assert all(share >= most - 1 for key, share in shares.items() if share < unread[key])


@given(st.integers(1, 1_000), st.lists(st.integers(1, 10**6), max_size=10), st.integers(1, 100))
def test_a_small_partition_ends_within_a_bounded_number_of_turns_beside_growing_ones(
    small: int, large: list[int], limit: int
) -> None:
    unread = {"small": small, **{str(number): units for number, units in enumerate(large)}}
    turns = 0
    while unread["small"]:
        shares = fair_shares(unread, limit)
        # What is appended to the others in the meantime is more than what is read of them.
        unread = {
            key: units - shares[key] + (0 if key == "small" else 2 * limit) for key, units in unread.items()
        }
        turns += 1
    equal = max(limit // len(unread), 1)
    assert turns <= -(-small // equal)
