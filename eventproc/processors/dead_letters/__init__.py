"""Dead letters: events that a processor gave up, kept with the reason until somebody redrives or drops them."""

from __future__ import annotations
