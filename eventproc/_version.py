"""The version of the distribution, readable by the build and at run time at no cost."""

from __future__ import annotations

__version__ = "0.2.0"
