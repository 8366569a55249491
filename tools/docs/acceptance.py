"""docs/acceptance.md: which test shows which case of the reference, from the `acceptance` marks on the tests.

The marks are read from the source, so nothing has to be imported or collected:

    @pytest.mark.acceptance("A6", differs="cuts of ten segments: a hundred add time and no path")
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# The reference's name of each case, and what it asserts. The gate fails while one of them has no test.
REQUIRED: Final = {
    "A1": (
        "scaleInputValidityTest",
        "every malformed scale is refused with its own reason; unsorted input and disjoint merges pass",
    ),
    "A2": (
        "predecessorAndSuccessorTest",
        "successors with their exact predecessors over four scales; none for a segment never sealed",
    ),
    "A5": (
        "truncationTest",
        "the head is the last cut, also across epochs; a cut behind it is refused; a segment of the cut stays",
    ),
    "A6": (
        "streamCutTest",
        "any covering choice of segments from different epochs is a cut; one segment alone is none",
    ),
    "A7": ("testStreamCutSegmentsBetween", "the exact segments between two cuts, future offsets included"),
    "A8": (
        "sizeTest",
        "the size up to a cut is the sum over the segments before it, whichever cut it is measured from",
    ),
    "A9": ("strictlyGreaterThanTest", "two cuts are before, equal or after, or overlap"),
    "B1": (
        "concurrentCreateStreamTest",
        "a creation repeated is one creation; another one of that name is refused; a crash half way heals",
    ),
    "B2": ("deletePartiallyCreatedStreamTest", "deletion works at every stage of a half-created stream"),
    "B3": (
        "updateSealedStream, truncateSealedStream",
        "a sealed stream refuses both, and no half-begun change stays",
    ),
    "B4": (
        "idempotentUpdatePartialScaleCompleted",
        "a crash inside the scale of an update, run again, makes exactly one more epoch",
    ),
    "B5": (
        "concurrentUpdateStream, concurrentTruncateStream",
        "a slow run overtaken by a second one changes nothing more",
    ),
    "B10": (
        "testScaleRange",
        "a range split in two: the ends are exactly the parent's, the middle is shared",
    ),
    "B12": (
        "sealStreamTest, sealStreamFailing, sealStreamWithTxnTest",
        "open transactions are aborted, decided ones committed while the stream is being sealed; then it is sealed",
    ),
    "B13": (
        "deleteStreamTest, testDeleteStreamReplay",
        "a request meant for an old incarnation does not touch the stream made anew",
    ),
    "B14": ("testDeleteAssociatedStream", "what belongs to a deleted stream goes with it"),
    "B19": ("testWorkflowCompletionTimeout", "a wait that runs out says so; the work completes later"),
    "C1": ("txnOrderTest", "commits are taken in their order; open ones are passed over"),
    "C2": ("txnCommitBatchLimitTest", "a hundred a round, in order"),
    "C5": (
        "testTransactionOutstandingCommit",
        "a commit that was begun is finished first, the next event takes the rest",
    ),
    "C6": (
        "commitAbortTests, idempotentOperationsTests",
        "a decision repeated is fine, the opposite one is refused",
    ),
    "C7": ("failOverTests", "open, committing and aborting transactions of a dead host come to their end"),
    "C8": ("partialTxnCreationTest", "a beginning that died half way leaves nothing that stays"),
    "C9": ("testPingOwnershipTransfer", "a timer set before another's ping does nothing"),
    "C10": (
        "testTimeout, testPingLeaseTooLarge, testPingMaxExecutionTimeExceeded, testUnknownTxnPingSuccess and others",
        "a lease ends in an abort, a stale timer in nothing; every answer of a ping",
    ),
    "C11": (
        "testCommitEventForSealingStream, testCommitFailureOnNoSuchSegment",
        "commits go on while the stream is being sealed",
    ),
    "C12": (
        "testListCompletedTransactions, testGarbageCollection",
        "what ended is known for a while, and then forgotten",
    ),
    "D1": (
        "testConcurrentEventProcessor",
        "of five events the third is stuck: progress stops before it, and jumps to the end when it is done",
    ),
    "D2": (
        "testFailedProcessingRetryable, testFailedProcessingNonRetryable, testFailedProcessingWriteBackFailed",
        "an event that fails for a while is tried again, one that always fails is given up; progress goes on",
    ),
    "D3": ("testShutdown", "stopping waits for what runs; what was cancelled is not in the progress"),
    "D4": (
        "testEventProcessorCell",
        "resume keeps the handler's state, restart begins with none, stop and a failing start end the processor",
    ),
    "D5": (
        "testNotifyProcessFailureSuccess, testNotifyProcessFailureError, testFailingSealReaderGroupInShutdown",
        "what a failed process had goes on elsewhere, from its durable progress; failing at that harms nothing",
    ),
    "D6": (
        "testEventProcessorGroupRebalance",
        "even shares stay; where somebody has none, who has most gives up, and the others keep what they have",
    ),
    "D7": (
        "testPostponeEvent, testPostponeEventLimits",
        "work that is put off lets other work pass, and is put off a bounded number of times",
    ),
    "D8": ("testProcessEvent", "events of one key one after the other, keys side by side"),
    "D9": (
        "folderOperationTests, readerRemovalTest, initialPositionTest",
        "what is registered, and what is refused: a reader twice, a reader of a group that is being removed",
    ),
    "D10": ("testCancellation", "a call that is cancelled ends, and its event is not finished"),
    "E1": (
        "testSegmentMerge, testSegmentSplit",
        "a successor is read only after all its predecessors; the parts of a split at once",
    ),
    "E2": (
        "testReleaseWhenReadersAdded",
        "six segments: 6, then 3 and 3, then 2, 2 and 2; after that nothing moves",
    ),
    "E3": ("testReleaseAndAcquireTimes", "when a segment that is due to another is given and taken"),
    "E4": ("testAcquireRace", "of two readers that want one segment exactly one gets it"),
    "E5": (
        "testCheckpointContainsAllShards and two of checkpoints and assignment",
        "a checkpoint holds a position for every segment; nothing changes hands past one that a reader owes",
    ),
    "E6": (
        "testRemoveReaderWithNullPosition",
        "a reader taken offline without a position goes back to its last checkpoint",
    ),
    "E7": (
        "testCheckpointNoReaders, testOutstandingCheckpoint",
        "without readers a checkpoint completes at once; so many may be under way and no more",
    ),
    "E8": (
        "five of EventStreamReaderTest",
        "positions taken silently and checkpoints, in any order, do not disturb each other",
    ),
    "E9": (
        "laggingResetReaderGroup, resetRGToLastCheckpoint",
        "readers that lag learn of a reset; a group goes back to its last checkpoint",
    ),
    "E10": (
        "testCompaction, testCompactWithTruncation, testReturnValue and two of fetching while it is truncated",
        "a snapshot stands for what was before it; truncated members go on; the generator's last result counts",
    ),
    "E11": (
        "testPositionsContainSealedSegments, testEndOfStream, testReachEnd",
        "positions hold sealed segments too; a sealed stream, or an end cut, ends the reading",
    ),
    "E12": (
        "readerGroupSegmentDistribution, getUnreadBytes",
        "how many segments each reader has, and how much is not read yet",
    ),
}

HEAD = """\
# Acceptance

The cases of Pravega's controller that hold here, and the test that shows each. Made from the `acceptance` marks on the
tests by `make docs`; edit those. An empty last column: nothing differs.

| case | in the reference | asserts | test | what differs, and why |
| --- | --- | --- | --- | --- |
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
    return HEAD + "".join(_row(mark) for mark in marks)


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


def _row(mark: Mark) -> str:
    name, asserts = REQUIRED.get(mark.case, ("", ""))
    file, function = mark.test.split("::")
    sentence = function.removeprefix("test_").replace("_", " ")
    cells = (mark.case, f"`{name}`", asserts, f"[{sentence}](../{file})", mark.differs)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"
