"""The table of workflows: which two functions serve each kind of request.

A new workflow is a request in `requests.py`, a module with `check` and `apply`, and a row of WORKFLOWS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs

from eventproc.store.database import Tx
from eventproc.workflows import (
    create_stream,
    delete_stream,
    scale_stream,
    scopes,
    seal_stream,
    truncate_stream,
    update_stream,
)
from eventproc.workflows.requests import (
    AnyRequest,
    CreateStream,
    DeleteScope,
    DeleteStream,
    ScaleStream,
    SealStream,
    TruncateStream,
    UpdateStream,
)


@attrs.frozen
class Workflow:
    """The two functions of one kind of request.

    check(tx, request): returns True if there is nothing to do. Raises a Rejected. Changes nothing.
    apply(tx, request, request_id): does one step and returns whether it was the last. Raises a Rejected before it
        has changed anything.
    """

    request: type[AnyRequest]
    check: Callable[[Tx, Any], bool]
    apply: Callable[[Tx, Any, str], bool]


WORKFLOWS: Final[Mapping[str, Workflow]] = MappingProxyType(
    {
        workflow.request.kind: workflow
        for workflow in (
            Workflow(CreateStream, create_stream.check, create_stream.apply),
            Workflow(UpdateStream, update_stream.check, update_stream.apply),
            Workflow(ScaleStream, scale_stream.check, scale_stream.apply),
            Workflow(TruncateStream, truncate_stream.check, truncate_stream.apply),
            Workflow(SealStream, seal_stream.check, seal_stream.apply),
            Workflow(DeleteStream, delete_stream.check, delete_stream.apply),
            Workflow(DeleteScope, scopes.check, scopes.apply),
        )
    }
)
"""The workflow of each kind of request, by `kind`."""
