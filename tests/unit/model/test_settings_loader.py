"""A settings file with overrides becomes settings; what is wrong with the file is told with its lines."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from regency.model.settings import SettingsInvalid
from regency.runtime.settings_loader import load_settings

VALID = "broker.id=1\nzookeeper.connect=localhost:2181\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "server.properties"


def test_overrides_count_before_the_file(file: Path) -> None:
    file.write_text(VALID + "num.partitions=3\n")
    settings = load_settings(file, ["broker.id=2", "zookeeper.connect = h:1/a=b"])
    assert (settings.broker_id, settings.num_partitions, settings.zookeeper_connect) == (2, 3, "h:1/a=b")


def test_overrides_do_without_a_file() -> None:
    assert load_settings(None, ["broker.id=2", "zookeeper.connect=h:1"]).broker_id == 2


def test_problems_name_file_and_line_or_override(file: Path) -> None:
    file.write_text("# mine\n" + VALID + "num.partitions=0\n")
    with pytest.raises(SettingsInvalid) as caught:
        load_settings(file, ["broker.id=x"])
    assert str(caught.value).splitlines() == [
        f"2 problems in {file}:",
        "  --set: broker.id=x: expected a whole number, 0 or more (ids are not generated)",
        "  line 4: num.partitions=0: expected 1 or more",
    ]


@pytest.mark.parametrize("override", ["broker.id", "=1", ""])
def test_an_override_without_key_and_value_is_refused(override: str) -> None:
    with pytest.raises(SettingsInvalid, match=f"--set {override}: expected key=value"):
        load_settings(None, [override])


def test_what_has_no_effect_is_logged(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    file.write_text(VALID + "num.io.threads=8\nbroker.id=7\n")
    with caplog.at_level(logging.WARNING):
        assert load_settings(file).broker_id == 7
    assert caplog.messages == [
        f"{file}: broker.id stands in line 1 and line 4; the latter counts",
        f"{file}: without effect here: num.io.threads",
    ]


def test_a_missing_file_is_named(file: Path) -> None:
    with pytest.raises(SettingsInvalid, match="there is no such file") as caught:
        load_settings(file)
    assert caught.value.source == str(file)


def test_a_folder_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid, match="cannot be read: Is a directory"):
        load_settings(tmp_path)


def test_a_file_that_is_not_utf_8_names_the_line(file: Path) -> None:
    file.write_bytes(b"broker.id=1\nbroker.rack=\xff\n")
    with pytest.raises(SettingsInvalid, match="line 2: byte 24 is not UTF-8"):
        load_settings(file)


def test_a_byte_order_mark_is_no_part_of_the_first_key(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + VALID.encode())
    assert load_settings(file).broker_id == 1
