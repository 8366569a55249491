"""The cases of docs/acceptance.md about Spark: {case: (name in the original, what it asserts)}."""

from __future__ import annotations

from typing import Final

CONNECTOR_CASES: Final = {
    "Q1": (
        "",
        "A batch query reads every column of every event, also across a scale.",
    ),
    "Q2": (
        "",
        "A streaming query reads each event once and each key in order, through limits, scales and restarts.",
    ),
    "Q3": (
        "",
        "After the death of a driver the next one repeats its batch with the same events; the output has them once.",
    ),
    "Q4": (
        "",
        "With `assign`, a query reads the chosen segments or partitions, in batches and streaming.",
    ),
    "Q5": (
        "",
        "A query starts at an end, a time, a cut, or offsets by segment; a time behind the last event may be an error.",
    ),
    "Q6": (
        "",
        "A stream that fits the pattern and is created later is read from its head.",
    ),
    "Q7": (
        "",
        "A batch waits for its least number of events, up to the delay.",
    ),
    "Q8": (
        "",
        "Events that were truncated before they were read fail the query, or are skipped on request.",
    ),
    "Q9": (
        "",
        "Options set the least number of tasks, and the most events of one.",
    ),
    "Q10": (
        "",
        "A topic is read by partition, with headers as a list of names and bytes.",
    ),
    "Q11": (
        "",
        "Typed rows are those of `from_json`, and a row depends on its payload alone.",
    ),
    "Q12": (
        "",
        "A batch of a sink is in the stream once and in order, despite scales and reruns.",
    ),
    "Q13": (
        "",
        "A driver that is killed while it commits leaves all of the batch or nothing, in one stream or several.",
    ),
    "Q14": (
        "",
        "A column routes rows to streams, as Kafka's sink does with `topic`.",
    ),
    "Q15": (
        "",
        "An older run of a sink is refused, and so is a run whose stream was deleted and created again.",
    ),
    "Q16": (
        "",
        "Wrong options and columns are refused by name, and an unwritable stream before the job starts.",
    ),
    "Q17": (
        "",
        "A query in complete mode appends each result; in SQL a view reads a stream and appends to it.",
    ),
    "Q18": (
        "",
        "The lag of a query is known, also after the death of its driver; stopping Spark ends what never ends.",
    ),
    "Q19": (
        "",
        "Executors of a cluster read and write through one shared folder.",
    ),
}
