"""Checks of tasks."""

from __future__ import annotations

from collections.abc import Iterator

from eventproc.store.database import Tx
from eventproc.store.records import get, keys
from eventproc.store.task_queue import HOLDER, TaskStatus, find_task


def task_violations(tx: Tx) -> Iterator[str]:
    """Yield the resources that are held by a task that does not run, or that is of another resource."""
    for resource in keys(tx, HOLDER):
        task = find_task(tx, get(tx, HOLDER, resource).value.task)
        if task is None or task.status is not TaskStatus.RUNNING or task.resource != resource:
            yield f"resource {resource} is held, but not by a running task of it: {task}"
