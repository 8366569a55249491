"""Windows and joins over event time, for `App.window` and `App.join`, and what tells how far event time has come.

| name | use |
| --- | --- |
| `Tumbling` | windows of one size, one behind the other |
| `Hopping` | windows of one size that overlap |
| `Sessions` | windows of events that are near each other |
| `Window` | a window of a key with its value, as handlers get it |
| `Pair` | two events of a key that are near each other, as the handler of a join gets them |
| `Single` | an event that had no partner, as `on_single` gets it |
| `WindowOptions` | the other options of `App.window` and `App.join` |
| `Timer` | a timer by event time that is due, as `on_timer` gets it |
| `TimeWindow` | between which times of its writers a group stands, as `GroupReader.time_window` returns it |
"""

from __future__ import annotations

from eventproc.processors.declarations import WindowOptions as WindowOptions
from eventproc.processors.joins import Pair as Pair, Single as Single
from eventproc.processors.timers import Timer as Timer
from eventproc.processors.windows import Window as Window
from eventproc.store.model.time_marks import TimeWindow as TimeWindow
from eventproc.store.model.windows import (
    Hopping as Hopping,
    Sessions as Sessions,
    Tumbling as Tumbling,
)

__all__ = [
    "Hopping",
    "Pair",
    "Sessions",
    "Single",
    "TimeWindow",
    "Timer",
    "Tumbling",
    "Window",
    "WindowOptions",
]
