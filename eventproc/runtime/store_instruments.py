"""The measures of open stores as observable instruments of OpenTelemetry.

They are observed by each export, on its thread, with one look at each store; nothing is done between two exports. A
program that has not imported OpenTelemetry's API before it opens a store pays nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from threading import Lock
from types import MappingProxyType
from typing import Final
from weakref import WeakKeyDictionary

from opentelemetry.metrics import CallbackOptions, Histogram as MetricHistogram, Meter, Observation, get_meter

from eventproc._version import __version__
from eventproc.base.conventions import ERROR, OPERATION, STREAM, SYSTEM
from eventproc.base.durations import SECONDS, Labels, measure
from eventproc.base.tasks import LoopOfThreads
from eventproc.processors.observe.telemetry import GROUP
from eventproc.runtime.measures import HISTOGRAMS, MEASURES, Histogram, Measure, StoreLook, look_at_store
from eventproc.store.database import Database

LOG = logging.getLogger("eventproc.telemetry")

LOOK_S: Final = 2
"""How long an export waits for a look at a store, in s. A look takes milliseconds; the bound is for an event loop that
waits for the export itself. Higher: it waits for longer; lower: a busy process is not measured."""

STORE: Final = "eventproc.store.name"
"""The attribute that says which store a value is of."""

ATTRIBUTES: Final = MappingProxyType({"stream": STREAM, "group": GROUP, "error": ERROR})
"""Attributes for labels of measures that the conventions name."""


class StoreInstruments:
    """Shows the open stores of this process to one meter. Safe to call from any thread."""

    def __init__(self, meter: Meter) -> None:
        self._stores: WeakKeyDictionary[Database, LoopOfThreads] = WeakKeyDictionary()
        self._lock = Lock()
        self._looks: Mapping[str, StoreLook] = {}
        self._shown: set[str] = {each.name for each in MEASURES}  # what the present looks have been used for
        for each in MEASURES:
            create = meter.create_observable_counter if each.is_counter else meter.create_observable_gauge
            create(each.name, [partial(self._observe, each)], each.unit, each.about)
        self._histograms = [
            (
                each,
                meter.create_histogram(
                    each.name, "s", each.about, explicit_bucket_boundaries_advisory=SECONDS
                ),
            )
            for each in HISTOGRAMS
        ]
        measure()

    def add(self, db: Database) -> None:
        """Show a store for as long as it is open. On the event loop."""
        self._stores[db] = LoopOfThreads()
        for each, instrument in self._histograms:
            each.durations_of(db).export = partial(
                _record, each, instrument, db.name if each.is_of_store else ""
            )

    def _observe(self, measure: Measure, _: CallbackOptions) -> Sequence[Observation]:
        """Return the values of a measure. The first one of an export looks at the stores for all of them."""
        with self._lock:
            if measure.name in self._shown:
                self._shown.clear()
                self._looks = dict(self._look())
            self._shown.add(measure.name)
            return [each for name, look in self._looks.items() for each in _observations(measure, name, look)]

    def _look(self) -> Iterable[tuple[str, StoreLook]]:
        """Yield the name of each store that is open, and a look at it."""
        for db, loop in list(self._stores.items()):
            try:
                look = loop.run(partial(look_at_store, db), wait_s=LOOK_S)
            except Exception as why:  # it is closed, or cannot be read: the others are shown
                LOG.debug("%s is not measured: %s", db.name, why)
                continue
            if look is not None:
                yield db.name, look


def attribute_of(label: str) -> str:
    """Return the attribute for a label of a measure."""
    return ATTRIBUTES.get(label, f"eventproc.{label}")


def _observations(measure: Measure, store: str, look: StoreLook) -> Iterable[Observation]:
    for labels, value in measure.points(look):
        yield Observation(value, _attributes(measure, store, labels))


def _record(row: Histogram, instrument: MetricHistogram, store: str, labels: Labels, seconds: float) -> None:
    instrument.record(seconds, _attributes(row, store, labels))


def _attributes(row: Measure | Histogram, store: str, labels: Labels) -> dict[str, str]:
    given = {
        STORE: store,
        OPERATION: row.operation,
        **dict(zip(map(attribute_of, row.labels), labels, strict=True)),
    }
    return {SYSTEM: "eventproc", **{name: value for name, value in given.items() if value}}


@cache
def _instruments() -> StoreInstruments:
    return StoreInstruments(get_meter("eventproc", __version__))


def observe(db: Database) -> None:
    """Show a store, while it is open, to the provider that the program has set or will set."""
    _instruments().add(db)
