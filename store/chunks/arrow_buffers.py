"""Arrow arrays from memory and as memory, without pandas.

`pa.array`, `pa.scalar` and `to_numpy` import pandas if that is installed, which takes a second. Each of Spark's
short-lived processes would pay for it.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

Number = TypeVar("Number", bound=np.generic)


def numbers(values: np.ndarray[tuple[int], np.dtype[Any]], kind: pa.DataType) -> pa.Array:
    """Return an array of a fixed-width type over the memory of `values`, which have the same width. No nulls."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def repeated_text(text: str, count: int) -> pa.Array:
    """Return a text `count` times."""
    encoded = text.encode()
    ends = np.arange(count + 1, dtype=np.int32) * len(encoded)
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(encoded * count)]
    )


def text_scalar(text: str) -> pa.Scalar:
    """Return a text as Arrow's functions take it."""
    return repeated_text(text, 1)[0]


def values_of(array: pa.Array, kind: type[Number]) -> np.ndarray[tuple[int], np.dtype[Number]]:
    """Return the memory of an array of a fixed-width type; what a null has there is undefined."""
    width = np.dtype(kind).itemsize
    found: np.ndarray[tuple[int], np.dtype[Number]] = np.frombuffer(
        array.buffers()[1] or b"", kind, len(array), array.offset * width if len(array) else 0
    )
    return found


def nulls_of(array: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which values are null."""
    validity = array.buffers()[0]
    if validity is None or not array.null_count:
        return np.zeros(len(array), np.bool_)
    bits = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = bits[array.offset : array.offset + len(array)] == 0
    return found
