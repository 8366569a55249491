"""Names of OpenTelemetry's conventions for messaging, and of the W3C, that metrics and spans have in common."""

from __future__ import annotations

from typing import Final

SYSTEM: Final = "messaging.system"
OPERATION: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
STREAM: Final = "messaging.destination.name"
ERROR: Final = "error.type"

TRACEPARENT: Final = "traceparent"
"""The header that names the span that sent an event."""

LINKS_MAX: Final = 128
"""Links of a span, as many as OpenTelemetry's SDK keeps."""
