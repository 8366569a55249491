"""docs/acceptance.md: which tests show which case of Pravega, from the `acceptance` marks of the tests.

The marks are read from the source, so nothing has to be imported or collected:

    @pytest.mark.acceptance("A6", differs="cuts of ten segments: a hundred add time and no path")
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

# Each case: the names of the original tests, and what they assert. The gate fails while a case has no test.
REQUIRED: Final = {
    "A1": (
        "scaleInputValidityTest",
        "Every malformed scale is refused with its own reason; unsorted input and separate merges are accepted.",
    ),
    "A2": (
        "predecessorAndSuccessorTest",
        "Successors have their exact predecessors over four scales; a segment that was never sealed has no successors.",
    ),
    "A5": (
        "truncationTest",
        "The head is the last cut, also across epochs. A cut behind it is refused. The segments of the cut are kept.",
    ),
    "A6": (
        "streamCutTest",
        "Any choice of segments from different epochs that covers the key space is a cut; a single segment is not.",
    ),
    "A7": (
        "testStreamCutSegmentsBetween",
        "The exact segments between two cuts, including segments with future offsets.",
    ),
    "A8": (
        "sizeTest",
        "The size up to a cut is the sum over the segments before it, from whichever cut it is measured.",
    ),
    "A9": (
        "strictlyGreaterThanTest",
        "Of two cuts one is before the other, equal to or after it, or they overlap.",
    ),
    "B1": (
        "concurrentCreateStreamTest",
        "Repeating a create changes nothing; a different create of that name is refused; a create that crashed is completed by the next.",
    ),
    "B2": (
        "deletePartiallyCreatedStreamTest",
        "A stream can be deleted at every stage of its creation.",
    ),
    "B3": (
        "updateSealedStream, truncateSealedStream",
        "A sealed stream refuses both, and no unfinished change remains.",
    ),
    "B4": (
        "idempotentUpdatePartialScaleCompleted",
        "An update that crashed inside its scale opens exactly one more epoch when it runs again.",
    ),
    "B5": (
        "concurrentUpdateStream, concurrentTruncateStream",
        "A slow run that a second run has overtaken changes nothing.",
    ),
    "B10": (
        "testScaleRange",
        "A split range ends exactly where its parent ends, and both parts share the middle.",
    ),
    "B12": (
        "sealStreamTest, sealStreamFailing, sealStreamWithTxnTest",
        "A seal aborts open transactions, waits until decided ones are committed, and then seals.",
    ),
    "B13": (
        "deleteStreamTest, testDeleteStreamReplay",
        "A request for an older incarnation does not touch the new stream of the same name.",
    ),
    "B14": (
        "testDeleteAssociatedStream",
        "Everything that belongs to a deleted stream is deleted with it.",
    ),
    "B19": (
        "testWorkflowCompletionTimeout",
        "A wait that times out reports it, and the work completes later.",
    ),
    "C1": (
        "txnOrderTest",
        "Commits are taken in their order; open transactions are skipped.",
    ),
    "C2": (
        "txnCommitBatchLimitTest",
        "One round commits at most a hundred transactions, in order.",
    ),
    "C5": (
        "testTransactionOutstandingCommit",
        "A commit that has begun is finished first; the next event takes the rest.",
    ),
    "C6": (
        "commitAbortTests, idempotentOperationsTests",
        "Repeating a decision succeeds; the opposite decision is refused.",
    ),
    "C7": (
        "failOverTests",
        "Open, committing and aborting transactions of a dead host reach their end.",
    ),
    "C8": (
        "partialTxnCreationTest",
        "A transaction whose beginning crashed leaves nothing behind.",
    ),
    "C9": (
        "testPingOwnershipTransfer",
        "A timer that was set before another process pinged does nothing.",
    ),
    "C10": (
        "testTimeout, testPingLeaseTooLarge, testPingMaxExecutionTimeExceeded, testUnknownTxnPingSuccess and others",
        "An expired lease aborts the transaction; a stale timer does nothing; every answer of a ping.",
    ),
    "C11": (
        "testCommitEventForSealingStream, testCommitFailureOnNoSuchSegment",
        "Commits continue while the stream is being sealed.",
    ),
    "C12": (
        "testListCompletedTransactions, testGarbageCollection",
        "Finished transactions are listed for a while, and then forgotten.",
    ),
    "D1": (
        "testConcurrentEventProcessor",
        "Of five events the third is stuck: progress stops before it, and moves to the end when it is done.",
    ),
    "D2": (
        "testFailedProcessingRetryable, testFailedProcessingNonRetryable, testFailedProcessingWriteBackFailed",
        "A temporary failure is retried, a permanent one is given up, and progress continues.",
    ),
    "D3": (
        "testShutdown",
        "A stop waits for running calls; cancelled calls are not part of the progress.",
    ),
    "D4": (
        "testEventProcessorCell",
        "`RESUME` keeps the handler's state, `RESTART` begins with a new handler, and `STOP` or a failing start ends the processor.",
    ),
    "D5": (
        "testNotifyProcessFailureSuccess, testNotifyProcessFailureError, testFailingSealReaderGroupInShutdown",
        "Another process continues the work of a failed one from its durable progress; a failure during the takeover causes no loss.",
    ),
    "D6": (
        "testEventProcessorGroupRebalance",
        "Even shares do not move. If a process has no segment, the one with the most gives one up, and the others keep theirs.",
    ),
    "D7": (
        "testPostponeEvent, testPostponeEventLimits",
        "Work that is put off lets other work pass, and is put off a limited number of times.",
    ),
    "D8": (
        "testProcessEvent",
        "Events of one key are processed one after the other, and keys in parallel.",
    ),
    "D9": (
        "folderOperationTests, readerRemovalTest, initialPositionTest",
        "What is registered, and what is refused: the same reader twice, a reader of a group that is being removed.",
    ),
    "D10": (
        "testCancellation",
        "A cancelled call ends, and its event is not finished.",
    ),
    "E1": (
        "testSegmentMerge, testSegmentSplit",
        "A successor is read only after all its predecessors; the parts of a split are available together.",
    ),
    "E2": (
        "testReleaseWhenReadersAdded",
        "Six segments are shared as 6, then 3 and 3, then 2, 2 and 2; after that nothing moves.",
    ),
    "E3": (
        "testReleaseAndAcquireTimes",
        "When a segment that is assigned to another reader is released and acquired.",
    ),
    "E4": (
        "testAcquireRace",
        "If two readers want one segment, exactly one gets it.",
    ),
    "E5": (
        "testCheckpointContainsAllShards and two of checkpoints and assignment",
        "A checkpoint has a position for every segment; no segment changes hands before its reader has answered the checkpoint.",
    ),
    "E6": (
        "testRemoveReaderWithNullPosition",
        "A reader that goes offline without a position goes back to its last checkpoint.",
    ),
    "E7": (
        "testCheckpointNoReaders, testOutstandingCheckpoint",
        "Without readers a checkpoint completes immediately; the number of open checkpoints is limited.",
    ),
    "E8": (
        "five of EventStreamReaderTest",
        "Silently taken positions and checkpoints do not disturb each other, in any order.",
    ),
    "E9": (
        "laggingResetReaderGroup, resetRGToLastCheckpoint",
        "Readers that lag learn of a reset; a group goes back to its last checkpoint.",
    ),
    "E10": (
        "testCompaction, testCompactWithTruncation, testReturnValue and two of fetching while it is truncated",
        "A snapshot replaces the updates before it; members whose updates were truncated continue; the generator's last result counts.",
    ),
    "E11": (
        "testPositionsContainSealedSegments, testEndOfStream, testReachEnd",
        "Positions include sealed segments; a sealed stream, or an end cut, ends the reading.",
    ),
    "E12": (
        "readerGroupSegmentDistribution, getUnreadBytes",
        "How many segments each reader has, and how much is unread.",
    ),
}

AREAS: Final = {
    "A": "Segments, epochs and cuts",
    "B": "Workflows",
    "C": "Transactions",
    "D": "Event processors",
    "E": "Reader groups",
}

HEAD = """\
# Acceptance

The cases of Pravega's own tests that hold here, and the tests that show each. `make docs` writes this page from the
`acceptance` marks of the tests; edit those. A test without a remark asserts the case as in the original.
"""


@dataclass(frozen=True, order=True)
class Mark:
    """One `acceptance` mark: the case, the test that carries it (path::name), what differs from the reference."""

    case: str
    test: str
    differs: str


def render(root: Path) -> str:
    """Return the whole document."""
    marks = sorted(collect(root / "tests"), key=lambda mark: (mark.case[0], int(mark.case[1:]), mark.test))
    return HEAD + "".join(_sections(marks))


def problems(root: Path) -> list[str]:
    """Return one line per required case that no test shows, and per mark that names no case we know."""
    found = {mark.case for mark in collect(root / "tests")}
    return [f"acceptance case {case} has no test" for case in REQUIRED if case not in found] + [
        f"acceptance case {case} is not described in tools/docs/acceptance.py"
        for case in sorted(found - set(REQUIRED))
    ]


def collect(tests: Path) -> list[Mark]:
    """Return every mark below `tests`."""
    return [mark for path in sorted(tests.rglob("test_*.py")) for mark in _marks_of(path, tests.parent)]


def _marks_of(path: Path, root: Path) -> Iterator[Mark]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.acceptance":
                words = {keyword.arg: ast.literal_eval(keyword.value) for keyword in decorator.keywords}
                test = f"{path.relative_to(root)}::{node.name}"
                for case in decorator.args:
                    yield Mark(ast.literal_eval(case), test, words.get("differs", ""))


def _sections(marks: list[Mark]) -> Iterator[str]:
    for area, of_area in groupby(marks, key=lambda mark: mark.case[0]):
        yield f"\n## {area}. {AREAS.get(area, area)}\n"
        for case, of_case in groupby(of_area, key=lambda mark: mark.case):
            names, asserts = REQUIRED.get(case, ("", ""))
            yield f"\n**{case}.** {asserts} (`{names}`)\n\n"
            yield from _tests(list(of_case))


def _tests(marks: list[Mark]) -> Iterator[str]:
    """Yield a line per test, or one line for tests that differ from the original in the same way."""
    for differs in dict.fromkeys(mark.differs for mark in marks):
        links = ", ".join(_link(mark) for mark in marks if mark.differs == differs)
        yield f"- {links}\n" if not differs else f"- {links}. Differs: {differs}\n"


def _link(mark: Mark) -> str:
    file, function = mark.test.split("::")
    return f"[{function.removeprefix('test_').replace('_', ' ')}](../{file})"
