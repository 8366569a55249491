"""What the policies of a stream ask for: decisions from the index, which end as ordinary requests and tasks."""

from __future__ import annotations

from eventproc.workflows.policies.look import (
    RETENTION_MS,
    STREAMS_A_STEP,
    CompactTopicTask,
    PolicyLook,
    has_policy,
    look_at_stream,
    wanted_compaction,
    wanted_request,
)
from eventproc.workflows.policies.offload import OffloadTask, PassedOffsets, wanted_offload
from eventproc.workflows.policies.retention import wanted_truncation
from eventproc.workflows.policies.scaling import ScalingDescription, describe_scaling, wanted_scale

__all__ = [
    "RETENTION_MS",
    "STREAMS_A_STEP",
    "CompactTopicTask",
    "OffloadTask",
    "PassedOffsets",
    "PolicyLook",
    "ScalingDescription",
    "describe_scaling",
    "has_policy",
    "look_at_stream",
    "wanted_compaction",
    "wanted_offload",
    "wanted_request",
    "wanted_scale",
    "wanted_truncation",
]
