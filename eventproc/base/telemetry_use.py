"""What the program uses of OpenTelemetry. Without it nothing of it is imported, and nothing is measured or traced.

A program that sets a provider has imported the API before, so that `sys.modules` says it without an import.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from eventproc.base.spans import Traces

NOT_TRACED: Final[AbstractContextManager[None]] = nullcontext()
"""The span of what is not traced; any number of blocks may use it simultaneously."""


def uses_metrics() -> bool:
    """Return whether the program has imported the API of metrics, and so may set a provider of meters."""
    return sys.modules.get("opentelemetry.metrics") is not None


def find_traces() -> Traces | None:
    """Return what makes spans; None unless the program has set a provider of tracers. About 0.2 us."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None or isinstance(api.get_tracer_provider(), api.ProxyTracerProvider):
        return None
    from eventproc.base.spans import Traces

    return Traces()
