"""Scenarios of the unmodified client: `python -m tests.server.client SCENARIO PORT ARGUMENTS...` prints JSON lines.

The client holds the interpreter's lock while it waits, and crashes when the interpreter ends, so that each scenario
runs in a process of its own and leaves without cleaning up.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from eventproc.testing.crash import PATIENCE_S

pravega_client: Any = import_module("pravega_client")  # it has no types

SAID = "> "


def say(value: object) -> None:
    sys.stdout.write(f"{SAID}{json.dumps(value)}\n")  # the client logs there too
    sys.stdout.flush()


def hear() -> str:
    return sys.stdin.readline().strip()


def refused(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception as why:
        return type(why).__name__
    return "nothing"


def manage(manager: Any) -> None:
    """Scopes and streams: what exists, what is refused, what is listed."""
    say([manager.create_scope("admin"), manager.create_scope("admin")])
    say([manager.create_stream("admin", "one", 2), manager.create_stream("admin", "one", 2)])
    policy = pravega_client.StreamScalingPolicy.fixed_scaling_policy(1)
    by_time = pravega_client.StreamRetentionPolicy.by_time(3_600_000)
    say(manager.create_stream_with_policy("admin", "two", policy, by_time, None))
    say([sorted(manager.list_scope()), sorted(manager.list_stream("admin")), manager.list_stream("missing")])
    say(manager.update_stream_with_policy("admin", "one", policy, by_time, None))
    say(refused(lambda: manager.create_stream("missing", "one", 1)))
    say(refused(lambda: manager.delete_stream("admin", "one")))
    say(refused(lambda: manager.delete_scope("admin")))
    for name in ("one", "two"):
        say([manager.seal_stream("admin", name), manager.delete_stream("admin", name)])
    say([manager.delete_stream("admin", "one"), manager.delete_scope("admin"), manager.delete_scope("admin")])


def write(manager: Any, stream: str, count: str, keys: str = "7", inflight: str = "500") -> None:
    """Write numbered events with keys, and say so at half time."""
    writer = manager.create_writer("s", stream, int(inflight))
    for number in range(int(count)):
        key = f"k{number % int(keys)}"
        writer.write_event(f"{key}:{number}", routing_key=key)
        if number == int(count) // 2:
            writer.flush()
            say("half")
            hear()
    writer.flush()
    say("written")


def large(manager: Any, stream: str) -> None:
    """Write events beyond one block, among small ones."""
    writer = manager.create_writer("s", stream)
    for size in (1, 8 * 2**20 - 8, 9 * 2**20, 16 * 2**20 - 9, 1):
        writer.write_event_bytes(b"x" * size)
    writer.flush()
    say("written")


def transactions(manager: Any, stream: str) -> None:
    """Commit one transaction, abort one, and leave one open across a scale."""
    writer = manager.create_transaction_writer("s", stream, 1)
    committed, aborted, open_one = (writer.begin_txn() for _ in range(3))
    for number in range(40):
        for name, txn in (("committed", committed), ("aborted", aborted), ("open", open_one)):
            txn.write_event(f"{name}:k{number % 5}:{number}", routing_key=f"k{number % 5}")
    committed.commit()
    aborted.abort()
    say([open_one.is_open(), open_one.get_txn_id()])
    hear()
    for number in range(40, 60):
        open_one.write_event(f"open:k{number % 5}:{number}", routing_key=f"k{number % 5}")
    open_one.commit()
    say("committed")


def read(manager: Any, stream: str, group: str, count: str, readers: str = "1") -> None:
    """Read a number of events with several readers of a new group; print them in the order of reading."""
    found: list[str] = []
    made = manager.create_reader_group(group, "s", stream)

    async def run(name: str) -> None:
        reader = made.create_reader(name)
        while len(found) < int(count):
            piece = await reader.get_segment_slice_async()
            found.extend(_shown(event.data()) for event in piece)
            reader.release_segment(piece)
        reader.reader_offline()

    async def run_all() -> None:
        await asyncio.gather(*(run(f"reader{number}") for number in range(int(readers))))

    asyncio.run(run_all())
    say(found)
    manager.delete_reader_group(group, "s")


def raw_bytes(manager: Any, stream: str) -> None:
    """Write bytes, read them from several offsets, and truncate."""
    written = manager.create_byte_stream("s", stream)
    for number in range(200):
        written.write(f"{number:04}".encode())
    written.flush()
    say([written.current_head_offset(), written.current_tail_offset()])
    found = manager.create_byte_stream("s", stream)
    for offset in (0, 3, 790):
        found.seek(offset, 0)
        part = bytearray(10)
        count = found.readinto(part)
        say([found.tell(), part[:count].decode()])
    written.truncate(402)
    say(written.current_head_offset())
    found.seek(402, 0)
    part = bytearray(6)
    say([found.readinto(part), part.decode()])
    late = manager.create_byte_stream("s", stream)
    late.seek(0, 0)
    say(refused(lambda: late.readinto(part)))


def forbidden(manager: Any, stream: str) -> None:
    """Try what its user may not do."""
    say(refused(lambda: manager.create_scope("mine")))
    say(refused(lambda: manager.create_stream("s", "mine", 1)))
    say(refused(lambda: manager.seal_stream("s", stream)))


def _shown(data: bytes) -> str:
    return data.decode() if len(data) < 100 else f"{len(data)} bytes"


SCENARIOS = {each.__name__: each for each in (manage, write, large, transactions, read, raw_bytes, forbidden)}

if __name__ == "__main__":
    scenario, port, *rest = sys.argv[1:]
    faulthandler.dump_traceback_later(
        PATIENCE_S, exit=True
    )  # nothing else ends a call that waits without end
    has_tls, has_users = (f"pravega_client_{name}" in os.environ for name in ("tls_cert_path", "auth_method"))
    uri = f"tls://localhost:{port}" if has_tls else f"tcp://127.0.0.1:{port}"
    SCENARIOS[scenario](pravega_client.StreamManager(uri, has_users, has_tls), *rest)
    sys.stdout.flush()
    os._exit(0)
