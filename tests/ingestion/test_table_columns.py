"""The columns of a table outlive the specs that brought them, and a spec that would change one is refused."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import attrs
import pytest

from eventproc.describe import SpecEffect
from eventproc.errors import InvalidSpec, NotFound
from eventproc.ingestion import DataSchema, Dimension, DimensionType, Metric, MetricType, SupervisorSpec
from eventproc.ingestion.table_schema import changed_columns, shortest_times, table_schema, widened
from eventproc.store.ingestion.pointers import drop_pointer
from tests.ingestion.support import HOUR_MS, ID, METADATA, Bench, spec_of

PAGE = {"name": "page", "type": "string"}
COUNTRY = {"name": "country", "type": "string"}
SUM = {"name": "ms", "type": "long_sum", "field": "ms"}


def spec_with(dimensions: list[Any], metrics: list[Any] | None = None, id: str = ID) -> SupervisorSpec:
    return spec_of(schema={"dimensions": dimensions, "metrics": metrics or []}, id=id)


async def publish_some(bench: Bench) -> None:
    """Let the supervisor publish what its stream holds."""
    worker = await bench.worker()
    await bench.run()
    await bench.write(5)
    for task in await worker.claim():
        await task.step()
    await bench.handoff()
    await worker.complete_pending()
    await bench.run()
    assert bench.files != []


@pytest.mark.parametrize(
    ("dimensions", "metrics", "path", "types"),
    [
        ([{"name": "page", "type": "long"}], [SUM], "schema.dimensions[0].type", "string dimension.*long"),
        ([PAGE, {"name": "ms", "type": "long"}], [], "schema.dimensions[1].type", "long_sum metric.*long"),
        ([PAGE], [{**SUM, "type": "double_sum"}], "schema.metrics[0].type", "long_sum metric.*double_sum"),
        ([PAGE], [{**SUM, "type": "long_max"}], "schema.metrics[0].type", "long_sum metric.*long_max"),
        ([{"name": "Page"}], [SUM], "schema.dimensions[0].name", "page"),
    ],
)
async def test_a_spec_that_changes_a_column_of_published_rows_is_refused(
    bench: Bench, dimensions: list[Any], metrics: list[Any], path: str, types: str
) -> None:
    await bench.ep.create_stream("s/t")
    await bench.ep.submit_supervisor(spec_with([PAGE, COUNTRY], [SUM]))
    await publish_some(bench)
    changed = spec_with(dimensions, metrics)
    with pytest.raises(InvalidSpec, match=f"(?s)table clicks.*{types}") as refused:
        await bench.ep.submit_supervisor(changed)
    assert [each.path for each in refused.value.problems] == [path]
    assert refused.value.spec == ID
    with pytest.raises(InvalidSpec):
        await bench.ep.preview_supervisor(changed)
    assert len(await (await bench.ep.supervisor(ID)).history()) == 1
    # A second supervisor of the table is refused for the same reason.
    with pytest.raises(InvalidSpec, match="the spec of other"):
        await bench.ep.submit_supervisor(spec_with(dimensions, metrics, id="other"))


@pytest.mark.parametrize(
    ("dimensions", "metrics", "path", "same"),
    [
        ([PAGE, {"name": "Page"}], [SUM], "schema.dimensions[1].name", "the same as page"),
        ([PAGE], [{**SUM, "name": "PAGE"}], "schema.metrics[0].name", "the same as page"),
        (
            [{"name": "__Time"}],
            [SUM],
            "schema.dimensions[0].name",
            "the same as __time, which holds the time",
        ),
        (
            [{"name": "__time_hour"}],
            [SUM],
            "schema.dimensions[0].name",
            "__time_hour, by which .* partitioned",
        ),
    ],
)
async def test_a_spec_whose_columns_no_table_can_have_is_refused(
    bench: Bench, dimensions: list[Any], metrics: list[Any], path: str, same: str
) -> None:
    await bench.ep.create_stream("s/t")
    with pytest.raises(InvalidSpec, match=f"(?s){same}") as refused:
        await bench.ep.submit_supervisor(spec_with(dimensions, metrics))
    assert [each.path for each in refused.value.problems] == [path]
    with pytest.raises(NotFound):
        await bench.ep.supervisor(ID)


async def test_columns_may_be_added_and_left_out_and_stay_columns_of_the_table(bench: Bench) -> None:
    await bench.ep.create_stream("s/t")
    await bench.ep.submit_supervisor(spec_with([PAGE, COUNTRY], [{"name": "clicks", "type": "count"}]))
    await publish_some(bench)
    # A count is a sum of the same type.
    newer = spec_with([{"name": "browser"}, PAGE], [{"name": "clicks", "type": "long_sum", "field": "n"}])
    assert await bench.ep.preview_supervisor(newer) is SpecEffect.REPLACE_TASKS
    await bench.ep.submit_supervisor(newer)
    schema = await bench.db.read(lambda tx: table_schema(tx, "clicks"))
    assert [each.name for each in schema.dimensions] == ["browser", "page", "country"]
    assert [(each.name, each.type) for each in schema.metrics] == [("clicks", MetricType.LONG_SUM)]
    with pytest.raises(InvalidSpec, match="country"):  # also after it was left out
        await bench.ep.submit_supervisor(spec_with([PAGE, {"name": "country", "type": "double"}]))
    with pytest.raises(NotFound):
        await bench.db.read(lambda tx: table_schema(tx, "views"))


async def test_a_table_keeps_its_columns_if_its_supervisor_goes_on_with_another_table(bench: Bench) -> None:
    await bench.ep.create_stream("s/t")
    await bench.ep.submit_supervisor(spec_with([PAGE, COUNTRY]))
    await publish_some(bench)
    await bench.ep.submit_supervisor(
        spec_of(schema={"datasource": "views", "dimensions": [{"name": "page", "type": "long"}]})
    )
    schema = await bench.db.read(lambda tx: table_schema(tx, "clicks"))
    assert [each.name for each in schema.dimensions] == ["page", "country"]


async def test_the_newest_spec_counts_also_if_the_clock_was_set_back_before_it(bench: Bench) -> None:
    await bench.ep.create_stream("s/t")
    await bench.ep.submit_supervisor(spec_with([PAGE, COUNTRY]))
    bench.clock.step_wall(-HOUR_MS)
    await bench.ep.submit_supervisor(spec_with([{"name": "browser"}, PAGE]))
    schema = await bench.db.read(lambda tx: table_schema(tx, "clicks"))
    assert [each.name for each in schema.dimensions] == ["browser", "page", "country"]


async def test_a_column_may_change_while_its_table_has_neither_rows_nor_readers(bench: Bench) -> None:
    await bench.ep.create_stream("s/t")
    number = spec_with([{"name": "page", "type": "long"}])
    await bench.ep.submit_supervisor(spec_with([PAGE]))
    await bench.ep.submit_supervisor(number)  # nothing has run yet
    with pytest.raises(InvalidSpec, match="long dimension"):  # the other one is live
        await bench.ep.submit_supervisor(spec_with([PAGE], id="other"))
    await bench.run()
    with pytest.raises(InvalidSpec, match="long dimension"):  # a group reads
        await bench.ep.submit_supervisor(spec_with([PAGE]))
    await publish_some(bench)
    await (await bench.ep.supervisor(ID)).terminate()
    await bench.run()
    with pytest.raises(InvalidSpec, match="long dimension"):  # the table has rows
        await bench.ep.submit_supervisor(spec_with([PAGE]))
    await bench.db.write(partial(drop_pointer, name="clicks", before=METADATA))  # it is dropped
    await bench.ep.submit_supervisor(spec_with([PAGE]))
    schema = await bench.db.read(lambda tx: table_schema(tx, "clicks"))
    assert [each.type for each in schema.dimensions] == [DimensionType.STRING]


async def test_a_table_whose_spec_is_no_longer_valid_is_left_as_it_is(bench: Bench) -> None:
    await bench.ep.create_stream("s/t")
    await bench.ep.submit_supervisor(attrs.evolve(spec_with([PAGE]), retention_ms=86_400_000))
    await publish_some(bench)
    retention = partial(shortest_times, of=lambda spec: spec.retention_ms)
    assert await bench.db.read(retention) == {"clicks": 86_400_000}
    change = "UPDATE supervisor SET spec = replace(spec, '86400000', '0')"  # an earlier version took it
    await bench.db.write(lambda tx: tx.execute(change))
    assert await bench.db.read(retention) == {}


def schemas() -> list[DataSchema]:
    """Return schemas of one table that differ in their columns."""
    page, number = Dimension(name="page"), Dimension(name="n", type=DimensionType.LONG)
    count, most = (
        Metric(name="clicks", type=MetricType.COUNT),
        Metric(name="ms", type=MetricType.LONG_MAX, field="ms"),
    )
    return [
        DataSchema(datasource="clicks", dimensions=(page,), metrics=(count,)),
        DataSchema(datasource="clicks", dimensions=(number, page)),
        DataSchema(datasource="clicks", metrics=(most, count), rollup=False),
    ]


def test_widening_keeps_every_column_and_the_settings_of_the_newest_schema() -> None:
    found = schemas()
    for older, newer in [*pairwise(found), *pairwise(reversed(found))]:
        assert changed_columns(older, newer) == []
        both = widened(older, newer)
        assert set(both.dimensions) == {*older.dimensions, *newer.dimensions}
        assert set(both.metrics) == {*older.metrics, *newer.metrics}
        assert (both.rollup, both.filter) == (newer.rollup, newer.filter)
        assert widened(both, newer) == both == widened(older, both)
        assert [each.name for each in both.dimensions][: len(newer.dimensions)] == [
            each.name for each in newer.dimensions
        ]
