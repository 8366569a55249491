"""The blocking twin is current, and has the names and signatures of the async classes."""

from __future__ import annotations

import inspect

import pytest

import eventproc
from eventproc.blocking import (
    BlockingCluster,
    BlockingConsumer,
    BlockingDeadLetters,
    BlockingDelayedEvents,
    BlockingEventproc,
    BlockingGroup,
    BlockingGroupReader,
    BlockingJointTransaction,
    BlockingReader,
    BlockingRequests,
    BlockingRunning,
    BlockingSchedules,
    BlockingShareConsumer,
    BlockingShareGroup,
    BlockingStateSynchronizer,
    BlockingStream,
    BlockingSupervisor,
    BlockingTasks,
    BlockingTopic,
    BlockingTransaction,
    BlockingUsers,
    BlockingWriter,
)
from eventproc.cluster import Cluster
from eventproc.processors import Running
from eventproc.runtime.requests import Requests
from eventproc.runtime.tasks import Tasks
from eventproc.runtime.users import Users
from eventproc.streams.delayed_events import DelayedEvents
from eventproc.streams.schedules import Schedules
from tools.blocking import PATH, render

TWINS = [
    (BlockingEventproc, eventproc.Eventproc),
    (BlockingRequests, Requests),
    (BlockingCluster, Cluster),
    (BlockingTasks, Tasks),
    (BlockingDelayedEvents, DelayedEvents),
    (BlockingSchedules, Schedules),
    (BlockingUsers, Users),
    (BlockingStream, eventproc.Stream),
    (BlockingWriter, eventproc.EventWriter),
    (BlockingReader, eventproc.StreamReader),
    (BlockingTransaction, eventproc.Transaction),
    (BlockingJointTransaction, eventproc.JointTransaction),
    (BlockingGroupReader, eventproc.GroupReader),
    (BlockingGroup, eventproc.Group),
    (BlockingConsumer, eventproc.Consumer),
    (BlockingTopic, eventproc.Topic),
    (BlockingShareGroup, eventproc.ShareGroup),
    (BlockingShareConsumer, eventproc.ShareConsumer),
    (BlockingSupervisor, eventproc.Supervisor),
    (BlockingDeadLetters, eventproc.DeadLetters),
    (BlockingRunning, Running),
    (BlockingStateSynchronizer, eventproc.StateSynchronizer),
]
AWAITED_ONLY = {"db", "events_written", "hold_progress"}
"""What only extensions and the twin itself use; `events_written` is an attribute of the async writer."""


@pytest.mark.subprocess
def test_the_generated_module_is_current() -> None:
    assert PATH.read_text(encoding="utf-8") == render(), "run `python -m tools.blocking`"


@pytest.mark.parametrize("twin, awaited", TWINS)
def test_a_twin_has_the_names_and_parameters_of_the_async_class(
    twin: type[object], awaited: type[object]
) -> None:
    assert _public(twin) == _public(awaited)


def test_opening_takes_the_same_parameters() -> None:
    assert _parameters(eventproc.open_blocking) == _parameters(eventproc.open)


def _public(kind: type[object]) -> dict[str, object]:
    return {
        name: _parameters(getattr(kind, name))
        for name in dir(kind)
        if name[0] != "_" and name not in AWAITED_ONLY
    }


def _parameters(member: object) -> object:
    if not callable(member):
        return None
    found = inspect.signature(member).parameters.values()
    return [(each.name, each.kind, each.default) for each in found]
