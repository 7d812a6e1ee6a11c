"""Errors are one line on stderr with an exit status, data goes to stdout, and signals end a command in order."""

from __future__ import annotations

import importlib.abc
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import confluent_kafka
import pytest
from click.testing import Result

from regency.cli import main as cli_main
from regency.cli import program
from regency.cli.exits import CommandFailed, Exit, exit_on_termination
from regency.cluster.errors import ClusterRunning, ClusterTimeout, NoFreePorts
from regency.model.errors import RegencyError

Run = Callable[..., Result]
ROOT = Path(__file__).resolve().parents[3]
SUBCOMMANDS = [
    ("topics", "create"),
    ("topics", "alter"),
    ("topics", "delete"),
    ("topics", "list"),
    ("topics", "describe"),
    ("log", "dump"),
    ("verify", "replicas"),
    ("configs", "get"),
    ("configs", "set"),
    ("configs", "unset"),
    ("brokers", "list"),
    ("brokers", "describe"),
    ("brokers", "drain"),
    ("brokers", "shutdown"),
    ("brokers", "forget"),
    ("leaders", "elect"),
    ("partitions", "plan"),
    ("partitions", "execute"),
    ("partitions", "verify"),
    ("partitions", "cancel"),
    ("partitions", "list"),
    ("topics", "set-rf"),
    ("controller", "status"),
    ("controller", "resign"),
    ("cluster", "health"),
]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Makes `regency down` raise."""

    def arrange(error: BaseException) -> None:
        @click.command()
        def broken() -> None:
            raise error

        monkeypatch.setattr("regency.cli.lab.cluster.down", broken)

    return arrange


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RegencyError("It broke.", hint="Mend it."), Exit.FAILED),
        (NoFreePorts("It broke.", hint="Mend it."), Exit.FAILED),
        (ClusterTimeout("It broke.", hint="Mend it."), Exit.TIMED_OUT),
        (ClusterRunning("It broke.", hint="Mend it."), Exit.REFUSED),
        (CommandFailed("It broke.", hint="Mend it.", status=Exit.IN_PROGRESS), Exit.IN_PROGRESS),
    ],
)
def test_expected_error_is_one_line_and_a_status(
    run: Run, failing: Callable[[BaseException], None], error: RegencyError, status: Exit
) -> None:
    failing(error)
    result = run("down")
    assert (result.exit_code, result.stdout, result.stderr) == (status, "", "Error: It broke. Mend it.\n")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGHUP, 143), (signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_ends_a_command_though_a_library_replaces_its_exception(
    run: Run, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, status: int
) -> None:
    @click.command()
    def replacing() -> None:
        try:
            signal.raise_signal(number)
        except BaseException:  # noqa: BLE001 - as confluent-kafka does while it reads its arguments
            raise TypeError("expected header key to be unicode string") from None

    monkeypatch.setattr("regency.cli.lab.cluster.down", replacing)
    result = run("down")
    assert (result.exit_code, result.stdout, result.stderr) == (status, "", "")


def test_interrupt_is_quiet(run: Run, failing: Callable[[BaseException], None]) -> None:
    failing(KeyboardInterrupt())
    result = run("down")
    assert (result.exit_code, result.stdout, result.stderr.strip()) == (130, "", "")


@pytest.mark.parametrize("mistake", [ZeroDivisionError(), OSError(9, "Bad file descriptor")])
def test_mistake_of_ours_is_not_hidden(
    run: Run, failing: Callable[[BaseException], None], mistake: BaseException
) -> None:
    failing(mistake)
    assert run("down").exception is mistake


def test_a_file_that_cannot_be_written_is_one_line(run: Run, failing: Callable[[BaseException], None]) -> None:
    failing(PermissionError(13, "Permission denied", ".run/cluster.lock"))
    result = run("down")
    assert (result.exit_code, result.stderr) == (1, "Error: .run/cluster.lock: Permission denied.\n")


@pytest.mark.parametrize(
    "words",
    [
        ("tpics",),
        ("topics", "create"),
        ("topics", "create", "t", "--partitions", "0"),
        ("topics", "create", "t", "--config", "no-equals-sign"),
        ("topics", "create", "t", "--partitions", str(2**31)),
        ("topics", "create", "t", "--assignment", "1:2,x"),
        ("topics", "create", "t", "--assignment", f"1:{2**31}"),
        ("topics", "create", "t", "--assignment", "1:2", "--partitions", "1"),
        ("up", "--brokers", "0"),
        ("up", "--set", "nothing"),
        ("consume", "t", "--offset", "5"),
        ("consume", "t", "--offset", str(2**63), "--partition", "0"),
        ("topics", "create", "\udcff"),
        ("history", "--since", "1m", "--subject", "\udcff"),
        ("--bootstrap-server", "\udcff:1", "topics", "list"),
        ("consume", "t", "--partition", str(2**31)),
        ("consume", "t", "--timeout", "nan"),
        ("produce", "t", "--partition", str(2**31)),
        ("produce", "t", "--timeout", "inf"),
        ("down", "--timeout", "nan"),
        ("consume", "t", "--offset", "5", "--partition", "1", "--from-beginning"),
        ("agent",),
        ("agent", "--config", "/no/such/file"),
        ("status", "-o", "yaml"),
    ],
)
def test_wrong_use_is_status_2(run: Run, words: tuple[str, ...]) -> None:
    result = run(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error: " in result.stderr


def test_a_time_that_is_none_is_called_so(run: Run) -> None:
    assert "'soon' is not a valid number of seconds" in run("down", "--timeout", "soon").stderr


def test_every_command_has_help_with_an_example(run: Run) -> None:
    paths = [
        (name,) for name in cli_main.cli.list_commands(click.Context(cli_main.cli)) if name not in ("demo", "topics")
    ]
    for path in [(), *paths, *SUBCOMMANDS]:
        result = run(*path, "--help")
        assert result.exit_code == 0, path
        assert "Example" in result.stdout, path
        assert "\\b" not in result.stdout, path


@pytest.mark.parametrize("group", sorted({words[0] for words in SUBCOMMANDS}))
def test_what_a_subcommand_does_is_said_in_whole_sentences(run: Run, group: str) -> None:
    assert "..." not in run(group, "--help").stdout.partition("Commands:")[2]


def test_commands_that_need_brokers_say_how_to_get_some(run: Run) -> None:
    for words in [("topics", "list"), ("produce", "t"), ("consume", "t")]:
        result = run(*words)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == (
            "Error: No cluster runs in .run, and no --bootstrap-server was given. "
            "Start one with `regency up --detach`, or name a broker, for example localhost:9092.\n"
        )


def test_commands_of_a_lab_say_what_tells_of_a_cluster_that_is_none(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGENCY_BOOTSTRAP_SERVERS", "kafka-1:9092")
    begin = "Error: There is no cluster in .run, and this command looks at no other. Of the cluster at kafka-1:9092 "
    for command, instead in (("status", "`regency cluster health`"), ("logs", "each machine has its own log")):
        result = run(command)
        assert (result.exit_code, result.stdout, result.stderr.startswith(begin + instead)) == (1, "", True)


def test_status_and_down_without_a_cluster(run: Run) -> None:
    status = run("status", "--dir", "lab")
    assert (status.exit_code, status.stdout) == (1, "")
    assert status.stderr == "Error: There is no cluster in lab. Start one with `regency up --detach --dir lab`.\n"
    down = run("down", "-o", "json")
    assert (down.exit_code, down.stdout, down.stderr) == (0, '{\n  "ended": []\n}\n', "Nothing runs in .run.\n")


def test_demo_says_at_once_that_its_result_cannot_be_written(run: Run) -> None:
    result = run("demo", "--json", "missing/result.json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: missing/result.json: No such file or directory.\n"


def test_a_full_disk_is_one_line_and_no_traceback() -> None:
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "regency", "--help"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert ended.returncode == 1
    assert ended.stderr.decode().startswith("Error: No space left on device")
    assert len(ended.stderr.splitlines()) == 1


def test_a_command_without_a_stdout_ends_as_any_other() -> None:
    done = subprocess.run(
        ["sh", "-c", '"$0" -m regency down --dir /no/such/lab >&-', sys.executable],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_closed_pipe_is_quiet() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "regency", "down", "-o", "json", "--dir", "/no/such/lab"],
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")


LOAD_ALL = """
import sys, click
from regency.cli.main import cli
HEAVY = {"kafka", "pyspark", "py4j", "pyarrow", "numpy", "pandas", "matplotlib"}

def load(command, path):
    paid = HEAVY & set(sys.modules)
    assert not paid, f"{' '.join(path)} imports {paid}"
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            load(command.get_command(click.Context(command), name), [*path, name])

load(cli, ["regency"])
"""


def test_help_of_no_command_waits_for_libraries_that_only_its_work_needs() -> None:
    subprocess.run([sys.executable, "-c", LOAD_ALL], check=True)


@pytest.mark.parametrize(
    ("number", "raised"),
    [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit), (signal.SIGHUP, SystemExit)],
)
def test_signal_that_meets_a_callback_of_the_kafka_client_is_no_error(
    number: signal.Signals, raised: type[BaseException]
) -> None:
    def delivered(*_: object) -> None:
        signal.raise_signal(number)

    producer = confluent_kafka.Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    producer.produce("t", b"x", on_delivery=delivered)
    producer.purge()
    with pytest.raises(raised) as found, exit_on_termination():
        producer.poll(5)
    assert getattr(found.value, "code", 143) == 143


def test_handlers_are_as_before_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with exit_on_termination():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_hangup_that_is_ignored_as_under_nohup_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with exit_on_termination():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


class InterruptedImport(importlib.abc.MetaPathFinder):
    """Ctrl-C while a module is being looked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == self._name:
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_while_the_commands_are_imported_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "regency.cli.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [InterruptedImport("regency.cli.main"), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 130
