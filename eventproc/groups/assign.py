"""Decides which reader shall own which segment, with fair shares and least movement (architecture.md section 7).

It decides on *targets*: the reader that shall own a segment. Owners follow: an owner drains a segment that has another
target and releases it, and the target acquires it. Targets are decided once, when members or segments change, and not
again while segments are on their way, so no segment moves twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from eventproc.store.groups import SegmentKey


def assign(
    targets: Mapping[SegmentKey, str | None],
    readers: Collection[str],
    owners: Mapping[SegmentKey, str | None],
) -> dict[SegmentKey, str | None]:
    """Return the target of each segment of `targets`; None for all when there is no reader.

    targets: the present ones; a target that is not in `readers` counts as None.
    owners: the present owners.
    Shares differ by at most one. No other assignment with such shares changes the target of fewer segments. Equal
    arguments give equal results. A segment that needs a new target goes to its owner if shares stay fair, else to the
    other readers in turn, so that the segments of a stream spread. O(segments log segments).
    """
    if not readers:
        return dict.fromkeys(targets)
    kept: dict[str, list[SegmentKey]] = {reader: [] for reader in sorted(readers)}
    free: list[SegmentKey] = []
    for key in sorted(targets):
        reader = targets[key]
        (free if reader is None else kept.get(reader, free)).append(key)
    quotas = _quotas({reader: len(keys) for reader, keys in kept.items()}, len(targets))
    for reader, keys in kept.items():
        # Segments that the reader has not acquired yet go first: giving them away moves nothing.
        own = [key for key in keys if owners.get(key) == reader]
        keys[:] = own + [key for key in keys if owners.get(key) != reader]
        free += keys[quotas[reader] :]
        del keys[quotas[reader] :]
    homeless: list[SegmentKey] = []
    for key in sorted(free):
        owner = owners.get(key)
        if owner is not None and owner in kept and len(kept[owner]) < quotas[owner]:
            kept[owner].append(key)
        else:
            homeless.append(key)
    _deal(homeless, kept, quotas)
    return {key: reader for reader, keys in kept.items() for key in keys}


def _quotas(counts: Mapping[str, int], total: int) -> dict[str, int]:
    """Return how many segments each reader shall have. Readers with most segments get one more, so that least moves."""
    share, extra = divmod(total, len(counts))
    ranked = sorted(counts, key=lambda reader: (-counts[reader], reader))
    return {reader: share + (rank < extra) for rank, reader in enumerate(ranked)}


def _deal(free: list[SegmentKey], kept: Mapping[str, list[SegmentKey]], quotas: Mapping[str, int]) -> None:
    """Give one segment to each reader below its quota, in turn, until none is left."""
    dealt = iter(free)
    left = len(free)
    while left:
        before = left
        for reader, keys in kept.items():
            if left and len(keys) < quotas[reader]:
                keys.append(next(dealt))
                left -= 1
        assert left < before, f"{left} segments have no reader, and no reader has room"
