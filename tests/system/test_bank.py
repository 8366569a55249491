"""The bank: transfers as transactions by processes that are killed; the total never changes, and nothing is missing."""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from random import Random

import pytest

import eventproc
from eventproc.store import faults
from eventproc.testing import check
from tests.support.child_process import ChildProcess
from tests.system.bank_worker import LEDGERS, SAID_EACH, Auditor
from tests.system.support import WorkerProcesses, hear, wait_dead

TELLERS = 4
KILLS = 8

DEATHS = (
    (faults.WRITE_BEGUN, 9),
    (faults.WRITE_COMMIT, 12),
    (faults.WRITE_COMMITTED, 15),
    (faults.WRITE_COMMIT, 7),
)
"""Points of a commit at which a teller dies, and how many of them it survives; others are killed from outside."""


class Bank:
    """A directory with both ledgers, and the processes that work on it; they end with the block."""

    def __init__(self, processes: WorkerProcesses, seed: int) -> None:
        self.processes = processes
        self._seed = seed
        self._ending = ExitStack()

    def __enter__(self) -> Bank:
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def start(self, role: str, name: str, *death: object) -> ChildProcess:
        """Start a process; it says "open" when it has the directory open."""
        arguments = [str(self.processes.base), role, name, str(self._seed), *map(str, death)]
        return self._ending.enter_context(ChildProcess(["-m", "tests.system.bank_worker", *arguments]))

    def start_teller(self, number: int) -> ChildProcess:
        """Start the teller of that number; every other one carries its death with it, one of each kind in turn."""
        death = ("kill", *DEATHS[number // 2 % len(DEATHS)]) if number % 2 else ()
        return self.start("teller", f"t{number}", *death)


def open_bank(processes: WorkerProcesses) -> None:
    async def found(ep: eventproc.Eventproc) -> None:
        await ep.create_scope("bank")
        for name in LEDGERS:
            await ep.create_stream(name, scaling=eventproc.ScalingPolicy.fixed(2))

    processes.found(durability="os")
    processes.call(found)


def close_bank(processes: WorkerProcesses) -> Auditor:
    """Seal the ledgers, which ends what was left open; return what was in them after their last commits."""

    async def close(ep: eventproc.Eventproc) -> Auditor:
        auditor = Auditor()
        for name in LEDGERS:
            ledger = await ep.stream(name)
            await ledger.seal()
            async with ledger.reader() as reader:
                await auditor.audit(ledger, reader)
            assert not [each for each in await ledger.transactions() if each.state != "aborting"]
        await check(ep.db)
        return auditor

    return processes.call(close)


def noted(processes: WorkerProcesses) -> dict[str, dict[str, str]]:
    """Return {outcome: {"teller number": ledger}} of the transfers; "begun" if the outcome is unknown."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for path in processes.journal.glob("*.bank"):
        ledgers: dict[str, str] = {}
        for line in path.read_text().splitlines():
            what, number, *rest = line.split()
            transfer = f"{path.stem} {number}"
            if what == "begun":
                ledgers[transfer] = rest[0]
            else:
                found[what][transfer] = ledgers.pop(transfer, "")
        found["begun"].update(ledgers)
    return found


def check_books(books: Auditor, transfers: dict[str, dict[str, str]]) -> None:
    """Assert that what was acknowledged is there once, what was dropped is not, and all else whole or not at all."""
    parts: dict[tuple[str, str], set[int]] = defaultdict(set)
    for (ledger, transfer, part), count in books.parts.items():
        assert count == 1, f"part {part} of {transfer} is there {count} times"
        parts[ledger, transfer].add(part)
    for place, found in parts.items():
        assert found in ({0, 1}, {0, 1, 2, 3, 4, 5}), f"only {found} of {place} are there"
    missing = [each for each, ledger in transfers["done"].items() if (ledger, each) not in parts]
    assert not missing
    assert not [each for each, ledger in transfers["dropped"].items() if (ledger, each) in parts]


def kill_tellers(bank: Bank, tellers: list[ChildProcess], choose: Random, kills: int) -> None:
    """Kill one teller after another, and let a new one take its place."""
    for number in range(kills):
        if number % 2:
            wait_dead(tellers[number % TELLERS])
        else:
            hear(tellers[number % TELLERS], f"written {SAID_EACH * choose.randint(1, 3)}")
            tellers[number % TELLERS].kill()
        tellers[number % TELLERS] = bank.start_teller(TELLERS + number)
        hear(tellers[number % TELLERS], "open")


@pytest.mark.hunt(seeds=1)
def test_the_total_never_changes_and_nothing_is_missing_whoever_is_killed(
    processes: WorkerProcesses, seed: int
) -> None:
    open_bank(processes)
    with Bank(processes, seed) as bank:
        auditor = bank.start("auditor", "auditor")
        manager = bank.start("manager", "manager")
        tellers = [bank.start_teller(number) for number in range(TELLERS)]
        for process in (auditor, manager, *tellers):
            hear(process, "open")
        kill_tellers(bank, tellers, Random(seed), KILLS)
        assert manager.finish() == 0
        for teller in tellers:
            teller.kill()
        books = close_bank(processes)
        assert auditor.finish() == 0, "the total was another in between"
    transfers = noted(processes)
    assert len(transfers["done"]) > KILLS
    check_books(books, transfers)
