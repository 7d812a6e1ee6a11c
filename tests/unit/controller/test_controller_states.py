"""The tables of valid previous states: every pair of both, as the reference lists them."""

from __future__ import annotations

import pytest

from regency.controller.state.states import PartitionState, ReplicaState

P, R = PartitionState, ReplicaState

PARTITION_TABLE = {
    P.NEW: {P.NON_EXISTENT},
    P.ONLINE: {P.NEW, P.ONLINE, P.OFFLINE},
    P.OFFLINE: {P.NEW, P.ONLINE, P.OFFLINE},
    P.NON_EXISTENT: {P.OFFLINE},
}
REPLICA_TABLE = {
    R.NEW: {R.NON_EXISTENT},
    R.ONLINE: {R.NEW, R.ONLINE, R.OFFLINE, R.DELETION_INELIGIBLE},
    R.OFFLINE: {R.NEW, R.ONLINE, R.OFFLINE, R.DELETION_INELIGIBLE},
    R.DELETION_STARTED: {R.OFFLINE},
    R.DELETION_SUCCESSFUL: {R.DELETION_STARTED},
    R.DELETION_INELIGIBLE: {R.OFFLINE, R.DELETION_STARTED},
    R.NON_EXISTENT: {R.DELETION_SUCCESSFUL},
}


@pytest.mark.parametrize("state", list(P))
def test_partition_state_has_its_valid_previous_states(state):
    assert state.valid_previous == PARTITION_TABLE[state]


@pytest.mark.parametrize("state", list(R))
def test_replica_state_has_its_valid_previous_states(state):
    assert state.valid_previous == REPLICA_TABLE[state]
