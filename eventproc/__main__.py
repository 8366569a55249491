"""`python -m eventproc` is the command line."""

from __future__ import annotations

import sys

from eventproc.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
