"""`/metrics`: what is measured of a store, as Prometheus scrapes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from eventproc.base.durations import SECONDS
from eventproc.runtime import Eventproc
from eventproc.runtime.measures import HISTOGRAMS, MEASURES, StoreLook, look_at_store
from eventproc.store.model.list_pages import NameFilter


async def render_metrics(ep: Eventproc, accept: str, readable: NameFilter | None = None) -> tuple[bytes, str]:
    """Return the metrics and their media type.

    accept: the header of that name, which chooses between Prometheus' text and OpenMetrics.
    readable: the names that the caller may know, whose measures it gets, and none of the server. None: all.
    """
    registry = CollectorRegistry()
    if readable is None:
        ProcessCollector(registry=registry)
    look = await look_at_store(ep.db, readable)
    registry.register(_Families(_families(look, is_of_all=readable is None)))
    try:
        encode, media_type = choose_encoder(accept)
    except TypeError:  # it asks for a version that is none
        encode, media_type = choose_encoder("")
    return encode(registry), media_type


class _Families(Collector):
    """Hands over what was measured."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        """Return the families."""
        return self._families


def _families(look: StoreLook, *, is_of_all: bool) -> Iterator[Metric]:
    for measure in MEASURES:
        if not is_of_all and not measure.is_of_names:
            continue
        kind = CounterMetricFamily if measure.is_counter else GaugeMetricFamily
        family = kind(measure.prometheus_name, measure.about, labels=measure.labels)
        for labels, value in measure.points(look):
            family.add_metric(labels, value)
        yield family
    bounds = [*map(str, SECONDS), "+Inf"]
    for each in HISTOGRAMS:
        histogram = HistogramMetricFamily(each.prometheus_name, each.about, labels=each.labels)
        for labels, found in look.durations[each.name].items():
            buckets = list(zip(bounds, accumulate(found.counts), strict=True))
            histogram.add_metric(labels, buckets, found.sum_s)
        yield histogram
