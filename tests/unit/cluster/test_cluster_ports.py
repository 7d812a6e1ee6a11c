"""Ports belong to a directory for as long as it exists."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest

from regency.cluster import ports
from regency.cluster.errors import NoFreePorts
from regency.cluster.ports import is_free, reserve_ports


@pytest.fixture
def few_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "FIRST_PORT", 29_990)
    monkeypatch.setattr(ports, "LAST_PORT", 29_993)
    monkeypatch.setattr(ports, "is_free", lambda _: True)


def test_ports_of_two_directories_are_distinct_and_in_range(tmp_path: Path) -> None:
    first = reserve_ports(5, owner=tmp_path / "a", register=tmp_path / "register")
    second = reserve_ports(5, owner=tmp_path / "b", register=tmp_path / "register")
    assert len({*first, *second}) == 10
    assert all(ports.FIRST_PORT <= port <= ports.LAST_PORT for port in first + second)


def test_ports_come_back_when_their_directory_is_gone(tmp_path: Path, few_ports: None) -> None:
    register = tmp_path / "register"
    taken = reserve_ports(4, owner=tmp_path / "a", register=register)
    with pytest.raises(NoFreePorts, match=r"0 of 1 ports are free between 29990 and 29993"):
        reserve_ports(1, owner=tmp_path / "b", register=register)
    shutil.rmtree(tmp_path / "a")
    assert sorted(reserve_ports(4, owner=tmp_path / "b", register=register)) == sorted(taken)


def test_port_just_given_back_is_not_given_out_at_once(tmp_path: Path, few_ports: None) -> None:
    register = tmp_path / "register"
    first = reserve_ports(2, owner=tmp_path / "a", register=register)
    shutil.rmtree(tmp_path / "a")
    assert not {*first} & {*reserve_ports(2, owner=tmp_path / "b", register=register)}


def test_registers_that_know_nothing_of_each_other_start_at_different_ports(tmp_path: Path) -> None:
    starts = {reserve_ports(1, owner=tmp_path, register=tmp_path / f"register-{number}")[0] for number in range(5)}
    assert len(starts) > 1


def test_port_that_someone_listens_on_is_passed_over(tmp_path: Path) -> None:
    register = tmp_path / "register"
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        assert not is_free(server.getsockname()[1])
    first = reserve_ports(1, owner=tmp_path / "a", register=register)[0]
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", first + 1))
        server.listen()
        assert first + 1 not in reserve_ports(2, owner=tmp_path / "b", register=register)


def test_unreadable_register_is_written_anew(tmp_path: Path) -> None:
    register = tmp_path / "register"
    register.mkdir()
    (register / "ports.json").write_text("{broken")
    assert len(reserve_ports(3, owner=tmp_path / "a", register=register)) == 3
