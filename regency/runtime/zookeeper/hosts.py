"""Reads a ZooKeeper connect string: `host:port,host:port/chroot`, as zookeeper.connect has it. No I/O."""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from regency.runtime.zookeeper.session import ZkError

DEFAULT_PORT: Final = 2181
_FORM: Final = "Write it as host:port,host:port/chroot, for example zk1:2181,zk2:2181/kafka."


class ZkConnectStringInvalid(ZkError):
    """zookeeper.connect cannot be understood; nothing was tried."""

    code: ClassVar[str] = "zk_connect_string_invalid"
    retriable: ClassVar[bool] = False


class ConnectString(msgspec.Struct, frozen=True):
    """Servers of an ensemble, and the path under which all of ours lives ("" for the root, else "/a/b")."""

    servers: tuple[tuple[str, int], ...]
    chroot: str = ""

    @property
    def hosts(self) -> str:
        """The servers for people, without the chroot."""
        return ", ".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.servers)


def parse_connect_string(text: str) -> ConnectString:
    """Servers and chroot of `text`. The port is 1 to 65535 and 2181 where none is given; IPv6 hosts stand in brackets.

    Raises ZkConnectStringInvalid naming the part that is wrong.
    """
    servers_text, slash, chroot_text = text.strip().partition("/")
    chroot = "/" + chroot_text.rstrip("/") if slash and chroot_text.strip("/") else ""
    if "//" in chroot or any(part in (".", "..") for part in chroot.split("/")):
        raise ZkConnectStringInvalid(f"chroot {chroot!r} in {text!r} is not a path.", hint=_FORM)
    parts = [part.strip() for part in servers_text.split(",")]
    if not servers_text.strip():
        raise ZkConnectStringInvalid(f"{text!r} names no ZooKeeper server.", hint=_FORM)
    return ConnectString(tuple(_parse_server(part, text) for part in parts), chroot)


def _parse_server(part: str, text: str) -> tuple[str, int]:
    host, port_text = _split_port(part)
    if not host or any(character.isspace() for character in host):
        raise ZkConnectStringInvalid(f"{part!r} in {text!r} names no host.", hint=_FORM)
    if port_text is None:
        return host, DEFAULT_PORT
    if not port_text.isascii() or not port_text.isdigit() or not 1 <= int(port_text) <= 65535:
        raise ZkConnectStringInvalid(f"port {port_text!r} of {part!r} is not a number from 1 to 65535.", hint=_FORM)
    return host, int(port_text)


def _split_port(part: str) -> tuple[str, str | None]:
    if part.startswith("["):
        host, bracket, rest = part[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            return "", None
        return host, rest[1:] if rest else None
    host, colon, port = part.partition(":")
    return host, port if colon else None
