"""Tools for tests of programs that use eventproc.

| name | use |
| --- | --- |
| `VirtualRuntime`, `RunningApp` | run apps in memory and in virtual time; the pytest fixture `eventproc_runtime` |
| `SimulatedWorld`, `SimulatedInstance` | several instances on one system in memory; the fixture `eventproc_world` |
| `check`, `violations` | check all invariants of a database |
| `order_violations` | check that a reader got each event of a key once and in order |
| `VirtualClock` | a clock that follows the event loop's time, which may be virtual, and can be moved by hand |
| `run_seeded`, `seeded_schedule` | run an async function so that the same seed gives the same schedule |
| `FaultPlan`, `Fault`, `fault_points` | inject deaths, errors of the disk and delays at named points |
| `Deaths`, `run_until_death` | simulate the death of the process before or after any commit |
| `KillAt` | kill the real process at a named point |
| `CrashDirectory`, `CrashProcess` | kill and suspend real processes; the pytest fixture `eventproc_crash` |
| `SignalAt`, `kill_now` | kill or suspend the real process at a named point, or immediately |
| `KafkaEndpoint` | serve Kafka's clients from memory; the fixture `eventproc_kafka` |
| `check_directory` | check a whole directory: requests, pages, invariants |
| `disk_full` | simulate a full disk |
| `verify_storage` | check that a storage of your own keeps the contract of `EventStorage` |
| `ArrayStorage`, `LinkedListStorage` | the storages that a system in memory has |
"""

from __future__ import annotations

from eventproc.groups.inspection import violations
from eventproc.store.segments.event_storage import ArrayStorage, LinkedListStorage
from eventproc.testing.checkers import check, check_directory, order_violations, verify_storage
from eventproc.testing.clock import VirtualClock
from eventproc.testing.crash import CrashDirectory, CrashProcess, kill_now
from eventproc.testing.faults import (
    Deaths,
    Fault,
    FaultPlan,
    KillAt,
    SignalAt,
    disk_full,
    fault_points,
    run_until_death,
)
from eventproc.testing.kafka_endpoint import KafkaEndpoint
from eventproc.testing.seeds import run_seeded, seeded_schedule
from eventproc.testing.virtual_runtime import RunningApp, VirtualRuntime
from eventproc.testing.world import SimulatedInstance, SimulatedWorld

__all__ = [
    "ArrayStorage",
    "CrashDirectory",
    "CrashProcess",
    "Deaths",
    "Fault",
    "FaultPlan",
    "KafkaEndpoint",
    "KillAt",
    "LinkedListStorage",
    "RunningApp",
    "SignalAt",
    "SimulatedInstance",
    "SimulatedWorld",
    "VirtualClock",
    "VirtualRuntime",
    "check",
    "check_directory",
    "disk_full",
    "fault_points",
    "kill_now",
    "order_violations",
    "run_seeded",
    "run_until_death",
    "seeded_schedule",
    "verify_storage",
    "violations",
]
