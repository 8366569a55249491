"""Creates what the other services use, and changes nothing if it exists: the store, a stream, and a user of REST.

python prepare.py s3://BUCKET/PREFIX PASSWORD_FILE
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

import eventproc
from eventproc.errors import AlreadyExists

_, place, password_file = sys.argv
with eventproc.open_blocking(os.environ["EVENTPROC_DIR"], chunks=place) as ep:
    ep.create_scope("shop")
    ep.create_stream("shop/orders", scaling=eventproc.ScalingPolicy.fixed(4))
    with suppress(AlreadyExists):
        ep.users.add("admin", password=Path(password_file).read_text())
    ep.users.grant("admin", eventproc.Permission.READ_UPDATE, "*")
