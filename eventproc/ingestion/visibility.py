"""Which supervisors and tables a reader may know that may not read all streams: those that come of its streams alone.

What a supervisor shows, and the rows of a table, tell what is in the streams that were ever read for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain

import attrs

from eventproc.ingestion.spec import SupervisorSpec
from eventproc.store.database import Tx
from eventproc.store.ingestion import spec_versions, supervisor_ids
from eventproc.store.ingestion.pointers import pointers
from eventproc.store.ingestion.supervisors import specs_of_table
from eventproc.store.model.errors import NotFound
from eventproc.store.model.list_pages import ListPage, NameFilter, chosen_entries


def list_supervisors(tx: Tx, page: ListPage) -> list[str]:
    """Return the ids of a page of the supervisors that its reader may know.

    Cost with a filter: as `chosen_entries`, and a spec to parse for each version of each supervisor.
    """
    read = partial(supervisor_ids, tx)
    readable = page.readable
    if readable is None:
        return read(page)
    return chosen_entries(read, lambda each: may_know_supervisor(tx, each, readable), str, page)


def may_know_supervisor(tx: Tx, supervisor: str, readable: NameFilter) -> bool:
    """Return whether a supervisor exists, and has read nothing but readable streams in all versions of its spec."""
    try:
        versions = spec_versions(tx, supervisor)
    except NotFound:
        return False
    return _read_only((each.text for each in versions if each.text is not None), readable)


def may_know_table(tx: Tx, name: str, readable: NameFilter) -> bool:
    """Return whether all specs that ever wrote to a table read nothing but readable streams, and there is one."""
    return _read_only(specs_of_table(tx, name), readable)


def table_page(tx: Tx, page: ListPage) -> ListPage:
    """Return the page with the filter of the tables that its reader may know, which have no scopes."""
    if page.readable is None:
        return page
    readable = page.readable
    known = frozenset(each for each in pointers(tx) if may_know_table(tx, each, readable))
    return attrs.evolve(page, readable=_Tables(known))


@attrs.frozen
class _Tables:
    """The filter of tables."""

    known: frozenset[str]

    def allows(self, name: str) -> bool:
        return name in self.known

    def prefixes_in(self, _: str) -> Sequence[str]:
        return ("",)


def _read_only(specs: Iterable[str], readable: NameFilter) -> bool:
    """Return whether there is a spec, and all specs read named streams only and name readable ones only."""
    found = [SupervisorSpec.parse(each) for each in specs]
    read = [each.stream_names for each in found]
    written = [each.tuning.unparseable_stream for each in found if each.tuning.unparseable_stream is not None]
    return bool(read) and all(read) and all(map(readable.allows, chain(written, *read)))
