from __future__ import annotations

from regency.broker_agent.control.gate import Office, read_office, registered_epoch
from regency.model import znodes
from regency.model.ids import NO_BROKER_EPOCH, NO_LEADER, BrokerId, ControllerEpoch
from regency.model.znodes import paths as znode_paths

ME = BrokerId(1)


def test_an_office_is_who_rules_and_this_process_by_its_own_session_only(session) -> None:
    server = session.server
    assert read_office(session, ME) == Office(ControllerEpoch(0), NO_LEADER, NO_BROKER_EPOCH)
    server.put(znode_paths.CONTROLLER_EPOCH, znodes.encode_controller_epoch(ControllerEpoch(4)))
    server.put(znode_paths.CONTROLLER, znodes.encode_controller(BrokerId(2), timestamp_ms=0))
    another = server.put(znode_paths.broker(ME), owner=session.session_id + 1)
    assert read_office(session, ME) == Office(ControllerEpoch(4), BrokerId(2), NO_BROKER_EPOCH)
    assert registered_epoch(session, ME) == another.stat.czxid

    server.remove(znode_paths.broker(ME))
    assert registered_epoch(session, ME) == NO_BROKER_EPOCH
    own = server.put(znode_paths.broker(ME), owner=session.session_id)
    assert read_office(session, ME).broker_epoch == registered_epoch(session, ME) == own.stat.czxid
