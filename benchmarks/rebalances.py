"""Reader groups: how long a rebalance of many members over many partitions holds the lock of all writers."""

from __future__ import annotations

import sqlite3
from contextlib import AsyncExitStack, closing
from functools import partial
from time import perf_counter
from typing import Final

import anyio.to_thread

import eventproc
from benchmarks.samples import Sample, Stopwatch, Task
from benchmarks.transactions import watched_holds
from eventproc.groups import ensure_group, join
from eventproc.groups.operations import reader_offline
from eventproc.store.database import Tx

PARTITIONS_COUNT: Final = 1_000
"""Partitions of the topic: almost as many as there can be."""

ROUNDS: Final = 2
"""Times that each member follows the group: it releases in one, and acquires in the next."""


async def longest_rebalance_hold(task: Task) -> Sample:
    """Let `count` members join a group one by one, and one leave; the longest hold of the lock, ms."""
    async with eventproc.open(task.directory, durability=task.durability) as ep:
        await ep.create_scope("benchmark")
        await ep.create_topic("benchmark/topic", partitions=PARTITIONS_COUNT)
        await ep.db.write(partial(ensure_group, name="benchmark/group", streams=["benchmark/topic"]))
        watch = Stopwatch()
        async with AsyncExitStack() as stack:
            members = []
            with watched_holds() as holds_s:
                for number in range(task.count + 1):
                    if number < task.count:
                        joined = join(ep.db, "benchmark/group", f"member-{number:03}")
                        members.append(await stack.enter_async_context(joined))
                    else:
                        members.pop(0)
                        await ep.db.write(partial(_offline, reader="member-000"))
                    for _ in range(ROUNDS):
                        for member in members:
                            await member.refresh()
                            await member.release(member.surplus)
            sample = watch.rate(task.count)
            owned = [len(member.owned) for member in members]
            assert sum(owned) >= PARTITIONS_COUNT, f"{sum(owned)} partitions have an owner"
    return Sample(value=max(holds_s) * 1000, cpu_us=sample.cpu_us, rss_mb=sample.rss_mb)


def _offline(tx: Tx, reader: str) -> None:
    reader_offline(tx, "benchmark/group", reader)


async def longest_rebalance_floor(task: Task) -> Sample:
    """Update as many rows in one transaction of SQLite alone, `count` times; the longest, ms."""
    watch = Stopwatch()
    longest_s = await anyio.to_thread.run_sync(_update_rows, task)
    sample = watch.rate(task.count)
    return Sample(value=longest_s * 1000, cpu_us=sample.cpu_us, rss_mb=sample.rss_mb)


def _update_rows(task: Task) -> float:
    longest_s = 0.0
    with closing(sqlite3.connect(task.directory / "floor.db")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if task.durability == 'fsync' else 'NORMAL'}")
        connection.execute("CREATE TABLE owner (number INTEGER PRIMARY KEY, name TEXT)")
        connection.executemany(
            "INSERT INTO owner VALUES (?, '')", ((number,) for number in range(PARTITIONS_COUNT))
        )
        connection.commit()
        for round_number in range(task.count):
            began = perf_counter()
            connection.executemany(
                "UPDATE owner SET name = ? WHERE number = ?",
                ((f"member-{round_number:03}", number) for number in range(PARTITIONS_COUNT)),
            )
            connection.commit()
            longest_s = max(longest_s, perf_counter() - began)
    return longest_s
