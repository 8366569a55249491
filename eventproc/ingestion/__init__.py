"""Ingestion: supervisors that keep tasks reading streams into tables, and publish each event exactly once."""

from __future__ import annotations

from eventproc.ingestion.changes import SpecEffect
from eventproc.ingestion.health import SupervisorError, SupervisorState
from eventproc.ingestion.memory import LagSample
from eventproc.ingestion.spec import (
    AutoscalerConfig,
    AutoscalerStrategy,
    DataSchema,
    Dimension,
    DimensionType,
    Granularity,
    IoConfig,
    LagAggregate,
    Metric,
    MetricType,
    SegmentRange,
    SupervisorSpec,
    TimestampFormat,
    TimestampSpec,
    Transform,
    TuningConfig,
)
from eventproc.ingestion.status import (
    IngestPartition,
    IngestTaskInfo,
    SupervisorInfo,
    SupervisorStatus,
    SupervisorVersion,
)
from eventproc.ingestion.supervisor import Supervisor
from eventproc.store.model.ingestion_errors import SpecProblem

__all__ = [
    "AutoscalerConfig",
    "AutoscalerStrategy",
    "DataSchema",
    "Dimension",
    "DimensionType",
    "Granularity",
    "IngestPartition",
    "IngestTaskInfo",
    "IoConfig",
    "LagAggregate",
    "LagSample",
    "Metric",
    "MetricType",
    "SegmentRange",
    "SpecEffect",
    "SpecProblem",
    "Supervisor",
    "SupervisorError",
    "SupervisorInfo",
    "SupervisorSpec",
    "SupervisorState",
    "SupervisorStatus",
    "SupervisorVersion",
    "TimestampFormat",
    "TimestampSpec",
    "Transform",
    "TuningConfig",
]
