"""Which workflow serves which request: one table, complete."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs

from eventproc.store.database import Tx
from eventproc.workflows import create, delete, scale, scopes, seal, truncate, update
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
    """One kind of request: its value, what is checked when it is submitted, what each step does.

    check(tx, request) returns whether there is nothing to do, or raises a Rejected; it changes nothing.
    apply(tx, request, request_id) does one step, returns whether it was the last, or raises a Rejected
    before it changed anything.
    """

    request: type[AnyRequest]
    check: Callable[[Tx, Any], bool]
    apply: Callable[[Tx, Any, str], bool]


WORKFLOWS: Final[Mapping[str, Workflow]] = MappingProxyType(
    {
        workflow.request.kind: workflow
        for workflow in (
            Workflow(CreateStream, create.check, create.apply),
            Workflow(UpdateStream, update.check, update.apply),
            Workflow(ScaleStream, scale.check, scale.apply),
            Workflow(TruncateStream, truncate.check, truncate.apply),
            Workflow(SealStream, seal.check, seal.apply),
            Workflow(DeleteStream, delete.check, delete.apply),
            Workflow(DeleteScope, scopes.check, scopes.apply),
        )
    }
)
