"""Reads, multis, chroot, caps and credentials against the real server."""

from __future__ import annotations

import pytest

from regency.runtime.zookeeper.session import (
    Check,
    Children,
    Create,
    Delete,
    SetData,
    ZkAuthFailed,
    ZkCode,
    ZkRequestTooLarge,
)

pytestmark = pytest.mark.integration

OK = ZkCode.OK


def codes(outcome) -> list[ZkCode]:
    return [result.code for result in outcome.results]


def test_a_multi_writes_all_and_tells_paths_and_stats(session):
    outcome = session.multi(
        [
            Create("/a", b"1"),
            Create("/gone"),
            SetData("/a", b"2", 0),
            Check("/a", 1),
            Check("/", None),
            Delete("/gone", 0),
        ]
    )
    assert codes(outcome) == [OK] * 6
    assert (outcome.ok, outcome.failed_index) == (True, -1)
    assert [result.path for result in outcome.results] == ["/a", "/gone", "", "", "", ""]
    znode = session.read("/a")
    assert (znode.path, znode.data, znode.stat) == ("/a", b"2", outcome.results[2].stat)
    assert znode.stat.version == 1
    assert session.children("/") == Children("/", ("a",))


@pytest.mark.parametrize(
    ("op", "code"),
    [
        (Check("/parent", 7), ZkCode.BAD_VERSION),
        (Check("/none", None), ZkCode.NO_NODE),
        (SetData("/parent", b"", 7), ZkCode.BAD_VERSION),
        (SetData("/none", b"", 0), ZkCode.NO_NODE),
        (Create("/parent"), ZkCode.NODE_EXISTS),
        (Create("/none/child"), ZkCode.NO_NODE),
        (Create("/ephemeral/child"), ZkCode.NO_CHILDREN_FOR_EPHEMERALS),
        (Delete("/parent", 0), ZkCode.NOT_EMPTY),
        (Delete("/none", None), ZkCode.NO_NODE),
        (Delete("/parent/child", 3), ZkCode.BAD_VERSION),
    ],
)
def test_one_failing_operation_undoes_the_multi_and_is_named(session, op, code):
    session.multi([Create("/parent"), Create("/parent/child"), Create("/ephemeral", ephemeral=True)])
    outcome = session.multi([Create("/before"), op, Create("/after")])
    assert codes(outcome) == [ZkCode.ROLLED_BACK, code, ZkCode.ROLLED_BACK]
    assert (outcome.ok, outcome.failed_index) == (False, 1)
    assert session.read("/before") is None


def test_a_version_below_zero_is_refused(session):
    session.multi([Create("/a", b"kept")])
    for op in (SetData("/a", b"", -1), Delete("/a", -1), Check("/a", -1)):
        with pytest.raises(ValueError, match="/a"):
            session.multi([op])
    assert session.read("/a").data == b"kept"


def test_pipelined_multis_are_applied_in_order_and_fail_one_by_one(session):
    outcomes = session.multi_pipelined(
        [[Create("/a", b"1")], [SetData("/a", b"2", 0)], [SetData("/a", b"x", 0)], [SetData("/a", b"3", 1)]],
        generation=session.generation,
    )
    assert [outcome.ok for outcome in outcomes] == [True, True, False, True]
    assert session.read("/a").data == b"3"


def test_sequential_and_ephemeral_creates(session):
    session.multi([Create("/queue")])
    outcome = session.multi([Create("/queue/n-", b"x", sequential=True), Create("/queue/n-", sequential=True)])
    assert [result.path for result in outcome.results] == ["/queue/n-0000000000", "/queue/n-0000000001"]
    session.multi([Create("/mine", ephemeral=True), Create("/mine-", ephemeral=True, sequential=True)])
    owners = [znode.stat.ephemeral_owner for znode in session.read_many(["/mine", "/mine-0000000002", "/queue"])]
    assert owners == [session.session_id, session.session_id, 0]


def test_many_reads_keep_order_and_tell_what_is_missing(session):
    paths = [f"/n{index:05d}" for index in range(3000)]
    creates = [Create(path, path.encode()) for path in paths[::2]]
    batches = [creates[start : start + 500] for start in range(0, len(creates), 500)]
    assert all(outcome.ok for outcome in session.multi_pipelined(batches))
    found = session.read_many(paths)
    assert [znode and (znode.path, znode.data) for znode in found] == [
        (path, path.encode()) if index % 2 == 0 else None for index, path in enumerate(paths)
    ]
    assert session.read_many([]) == []
    assert len(session.children("/").names) == 1500


def test_many_large_znodes_are_read_in_smaller_chunks(session):
    data = bytes(200_000)
    paths = [f"/large{index}" for index in range(60)]
    assert all(outcome.ok for outcome in session.multi_pipelined([[Create(path, data)] for path in paths]))
    assert [len(znode.data) for znode in session.read_many(paths)] == [len(data)] * 60


def test_children_of_many_are_sorted_and_missing_parents_told(session):
    session.multi([Create("/p"), Create("/p/c"), Create("/p/a"), Create("/p/b"), Create("/q")])
    assert session.children_many(["/p", "/none", "/q", "/p/a"]) == [
        Children("/p", ("a", "b", "c")),
        None,
        Children("/q", ()),
        Children("/p/a", ()),
    ]
    assert session.children("/none") is None


def test_an_oversized_multi_is_refused_before_it_is_sent(session):
    with pytest.raises(ZkRequestTooLarge, match="/b"):
        session.multi([Create("/a", bytes(300_000)), Create("/b", bytes(300_001))])
    with pytest.raises(ZkRequestTooLarge, match="/huge"):
        session.multi([Create("/huge", bytes(1024 * 1024))])
    with pytest.raises(ZkRequestTooLarge, match="502 operations"):
        session.multi([Check("/", None)] * 502)
    with pytest.raises(ZkRequestTooLarge):
        session.multi_pipelined([[Create("/first")], [Create("/huge", bytes(1024 * 1024))]])
    assert session.children("/").names == ()
    assert (session.connected, session.generation) == (True, 1)


def test_one_large_znode_may_take_nearly_a_mebibyte(session):
    assert session.multi([Check("/", None), Create("/topic", bytes(1_040_000)), Create("/small")]).ok
    assert len(session.read("/topic").data) == 1_040_000


def test_the_chroot_is_created_and_never_seen(new_session):
    below, above = new_session(path="/deep/er/root"), new_session(path="")
    below.multi([Create("/a", b"1")])
    assert above.read("/deep/er/root/a").data == b"1"
    assert below.children("/").names == ("a",)
    again = new_session(path="/deep/er/root")
    again.sync("/")
    assert again.read("/a").data == b"1"


def test_only_the_credentials_that_created_it_may_change_a_restricted_znode(new_session):
    owner = new_session(digest_auth="regency:secret", set_acl=True)
    assert owner.multi([Create("/guarded", b"1")]).ok
    stranger = new_session(digest_auth="someone:else")
    stranger.sync("/")
    assert stranger.read("/guarded").data == b"1"
    assert codes(stranger.multi([SetData("/guarded", b"2", 0)])) == [ZkCode.NO_AUTH]
    assert codes(new_session().multi([Create("/guarded/child")])) == [ZkCode.NO_AUTH]
    colleague = new_session(digest_auth="regency:secret")
    assert colleague.multi([SetData("/guarded", b"2", 0)]).ok


def test_a_chroot_that_is_there_need_not_be_ours_to_create(new_session, chroot):
    guarded = f"{chroot}/guarded"
    owner = new_session(path=guarded, digest_auth="regency:secret", set_acl=True)
    assert owner.multi([Create("/for-others")]).ok
    assert new_session(path=f"{guarded}/for-others").children("/") is not None
    with pytest.raises(ZkAuthFailed, match=f"{guarded}/none at .* is missing, and we may not create it"):
        new_session(path=f"{guarded}/none")


def test_credentials_hold_after_a_reconnect_too(proxy, new_session):
    owner = new_session(port=proxy.port, digest_auth="regency:secret", set_acl=True)
    owner.multi([Create("/guarded", b"1")])
    proxy.reset_all()
    owner.sync("/")
    assert owner.multi([SetData("/guarded", b"2", 0)]).ok


def test_what_may_not_be_read_is_an_error_that_names_the_znode(new_session):
    from kazoo.security import make_digest_acl

    from regency.runtime.zookeeper import wire as zk_wire
    from regency.runtime.zookeeper.wire import encode_path

    owner = new_session(digest_auth="regency:secret")
    owner.multi([Create("/secret", b"1")])
    acl = make_digest_acl("regency", "secret", all=True)
    body = encode_path(f"{owner._target.chroot}/secret") + (1).to_bytes(4, "big") + acl.perms.to_bytes(4, "big")
    body += encode_path(acl.id.scheme) + encode_path(acl.id.id) + (-1).to_bytes(4, "big", signed=True)
    set_acl_op_code = 7
    assert owner._call(set_acl_op_code, body).error == zk_wire.ErrorNumber.OK
    stranger = new_session()
    stranger.sync("/")
    for attempt in (lambda: stranger.read("/secret"), lambda: stranger.children("/secret")):
        with pytest.raises(ZkAuthFailed, match=r"/secret.*regency\.zookeeper\.digest\.auth"):
            attempt()


def test_twenty_thousand_states_are_read_by_a_few_dozen_requests(session):
    state = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":3,"isr":[1,2,3]}'
    paths = [f"/{index:06d}" for index in range(20_000)]
    batches = [[Create(path, state) for path in paths[start : start + 500]] for start in range(0, len(paths), 500)]
    assert all(outcome.ok for outcome in session.multi_pipelined(batches))
    sent_before = session._core._link._next_xid
    assert all(znode.data == state for znode in session.read_many(paths))
    assert session._core._link._next_xid - sent_before < 60
