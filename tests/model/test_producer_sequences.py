"""Where a batch of an idempotent producer belongs, beside a naive twin that remembers every record."""

from __future__ import annotations

from hypothesis import given, strategies as st

from eventproc.store.model.producer_sequences import EPOCH_MAX, SEQUENCES, Misfit, next_position


class NaiveProducer:
    """Remembers the numbers of all records that are stored, by epoch."""

    def __init__(self) -> None:
        self.epoch = 0
        self.stored: list[int] = []

    def append(self, epoch: int, first: int, count: int) -> Misfit | None:
        if epoch < self.epoch:
            return Misfit.OLD_EPOCH
        stored = self.stored if epoch == self.epoch else []
        numbers = [(first + each) % SEQUENCES for each in range(count)]
        if first == len(stored) % SEQUENCES:
            self.epoch, self.stored = epoch, stored + numbers
            return None
        if any(stored[at : at + count] == numbers for at in range(len(stored))):
            return Misfit.REPEATED
        return Misfit.GAP if self.stored else Misfit.UNKNOWN


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 0, 0, 1, 2, EPOCH_MAX]),
            st.one_of(st.integers(0, 12), st.sampled_from([SEQUENCES - 2, SEQUENCES - 1])),
            st.integers(1, 4),
        ),
        max_size=20,
    )
)
def test_a_batch_is_stored_once_and_only_behind_the_one_before_it(
    batches: list[tuple[int, int, int]],
) -> None:
    naive, position = NaiveProducer(), 0
    for epoch, first, count in batches:
        found = next_position(position, epoch, first, count)
        assert (found if isinstance(found, Misfit) else None) is naive.append(epoch, first, count)
        if not isinstance(found, Misfit):
            assert position < found < 2**63
            position = found


def test_the_numbers_of_records_begin_again_after_the_largest() -> None:
    last = next_position(SEQUENCES - 3, 0, SEQUENCES - 3, 3)
    assert last == SEQUENCES
    assert next_position(SEQUENCES, 0, 0, 5) == SEQUENCES + 5
    assert next_position(SEQUENCES + 5, 0, SEQUENCES - 3, 3) is Misfit.REPEATED
    assert next_position(SEQUENCES + 5, 0, 6, 1) is Misfit.GAP


def test_a_batch_across_the_largest_number_is_one_batch() -> None:
    after = SEQUENCES + 2
    assert next_position(SEQUENCES - 1, 0, SEQUENCES - 1, 3) == after
    assert next_position(after, 0, SEQUENCES - 1, 3) is Misfit.REPEATED
    assert next_position(after, 0, 2, 1) == SEQUENCES + 3
