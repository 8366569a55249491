"""Event processing: handlers for the events of streams, in the order they need, surviving crashes."""

from __future__ import annotations

from eventproc.processors.app import (
    App,
    HandlerOptions,
    ProcessorOptions,
    ProjectionOptions,
    WorkerOptions,
)
from eventproc.processors.context import AppTx, Context
from eventproc.processors.errors import (
    HandlerAbandoned,
    HandlerStuck,
    HandlerTimeout,
    NotAProcessorGroup,
    ProcessorFailed,
)
from eventproc.processors.handler import HandlerDecorator
from eventproc.processors.observe.status import (
    Blocker,
    MemberStatus,
    ProcessorDescription,
    ProcessorMember,
    ProcessorState,
    ProcessorStatus,
    describe_processor,
    describe_processors,
    pause_processor,
)
from eventproc.processors.options import Directive, Failure, Rate
from eventproc.processors.retry import RetryPolicy
from eventproc.processors.run import Running, run_app
from eventproc.store.model.limits import GRACE_MS

__all__ = [
    "GRACE_MS",
    "App",
    "AppTx",
    "Blocker",
    "Context",
    "Directive",
    "Failure",
    "HandlerAbandoned",
    "HandlerDecorator",
    "HandlerOptions",
    "HandlerStuck",
    "HandlerTimeout",
    "MemberStatus",
    "NotAProcessorGroup",
    "ProcessorDescription",
    "ProcessorFailed",
    "ProcessorMember",
    "ProcessorOptions",
    "ProcessorState",
    "ProcessorStatus",
    "ProjectionOptions",
    "Rate",
    "RetryPolicy",
    "Running",
    "WorkerOptions",
    "describe_processor",
    "describe_processors",
    "pause_processor",
    "run_app",
]
