"""Event processing: handlers for the events of streams, in the order they need, surviving crashes."""

from __future__ import annotations

from eventproc.processors.app import App as App
from eventproc.processors.context import AppTx as AppTx, Context as Context
from eventproc.processors.declarations import (
    HandlerOptions as HandlerOptions,
    ProcessorOptions as ProcessorOptions,
    ProjectionOptions as ProjectionOptions,
    WorkerOptions as WorkerOptions,
)
from eventproc.processors.errors import (
    NotAProcessorGroup as NotAProcessorGroup,
    ProcessorFailed as ProcessorFailed,
)
from eventproc.processors.handler import HandlerDecorator as HandlerDecorator
from eventproc.processors.key_state import KeyState as KeyState
from eventproc.processors.observe.status import (
    Blocker as Blocker,
    ProcessorDescription as ProcessorDescription,
    ProcessorState as ProcessorState,
    ProcessorStatus as ProcessorStatus,
    describe_processor as describe_processor,
    describe_processors as describe_processors,
    pause_processor as pause_processor,
)
from eventproc.processors.options import Directive as Directive, Failure as Failure, Rate as Rate
from eventproc.processors.retry import RetryPolicy as RetryPolicy
from eventproc.processors.run import Running as Running, run_app as run_app
from eventproc.store.model.limits import GRACE_MS as GRACE_MS
