"""The cases of docs/acceptance.md: Pravega's own tests, and those by which users of Kafka and Druid judge us."""

from __future__ import annotations

from typing import Final

from tools.docs.connector_cases import CONNECTOR_CASES

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
    "A3": (
        "testSegmentQueriesDuringScale",
        "Until a scale has happened its new segments are not found; afterwards they are active, with their predecessors.",
    ),
    "A4": (
        "segmentQueriesDuringRollingTxn",
        "Successors lead from an active segment through the epoch of a rolling transaction to the copy of the active epoch.",
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
    "A10": (
        "retentionSetTest, streamCutReferenceRecordBeforeTest",
        "A cut is found for a time: the latest one that is not after it, and never one before the head.",
    ),
    "A11": (
        "testFindEpochAtTime, testFetchEpochs, testHistoryTimeSeriesChunk, testSealedSegmentSizeMapShard",
        "The epoch at every time, every run of epochs, and the size of every sealed segment, page by page.",
    ),
    "A12": (
        "concurrentStartScaleTest",
        "Two equal scales are one; a different one is refused while the first is pending.",
    ),
    "A13": (
        "testZkConnectionLoss, testError",
        "Every failure of the store below is an error that says whether to try again.",
    ),
    "A14": (
        "getSafeStartingSegmentNumberForTest, testStreamRecreation",
        "A stream that is created again has no segment, event or transaction of its predecessor.",
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
    "B6": (
        "testScaleStateReset",
        "A scale that was interrupted does not keep its stream from being scaled.",
    ),
    "B7": (
        "testConcurrentDistinctAutoScaleRequest, testConcurrentDistinctManualScaleRequest",
        "A policy does not scale a stream while another scale of it is pending.",
    ),
    "B8": (
        "testInconsistentScaleRequestAfterRollingTxn",
        "A scale that was asked for before another epoch was opened is refused when it runs, and changes nothing.",
    ),
    "B9": (
        "testMigrateManualScaleRequestAfterRollingTxn",
        "A person's scale that a rolling transaction has overtaken changes nothing, and can be asked for on the copies.",
    ),
    "B10": (
        "testScaleRange",
        "A split range ends exactly where its parent ends, and both parts share the middle.",
    ),
    "B11": (
        "testScaleRequestWithMinimumSegment",
        "Cold segments merge with cold neighbours, down to the minimum of the policy and not below.",
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
    "B15": (
        "testAddIndexAndSubmitTask",
        "A request whose submission was interrupted is either run or was never made.",
    ),
    "B16": (
        "testRequestSweeper, testRequestSweeperLimits",
        "Requests that no host has run are all run by the next one.",
    ),
    "B17": (
        "testCompleteStartedTasks, testCompleteStartedTasksIgnoreFairness",
        "A request that has begun runs to its end, whatever has happened since.",
    ),
    "B18": (
        "testCommitAndStreamProcessorFairness",
        "Waiting requests of one kind or stream do not keep those of another kind or stream from running.",
    ),
    "B19": (
        "testWorkflowCompletionTimeout",
        "A wait that times out reports it, and the work completes later.",
    ),
    "B20": (
        "deleteScopeRecursiveTest",
        "A scope is deleted with its streams, which are sealed first; a second call joins the first one.",
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
    "F1": (
        "sizeBasedRetentionStreamTest, timeBasedRetentionStreamTest",
        "A run of retention truncates the stream, and the bytes are freed.",
    ),
    "F2": (
        "sizeBasedRetentionWithSubscriberTest and its variants",
        "What all groups have passed is truncated, between the minimum and the maximum of the policy.",
    ),
    "F3": (
        "updateSubscriberStreamCutTest",
        "A group allows truncation up to a cut that is valid, and never before the last one.",
    ),
    "F4": (
        "scaleTest",
        "Rates over 2, 5, 10 and 20 minutes decide which segments are split and merged; young ones are left alone.",
    ),
    "F5": (
        "testMaxConcurrentJobs, testFailover, testSplitBrainScenario",
        "Each bucket has one owner, and another instance takes it over at a death; a former owner changes nothing.",
    ),
    "F6": (
        "WatermarkWorkflowTest",
        "A mark follows when the lowest time of the live writers grows, behind all their positions; a silent writer counts no longer.",
    ),
    "G1": (
        "createScopeSucceedsForPrivilegedUser, createScopeFailsForUnauthorizedUser, createScopeFailsForNonExistentUser",
        "Each method of the controller answers users with the permission on its resource, and refuses the others.",
    ),
    "G2": ("testTokenVerificationSucceedsWhenAuthIsDisabled", "Without users, any token is accepted."),
    "G3": ("testTokenVerificationFailsWhenTokenIsExpired", "A missing or expired token is refused."),
    "G4": ("testDelegationTokenGetsRenewedAfterExpiry", "A client goes on with another token."),
    "K1": (
        "",
        "One consumer of a topic of 6 partitions gets all of them, and the group is Stable.",
    ),
    "K2": (
        "",
        "A second consumer gets 3 of them. No partition has two owners, and the partitions that stay are not paused.",
    ),
    "K3": (
        "",
        "A consumer more than there are partitions is idle, and takes over when an owner goes.",
    ),
    "K4": (
        "",
        "The partitions of a consumer that leaves move immediately, and start at its last commit.",
    ),
    "K5": (
        "",
        "The partitions of a consumer that is silent move when the patience of its group has ended, and not before.",
    ),
    "K6": (
        "",
        "A suspended consumer that wakes up cannot commit: a typed error, and the number stays. It hears `on_lost`.",
    ),
    "K7": (
        "",
        "A consumer commits partitions that it still owns after the group has changed elsewhere.",
    ),
    "K8": (
        "",
        "A commit with an epoch that is yet to come is refused.",
    ),
    "K9": (
        "",
        "A consumer whose handler exceeds the poll interval is removed; the log names the handler, the events and the time.",
    ),
    "K10": (
        "",
        "A revocation callback that never returns is cut off: its consumer is fenced, and the group becomes Stable.",
    ),
    "K11": (
        "",
        "A revocation callback commits; the new owner starts there and repeats nothing.",
    ),
    "K12": (
        "",
        "A kill between processing and commit repeats the events; with a transaction their effect comes once.",
    ),
    "K13": (
        "",
        "An event whose handler fails is retried before the next one of its partition; other partitions go on.",
    ),
    "K14": (
        "",
        "An event whose retries are spent is in the dead letters with its origin, error and attempts; redrive returns it.",
    ),
    "K15": (
        "",
        "A static consumer that restarts in time keeps its partitions; the others notice nothing.",
    ),
    "K16": (
        "",
        "A static consumer that restarts too late is a new one.",
    ),
    "K17": (
        "",
        "Of two live consumers with one id the second is refused; the first is undisturbed.",
    ),
    "K18": (
        "",
        "Partitions added under a group that started at the end are read from their beginning.",
    ),
    "K19": (
        "",
        "A deleted topic leaves the group, with its numbers; the other topics go on.",
    ),
    "K20": (
        "",
        "A topic that was deleted and created again is not read from the old number.",
    ),
    "K21": (
        "",
        "A truncation behind the number is handled by the group's policy: earliest, latest, or a typed error.",
    ),
    "K22": (
        "",
        "Consumers with different subscriptions get no topic that they did not ask for.",
    ),
    "K23": (
        "",
        "A changed subscription moves only partitions of the topics concerned.",
    ),
    "K24": (
        "",
        "A pattern takes in a matching topic that is created later, without a restart.",
    ),
    "K25": (
        "",
        "Assignors are complete, exclusive, balanced and deterministic, and move least.",
    ),
    "K26": (
        "",
        "Range with 2 topics of 3 partitions and 2 consumers gives 4 and 2, with equal numbers on one consumer.",
    ),
    "K27": (
        "",
        "A consumer with another assignor than the group's is refused.",
    ),
    "K28": (
        "",
        "A reset is refused while consumers are online; a dry run changes nothing; later the reset is done.",
    ),
    "K29": (
        "",
        "An administrator commits numbers of a group without consumers, and of no other.",
    ),
    "K30": (
        "",
        "Only a group without consumers can be deleted; its numbers go with it.",
    ),
    "K31": (
        "",
        "Committed numbers are kept as long as the group needs them.",
    ),
    "K32": (
        "",
        "Lag is null before the first commit, exact after it, without open transactions, and never negative.",
    ),
    "K33": (
        "",
        "Events of an aborted transaction are not delivered.",
    ),
    "K34": (
        "",
        "An open transaction that exceeds its time is aborted; a later commit of it is refused.",
    ),
    "K35": (
        "",
        "A process that dies in the middle of a rebalance is taken over from; epochs grow, and no partition has two owners.",
    ),
    "K36": (
        "",
        "Members churned at random in two processes: one owner each, epochs and numbers grow, every event is processed.",
    ),
    "K37": (
        "",
        "A partition that goes back to its former owner before it was released is neither lost nor owned twice.",
    ),
    "K38": (
        "",
        "A commit whose reply was lost is repeated without an effect.",
    ),
    "K39": (
        "",
        "SIGTERM: nothing new begins, running calls end within the grace period, exit code 0; a second signal stops at once.",
    ),
    "K40": (
        "",
        "A paused partition stays assigned and continues where it was; its lag grows.",
    ),
    "K41": (
        "",
        "A wall clock that is moved expires nobody.",
    ),
    "K42": (
        "",
        "Through a split and a merge the order of each key holds; no successor is read before its predecessors end.",
    ),
    "S1": (
        "",
        "A minimal spec has the defaults; every invalid value is refused with its path.",
    ),
    "S2": (
        "",
        "The first task count is the given one, then the autoscaler's start, then its minimum; a ratio limits how many groups end simultaneously.",
    ),
    "S3": (
        "",
        "Six partitions, three tasks and two replicas make three groups and six tasks; the replicas of a group share their start.",
    ),
    "S4": (
        "",
        "There are no more groups than partitions.",
    ),
    "S5": (
        "",
        "A first run that fails creates no tasks; the state says so after three runs, and recovers after three good ones.",
    ),
    "S6": (
        "",
        "A stream that is lost later does not stop the groups; after three runs the state says so.",
    ),
    "S7": (
        "",
        "Stored offsets come before the configured start; a partition that is found later is read from its beginning.",
    ),
    "S8": (
        "",
        "Rows outside the message times of the group are counted and thrown away, also by a replacement.",
    ),
    "S9": (
        "",
        "A failed task is replaced with the same range.",
    ),
    "S10": (
        "",
        "A restarted supervisor adopts compatible tasks, creates missing replicas, and replaces incompatible tasks.",
    ),
    "S11": (
        "",
        "A task that publishes is adopted, and the next group begins at its ends.",
    ),
    "S12": (
        "",
        "At the end of the duration the replicas get one end, and the next group begins there; nothing is lost or read twice.",
    ),
    "S13": (
        "",
        "Of several groups whose time is over, as many end simultaneously as the limit allows.",
    ),
    "S14": (
        "",
        "A group ends early on demand, whatever the limit; an unknown number is ignored.",
    ),
    "S15": (
        "",
        "A task that gives no answer is stopped, and the others of its group go on; without others the group begins again at the published offsets.",
    ),
    "S16": (
        "",
        "The first success of a group ends its other replicas; nothing is published twice.",
    ),
    "S18": (
        "",
        "If all tasks of a publishing group fail, it and the groups behind it begin again; failures count towards the health.",
    ),
    "S24": (
        "",
        "Truncated events that were not read make the supervisor unhealthy, or are skipped once if it may reset.",
    ),
    "S27": (
        "",
        "A partition that is added is read.",
    ),
    "S31": (
        "",
        "Without lag and new events the supervisor is idle, and creates tasks again when something is written.",
    ),
    "S36": (
        "",
        "A new host takes over the tasks as they are.",
    ),
    "S17": (
        "",
        "A publishing group that exceeds its time begins again with the groups behind it; other groups go on.",
    ),
    "S19": (
        "",
        "After a number of rows a task publishes and reads on; a request that is repeated changes nothing.",
    ),
    "S20": (
        "",
        "A task whose ranges match neither the store nor its peers is stopped.",
    ),
    "S21": (
        "",
        "A publication whose start is the committed offset moves it; a stale start publishes nothing; one that is ahead waits.",
    ),
    "S22": (
        "",
        "A publication that fails in the middle leaves neither files nor offsets; its repetition gives exactly one copy.",
    ),
    "S23": (
        "",
        "A hard reset begins again as the spec says; a reset of offsets moves only the given partitions; wrong ones change nothing.",
    ),
    "S25": (
        "",
        "Suspend publishes and creates nothing, also after a change of host; resume goes on; terminate keeps the history.",
    ),
    "S26": (
        "",
        "A hundred events of tasks are one run; a notice that fails does not end the loop.",
    ),
    "S28": (
        "",
        "The lag-based autoscaler compares shares of samples with its fractions, steps within the bounds, and clears its samples.",
    ),
    "S29": (
        "",
        "No scaling while groups publish, before its delay, or while suspended; it keeps the offsets and survives a restart.",
    ),
    "S30": (
        "",
        "The cost-based autoscaler needs a rate and an idle ratio, and chooses a cheaper number of tasks.",
    ),
    "S32": (
        "",
        "The status has the lag per partition, the remaining time, publishing tasks apart, and a bounded number of errors.",
    ),
    "S33": (
        "",
        "A bounded supervisor publishes exactly its ranges and is completed; a task that fails goes on midway.",
    ),
    "S34": (
        "",
        "A backfill lets a supervisor go on from now, and a bounded one fill the gap; every event is counted once.",
    ),
    "S35": (
        "",
        "Two supervisors of one table have offsets of their own, and both commit.",
    ),
    "S37": (
        "",
        "An equal spec changes nothing; a changed schema lets old tasks publish, and new ones begin at their ends.",
    ),
    **CONNECTOR_CASES,
}

AREAS: Final = {
    "A": "Segments, epochs and cuts",
    "B": "Workflows",
    "C": "Transactions",
    "D": "Event processors",
    "E": "Reader groups",
    "F": "Policies",
    "G": "Users and tokens",
    "K": "Consumer groups: what users of Kafka expect",
    "Q": "Spark: what users of the connectors of Kafka and Pravega expect",
    "S": "Ingestion supervisors: what users of Druid expect",
}
