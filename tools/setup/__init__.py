"""Set-up of `.venv/` on a machine that only has python3: no uv, no pip, no venv module.

`python3 -m tools.setup` finds or fetches uv, then installs exactly what `uv.lock` says, checked by hash. Standard
library only; says what it does on stderr and nothing on stdout; takes a few milliseconds when nothing changed.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - this line must say so on any Python 3
    raise SystemExit(
        "eventproc needs Python 3.11 or newer; name one, as in `make demo PYTHON=python3.12`. This is "
        + sys.version.split()[0]
    )
