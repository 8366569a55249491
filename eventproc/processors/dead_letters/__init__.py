"""Dead letters: events that a processor gave up, kept with the reason until they are redriven or dropped."""

from __future__ import annotations
