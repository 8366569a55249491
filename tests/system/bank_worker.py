"""A process of the bank: transfers between accounts, as transactions over two streams, and an audit of their sum.

    python -m tests.system.bank_worker BASE teller NAME SEED [DEATH POINT COUNT]
    python -m tests.system.bank_worker BASE auditor NAME
    python -m tests.system.bank_worker BASE manager NAME SEED

A *teller* makes random transfers until its input ends: each is one transaction of one of the two ledgers, a withdrawal
under one account's key and a deposit under another's, so in segments that differ. Some are aborted, some several in one
transaction. It notes "begun N ACCOUNTS" in BASE/journal/NAME.bank, and then "done N" or "dropped N". It
prints "written N" from time to time. An *auditor* follows both ledgers. After each commit that wakes it, it adds up
what is visible and prints "seen N". A *manager* splits and merges the segments. DEATH POINT COUNT: see worker.py.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import anyio

import eventproc
from eventproc.store.faults import NO_FAULTS
from eventproc.store.model.errors import Pending, Retryable, TransactionAborted
from eventproc.streams import Stream, StreamReader
from tests.system.protocol import SayHandler, mortality, say
from tests.system.worker import input_ended

LEDGERS = ("bank/east", "bank/west")
ACCOUNTS = 50
LEASE_MS = 5_000
TASKS = 2
"""Transfers that one teller makes simultaneously."""

SAID_EACH = 5


class Dropped(Exception):
    """The teller aborts its transfer."""


class Teller:
    def __init__(self, base: Path, name: str, seed: str, ended: Callable[[], bool]) -> None:
        self._name = name
        self._random = Random(f"{name} {seed}")
        self._ended = ended
        self._numbers = itertools.count()
        self._done = 0
        self._notes = os.open(base / "journal" / f"{name}.bank", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, text: str) -> None:
        os.write(self._notes, text.encode() + b"\n")

    async def work(self, ep: eventproc.Eventproc) -> None:
        ledgers = [await ep.stream(name) for name in LEDGERS]
        async with anyio.create_task_group() as tasks:
            for _ in range(TASKS):
                tasks.start_soon(self._transfer_on, ledgers)

    async def _transfer_on(self, ledgers: list[Stream]) -> None:
        while not self._ended():
            number = next(self._numbers)
            try:
                await self._transfer(self._random.choice(ledgers), number)
            except (Dropped, TransactionAborted, Retryable, Pending) as why:
                self.note(f"dropped {number} {type(why).__name__}")
            else:
                self.note(f"done {number}")
                self._done += 1
                if self._done % SAID_EACH == 0:
                    say(f"written {self._done}")

    async def _transfer(self, ledger: Stream, number: int) -> None:
        choose = self._random
        drops = choose.random() < 0.1
        async with ledger.transaction(lease_ms=choose.choice([None, LEASE_MS])) as txn:
            self.note(f"begun {number} {ledger.name}")
            for leg in range(0, 2 * choose.choice([1, 1, 1, 3]), 2):
                payer, payee = choose.sample(range(ACCOUNTS), 2)
                amount = choose.randint(1, 100)
                for part, account, change in ((leg, payer, -amount), (leg + 1, payee, amount)):
                    await txn.write(
                        f"{self._name} {number} {part} {change}".encode(), key=f"account-{account}"
                    )
                    if choose.random() < 0.2:
                        await txn.flush()
            if drops:
                raise Dropped


class Auditor:
    """Adds up the ledgers. balances: by account; parts: how many of each transfer were seen."""

    def __init__(self) -> None:
        self.balances: Counter[str] = Counter()
        self.parts: Counter[tuple[str, str, int]] = Counter()
        self.audits = 0
        self._one_at_a_time = anyio.Lock()

    async def audit(self, ledger: Stream, reader: StreamReader[bytes]) -> None:
        """Read up to a moment between two commits; the sum of all balances must be 0 there."""
        async with self._one_at_a_time:
            async for event in reader.until(await ledger.tail()):
                teller, number, part, change = event.payload.decode().split()
                assert event.key is not None
                self.balances[event.key] += int(change)
                self.parts[ledger.name, f"{teller} {number}", int(part)] += 1
            total = sum(self.balances.values())
            assert total == 0, f"after a commit to {ledger.name} the sum is {total} instead of 0"
            self.audits += 1

    async def follow(self, ledger: Stream) -> None:
        """Audit after each commit that wakes a reader, until the ledger is sealed."""
        async with ledger.reader() as woken, ledger.reader() as reader:
            async for _ in woken.batches():
                await self.audit(ledger, reader)
                if self.audits % SAID_EACH == 0:
                    say(f"seen {self.audits}")
            await self.audit(ledger, reader)


async def audit(ep: eventproc.Eventproc) -> None:
    auditor = Auditor()
    async with anyio.create_task_group() as tasks:
        for name in LEDGERS:
            tasks.start_soon(auditor.follow, await ep.stream(name))


async def manage(ep: eventproc.Eventproc, seed: str, ended: Callable[[], bool]) -> None:
    """Split and merge, two to five segments a ledger."""
    choose = Random(seed)
    ledgers = [await ep.stream(name) for name in LEDGERS]
    while not ended():
        ledger = choose.choice(ledgers)
        active = [segment.id for segment in await ledger.segments()]
        place = choose.randrange(len(active))
        if len(active) < 3 or (len(active) < 5 and choose.random() < 0.5):
            await ledger.split(active[place])
        else:
            await ledger.merge(*active[max(place - 1, 0) : max(place - 1, 0) + 2])
        say(f"scaled {(await ledger.describe()).epoch}")


async def run(base: Path, role: str, name: str, *rest: str) -> None:
    ended = input_ended()
    mortal = mortality(*rest[1:]) if role == "teller" else None
    async with eventproc.open(base / "store", create=False, faults=mortal or NO_FAULTS) as ep:
        say("open")
        if mortal is not None:
            mortal.arm()
        match role:
            case "teller":
                await Teller(base, name, rest[0], ended).work(ep)
            case "auditor":
                await audit(ep)
            case _:
                await manage(ep, rest[0], ended)
    say("closed")


if __name__ == "__main__":
    logging.basicConfig(handlers=[SayHandler()], level=logging.WARNING)
    asyncio.run(run(Path(sys.argv[1]), *sys.argv[2:]))
