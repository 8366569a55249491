"""What is measured: names, sizes, bars. Why each bar is what it is stands in docs/performance.md."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import attrs

from benchmarks import (
    floors,
    groups,
    growth,
    ours,
    policies,
    processing,
    rebalances,
    sharing,
    supervisors,
    takeover,
    topics,
    transactions,
)
from benchmarks.peers import FAUST, NATS, NATS_AT_ONCE, QUEUES, REDIS, Peer
from benchmarks.samples import Side, imported


class Class(StrEnum):
    """What an acknowledgement survives, as the comparison tables of such systems name it."""

    FSYNC = "F"
    """Power loss."""
    PAGE_CACHE = "P"
    """The death of the process."""

    @property
    def durability(self) -> str:
        """The durability of a directory of this class."""
        return "fsync" if self is Class.FSYNC else "os"


BOTH: Final = (Class.FSYNC, Class.PAGE_CACHE)


class Bar(StrEnum):
    """What a bar says."""

    RATIO_MIN = "ratio >="
    RATIO_MAX = "ratio <="
    VALUE_MIN = "ours >="
    VALUE_MAX = "ours <"
    MORE_MAX = "ours - floor <="
    NONE = ""


@attrs.frozen
class Recorded:
    """What another system reached in an earlier run on a machine of this kind; it is printed, not measured.

    name: of the system. values: by class. source: when and how it was measured. is_bar: whether ours must reach it.
    """

    name: str
    values: Mapping[Class, float]
    source: str
    is_bar: bool = True


@attrs.frozen(kw_only=True)
class Case:
    """One measurement.

    count, quick_count: operations of one round (ms, for the idle cost); 0: not one of the quick ones. barred: the
    classes in which the bar holds; in others the measurement only informs. value_min: what ours must reach besides.
    worst: the bar holds for the worst of all rounds, of which there are ten unless the run is a quick one.
    peers: other systems, which ours must be ahead of where they are installed. recorded: one of an earlier run,
    likewise if it is a bar.
    """

    name: str
    unit: str
    classes: tuple[Class, ...]
    ours: Side
    floor: Side
    count: int
    quick_count: int
    bar: float | None = None
    kind: Bar = Bar.NONE
    value_min: float = 0
    barred: tuple[Class, ...] = BOTH
    worst: bool = False
    peers: tuple[Peer, ...] = ()
    recorded: Recorded | None = None

    def bar_of(self, of: Class) -> float | None:
        """Return the bar that holds in a class, None where the measurement only informs."""
        return self.bar if of in self.barred else None

    def meets(self, of: Class, ours: float, ratio: float) -> bool:
        """Return whether these medians meet the bar."""
        if self.bar_of(of) is None or self.bar is None:
            return True
        if self.kind is Bar.RATIO_MIN:
            return ratio >= self.bar and ours >= self.value_min
        if self.kind is Bar.RATIO_MAX:
            return ratio <= self.bar
        if self.kind is Bar.MORE_MAX:
            return ours - ours / ratio <= self.bar
        return ours >= self.bar if self.kind is Bar.VALUE_MIN else ours < self.bar


_KAFKA: Final = "benchmarks.kafka_serving"
_SERVERS: Final = "benchmarks.servers"
_SERVING: Final = "benchmarks.serving"
_SPARK: Final = "benchmarks.spark"


def _served(
    name: str,
    sides: tuple[str, str],
    counts: tuple[int, int],
    bar: float,
    *,
    unit: str = "events/s",
    kind: Bar = Bar.VALUE_MIN,
    classes: tuple[Class, ...] = (Class.PAGE_CACHE,),
    module: str = _SERVING,
) -> Case:
    """Return a measurement of a serving process. sides: ours and the floor. counts: of a run, and of a quick one."""
    ours, floor = (imported(each, module) for each in sides)
    count, quick = counts
    of: dict[str, Any] = {"ours": ours, "floor": floor, "count": count, "quick_count": quick}
    return Case(name=name, unit=unit, classes=classes, bar=bar, kind=kind, **of)


def _spark_job(name: str, ours: str, floor: str, kind: Bar, bar: float, count: int = 1_000_000) -> Case:
    """Return a measurement of a job of Spark, in seconds."""
    return Case(
        name=name,
        unit="s",
        classes=(Class.FSYNC,),
        ours=imported(ours, "benchmarks.spark_jobs"),
        floor=imported(floor, "benchmarks.spark_jobs"),
        count=count,
        quick_count=0,
        bar=bar,
        kind=kind,
    )


_TXNS: Final = "transactions/s"


def _rated(name: str, unit: str, side: Side, floor: Side, count: int, value_min: float) -> Case:
    """Return a measurement whose bar is a rate on a synced directory."""
    return Case(
        name=name,
        unit=unit,
        classes=BOTH,
        ours=side,
        floor=floor,
        count=count,
        quick_count=count // 5,
        bar=value_min,
        kind=Bar.VALUE_MIN,
        barred=(Class.FSYNC,),
    )


def _events(name: str, side: Side, floor: Side, classes: tuple[Class, ...], bar: float | None = None) -> Case:
    """Return a measurement of 200,000 events, whose bar is a ratio."""
    return Case(
        name=name,
        unit="events/s",
        classes=classes,
        ours=side,
        floor=floor,
        count=200_000,
        quick_count=50_000,
        bar=bar,
        kind=Bar.NONE if bar is None else Bar.RATIO_MIN,
    )


def _observed(name: str, ours: str, floor: str) -> Case:
    """Return a measurement of what observing costs."""
    side, other = imported(ours, "benchmarks.observed"), imported(floor, "benchmarks.observed")
    case = _events(name, side, other, (Class.PAGE_CACHE,))
    return attrs.evolve(case, count=2_000_000, quick_count=500_000)


_KAFKA_SOURCE: Final = (
    "Kafka's broker 0.9 with librdkafka, class P, one client process, two virtual cores, 2026-11-20; its class F was"
    " not measured, so that its class P counts in both"
)

KAFKA_ONE: Final = Recorded("Kafka", dict.fromkeys(BOTH, 206_000), _KAFKA_SOURCE)
"""One producer and one reader of a group."""

KAFKA_FOUR: Final = Recorded("Kafka", dict.fromkeys(BOTH, 187_000), _KAFKA_SOURCE)
"""Four producers and four readers of a group."""


_KAFKA_SIDE_BY_SIDE: Final = (
    "Kafka's broker 0.9 with librdkafka, class P, beside other systems, two virtual cores, 2026-11-20; printed in both"
    " classes, and no bar"
)

KAFKA_CONSUMER: Final = Recorded(
    "Kafka's consumer", dict.fromkeys(BOTH, 333_000), _KAFKA_SIDE_BY_SIDE, is_bar=False
)
"""One producer and one consumer."""

KAFKA_CONSUMERS: Final = Recorded(
    "Kafka's four consumers", dict.fromkeys(BOTH, 236_000), _KAFKA_SIDE_BY_SIDE, is_bar=False
)
"""Four producers and four consumers."""


def _on_server(name: str, unit: str, side: Side, count: int, bar: float) -> Case:
    """Return a measurement of a store on a server, whose floor is a directory."""
    return Case(
        name=f"server_{name}",
        unit=unit,
        classes=(Class.FSYNC,),
        ours=partial(imported("on_server", _SERVERS), side),
        floor=side,
        count=count,
        quick_count=0,
        bar=bar,
        kind=Bar.RATIO_MIN,
    )


def _processes(name: str, unit: str, count: int, bar: float) -> Case:
    """Return a measurement of four processes on a server, whose floor is one."""
    one = imported(f"one_{name.removesuffix('s')}", _SERVERS)
    case = _on_server(f"four_{name}", unit, one, count, bar)
    return attrs.evolve(case, ours=imported(f"four_{name}", _SERVERS))


def _group(name: str, side: Side, recorded: Recorded) -> Case:
    """Return a measurement of a group beside the floor of `end_to_end`."""
    return Case(
        name=name,
        unit="events/s",
        classes=BOTH,
        ours=side,
        floor=floors.end_to_end,
        count=1_000_000,
        quick_count=400_000,
        recorded=recorded,
    )


CASES: Final[Mapping[str, Case]] = MappingProxyType(
    {
        case.name: case
        for case in (
            Case(
                name="end_to_end",
                unit="events/s",
                classes=BOTH,
                ours=ours.end_to_end,
                floor=floors.end_to_end,
                count=1_500_000,
                quick_count=500_000,
                bar=0.5,
                kind=Bar.RATIO_MIN,
                peers=(NATS_AT_ONCE,),
            ),
            _observed("metrics", "metered", "plain"),
            _observed("traces", "traced", "untraced"),
            Case(
                name="single_write",
                unit="writes/s",
                classes=BOTH,
                ours=ours.single_write,
                floor=floors.single_write,
                count=20_000,
                quick_count=4_000,
                bar=0.5,
                kind=Bar.RATIO_MIN,
                barred=(Class.FSYNC,),
                peers=(REDIS, NATS),
            ),
            _group("group_one", groups.one_to_one, KAFKA_ONE),
            _group("group_four", groups.four_to_four, KAFKA_FOUR),
            _group("consumer_one", groups.one_consumer, KAFKA_CONSUMER),
            _group("consumer_four", groups.four_consumers, KAFKA_CONSUMERS),
            attrs.evolve(
                _events("concurrent_writes", ours.concurrent_writes, floors.concurrent_writes, BOTH),
                unit="writes/s",
            ),
            _rated("delayed_write", "events/s", ours.delay_events, ours.write_at_once, 200_000, 50_000),
            _rated("delayed_delivery", "events/s", ours.deliver_delayed, ours.write_at_once, 200_000, 50_000),
            Case(
                name="process_waiting",
                unit="events/s",
                classes=(Class.FSYNC,),
                ours=processing.processor_waiting,
                floor=processing.queue_waiting,
                count=10_000,
                quick_count=10_000,
                bar=1.0,
                kind=Bar.RATIO_MIN,
            ),
            Case(
                name="process",
                unit="events/s",
                classes=(Class.FSYNC,),
                ours=processing.processor,
                floor=processing.queue,
                count=500_000,
                quick_count=200_000,
                bar=0.9,
                kind=Bar.RATIO_MIN,
                value_min=200_000,
            ),
            *(
                attrs.evolve(
                    _rated(name, "events/s", ours, processing.processor, 500_000, bar),
                    peers=(FAUST,) if name == "state" else (),
                )
                for name, ours, bar in processing.STATES
            ),
            _events("joins", processing.joins, processing.processor, BOTH),
            _events("exactly_once", processing.exactly_once, processing.at_least_once, (Class.FSYNC,)),
            Case(
                name="exactly_once_latency",
                unit="ms",
                classes=(Class.FSYNC,),
                ours=processing.exactly_once_latency,
                floor=processing.at_least_once_latency,
                count=1_000,
                quick_count=300,
            ),
            _events("share_group", sharing.share_group, sharing.reader_group, (Class.FSYNC,)),
            attrs.evolve(_events("jobs", sharing.worker, sharing.share_group, BOTH, 0.8), peers=QUEUES),
            _rated("transactions_one", _TXNS, transactions.one, transactions.one_floor, 5_000, 1_500),
            _rated(
                "transactions_one_4", _TXNS, transactions.one_spread, transactions.one_floor, 5_000, 1_500
            ),
            _rated("transactions_many", _TXNS, transactions.many, transactions.many_floor, 20_000, 5_000),
            _rated(
                "transactions_many_4", _TXNS, transactions.many_spread, transactions.many_floor, 20_000, 5_000
            ),
            Case(
                name="joint_one",
                unit="transactions/s",
                classes=BOTH,
                ours=transactions.joint_one,
                floor=transactions.joint_one_floor,
                count=2_000,
                quick_count=400,
            ),
            _rated(
                "joint_many", _TXNS, transactions.joint_many, transactions.joint_many_floor, 10_000, 2_000
            ),
            Case(
                name="topic",
                unit="events/s",
                classes=(Class.FSYNC,),
                ours=topics.partitions,
                floor=topics.one_segment,
                count=1_000_000,
                quick_count=300_000,
                bar=0.65,
                kind=Bar.RATIO_MIN,
            ),
            Case(
                name="topic_growth",
                unit="ms",
                classes=(Class.FSYNC,),
                ours=topics.growth_stall,
                floor=topics.no_growth,
                count=200,
                quick_count=50,
                bar=50,
                kind=Bar.MORE_MAX,
            ),
            Case(
                name="large_hold",
                unit="ms",
                classes=(Class.FSYNC,),
                worst=True,
                ours=transactions.longest_hold,
                floor=transactions.longest_hold_floor,
                count=100_000,
                quick_count=100_000,
                bar=50,
                kind=Bar.VALUE_MAX,
            ),
            Case(
                name="large_hold_scaled",
                unit="ms",
                classes=(Class.FSYNC,),
                worst=True,
                ours=transactions.longest_hold_scaled,
                floor=transactions.longest_hold_floor,
                count=100_000,
                quick_count=100_000,
                bar=50,
                kind=Bar.VALUE_MAX,
            ),
            Case(
                name="rebalance_hold",
                unit="ms",
                classes=(Class.FSYNC,),
                ours=rebalances.longest_rebalance_hold,
                floor=rebalances.longest_rebalance_floor,
                count=20,
                quick_count=20,
                bar=50,
                kind=Bar.VALUE_MAX,
            ),
            Case(
                name="bucket_takeover",
                unit="ms",
                classes=(Class.FSYNC,),
                ours=takeover.longest_takeover,
                floor=rebalances.longest_rebalance_floor,
                count=5,
                quick_count=5,
                bar=500,
                kind=Bar.VALUE_MAX,
            ),
            Case(
                name="create",
                unit="streams/s",
                classes=(Class.FSYNC,),
                ours=ours.create_streams,
                floor=floors.workflows,
                count=10_000,
                quick_count=2_000,
                bar=2_000,
                kind=Bar.VALUE_MIN,
            ),
            Case(
                name="scale",
                unit="scales/s",
                classes=(Class.FSYNC,),
                ours=ours.scale_streams,
                floor=floors.workflows,
                count=10_000,
                quick_count=2_000,
                bar=2_000,
                kind=Bar.VALUE_MIN,
            ),
            Case(
                name="long_history",
                unit="times the cost",
                classes=(Class.PAGE_CACHE,),
                ours=growth.slowest_query,
                floor=growth.slowest_query_floor,
                count=60,
                quick_count=60,
                bar=growth.RATIO_MAX,
                kind=Bar.VALUE_MAX,
            ),
            Case(
                name="create_among_many",
                unit="times the cost",
                classes=(Class.FSYNC,),
                ours=growth.create_among_many,
                floor=growth.create_among_few,
                count=40,
                quick_count=40,
                bar=1.3,
                kind=Bar.VALUE_MAX,
            ),
            Case(
                name="open_grown",
                unit="ms",
                classes=(Class.FSYNC,),
                ours=growth.open_large,
                floor=growth.open_small,
                count=5,
                quick_count=5,
                bar=500,
                kind=Bar.VALUE_MAX,
            ),
            Case(
                name="idle_grown",
                unit="MB",
                classes=(Class.FSYNC,),
                ours=growth.idle_memory,
                floor=growth.idle_memory_floor,
                count=100,
                quick_count=20,
                bar=100,
                kind=Bar.VALUE_MAX,
            ),
            Case(
                name="spark_read",
                unit="events/s",
                classes=(Class.FSYNC,),
                ours=imported("read", _SPARK),
                floor=imported("read_parquet", _SPARK),
                count=2_000_000,
                quick_count=0,
                bar=2_000_000,
                kind=Bar.VALUE_MIN,
            ),
            Case(
                name="spark_copy",
                unit="events/s",
                classes=(Class.FSYNC,),
                ours=imported("copy", _SPARK),
                floor=imported("copy_parquet", _SPARK),
                count=2_000_000,
                quick_count=0,
                bar=0.8,
                kind=Bar.RATIO_MIN,
            ),
            Case(
                name="spark_small_batch",
                unit="ms",
                classes=(Class.FSYNC,),
                ours=imported("small_batch", _SPARK),
                floor=imported("small_batch_trivial", _SPARK),
                count=40,
                quick_count=0,
                bar=40,
                kind=Bar.MORE_MAX,
            ),
            _spark_job("spark_json_sink", "json_sink", "json_sink_by_hand", Bar.RATIO_MAX, 1.3),
            _spark_job("spark_sink", "sink", "parquet_sink", Bar.RATIO_MAX, 2.0),
            _spark_job("spark_batch_read", "batch_read", "parquet_read", Bar.RATIO_MAX, 1.3),
            _spark_job("spark_typed_read", "typed_read", "parquet_typed_read", Bar.RATIO_MAX, 1.0),
            _spark_job("spark_first_read", "first_read", "parquet_read", Bar.VALUE_MAX, 3),
            _spark_job("spark_query", "query", "parquet_query", Bar.RATIO_MAX, 3.0),
            _spark_job("spark_small_query", "query", "parquet_query", Bar.VALUE_MAX, 0.8, 1_000),
            _spark_job("spark_latency_p50", "latency_p50", "rate_latency_p50", Bar.VALUE_MAX, 0.4, 300),
            _spark_job("spark_latency_p99", "latency_p99", "rate_latency_p99", Bar.VALUE_MAX, 1.5, 300),
            Case(
                name="spark_writers",
                unit="events/s",
                classes=(Class.FSYNC,),
                ours=imported("beside_stream", "benchmarks.spark_writers"),
                floor=imported("beside_parquet", "benchmarks.spark_writers"),
                count=5_000_000,
                quick_count=0,
                bar=0.9,
                kind=Bar.RATIO_MIN,
            ),
            Case(
                name="ingestion",
                unit="events/s",
                classes=(Class.FSYNC,),
                ours=imported("ingest", "benchmarks.ingestion"),
                floor=imported("by_hand", "benchmarks.ingestion"),
                count=1_000_000,
                quick_count=0,
                bar=0.5,
                kind=Bar.RATIO_MIN,
            ),
            Case(
                name="table_publication",
                unit="ms",
                classes=(Class.PAGE_CACHE,),
                ours=imported("after_many", "benchmarks.tables"),
                floor=imported("after_few", "benchmarks.tables"),
                count=1_000,
                quick_count=0,
                bar=2.0,
                kind=Bar.RATIO_MAX,
            ),
            Case(
                name="hand_over",
                unit="ms",
                classes=(Class.PAGE_CACHE,),
                ours=imported("hand_over", "benchmarks.hand_over"),
                floor=imported("steady", "benchmarks.hand_over"),
                count=10,
                quick_count=0,
                bar=1_000,
                kind=Bar.MORE_MAX,
            ),
            Case(
                name="time_to_query",
                unit="ms",
                classes=(Class.FSYNC,),
                ours=imported("time_to_query", "benchmarks.hand_over"),
                floor=floors.idle,
                count=10,
                quick_count=0,
            ),
            Case(
                name="supervisor_run",
                unit="ms",
                classes=(Class.PAGE_CACHE,),
                ours=supervisors.run_notices,
                floor=floors.idle,
                count=20,
                quick_count=5,
                bar=100,
                kind=Bar.VALUE_MAX,
            ),
            _served("serve_write", ("write", "write_floor"), (1_000_000, 300_000), 300_000),
            _served(
                *("serve_write_synced", ("write", "write_bare"), (300_000, 100_000), 0.6),
                kind=Bar.RATIO_MIN,
                classes=(Class.FSYNC,),
            ),
            _served(
                *("serve_write_cpu", ("write_cpu", "write_cpu_floor"), (1_000_000, 300_000), 2),
                unit="us of CPU",
                kind=Bar.VALUE_MAX,
            ),
            _served("serve_read", ("read", "read_floor"), (3_000_000, 1_000_000), 1_500_000),
            _served(
                *("serve_transaction", ("transactions", "transactions_floor"), (1_000, 200), 5),
                unit="ms",
                kind=Bar.VALUE_MAX,
                classes=BOTH,
            ),
            _served(
                *("kafka_end_to_end", ("end_to_end", "floor"), (1_000_000, 200_000), 250_000),
                module=_KAFKA,
            ),
            _served(
                *("kafka_small_batches", ("small", "small_floor"), (500_000, 100_000), 180_000),
                module=_KAFKA,
            ),
            Case(
                name="serve_polls",
                unit="% of a core",
                classes=(Class.PAGE_CACHE,),
                ours=imported("polls", _SERVING),
                floor=floors.idle,
                count=20_000,
                quick_count=5_000,
                bar=1,
                kind=Bar.VALUE_MAX,
            ),
            *[
                _served(
                    *(f"page_{name}", (name, "unseen"), (120_000, 0), 2),
                    unit="% of a core",
                    kind=Bar.VALUE_MAX,
                    module="benchmarks.page",
                )
                for name in ("overview", "streams")
            ],
            Case(
                name="policies",
                unit="% of a core",
                classes=(Class.PAGE_CACHE,),
                ours=policies.keep_policies,
                floor=floors.idle,
                count=60_000,
                quick_count=0,
                bar=3,
                kind=Bar.VALUE_MAX,
            ),
            Case(
                name="retention_run",
                unit="ms",
                classes=(Class.PAGE_CACHE,),
                ours=policies.retention_run,
                floor=floors.idle,
                count=50,
                quick_count=20,
                bar=20,
                kind=Bar.VALUE_MAX,
            ),
            Case(
                name="idle",
                unit="% of a core",
                classes=(Class.FSYNC,),
                ours=ours.idle,
                floor=floors.idle,
                count=20_000,
                quick_count=3_000,
                bar=0.5,
                kind=Bar.VALUE_MAX,
            ),
            _on_server("single_write", "writes/s", ours.single_write, 4_000, 0.6),
            _on_server("concurrent_writes", "writes/s", ours.concurrent_writes, 40_000, 0.8),
            _on_server("end_to_end", "events/s", ours.end_to_end, 500_000, 0.9),
            _on_server("create_streams", "creates/s", ours.create_streams, 400, 0.5),
            _processes("writers", "writes/s", 4_000, 3.0),
            _processes("processors", "events/s", 400_000, 1.5),
        )
    }
)
"""All measurements, by name."""
