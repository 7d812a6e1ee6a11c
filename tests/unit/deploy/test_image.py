"""deploy/Dockerfile agrees with pyproject.toml, with the settings and with what .dockerignore lets through."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from compose_test.files import ROOT, instructions
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from regency.model.settings import BrokerSettings
from regency.runtime.settings_loader import load_settings

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PROPERTIES = ROOT / "deploy" / "docker.properties"
HEALTHCHECK = ROOT / "deploy" / "healthcheck.py"


def constraints() -> dict[str, str]:
    """Versions that the Dockerfile's sed makes of requirements.lock."""
    [expression] = re.findall(r"sed -nE '([^']+)' requirements.lock", (ROOT / "deploy" / "Dockerfile").read_text())
    made = subprocess.run(
        ["sed", "-nE", expression, str(ROOT / "requirements.lock")], check=True, capture_output=True, text=True
    )
    pairs = [line.split("==") for line in made.stdout.splitlines()]
    assert all(len(pair) == 2 for pair in pairs)
    return dict(pairs)


def test_both_stages_have_a_python_that_the_project_takes() -> None:
    images = [words[0] for words in instructions("FROM")]
    assert len(images) == 2
    assert len(set(images)) == 1
    version = re.fullmatch(r"python:(\d+\.\d+)-slim-bookworm", images[0])
    assert version is not None
    assert SpecifierSet(PROJECT["requires-python"]).contains(version[1] + ".0")


@pytest.mark.parametrize("text", PROJECT["dependencies"])
def test_what_is_installed_is_pinned_within_the_project_s_ranges(text: str) -> None:
    requirement = Requirement(text)
    assert requirement.specifier.contains(constraints()[requirement.name])


def test_only_the_wheel_without_extras_is_installed() -> None:
    installs = [line for line in (ROOT / "deploy/Dockerfile").read_text().splitlines() if " install --no-cache" in line]
    assert len(installs) == 1
    assert installs[0].split()[-1] == "/wheels/regency-*.whl"


def test_it_does_not_run_as_root() -> None:
    [[user]] = instructions("USER")
    assert "0" not in user.split(":")
    names = [
        words[0] for words in (line.split() for line in (ROOT / "deploy/Dockerfile").read_text().splitlines()) if words
    ]
    assert names.index("USER") < names.index("ENTRYPOINT")


def test_ports_are_those_of_the_settings() -> None:
    read = load_settings(PROPERTIES, ["broker.id=1", "zookeeper.connect=zk:2181"])
    assert read.warnings == ()
    bound = [end.port for end in (*read.listeners, *read.control_listeners)]
    [exposed] = instructions("EXPOSE")
    assert sorted(map(int, exposed)) == sorted([*bound, read.regency_http_port, read.regency_controller_http_port])


def test_what_the_command_names_is_copied_there() -> None:
    copied = {words[-1]: words[-2] for words in instructions("COPY")}
    [command] = instructions("CMD")
    [health] = instructions("HEALTHCHECK")
    assert copied[command[command.index("--config") + 1]] == "deploy/docker.properties"
    assert copied[health[-1]] == "deploy/healthcheck.py"


def test_everything_that_is_copied_is_let_through() -> None:
    let = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    needed = {name for words in instructions("COPY") if not words[0].startswith("--") for name in words[:-1]}
    assert needed == let
    assert [name for name in needed if not (ROOT / name).exists()] == []


class Answers(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        found = self.path == "/readyz"
        self.send_response(self.status if found else 404)
        self.end_headers()
        self.wfile.write(b"no log is open yet")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("KAFKA_REGENCY_HTTP_PORT", str(server.server_port))
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "healthy"), [(200, 0), (503, 1)])
def test_healthcheck_says_what_readyz_says(
    port: int, status: int, healthy: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Answers, "status", status)
    assert runpy.run_path(str(HEALTHCHECK))["main"]() == healthy
    assert capsys.readouterr().out == "no log is open yet"


def test_healthcheck_names_the_port_where_nobody_answers() -> None:
    command = [sys.executable, "-I", str(HEALTHCHECK)]
    done = subprocess.run(
        command, env={"KAFKA_REGENCY_HTTP_PORT": "1"}, capture_output=True, text=True, check=False, timeout=10
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("no answer from port 1: ")


@pytest.mark.parametrize("port", ["-1", "0", "", "x", "70000"])
def test_healthcheck_says_that_there_is_no_port_to_ask(port: str) -> None:
    command = [sys.executable, "-I", str(HEALTHCHECK)]
    done = subprocess.run(
        command, env={"KAFKA_REGENCY_HTTP_PORT": port}, capture_output=True, text=True, check=False, timeout=10
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith(f"KAFKA_REGENCY_HTTP_PORT={port} is no port to ask")


def test_healthcheck_asks_the_default_port() -> None:
    assert f'"{BrokerSettings().regency_http_port}"' in HEALTHCHECK.read_text()
