"""docs/controller-tests.md: every test and defect it names exists, and no scenario of Kafka's is forgotten."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "controller-tests.md").read_text("utf-8")

DEFECTS = ROOT / "tests" / "sim" / "simulation" / "defects"

SCENARIOS = {
    "ControllerIntegrationTest": """
        testEmptyCluster testControllerEpochPersistsWhenAllBrokersDown
        testControllerMoveIncrementsControllerEpoch testMetadataPropagationOnControlPlane
        testMetadataPropagationOnBrokerChange testMetadataPropagationForOfflineReplicas testTopicCreation
        testTopicCreationWithOfflineReplica testTopicPartitionExpansion
        testTopicPartitionExpansionWithOfflineReplica testPartitionReassignment
        testPartitionReassignmentWithOfflineReplicaHaltingProgress
        testPartitionReassignmentResumesAfterReplicaComesOnline testPreferredReplicaLeaderElection
        testBackToBackPreferredReplicaLeaderElections
        testPreferredReplicaLeaderElectionWithOfflinePreferredReplica testAutoPreferredReplicaLeaderElection
        testLeaderAndIsrWhenEntireIsrOfflineAndUncleanLeaderElectionDisabled
        testLeaderAndIsrWhenEntireIsrOfflineAndUncleanLeaderElectionEnabled testControlledShutdown
        testControllerRejectControlledShutdownRequestWithStaleBrokerEpoch testControllerMoveOnTopicCreation
        testControllerMoveOnTopicDeletion testControllerMoveOnPreferredReplicaElection
        testControllerMoveOnPartitionReassignment testControllerDetectsBouncedBrokers
        testMetadataPropagationOnBrokerShutdownWithNoReplicas testPartitionReassignmentToBrokerWithOfflineLogDir
        testAutoPreferredReplicaLeaderElectionWithOtherReassigningPartitions
        testAutoPreferredReplicaLeaderElectionWithSamePartitionBeingReassigned testControllerFeatureZNodeSetup
        testPreemptionOnControllerShutdown testPreemptionWithCallbacks testAlterPartition
        testAlterPartitionVersion2KeepWorkingWhenControllerDowngradeToPre28IBP testIdempotentAlterPartition
        testShutdownBrokerNotAddedToIsr testAlterPartitionErrors testAlterPartitionErrorsAfterUncleanElection
        testTopicIdsAreAdded testTopicIdsAreNotAdded testTopicIdMigrationAndHandling
        testTopicIdMigrationAndHandlingWithOlderVersion testTopicIdPersistsThroughControllerReelection
        testTopicIdPersistsThroughControllerRestart testNoTopicIdPersistsThroughControllerReelection
        testTopicIdCreatedOnUpgrade testTopicIdUpgradeAfterReassigningPartitions
    """,
    "PartitionStateMachineTest": """
        testNonexistentPartitionToNewPartitionTransition
        testInvalidNonexistentPartitionToOnlinePartitionTransition
        testInvalidNonexistentPartitionToOfflinePartitionTransition testNewPartitionToOnlinePartitionTransition
        testNewPartitionToOnlinePartitionTransitionZooKeeperClientExceptionFromCreateStates
        testNewPartitionToOnlinePartitionTransitionErrorCodeFromCreateStates
        testNewPartitionToOfflinePartitionTransition testInvalidNewPartitionToNonexistentPartitionTransition
        testOnlinePartitionToOnlineTransition testOnlinePartitionToOnlineTransitionForControlledShutdown
        testOnlinePartitionToOfflineTransition testInvalidOnlinePartitionToNonexistentPartitionTransition
        testInvalidOnlinePartitionToNewPartitionTransition testOfflinePartitionToOnlinePartitionTransition
        testOfflinePartitionToUncleanOnlinePartitionTransition
        testOfflinePartitionToOnlinePartitionTransitionZooKeeperClientExceptionFromStateLookup
        testOfflinePartitionToOnlinePartitionTransitionErrorCodeFromStateLookup
        testOfflinePartitionToNonexistentPartitionTransition testInvalidOfflinePartitionToNewPartitionTransition
        testUpdatingOfflinePartitionsCount testNoOfflinePartitionsChangeForTopicsBeingDeleted
        testUpdatingOfflinePartitionsCountDuringTopicDeletion
    """,
    "ReplicaStateMachineTest": """
        testStartupOnlinePartition testStartupOfflinePartition testStartupWithReplicaWithoutLeader
        testNonexistentReplicaToNewReplicaTransition testNewReplicaToOnlineReplicaTransition
        testNewReplicaToOfflineReplicaTransition testOnlineReplicaToOnlineReplicaTransition
        testOnlineReplicaToOfflineReplicaTransition testOfflineReplicaToOnlineReplicaTransition
        testOfflineReplicaToReplicaDeletionStartedTransition
        testOfflineReplicaToReplicaDeletionIneligibleTransition
        testReplicaDeletionStartedToReplicaDeletionIneligibleTransition
        testReplicaDeletionStartedToReplicaDeletionSuccessfulTransition
        testReplicaDeletionSuccessfulToNonexistentReplicaTransition
        testReplicaDeletionIneligibleToOnlineReplicaTransition testInvalidNonexistentReplicaTo…
        testInvalidNewReplicaTo… testInvalidOnlineReplicaTo… testInvalidOfflineReplicaTo…
        testInvalidReplicaDeletionStartedTo… testInvalidReplicaDeletionSuccessfulTo…
        testInvalidReplicaDeletionIneligibleTo…
    """,
    "PartitionLeaderElectionAlgorithmsTest": """
        testOfflinePartitionLeaderElection
        testOfflinePartitionLeaderElectionLastIsrOfflineUncleanLeaderElectionDisabled
        testOfflinePartitionLeaderElectionLastIsrOfflineUncleanLeaderElectionEnabled
        testReassignPartitionLeaderElection testReassignPartitionLeaderElectionWithNoLiveIsr
        testReassignPartitionLeaderElectionWithEmptyIsr testPreferredReplicaPartitionLeaderElection
        testPreferredReplicaPartitionLeaderElectionPreferredReplicaInIsrNotLive
        testPreferredReplicaPartitionLeaderElectionPreferredReplicaNotInIsrLive
        testPreferredReplicaPartitionLeaderElectionPreferredReplicaNotInIsrNotLive
        testControlledShutdownPartitionLeaderElection
        testControlledShutdownPartitionLeaderElectionLastIsrShuttingDown
        testControlledShutdownPartitionLeaderElectionAllIsrSimultaneouslyShutdown
    """,
    "ControllerChannelManagerTest": """
        testLeaderAndIsrRequestSent testLeaderAndIsrRequestIsNew
        testLeaderAndIsrRequestSentToLiveOrShuttingDownBrokers testLeaderAndIsrInterBrokerProtocolVersion
        testUpdateMetadataRequestSent testUpdateMetadataDoesNotIncludePartitionsWithoutLeaderAndIsr
        testUpdateMetadataRequestDuringTopicDeletion testUpdateMetadataIncludesLiveOrShuttingDownBrokers
        testUpdateMetadataInterBrokerProtocolVersion testStopReplicaRequestSent
        testStopReplicaRequestsWhileTopicQueuedForDeletion testStopReplicaRequestsWhileTopicDeletionStarted
        testMixedDeleteAndNotDeleteStopReplicaRequests testStopReplicaGroupsByBroker
        testStopReplicaSentOnlyToLiveAndShuttingDownBrokers testStopReplicaInterBrokerProtocolVersion
        testStopReplicaRequestWithAlreadyDefinedDeletedPartition
        testStopReplicaRequestWithoutDeletePartitionWhileTopicDeletionStarted
    """,
    "TopicDeletionManagerTest": """
        testInitialization testBasicDeletion testDeletionWithBrokerOffline testBrokerFailureAfterDeletionStarted
    """,
    "ControllerContextTest": """
        testUpdatePartitionReplicaAssignmentUpdatesReplicaAssignmentOnly
        testUpdatePartitionReplicaAssignmentUpdatesReplicaAssignmentOnlyAndDoesNotOverwrite
        testUpdatePartitionFullReplicaAssignmentUpdatesReplicaAssignment
        testPartitionReplicaAssignmentReturnsEmptySeqIfTopicOrPartitionDoesNotExist
        testPartitionFullReplicaAssignmentReturnsEmptyAssignmentIfTopicOrPartitionDoesNotExist
        testPartitionReplicaAssignmentForTopicReturnsEmptyMapIfTopicDoesNotExist
        testPartitionReplicaAssignmentForTopicReturnsExpectedReplicaAssignments testPartitionReplicaAssignment
        testReassignTo testReassignToIdempotence testPreferredReplicaImbalanceMetric
        testPreferredReplicaImbalanceMetricOnConcurrentTopicDeletion
    """,
    "ControllerEventManagerTest, ControllerFailoverTest, KafkaControllerTest": """
        ControllerEventManagerTest.testMetricsCleanedOnClose ControllerEventManagerTest.testEventQueueTime
        ControllerEventManagerTest.testEventQueueTimeResetOnTimeout
        ControllerEventManagerTest.testEventWithoutRateMetrics ControllerEventManagerTest.testSuccessfulEvent
        ControllerEventManagerTest.testEventThatThrowsException
        ControllerFailoverTest.testHandleIllegalStateException KafkaControllerTest.testRemoveMetricsOnClose
    """,
    "Brokers and epochs": """
        LeaderElectionTest.testLeaderElectionAndEpoch
        LeaderElectionTest.testLeaderElectionWithStaleControllerEpoch
        BrokerEpochIntegrationTest.testReplicaManagerBrokerEpochMatchesWithZk
        BrokerEpochIntegrationTest.testControllerBrokerEpochCacheMatchesWithZk
        BrokerEpochIntegrationTest.testControlRequestWithCorrectBrokerEpoch
        BrokerEpochIntegrationTest.testControlRequestWithStaleBrokerEpoch
        BrokerEpochIntegrationTest.testControlRequestWithNewerBrokerEpoch
        ServerShutdownTest.testControllerShutdownDuringSend
        ServerShutdownTest.testCleanShutdownWithZkUnavailable ServerShutdownTest.testConsecutiveShutdown
        ServerStartupTest.testConflictBrokerRegistration ServerGenerateBrokerIdTest
        LogDirFailureTest.testIOExceptionDuringLogRoll LogDirFailureTest.testIOExceptionDuringCheckpoint
        LogDirFailureTest.testProduceErrorFromFailureOnLogRoll
        LogDirFailureTest.testProduceErrorFromFailureOnCheckpoint
        LogDirFailureTest.brokerWithOldInterBrokerProtocolShouldHaltOnLogDirFailure
        AddPartitionsTest.testWrongReplicaCount AddPartitionsTest.testMissingPartition0
        AddPartitionsTest.testIncrementPartitions AddPartitionsTest.testManualAssignmentOfReplicas
        AddPartitionsTest.testReplicaPlacementAllServers AddPartitionsTest.testReplicaPlacementPartialServers
        UncleanLeaderElectionTest.testUncleanLeaderElectionEnabled
        UncleanLeaderElectionTest.testUncleanLeaderElectionDisabled
        UncleanLeaderElectionTest.testUncleanLeaderElectionEnabledByTopicOverride
        UncleanLeaderElectionTest.testCleanLeaderElectionDisabledByTopicOverride
        UncleanLeaderElectionTest.testUncleanLeaderElectionInvalidTopicConfig
        UncleanLeaderElectionTest.testTopicUncleanLeaderElectionEnable
    """,
    "DeleteTopicTest": """
        testDeleteTopicWithAllAliveReplicas testResumeDeleteTopicWithRecoveredFollower
        testResumeDeleteTopicOnControllerFailover testPartitionReassignmentDuringDeleteTopic
        testIncreasePartitionCountDuringDeleteTopic testDeleteTopicDuringAddPartition
        testAddPartitionDuringDeleteTopic testRecreateTopicAfterDeletion testDeleteNonExistingTopic
        testDeleteTopicWithCleaner testDeleteTopicAlreadyMarkedAsDeleted testDisableDeleteTopic
        testDeletingPartiallyDeletedTopic
    """,
    "Reassignment": """
        testHwAfterPartitionReassignment shouldMoveSinglePartition testReassignmentMatchesCurrentAssignment
        shouldMoveSinglePartitionToSameFolderWithinBroker shouldMoveSinglePartitionToDifferentFolderWithinBroker
        shouldExpandCluster shouldShrinkCluster shouldMoveSubsetOfPartitions shouldExecuteThrottledReassignment
        shouldOnlyThrottleMovingReplicas shouldChangeThrottleOnRerunAndRemoveOnVerify
        shouldPerformThrottledReassignmentOverVariousTopics shouldFailIfProposedDoesNotMatchExisting
        shouldFailIfProposedHasEmptyReplicaList shouldFailIfProposedHasInvalidBrokerID
        shouldFailIfProposedHasInvalidLogDir shouldFailIfProposedHasInconsistentReplicasAndLogDirs
        shouldPerformMultipleReassignmentOperationsOverVariousTopics
        shouldTriggerReassignmentOnControllerStartup
        shouldTriggerReassignmentWithZnodePrecedenceOnControllerStartup shouldListReassignmentsTriggeredByZk
        shouldListMovingPartitionsThroughApi shouldReassignThroughApi
        testProduceAndConsumeWithReassignmentInProgress
        shouldUseLatestOrderingIfTwoConsecutiveReassignmentsHaveSameSetButDifferentOrdering
        znodeReassignmentShouldOverrideApiTriggeredReassignment
        shouldDeleteReassignmentZnodeAfterApiReassignmentForPartitionCompletes shouldBeAbleToCancelThroughApi
        shouldBeAbleToCancelZkTriggeredReassignmentThroughApi testCancelAndSetSomeReassignments
        shouldBeAbleToIncrementallyStackDifferentReassignments shouldCreatePartitionsForTopicNotInReassignment
        ReassignPartitionsCommandTest.testReassignmentWithAlterPartitionDisabled
        ReassignPartitionsCommandTest.testReassignmentCompletionDuringPartialUpgrade
        ReassignPartitionsCommandTest.testCancellation
        ReassignPartitionsCommandTest.testCancellationWithAddingReplicaInIsr
        PlaintextAdminIntegrationTest.testInvalidAlterPartitionReassignments
    """,
    "Elections by request and by command": """
        PlaintextAdminIntegrationTest.testElectPreferredLeaders
        PlaintextAdminIntegrationTest.testElectUncleanLeadersForOnePartition
        PlaintextAdminIntegrationTest.testElectUncleanLeadersForManyPartitions
        PlaintextAdminIntegrationTest.testElectUncleanLeadersForAllPartitions
        PlaintextAdminIntegrationTest.testElectUncleanLeadersForUnknownPartitions
        PlaintextAdminIntegrationTest.testElectUncleanLeadersWhenNoLiveBrokers
        PlaintextAdminIntegrationTest.testElectUncleanLeadersNoop
        PlaintextAdminIntegrationTest.testElectUncleanLeadersAndNoop
        LeaderElectionCommandTest.testAllTopicPartition LeaderElectionCommandTest.testTopicPartition
        LeaderElectionCommandTest.testPathToJsonFile LeaderElectionCommandTest.testPreferredReplicaElection
        LeaderElectionCommandTest.testTopicDoesNotExist LeaderElectionCommandTest.testInvalidArguments
        LeaderElectionCommandTest.testInvalidBroker PreferredReplicaLeaderElectionCommandTest.testTimeout
        PreferredReplicaLeaderElectionCommandTest.testAuthzFailure
        PreferredReplicaLeaderElectionCommandTest.testNoopElection
        PreferredReplicaLeaderElectionCommandTest.testWithOfflinePreferredReplica
    """,
    "ZooKeeper client and ISR changes of leaders": """
        KafkaZkClientTest.testPropagateIsrChanges KafkaZkClientTest.testPropagateLogDir
        KafkaZkClientTest.testCreateConfigChangeNotification KafkaZkClientTest.testIsrChangeNotificationGetters
        KafkaZkClientTest.testIsrChangeNotificationsDeletion
        KafkaZkClientTest.testLogDirEventNotificationsDeletion KafkaZkClientTest.testDeleteTopicPathMethods
        KafkaZkClientTest.testSetGetAndDeletePartitionReassignment
        KafkaZkClientTest.testPreferredReplicaElectionMethods KafkaZkClientTest.testUpdateLeaderAndIsr
        KafkaZkClientTest.testCreateAndGetTopicPartitionStatesRaw
        KafkaZkClientTest.testSetTopicPartitionStatesRaw KafkaZkClientTest.testControllerEpochMethods
        KafkaZkClientTest.testControllerManagementMethods KafkaZkClientTest.testRegisterBrokerInfo
        KafkaZkClientTest.testRetryRegisterBrokerInfo KafkaZkClientTest.testTopicAssignments
        KafkaZkClientTest.testDeleteRecursiveWithControllerEpochVersionCheck KafkaZkClientTest.testGetLogConfigs
        KafkaZkClientTest.testClusterIdMethods KafkaZkClientTest.testBrokerSequenceIdMethods
        KafkaZkClientTest.testCreateTopLevelPaths ReassignPartitionsZNodeTest.testEncode
        ReassignPartitionsZNodeTest.testDecodeInvalidJson ReassignPartitionsZNodeTest.testDecodeValidJson
        AlterPartitionManagerTest.testOverwriteWithinBatch AlterPartitionManagerTest.testSingleBatch
        AlterPartitionManagerTest.testAuthorizationFailed AlterPartitionManagerTest.testStaleBrokerEpoch
        AlterPartitionManagerTest.testRetryOnTopLevelError AlterPartitionManagerTest.testPartitionErrors
        AlterPartitionManagerTest.testPartitionMissingInResponse
        AlterPartitionManagerTest.testSubmitFromCallback AlterPartitionManagerTest.testPartialTopicIds
    """,
}
"""Kafka's controller tests, by the headings of the page; what looks like one name stands for several."""

BUGS = """
    KAFKA-6082 KAFKA-12315 KAFKA-13407 KAFKA-2300 KAFKA-1096 KAFKA-5502 KAFKA-5879 KAFKA-4447 KAFKA-9212
    KAFKA-9307 KAFKA-3143 KAFKA-1120 KAFKA-2729 KAFKA-3042 KAFKA-3083 KAFKA-7235 KIP-380 KAFKA-9839 KAFKA-6584
    KAFKA-7165 KAFKA-14845 ZOOKEEPER-2985 ZOOKEEPER-1387 ZOOKEEPER-4229 KAFKA-9866 KAFKA-10149 KAFKA-1188
    KAFKA-4443 KAFKA-5099 KAFKA-6193 KAFKA-6612 KAFKA-6630 KAFKA-6650 KAFKA-6753 KAFKA-9089 KAFKA-10040
    KAFKA-13572 KAFKA-10548 KAFKA-13342 KAFKA-9539 KAFKA-9946 KAFKA-9499 KAFKA-8294 KAFKA-8237 KAFKA-10314
    KAFKA-9672 KAFKA-12686 KAFKA-10794 KAFKA-12835 KAFKA-13132 KAFKA-14190 KAFKA-9189 KAFKA-13225 KAFKA-14140
    KAFKA-14144 KAFKA-14154 KAFKA-14617 KIP-903 KAFKA-13790 KAFKA-4959 KAFKA-6517 KAFKA-6879 KAFKA-4360
    KAFKA-7537 KAFKA-7299 KAFKA-9198 KAFKA-9235 KAFKA-7987 KAFKA-10189 KAFKA-10193 KIP-343 KIP-455 KAFKA-8325
"""

LIMITS = [
    "error responses",
    "reconcile",
    "NODEEXISTS",
    "createTopic",
    "last member",
    "elections of New partitions",
    "shutting down",
    "log directory events",
    "Online to Ineligible",
    "equal leader epoch",
    "removed replicas",
    "refused StopReplica",
    "znode edits",
    "removeTopic",
    "failover",
    "slow calls",
]
"""Of section 11.3: what was never a ticket, or never mended."""


def rows(heading: str) -> dict[str, tuple[str, ...]]:
    """The cells of the table below a heading, by the first of each row."""
    _, found, rest = PAGE.partition(f"\n{heading}\n")
    assert found, heading
    table = re.split(r"\n#", rest, maxsplit=1)[0].strip().splitlines()
    cells = [tuple(cell.strip() for cell in line.strip("|").split(" |")) for line in table if line.startswith("| ")]
    assert len({row[0] for row in cells}) == len(cells), f"a row twice in {heading}"
    return {row[0]: row[1:] for row in cells[1:]}


def heading_of(scenarios: str) -> str:
    [line] = [line for line in PAGE.splitlines() if line.startswith(f"### {scenarios} (10.")]
    return line


def functions(file: Path) -> list[str]:
    body = ast.parse(file.read_text("utf-8")).body
    return [node.name for node in body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def to_be_found() -> set[str]:
    """The simulation's defects: first arguments of `Defect(...)`, without those planted in vain, keys of `BECAUSE`."""
    nodes = [node for file in sorted(DEFECTS.glob("*.py")) for node in ast.walk(ast.parse(file.read_text("utf-8")))]
    calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    planted = [call.args[0] for call in calls if call.func.id == "Defect" and call.args]
    named = [node for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]
    because = [node.value for node in named if node.target.id == "BECAUSE"]
    in_vain = [key for reasons in because if isinstance(reasons, ast.Dict) for key in reasons.keys]
    return {each.value for each in planted} - {each.value for each in in_vain if isinstance(each, ast.Constant)}


@pytest.mark.timeout(20)  # it parses some ninety files
def test_every_test_the_page_names_is_there_once():
    named: dict[str, set[str]] = {}
    for stem, test in re.findall(r"`(test_\w+)::(\w+)`", PAGE):
        named.setdefault(stem, set()).add(test)
    assert sum(map(len, named.values())) > 200

    files = [file for file in (ROOT / "tests").rglob("test_*.py") if file.stem in named]
    there = Counter((file.stem, test) for file in files for test in functions(file))
    assert [f"{stem}::{each}" for stem in named for each in sorted(named[stem]) if there[stem, each] != 1] == []


def test_every_defect_the_page_names_is_one_to_be_found():
    named = set(re.findall(r"defect `([^`]+)`", PAGE))
    assert len(named) > 40

    assert named - to_be_found() == set()


@pytest.mark.parametrize("heading", SCENARIOS)
def test_every_scenario_has_its_row(heading):
    present = {re.sub(r" \(\d+\)$", "", name) for name in rows(heading_of(heading))}

    assert present == set(SCENARIOS[heading].split())


def test_every_bug_has_its_row():
    present = [name for row in rows("## Bugs") for name in re.findall(r"[A-Z]+-\d+", row)]
    limits = [row.removeprefix("11.3 ") for row in rows("## Bugs") if row.startswith("11.3 ")]

    assert sorted(present) == sorted(BUGS.split())
    assert limits == LIMITS


def test_every_demand_has_its_row():
    assert list(rows("## What an implementation has to keep")) == [str(number) for number in range(1, 13)]


@pytest.mark.parametrize("heading", [*map(heading_of, SCENARIOS), "## Bugs", "## What an implementation has to keep"])
def test_every_row_names_a_test_or_says_why_there_is_none(heading):
    silent = [
        name for name, (*_, proof, why) in rows(heading).items() if "`" not in proof and not (proof == "—" and why)
    ]

    assert silent == []
