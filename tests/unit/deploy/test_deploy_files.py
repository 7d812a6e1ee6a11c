"""The sample settings and the systemd unit: the production loader takes the one, systemd the other, and they agree."""

from __future__ import annotations

import configparser
import logging
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from regency.cli.main import cli
from regency.controller.elections.controlled_shutdown import shutdown_patience_ms
from regency.model.settings import BrokerSettings
from regency.model.settings.broker import KEYS
from regency.model.settings.properties import parse_property_lines
from regency.runtime.settings_loader import load_settings

DEPLOY = Path(__file__).parents[3] / "deploy"
SAMPLE, UNIT = DEPLOY / "server.properties", DEPLOY / "regency-agent.service"
SYSTEMD_ANALYZE = shutil.which("systemd-analyze")
MOST_EXPOSED = 20
"""Of 100, by `systemd-analyze security`: what services with all their rights reach 96."""


@pytest.fixture
def sample() -> BrokerSettings:
    return load_settings(SAMPLE)


@pytest.fixture(scope="module")
def unit() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(strict=True, interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(UNIT.read_text("utf-8"))
    return parser["Service"]


def test_the_sample_loads_without_a_warning(caplog):
    with caplog.at_level(logging.DEBUG):
        settings = load_settings(SAMPLE)
    assert caplog.messages == []
    assert settings.warnings == ()


def test_the_sample_is_a_cluster_that_one_broker_may_leave(sample):
    assert sample.default_replication_factor == 3
    assert sample.log_config().min_insync_replicas == 2
    assert not sample.log_config().unclean_leader_election_enable
    assert [(end.listener, end.port) for end in (*sample.listeners, *sample.control_listeners)] == [
        ("PLAINTEXT", 9092),
        ("CONTROL", 9093),
        ("CONTROLLER", 9094),
    ]
    assert {end.listener for end in sample.advertised_listeners} == {"PLAINTEXT", "CONTROL", "CONTROLLER"}


def test_the_sample_names_no_key_twice():
    entries = [entry.key for entry in parse_property_lines(SAMPLE.read_text("utf-8"), "sample")]
    assert len(entries) == len(set(entries))
    assert set(entries) <= set(KEYS)


def test_every_key_that_the_samples_comments_name_exists():
    named = re.findall(r"\b[a-z]+(?:\.[a-z]+){2,}\b", SAMPLE.read_text("utf-8"))
    assert [name for name in named if name not in KEYS and not name.endswith(".md")] == []


def test_the_unit_runs_a_command_that_there_is_with_the_samples_place(unit):
    program, name, option, config = unit["ExecStart"].split()
    assert program == "/opt/regency/bin/regency"
    command = cli.get_command(None, name)  # type: ignore[arg-type]
    assert command is not None
    assert [each for each in command.params if option in each.opts]
    assert config == f"/etc/{unit['ConfigurationDirectory']}/{SAMPLE.name}"


def test_the_unit_waits_longer_than_a_controlled_shutdown_may_take(unit, sample):
    longest_s = shutdown_patience_ms(sample) / 1000
    assert longest_s + 60 <= int(unit["TimeoutStopSec"])
    assert (unit["KillSignal"], unit["KillMode"], unit["Restart"]) == ("SIGTERM", "mixed", "on-failure")


def test_the_unit_may_write_where_the_sample_keeps_data(unit, sample):
    state = Path("/var/lib") / unit["StateDirectory"]
    for place in (*sample.log_dirs, sample.regency_history_dir, unit["WorkingDirectory"]):
        assert Path(place).is_relative_to(state)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The unit, with a program that is there: systemd looks for it."""
    program = tmp_path / "regency"  # the interpreter's own path may have a space in it
    program.symlink_to(sys.executable)
    text = UNIT.read_text("utf-8").replace("/opt/regency/bin/regency", str(program))
    copy = tmp_path / UNIT.name
    copy.write_text(text, "utf-8")
    return copy


@pytest.mark.timeout(30)
@pytest.mark.skipif(SYSTEMD_ANALYZE is None, reason="systemd-analyze is not on this machine")
def test_systemd_finds_nothing_wrong_with_the_unit(installed):
    found = subprocess.run(
        [str(SYSTEMD_ANALYZE), "verify", "--man=no", str(installed)], capture_output=True, text=True, check=False
    )
    told = [line for line in (found.stdout + found.stderr).splitlines() if installed.name in line]
    assert (found.returncode, told) == (0, [])


@pytest.mark.timeout(30)
@pytest.mark.skipif(SYSTEMD_ANALYZE is None, reason="systemd-analyze is not on this machine")
def test_systemd_would_find_a_misspelt_line(installed):
    installed.write_text(installed.read_text("utf-8").replace("ProtectHome=", "ProtectHoem="), "utf-8")
    found = subprocess.run(
        [str(SYSTEMD_ANALYZE), "verify", "--man=no", str(installed)], capture_output=True, text=True, check=False
    )
    assert "ProtectHoem" in found.stdout + found.stderr


@pytest.mark.timeout(30)
@pytest.mark.skipif(SYSTEMD_ANALYZE is None, reason="systemd-analyze is not on this machine")
def test_the_unit_leaves_the_process_little_that_it_could_harm(installed):
    command = [str(SYSTEMD_ANALYZE), "security", "--offline=true", f"--threshold={MOST_EXPOSED}", "--no-pager"]
    found = subprocess.run([*command, str(installed)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr
