"""Ingestion: supervisors that keep tasks reading streams into tables, and publish each event exactly once.

Its names are those of a spec: `eventproc.Supervisor` is the handle of one that was submitted.
"""

from __future__ import annotations

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
from eventproc.store.model.ingestion_errors import (
    SpecProblem,
)

__all__ = [
    "AutoscalerConfig",
    "AutoscalerStrategy",
    "DataSchema",
    "Dimension",
    "DimensionType",
    "Granularity",
    "IoConfig",
    "LagAggregate",
    "Metric",
    "MetricType",
    "SegmentRange",
    "SpecProblem",
    "SupervisorSpec",
    "TimestampFormat",
    "TimestampSpec",
    "Transform",
    "TuningConfig",
]
