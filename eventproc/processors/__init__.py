"""Event processing: handlers for the events of streams, in the order they need, surviving crashes."""

from __future__ import annotations

from eventproc.processors.app import App
from eventproc.processors.context import AppTx, Context
from eventproc.processors.describe import (
    ProcessorDescription,
    ProcessorMember,
    Published,
    describe_processor,
    describe_processors,
    pause_processor,
)
from eventproc.processors.errors import HandlerStuck, HandlerTimeout, NotAProcessorGroup, ProcessorFailed
from eventproc.processors.options import Directive, Failure, RetryPolicy
from eventproc.processors.running import GRACE_MS, Running, run_app
from eventproc.processors.status import ProcessorState, ProcessorStatus
from eventproc.processors.tally import Blocker

__all__ = [
    "GRACE_MS",
    "App",
    "AppTx",
    "Blocker",
    "Context",
    "Directive",
    "Failure",
    "HandlerStuck",
    "HandlerTimeout",
    "NotAProcessorGroup",
    "ProcessorDescription",
    "ProcessorFailed",
    "ProcessorMember",
    "ProcessorState",
    "ProcessorStatus",
    "Published",
    "RetryPolicy",
    "Running",
    "describe_processor",
    "describe_processors",
    "pause_processor",
    "run_app",
]
