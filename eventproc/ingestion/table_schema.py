"""The columns of a table: what all specs brought that ever wrote to it, and which changes of them are refused.

A column that a newer spec leaves out stays: files have it. So a table is wider than each of its specs. Source:
docs/design/spark-ingestion.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import reduce

import attrs

from eventproc.ingestion.spec import DataSchema, Dimension, Granularity, Metric, MetricType, SupervisorSpec
from eventproc.ingestion.spec_reader import Problems
from eventproc.store.database import Tx
from eventproc.store.ingestion.pointers import has_table, pointers
from eventproc.store.ingestion.supervisors import is_table_read, live_specs_of_table, specs_of_table
from eventproc.store.model.errors import NotFound
from eventproc.store.model.ingestion import TIME, TablePartitioning, partition_name
from eventproc.store.model.ingestion_errors import InvalidSpec

LOG = logging.getLogger("eventproc.ingestion")


@attrs.frozen
class ColumnChange:
    """A column that a newer schema would change.

    older, newer: the column in both. path: of what differs, in the spec.
    """

    older: Dimension | Metric
    newer: Dimension | Metric
    path: str

    def __str__(self) -> str:
        if self.older.name != self.newer.name:
            return f"has column {self.older.name}, which differs from {self.newer.name} only in case"
        return f"has column {self.older.name} as a {_kind(self.older)}, not as a {_kind(self.newer)}"


def changed_columns(older: DataSchema, newer: DataSchema) -> list[ColumnChange]:
    """Return the columns of a table that a newer schema would change: their type, aggregate, or the case of the name.

    Columns may be added and left out. Rows of a column that is both are rolled up as one, so a dimension stays one,
    and a metric keeps its aggregate. A count is a sum. Pure.
    """
    known = {each.name.lower(): each for each in _columns(older).values()}
    changes: list[ColumnChange] = []
    for path, found in _columns(newer).items():
        before = known.get(found.name.lower())
        if before is None:
            continue
        if before.name != found.name:
            changes.append(ColumnChange(before, found, f"{path}.name"))
        elif _rolled_up_as(before) != _rolled_up_as(found):
            changes.append(ColumnChange(before, found, f"{path}.type"))
    return changes


def widened(older: DataSchema, newer: DataSchema) -> DataSchema:
    """Return the newer schema, with the columns of the older one that it does not have behind its own. Pure.

    A column that both have is that of the newer one.
    """
    known = {each.name.lower() for each in _columns(newer).values()}
    return attrs.evolve(
        newer,
        dimensions=(
            *newer.dimensions,
            *(each for each in older.dimensions if each.name.lower() not in known),
        ),
        metrics=(*newer.metrics, *(each for each in older.metrics if each.name.lower() not in known)),
    )


def table_schema(tx: Tx, name: str) -> DataSchema:
    """Return the schema of the newest spec that writes to a table, with the columns of all older ones.

    Raises NotFound if no spec ever did. Cost: one query, and a spec to parse per version.
    """
    if not (found := _schemas(tx, name)):
        raise NotFound(kind="table", name=name)
    return reduce(widened, found)


def verify_table(tx: Tx, name: str) -> None:
    """Raise NotFound if no spec ever wrote to a table, and no other engine made it. Cost: as `table_schema`."""
    if not has_table(tx, name):
        table_schema(tx, name)


def partitioning(schema: DataSchema) -> TablePartitioning:
    """Return by what the table of a schema is partitioned: the next longer time that Iceberg knows. Pure."""
    if schema.segment_granularity is Granularity.SIX_HOUR:
        return TablePartitioning.DAY
    by_name = {each.value: each for each in TablePartitioning}
    return by_name.get(schema.segment_granularity.value, TablePartitioning.HOUR)


def shortest_times(tx: Tx, of: Callable[[SupervisorSpec], int | None]) -> dict[str, int]:
    """Return a time of the specs by table, such as the retention; of several supervisors, the shortest one.

    A table with a spec that is not valid any more, because an earlier version of eventproc took it, is left out.

    Cost: a query for each table, and a spec to parse for each of its supervisors.
    """
    found: dict[str, int] = {}
    for name in pointers(tx):
        try:
            specs = [SupervisorSpec.parse(text) for text in live_specs_of_table(tx, name)]
        except InvalidSpec as why:
            LOG.warning("old rows of table %s are neither compacted nor dropped: %s", name, why)
            continue
        if times := [time for each in specs if (time := of(each)) is not None]:
            found[name] = min(times)
    return found


def check_columns(tx: Tx, spec: SupervisorSpec, problems: Problems) -> None:
    """Note each column that the table cannot have, and each that a spec would change, while rows, tasks or live
    supervisors have it.

    Cost: three queries, and a spec to parse per version of the table's supervisors.
    """
    _check_names(spec.schema, problems)
    name = spec.schema.datasource
    if has_table(tx, name) or is_table_read(tx, name):
        found = _schemas(tx, name)
    else:
        others = map(SupervisorSpec.parse, live_specs_of_table(tx, name))
        found = [each.schema for each in others if each.id != spec.id]
    if not found:
        return
    for each in changed_columns(reduce(widened, found), spec.schema):
        remedy = (
            "choose another name for it, or another datasource; or terminate the supervisors of the table, and drop"
            " its rows"
        )
        if each.path.endswith(".name"):
            remedy = f"write it as {each.older.name}"
        problems.add(each.path, f"table {name} {each}; {remedy}")


def _check_names(schema: DataSchema, problems: Problems) -> None:
    """Note names that differ only in case from that of another column, or of the time and the partitions by it."""
    taken = {TIME: f"{TIME}, which holds the time of a row"}
    taken |= {
        each: f"{each}, by which a table is partitioned" for each in map(partition_name, TablePartitioning)
    }
    for path, column in _columns(schema).items():
        if (other := taken.setdefault(column.name.lower(), column.name)) != column.name:
            problems.add(
                f"{path}.name", f"column {column.name} would be the same as {other}; choose another name"
            )


def _schemas(tx: Tx, name: str) -> list[DataSchema]:
    """Return the schemas of all specs that ever wrote to a table; none if another engine made it."""
    return [SupervisorSpec.parse(text).schema for text in specs_of_table(tx, name)]


def _columns(schema: DataSchema) -> Mapping[str, Dimension | Metric]:
    """Return the columns with their paths in the spec."""

    def numbered(
        part: str, columns: Iterable[Dimension | Metric]
    ) -> Iterable[tuple[str, Dimension | Metric]]:
        return ((f"schema.{part}[{index}]", each) for index, each in enumerate(columns))

    return dict([*numbered("dimensions", schema.dimensions), *numbered("metrics", schema.metrics)])


def _kind(column: Dimension | Metric) -> str:
    return f"{column.type.value} {'dimension' if isinstance(column, Dimension) else 'metric'}"


def _rolled_up_as(column: Dimension | Metric) -> str:
    """Return what compaction makes of equal rows: columns that differ in it cannot be one."""
    return MetricType.LONG_SUM if column.type is MetricType.COUNT else column.type
