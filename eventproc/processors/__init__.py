"""Event processing: handlers for the events of streams, in the order they need, surviving crashes."""

from __future__ import annotations

from eventproc.processors.app import App
from eventproc.processors.context import AppTx, Context
from eventproc.processors.errors import HandlerStuck, HandlerTimeout, ProcessorFailed
from eventproc.processors.keyed import KeyedWorkers
from eventproc.processors.options import Directive, Failure, RetryPolicy
from eventproc.processors.running import Running, run_app
from eventproc.processors.status import ProcessorState, ProcessorStatus
from eventproc.processors.tally import Blocker

__all__ = [
    "App",
    "AppTx",
    "Blocker",
    "Context",
    "Directive",
    "Failure",
    "HandlerStuck",
    "HandlerTimeout",
    "KeyedWorkers",
    "ProcessorFailed",
    "ProcessorState",
    "ProcessorStatus",
    "RetryPolicy",
    "Running",
    "run_app",
]
