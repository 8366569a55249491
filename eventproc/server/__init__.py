"""Endpoints of a directory for other programs: Pravega's controller and segment store. Needs the extra `server`.

Nothing of it is imported unless `eventproc serve` runs.
Source: docs/design/endpoints.md.
"""
