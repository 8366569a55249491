"""Chunk files: Arrow files of events beside the database, for Spark and for old events.

`index` keeps their rows; `chunk_file` writes and reads them; `export` copies events into them; `ingest` makes files
that Spark wrote part of a stream; `offload` moves old events out of the database. `chunk_file` and `export` need
pyarrow, so this package imports none of its modules.
"""
