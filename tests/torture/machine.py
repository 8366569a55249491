"""One machine of `two_machines`: `python -m tests.torture.machine URL NAME` handles events until it is killed.

Each event that it handles is a row of `app_seen`, in the transaction that moves the group's progress.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import anyio

import eventproc
from tests.system.protocol import say

STREAM = "s/t"
GROUP = "s/g"


def seeing_app(machine: str) -> eventproc.App:
    app = eventproc.App()

    @app.setup
    def make_table(tx: eventproc.AppTx) -> None:
        tx.execute(
            "CREATE TABLE IF NOT EXISTS app_seen (place bigserial, number bigint, key text, machine text)"
        )

    def see(tx: eventproc.AppTx, events: Sequence[eventproc.Event]) -> None:
        rows = [(int(event.payload), event.key, machine) for event in events]
        tx.executemany("INSERT INTO app_seen (number, key, machine) VALUES (?, ?, ?)", rows)

    @app.processor(STREAM, group=GROUP, exactly_once=True, on_commit=see)
    async def handle(event: eventproc.Event) -> None:
        pass

    return app


async def main(url: str, machine: str) -> None:
    async with eventproc.open(url) as ep, ep.run(seeing_app(machine)):
        say("up")
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2])
