"""Druid's names in specs: those that mean the same here, and what to write instead of the others.

A name that differs only in its writing (`taskDuration`, `lateMessageRejectionPeriod`) needs no entry; `spec_reader`
finds its field.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

RENAMED: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        ("SupervisorSpec", "dataSchema"): "schema",
        ("SupervisorSpec", "ioConfig"): "io",
        ("SupervisorSpec", "tuningConfig"): "tuning",
        ("IoConfig", "topic"): "streams",
        ("IoConfig", "stream"): "streams",
        ("IoConfig", "topicPattern"): "pattern",
        ("IoConfig", "useEarliestSequenceNumber"): "use_earliest_offset",
        ("IoConfig", "autoScalerConfig"): "autoscaler",
        ("AutoscalerConfig", "enableTaskAutoScaler"): "enabled",
        ("AutoscalerConfig", "autoScalerStrategy"): "strategy",
        ("AutoscalerConfig", "triggerScaleOutFractionThreshold"): "trigger_scale_out_fraction",
        ("AutoscalerConfig", "triggerScaleInFractionThreshold"): "trigger_scale_in_fraction",
        ("DataSchema", "dataSource"): "datasource",
        ("DataSchema", "timestampSpec"): "timestamp",
        ("DataSchema", "metricsSpec"): "metrics",
        ("Metric", "fieldName"): "field",
    }
)
"""{(class, Druid's name): field}."""

INLINE: Final = frozenset(
    {
        ("SupervisorSpec", "spec"),
        ("DataSchema", "dimensionsSpec"),
        ("DataSchema", "granularitySpec"),
        ("DataSchema", "transformSpec"),
    }
)
"""Objects of Druid whose fields belong to the object around them here."""

_NEEDLESS: Final = "leave it out: there is nothing to configure here"

REFUSED: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        ("SupervisorSpec", "type"): "leave it out: the source is always a stream of this directory",
        ("SupervisorSpec", "context"): _NEEDLESS,
        ("IoConfig", "consumerProperties"): "leave it out: the streams are those of this directory",
        ("IoConfig", "inputFormat"): (
            "leave it out: payloads are JSON objects; a path of its flattenSpec is a field, such as $.user.city, and"
            " so is what its format kafka adds, such as __event.key"
        ),
        ("IoConfig", "pollTimeout"): _NEEDLESS,
        (
            "IoConfig",
            "idleConfig",
        ): "write idle_after_ms, its inactiveAfterMillis; leave it out if not enabled",
        ("IoConfig", "serverPriorityToReplicas"): "write replicas, their sum; replicas answer no queries",
        ("IoConfig", "lagAggregator"): "write lag_aggregate in autoscaler",
        ("IoConfig", "boundedStreamConfig"): (
            "write ranges in place of streams: a list of {stream, segment, start, end}"
        ),
        ("AutoscalerConfig", "minTriggerScaleActionFrequencyMillis"): (
            "write min_scale_up_delay_ms and min_scale_down_delay_ms"
        ),
        ("AutoscalerConfig", "scaleActionStartDelayMillis"): (
            "leave it out: the first decision comes after lag_collection_range_ms"
        ),
        ("TuningConfig", "type"): _NEEDLESS,
        ("TuningConfig", "maxTotalRows"): "write max_rows_per_segment, which bounds the rows of a sequence",
        ("TuningConfig", "reportParseExceptions"): "write max_parse_exceptions: 0",
        ("TuningConfig", "logParseExceptions"): "write max_saved_parse_exceptions; the status shows so many",
        **dict.fromkeys(
            [
                ("TuningConfig", name)
                for name in (
                    *("intermediatePersistPeriod", "maxPendingPersists", "handoffConditionTimeout"),
                    *("workerThreads", "chatRetries", "httpTimeout", "shutdownTimeout", "offsetFetchPeriod"),
                    *("skipSequenceNumberAvailabilityCheck", "repartitionTransitionDuration"),
                )
            ],
            _NEEDLESS,
        ),
        ("Transform", "type"): "leave it out: the expression is one of Spark SQL",
    }
)
"""{(class, Druid's name): what to write instead}."""

VALUES: Final[Mapping[str, str]] = MappingProxyType(
    {"lagbased": "lag", "costbased": "cost", "posix": "seconds", "float": "double"}
)
"""{Druid's value in lower case: ours}."""

FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {"kafka.key": "__event.key", "kafka.topic": "__event.stream"}
)
"""{field of Druid's input format `kafka`: ours}."""

HEADER_PREFIX: Final = "kafka.header."
"""Begins the name of a header in Druid's input format `kafka`."""

REFUSED_FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "kafka.timestamp": (
            "write __event.event_time or __event.timestamp; a timestamp without a column is the first of these that the"
            " event has"
        )
    }
)
"""{field of Druid's input format `kafka`: what to write instead}."""
