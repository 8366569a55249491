"""What a processor shows of itself: status, measurements and log records."""

from __future__ import annotations
