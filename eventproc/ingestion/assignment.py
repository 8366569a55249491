"""Which task group reads which partition: a pure function with the fewest moves."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from eventproc.store.model.ingestion import PartitionKey


def assign_partitions(
    partitions: Collection[PartitionKey], groups: int, previous: Mapping[PartitionKey, int]
) -> dict[PartitionKey, int]:
    """Return the group of each partition, numbered from 0.

    Groups differ by at most one partition. A partition stays in its previous group, unless that group does not exist
    any more or has more than its part; then the last of its partitions move. Without a previous assignment the
    partitions are dealt in turn.

    groups: how many there may be; there are at most as many as partitions.
    """
    count = min(groups, len(partitions))
    members: dict[int, list[PartitionKey]] = {gid: [] for gid in range(count)}
    for key in sorted(partitions):
        gid = previous.get(key)
        if gid is not None and gid < count:
            members[gid].append(key)
    placed: dict[PartitionKey, int] = {}
    least, extra = divmod(len(partitions), count) if count else (0, 0)
    for gid in sorted(members, key=lambda each: (-len(members[each]), each)):  # the largest keep one more
        most = least
        if extra and len(members[gid]) > least:
            most, extra = least + 1, extra - 1
        del members[gid][most:]
        placed |= dict.fromkeys(members[gid], gid)
    for key in sorted(partitions):
        if key not in placed:
            gid = min(members, key=lambda each: (len(members[each]), each))
            members[gid].append(key)
            placed[key] = gid
    return placed
