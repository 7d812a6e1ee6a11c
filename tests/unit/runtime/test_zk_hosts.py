"""zookeeper.connect, well and badly written."""

from __future__ import annotations

import pytest

from regency.runtime.zookeeper.hosts import ConnectString, ZkConnectStringInvalid, parse_connect_string


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("zk1:2181", (("zk1", 2181),), ""),
        ("zk1", (("zk1", 2181),), ""),
        ("zk1:2181,zk2:2182", (("zk1", 2181), ("zk2", 2182)), ""),
        ("zk1:2181, zk2 /kafka", (("zk1", 2181), ("zk2", 2181)), "/kafka"),
        ("zk1/a/b/", (("zk1", 2181),), "/a/b"),
        ("zk1:2181/", (("zk1", 2181),), ""),
        ("[::1]:2181,[fe80::2]", (("::1", 2181), ("fe80::2", 2181)), ""),
    ],
)
def test_servers_and_chroot_are_read(text, servers, chroot):
    assert parse_connect_string(text) == ConnectString(servers, chroot)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "names no ZooKeeper server"),
        ("/kafka", "names no ZooKeeper server"),
        ("zk1:", "port ''"),
        ("zk1:none", "port 'none'"),
        ("zk1:0", "port '0'"),
        ("zk1:65536", "port '65536'"),
        ("zk1:2181,,zk2", "names no host"),
        (":2181", "names no host"),
        ("zk 1:2181", "names no host"),
        ("[::1", "names no host"),
        ("[::1]2181", "names no host"),
        ("zk1//a", "is not a path"),
        ("zk1/a/../b", "is not a path"),
    ],
)
def test_what_is_wrong_is_named_with_the_form_it_should_have(text, complaint):
    with pytest.raises(ZkConnectStringInvalid, match=complaint) as caught:
        parse_connect_string(text)
    assert "host:port,host:port/chroot" in str(caught.value)


def test_hosts_are_shown_as_they_are_written():
    assert parse_connect_string("zk1,[::1]:99/c").hosts == "zk1:2181, [::1]:99"
