"""Endpoints of a directory for other programs: Pravega's controller and segment store. Needs the extra `server`.

Only `rest/json_values.py` is imported unless `eventproc serve` runs: the command line writes its JSON, too.
Source: docs/design/endpoints.md.
"""
