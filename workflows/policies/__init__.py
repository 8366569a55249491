"""What the policies of a stream ask for: decisions from the index, which end as ordinary requests and tasks."""

from __future__ import annotations

from eventproc.workflows.policies.look import (
    RETENTION_MS as RETENTION_MS,
    STREAMS_A_STEP as STREAMS_A_STEP,
    CompactTopicTask as CompactTopicTask,
    PolicyLook as PolicyLook,
    has_policy as has_policy,
    look_at_stream as look_at_stream,
    wanted_request as wanted_request,
)
from eventproc.workflows.policies.offload import OffloadTask as OffloadTask, PassedOffsets as PassedOffsets
from eventproc.workflows.policies.scaling import (
    ScalingDescription as ScalingDescription,
    describe_scaling as describe_scaling,
    wanted_scale as wanted_scale,
)
