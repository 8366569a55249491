"""The state synchronizer: objects that several processes share, as a log of updates folded by a pure function.

Users reach it as `Eventproc.synchronizer`: a member's copy of the state, changed by optimistic updates:

    log = await db.write(create_log)
    counter = StateSynchronizer(db, log, COUNTER)
    await counter.initialize(0)
    await counter.update(lambda count: [Add(1)])

Reader groups use it inside `db.write`, where no conflict is possible and other rows change in the same transaction:

    def decide(tx: Tx) -> None:
        count = fold_tail(tx, log, COUNTER).state
        append(tx, log, COUNTER, [Add(count)])

Promises and reasons: docs/design/state-synchronizer.md.
"""

from __future__ import annotations

from eventproc.store.replicated.change import append as append, compact as compact, initialize as initialize
from eventproc.store.replicated.fold import FoldedState as FoldedState, fold_tail as fold_tail
from eventproc.store.replicated.kinds import ReplicatedType as ReplicatedType
from eventproc.store.replicated.log import (
    LogId as LogId,
    create_log as create_log,
    delete_log as delete_log,
    list_logs as list_logs,
)
from eventproc.store.replicated.named import (
    SYNCHRONIZER as SYNCHRONIZER,
    create_named as create_named,
    delete_named as delete_named,
    find_named as find_named,
    named_objects as named_objects,
)
from eventproc.store.replicated.synchronizer import StateSynchronizer as StateSynchronizer
