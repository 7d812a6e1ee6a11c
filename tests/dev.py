"""The commands behind ./dev: what people who work on Regency type. Run by the interpreter of .venv."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
PROTOS = ("control", "admin", "controller", "inspection")
SUITES = {
    "unit": ["tests/unit"],
    "property": ["tests/property"],
    "integration": ["tests/integration"],
    "sim": ["tests/sim"],
    "chaos": ["tests/chaos"],
    "hostile": ["tests/hostile"],
    "spark": ["tests/spark"],
}
WITHOUT_A_NAME = ("unit", "property", "sim", "integration")
"""In this order: what waits most comes last, where idle workers take it over first."""
UNPACKED = ROOT / ".prometheus"
"""Where a Prometheus is that the machine itself does not have."""
MONITORING = ("tests/integration/monitoring", "tests/unit/deploy")
DOCUMENTS = ("tests/integration/docs",)
IN_CI = ("tests/integration/monitoring", "tests/integration/docs")
"""What `test` without a name leaves to the stages of `ci`: one cluster after another, for minutes."""
SIM_S = 60
"""Seconds that `test` gives to simulated schedules, so that it takes ten minutes."""
NICELY = ("nice", "-n", "19")
MOST_WORKERS = 8
"""Processes that `test` spreads pytest over, two per core: clusters wait more than they work, and need memory."""


def run(command: Sequence[str | Path], **options: object) -> int:
    """Run a command from the repository's root and give its exit status; an interrupt is the command's own affair."""
    process = subprocess.Popen([str(part) for part in command], cwd=ROOT, **options)  # type: ignore[call-overload]
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    while True:
        try:
            return int(process.wait())
        except KeyboardInterrupt:
            continue


def stage(
    name: str,
    command: Sequence[str | Path],
    *,
    cap_s: int | None = None,
    env: Mapping[str, str] | None = None,
    into: BinaryIO | None = None,
) -> int:
    """Run one stage, say how long it took, and end it when it passes its cap. What it says goes `into`, if given."""
    started = time.monotonic()
    print(f"== {name}", flush=True)
    try:
        status = subprocess.run(
            [str(part) for part in command], cwd=ROOT, check=False, timeout=cap_s, env=env, stdout=into, stderr=into
        ).returncode
    except subprocess.TimeoutExpired:
        print(f"== {name}: over its cap of {cap_s} s", flush=True)
        status = 124
    took = time.monotonic() - started
    if into is not None:
        into.seek(0)
        sys.stdout.write(into.read().decode(errors="replace"))
    print(f"== {name}: {'ok' if status == 0 else f'failed ({status})'} in {took:.1f} s", flush=True)
    return status


def generate(destination: Path) -> None:
    """Generate the protobuf modules into `destination`/regency/protos."""
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-Iregency/protos={ROOT / 'protos'}"]
    command += [f"--{kind}_out={destination}" for kind in ("python", "pyi")]
    subprocess.run([*command, *(f"regency/protos/{name}.proto" for name in PROTOS)], cwd=ROOT, check=True)


def protos(_: list[str]) -> int:
    """Regenerate protos/*_pb2*."""
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        for made in sorted((Path(scratch) / "regency" / "protos").iterdir()):
            shutil.copyfile(made, ROOT / "protos" / made.name)
            print(f"protos/{made.name}")
    return 0


def check_protos() -> int:
    """Whether the committed modules are what the .proto files give."""
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        stale = [
            made.name
            for made in sorted((Path(scratch) / "regency" / "protos").iterdir())
            if not (ROOT / "protos" / made.name).exists()
            or (ROOT / "protos" / made.name).read_bytes() != made.read_bytes()
        ]
    if stale:
        print(f"protos: {', '.join(stale)} out of date; run ./dev protos and commit")
    return 1 if stale else 0


def check(_: list[str]) -> int:
    """Style, types, layers, generated code."""
    started = time.monotonic()
    steps: list[tuple[str, Callable[[], int]]] = [
        ("ruff check", lambda: run([BIN / "ruff", "check", "--quiet", "."])),
        ("ruff format", lambda: run([BIN / "ruff", "format", "--check", "--quiet", "."])),
        ("mypy --strict", lambda: run([BIN / "mypy", "--no-error-summary"])),
        ("import contracts", lambda: run([BIN / "lint-imports"], stdout=subprocess.DEVNULL)),
        ("generated code", check_protos),
        ("figures in docs", lambda: run([sys.executable, ROOT / "tests" / "bench" / "figures_page.py", "--check"])),
    ]
    failed = [name for name, step in steps if step() != 0]
    for name in failed:
        print(f"check: {name} failed")
    print(f"check: {len(steps) - len(failed)} of {len(steps)} passed in {time.monotonic() - started:.1f} s")
    return 1 if failed else 0


def test(arguments: list[str]) -> int:
    """`test [SUITE] [pytest arguments]`, one of SUITES; no name: check, most of them, simulations."""
    if arguments and arguments[0] in SUITES:
        return run([sys.executable, "-m", "pytest", *SUITES[arguments[0]], *arguments[1:]])
    if check([]) != 0:
        return 1
    paths = [path for name in WITHOUT_A_NAME for path in SUITES[name]]
    workers = ["-n", str(min(MOST_WORKERS, 2 * (os.cpu_count() or 1))), "--dist", "worksteal"]
    later = [f"--ignore={path}" for path in IN_CI]
    status = run([sys.executable, "-m", "pytest", "-q", *workers, *paths, *later, *arguments])
    return status if status != 0 or arguments else sim(["--profile", "deep", "--seconds", str(SIM_S), "--all-points"])


def sim(arguments: list[str]) -> int:
    """`sim --seeds N [--seed S] [--trace] [--profile quick|deep]`: whole clusters in virtual time; --help says more."""
    return run([sys.executable, "-m", "simulation", *arguments], env=simulating())


def ledger(arguments: list[str]) -> int:
    """`ledger [NAME]`: which test shows which rule or bug of Kafka, defects, invariants; no name: the tables' names."""
    return run([sys.executable, "-m", "simulation.tables", *arguments], env=simulating())


def simulating() -> dict[str, str]:
    """The environment in which `simulation` and `compat` can be imported."""
    folders = [str(ROOT / "tests" / name) for name in ("sim", "compat")]
    paths = os.pathsep.join([*folders, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return {**os.environ, "PYTHONPATH": paths}


def dashboards(arguments: list[str]) -> int:
    """Write deploy/grafana/dashboards anew from deploy/grafana/regency_dashboards."""
    paths = {**os.environ, "PYTHONPATH": str(ROOT / "deploy" / "grafana")}
    return run([sys.executable, "-m", "regency_dashboards", *arguments], env=paths)


def prometheus(_: list[str]) -> int:
    """Unpack Debian's package into .prometheus/ for tests of dashboards and alerts, where the machine has none."""
    if (UNPACKED / "usr" / "bin" / "promtool").exists() or (shutil.which("promtool") and shutil.which("prometheus")):
        return 0
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        print("prometheus: it is not on this machine, and neither is apt-get; install it, or its tests are skipped")
        return 1
    with tempfile.TemporaryDirectory() as scratch:  # unpacked, not installed: that would start a service
        download = ["apt-get", "-qq", "download", "prometheus"]
        status = subprocess.run(download, cwd=scratch, check=False).returncode
        if status != 0 and os.geteuid() == 0 and run(["apt-get", "-qq", "update"]) == 0:
            status = subprocess.run(download, cwd=scratch, check=False).returncode
        found = list(Path(scratch).glob("*.deb"))
        if status == 0 and found:
            return run(["dpkg-deb", "-x", found[0], UNPACKED])
    print("prometheus: apt-get does not give it; its tests are skipped")
    return 1


def compose_test(arguments: list[str]) -> int:
    """`compose-test [--help]`: docker-compose.yml on this machine's container engine, broken on purpose."""
    paths = os.pathsep.join([str(ROOT / "tests" / "compose"), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return run([sys.executable, "-m", "compose_test", *arguments], env={**os.environ, "PYTHONPATH": paths})


def compat(arguments: list[str]) -> int:
    """`compat [NAME ...] [--short]`: other people's test suites against a cluster; --help lists them."""
    return run([sys.executable, "-m", "compat", *arguments], env=simulating())


def ci(_: list[str]) -> int:
    """The longer stages after ./dev test, each with its seconds and a cap."""
    prometheus([])
    pytest = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile"]
    stages: list[tuple[str, list[str | Path], int]] = [
        ("monitoring and documents", [*pytest, *MONITORING, *DOCUMENTS], 360),
        ("spark", [*pytest, *SUITES["spark"]], 540),
        ("demo", [sys.executable, "-m", "regency", "demo", "--no-progress"], 180),
    ]
    simulated: list[tuple[str, list[str | Path], int]] = [
        ("paused", [*NICELY, sys.executable, "-m", "simulation.paused"], 900),
        ("defects", [*NICELY, sys.executable, "-m", "simulation.defects", "--known"], 900),
    ]
    alone = [sys.executable, "-m", "pytest", "-q", *SUITES["hostile"]]  # it judges by the loop's seconds
    statuses = [stage("hostile", alone, cap_s=120, env=simulating())]

    def simulate() -> None:
        for name, command, cap_s in simulated:
            with tempfile.TemporaryFile() as said:
                statuses.append(stage(name, command, cap_s=cap_s, env=simulating(), into=said))

    beside = threading.Thread(target=simulate)
    beside.start()  # its time is virtual, so that nothing in it is late: it takes what clusters leave
    statuses += [stage(name, command, cap_s=cap_s, env=simulating()) for name, command, cap_s in stages]
    beside.join()
    return max(statuses)


def lock(_: list[str]) -> int:
    """Write requirements.lock anew (needs uv on the PATH)."""
    extras = [word for extra in ("embedded", "demo", "pipeline", "dev") for word in ("--extra", extra)]
    options = ["--universal", "--python-version=3.11", "--generate-hashes", "--no-emit-index-url", "--no-header"]
    return run(
        ["uv", "pip", "compile", "pyproject.toml", *extras, *options, "--no-annotate", "-qo", "requirements.lock"]
    )


def cli(*words: str) -> Callable[[list[str]], int]:
    """A command that is one call of the command line."""

    def call(arguments: list[str]) -> int:
        command = [sys.executable, "-m", "regency", *words, *arguments]
        os.chdir(ROOT)
        os.execv(command[0], command)

    call.__doc__ = f"`regency {' '.join(words)}`"
    return call


def demo(arguments: list[str]) -> int:
    """`regency demo`; then how to go on."""
    status = run([sys.executable, "-m", "regency", "demo", *arguments])
    if status == 0 and not {"--help", "-h"} & set(arguments):
        print("\n`. .venv/bin/activate` gives this shell the command `regency`; go on with `regency up --detach`.")
    return status


def wheel(_: list[str]) -> int:
    """Build the wheel into dist/, for machines without this checkout."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", "dist", "."]
    status = run(command)
    if status == 0:
        [built] = sorted((ROOT / "dist").glob("regency-*.whl"), key=lambda path: path.stat().st_mtime)[-1:]
        print(f"dist/{built.name}: install it with `pip install 'dist/{built.name}[demo]'`")
    return status


def up(arguments: list[str]) -> int:
    """`up [N]`: a cluster of N agents (3) kept in .run/."""
    count = ["--brokers", arguments.pop(0)] if arguments and arguments[0].isdigit() else []
    return cli("up", "--detach", *count)(arguments)


def bench(arguments: list[str]) -> int:
    """`bench NAME [--json FILE] [options]`: the benchmarks in tests/bench."""
    names = sorted(
        path.stem.removeprefix("bench_").replace("_", "-") for path in (ROOT / "tests" / "bench").glob("bench_*.py")
    )
    if not arguments or arguments[0] not in names:
        print(f"bench: name one of {', '.join(names)}", file=sys.stderr)
        return 2
    return run(
        [sys.executable, ROOT / "tests" / "bench" / f"bench_{arguments[0].replace('-', '_')}.py", *arguments[1:]]
    )


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "demo": demo,
    "test": test,
    "check": check,
    "up": up,
    "logs": cli("logs"),
    "down": cli("down"),
    "wheel": wheel,
    "sim": sim,
    "ledger": ledger,
    "bench": bench,
    "protos": protos,
    "dashboards": dashboards,
    "prometheus": prometheus,
    "lock": lock,
    "compose-test": compose_test,
    "compat": compat,
    "ci": ci,
}


def main() -> int:
    """Look the command up and run it."""
    lines = [f"  {name:<12} {(command.__doc__ or '').splitlines()[0]}" for name, command in COMMANDS.items()]
    parser = argparse.ArgumentParser(
        prog="./dev",
        usage="./dev COMMAND [ARGUMENTS]",
        epilog="\n".join(["commands:", *lines]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND")
    if len(sys.argv) < 2:
        parser.print_help()
        return 2
    command = parser.parse_args(sys.argv[1:2]).command
    return COMMANDS[command](sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
