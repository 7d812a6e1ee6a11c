from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

from regency.pipeline import session
from regency.pipeline.session import SparkMissing, require_packages, spark_session

JAVA = Path(session.__file__).parent / "java" / "bin" / "java"


def test_the_launcher_drops_flags_and_keeps_every_other_word_as_it_is(tmp_path: Path) -> None:
    java = tmp_path / "some java"
    java.write_text('#!/bin/sh\nfor word do printf "%s\\n" "<$word>"; done\n')
    java.chmod(0o755)
    started_with = {"REGENCY_JAVA": str(java), "REGENCY_JAVA_DROPS": f"{session._VECTORS} {session._SECURITY_ACTIONS}"}
    words = [
        "-cp",
        "a b:*",
        session._VECTORS,
        session._SECURITY_ACTIONS,
        "",
        "*",
        "?",
        "-Dx='y z'",
        "--add-modules=java.sql",
        "$HOME",
    ]
    told = subprocess.run([JAVA, *words], env=started_with, capture_output=True, text=True, check=True)
    assert told.stdout.splitlines() == [
        f"<{word}>" for word in words if word not in started_with["REGENCY_JAVA_DROPS"].split()
    ]


def test_missing_packages_are_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in ("pyspark", "pyarrow") else find(name)
    )
    with pytest.raises(SparkMissing, match=r"pyspark, pyarrow\. .*pip install 'regency\[pipeline\]'"):
        require_packages()


def test_without_java_the_error_says_what_was_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "look_for_java", lambda: (None, "/opt/java (PATH) is version 11"))
    with (
        pytest.raises(SparkMissing, match=r"Spark needs Java 17 or later: /opt/java \(PATH\) is version 11"),
        spark_session("t"),
    ):
        raise AssertionError("it cannot start")


def test_the_environment_is_as_it_was_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/mine")
    monkeypatch.delenv("REGENCY_JAVA", raising=False)
    with session._environment({"JAVA_HOME": "/ours", "REGENCY_JAVA": "/j"}):
        assert (os.environ["JAVA_HOME"], os.environ["REGENCY_JAVA"]) == ("/ours", "/j")
    assert os.environ["JAVA_HOME"] == "/mine"
    assert "REGENCY_JAVA" not in os.environ


def test_an_address_is_given_to_a_master_on_this_machine_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    monkeypatch.setattr(session, "look_for_java", lambda: (Path("/j"), ""))
    monkeypatch.setattr(session, "java_version", lambda _: 21)
    assert session._started_with("local[2]", "py")["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert "SPARK_LOCAL_IP" not in session._started_with("spark://host:7077", "py")


def test_what_a_newer_java_warns_about_is_dropped_there_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "look_for_java", lambda: (Path("/j"), ""))
    drops = {}
    for version in (17, 25):
        monkeypatch.setattr(session, "java_version", lambda _, found=version: found)
        drops[version] = session._started_with("local[2]", "py")["REGENCY_JAVA_DROPS"].split()
    assert drops == {17: [session._VECTORS], 25: [session._VECTORS, session._SECURITY_ACTIONS]}


@pytest.mark.parametrize(
    ("locale", "given"),
    [
        ({"LC_ALL": "C"}, "C.UTF-8"),
        ({"LC_ALL": "POSIX", "LANG": "de_DE.UTF-8"}, "C.UTF-8"),
        ({}, "C.UTF-8"),
        ({"LC_CTYPE": "C.UTF-8", "LANG": "C"}, None),
        ({"LC_ALL": "", "LANG": "de_DE.ISO-8859-1"}, None),
    ],
)
def test_java_decodes_names_of_files_as_python_does_in_a_locale_without_an_encoding(
    monkeypatch: pytest.MonkeyPatch, locale: dict[str, str], given: str | None
) -> None:
    monkeypatch.setattr(session, "look_for_java", lambda: (Path("/j"), ""))
    monkeypatch.setattr(session, "java_version", lambda _: 21)
    monkeypatch.setattr(session.sys, "platform", "linux")
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in locale.items():
        monkeypatch.setenv(name, value)
    assert session._started_with("local", "python").get("LC_ALL") == given
