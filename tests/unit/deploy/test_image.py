"""deploy/Dockerfile agrees with pyproject.toml, with the settings and with what .dockerignore lets through."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import sys
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from compose_test.files import ROOT, instructions
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from regency.cli.lab.daemons import agent
from regency.cli.shipped import DEPLOYED
from regency.runtime.http.probes import NOT_SERVED, remove_probe_file, write_probe_file
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


def test_what_is_copied_from_a_checkout_of_any_umask_is_readable_for_the_user() -> None:
    copied = [words for words in instructions("COPY") if words[0].startswith("deploy/")]
    places = {words[-1] for words in copied if words[-1].startswith("/")}  # others go into the wheel
    [chmod] = [words for words in instructions("RUN") if words[0] == "chmod"]
    assert chmod[1] == "0644"
    assert set(chmod[2:]) == places
    names = [line.split()[0] for line in (ROOT / "deploy/Dockerfile").read_text().splitlines() if line.strip()]
    assert names.index("USER") > len(names) - 1 - names[::-1].index("RUN"), "root's to do"


def test_everything_that_is_copied_is_let_through() -> None:
    let = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    needed = {name for words in instructions("COPY") if not words[0].startswith("--") for name in words[:-1]}
    assert needed == let
    assert [name for name in needed if not (ROOT / name).exists()] == []


def built(source: Path, target: Path) -> set[str]:
    """Names in the wheel of a folder."""
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    subprocess.run(words, cwd=source, check=True, capture_output=True)
    [wheel] = target.iterdir()
    with zipfile.ZipFile(wheel) as opened:
        return set(opened.namelist())


def test_its_wheel_holds_what_a_wheel_of_the_checkout_holds(tmp_path: Path) -> None:
    """hatchling leaves out in silence what is not there."""
    names = (ROOT / "deploy/Dockerfile").read_text().partition("pip wheel")[0]
    lines = [line.split()[1:] for line in names.splitlines() if line.startswith("COPY ")]
    context = tmp_path / "src"
    context.mkdir()
    for name in [name for words in lines for name in words[:-1]]:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, context / name, symlinks=True, ignore=ignored)
        else:
            (context / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, context / name)
    of_image, of_checkout = built(context, tmp_path / "image"), built(ROOT, tmp_path / "checkout")
    assert of_image == of_checkout
    assert {"regency/controller/controller.py", "pyspark_regency/__init__.py"} <= of_image
    shares = {f"regency/share/{name}" for name in ("docs/README.md", *(f"deploy/{each}" for each in DEPLOYED))}
    assert {each for each in shares if not any(name.startswith(each) for name in of_image)} == set()


class Answers(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        found = self.path == "/readyz"
        self.send_response(self.status if found else 404)
        self.end_headers()
        self.wfile.write(b"no log is open yet")

    def log_message(self, *_: object) -> None:
        pass


class V6Server(HTTPServer):
    address_family = socket.AF_INET6


@contextlib.contextmanager
def answering(server: HTTPServer) -> Iterator[int]:
    with server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def free_port() -> int:
    """One that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def check(tmp_path: Path, *, text: str | None = None) -> tuple[int, str]:
    """Exit status and words of the health check, where the agent has written `text`."""
    path = tmp_path / "probe.json"
    if text is not None:
        path.write_text(text)
    command = [sys.executable, "-I", str(HEALTHCHECK)]
    environment = {"REGENCY_PROBE_FILE": str(path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=10)
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.mark.parametrize(("status", "healthy"), [(200, 0), (503, 1)])
@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", "::1"])
def test_healthcheck_says_what_readyz_says_where_the_agent_answers(
    status: int, healthy: int, address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Answers, "status", status)
    with answering((V6Server if ":" in address else HTTPServer)((address, 0), Answers)) as port:
        write_probe_file(tmp_path / "probe.json", [address], port)
        assert check(tmp_path) == (healthy, "no log is open yet")


def test_healthcheck_asks_the_next_address_where_one_does_not_answer(tmp_path: Path) -> None:
    with answering(V6Server(("::1", 0), Answers)) as port:
        write_probe_file(tmp_path / "probe.json", ["127.0.0.1", "::1"], port)
        assert check(tmp_path)[0] == 0


def test_healthcheck_names_the_addresses_where_nobody_answers(tmp_path: Path) -> None:
    write_probe_file(tmp_path / "probe.json", ["127.0.0.1", "::1"], port := free_port())
    status, said = check(tmp_path)
    assert status == 1
    assert [line.partition(": ")[0] for line in said.splitlines()] == [
        f"no answer from 127.0.0.1, port {port}",
        f"no answer from ::1, port {port}",
    ]


def test_healthcheck_says_that_there_is_no_port_to_ask(tmp_path: Path) -> None:
    write_probe_file(tmp_path / "probe.json", [], NOT_SERVED)
    status, said = check(tmp_path)
    assert (status, said.startswith("regency.http.port is -1, so nobody can be asked")) == (1, True)


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"addresses": 1, "port": 1}'])
def test_healthcheck_says_where_it_looked_for_what_no_agent_has_written(text: str | None, tmp_path: Path) -> None:
    status, said = check(tmp_path, text=text)
    assert status == 1
    assert said.startswith(f"no agent has said in REGENCY_PROBE_FILE={tmp_path}/probe.json where it answers: ")


def test_a_probe_file_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "missing" / "probe.json"
    write_probe_file(path, ["127.0.0.1"], 9404)
    remove_probe_file(path)
    (warning,) = caplog.messages
    assert warning == f"{path} cannot be written, so no health check finds /readyz: No such file or directory"


def test_the_agent_s_options_and_the_healthcheck_name_the_file_by_one_variable() -> None:
    [file] = [
        word.partition("=")[2]
        for words in instructions("ENV")
        for word in words
        if word.startswith("REGENCY_PROBE_FILE=")
    ]
    assert Path(file).is_absolute()
    [option] = [option for option in agent.params if option.name == "probe_file"]
    assert option.envvar == "REGENCY_PROBE_FILE"
    assert 'FILE_VARIABLE = "REGENCY_PROBE_FILE"' in HEALTHCHECK.read_text()
