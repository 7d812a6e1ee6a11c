"""The Spark session of `regency pipeline`: a Java that is there, a quiet start, a local master by default."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from regency.cluster.java import MINIMUM_JAVA, java_version, look_for_java
from regency.model.errors import RegencyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
"""Master by default: every core of this machine."""

_HERE = Path(__file__).parent
_LAUNCHER = _HERE / "java"
"""A Java home whose `java` starts the one in REGENCY_JAVA, without the words in REGENCY_JAVA_DROPS."""
_VECTORS = "--add-modules=jdk.incubator.vector"
"""Small runtimes lack the module, full ones warn about it; nothing in Regency computes with it."""
_SECURITY_ACTIONS = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
"""A package that is not there any more from Java 24 on, which warns about it."""
_WITHOUT_SECURITY_ACTIONS = 24
_PACKAGES = ("pyspark", "pyarrow", "pandas", "numpy")
_INSTALL = "Install what reading and writing with Spark needs: pip install 'regency[pipeline]'"
_PYTHON = "spark.pyspark.python"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

_SETTINGS = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.session.timeZone": "UTC"}


class SparkMissing(RegencyError):
    """Spark cannot be started on this machine: a package or Java is missing."""

    code = "spark_missing"


@contextmanager
def spark_session(
    name: str, *, master: str = LOCAL, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session that knows `format("regency")`, stopped at the end. `settings` are Spark's, by name.

    Tasks run the Python of this process unless spark.pyspark.python or $PYSPARK_PYTHON names another; a master on other
    machines needs Regency installed there. Raises SparkMissing for a missing package, and where no Java of version 17
    or later is found.
    """
    require_packages()
    from pyspark.sql import SparkSession  # noqa: PLC0415 (takes half a second, and is an extra)

    from regency.pipeline.source import register  # noqa: PLC0415

    chosen = {**_SETTINGS, **(settings or {})}
    chosen.setdefault(_PYTHON, os.environ.get("PYSPARK_PYTHON") or sys.executable)
    chosen[_JAVA_OPTIONS] = f"{_quiet_start()} {chosen.get(_JAVA_OPTIONS, '')}".strip()
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    with _environment(_started_with(master, chosen[_PYTHON])):
        session = builder.getOrCreate()
    try:
        register(session)
        yield session
    finally:
        session.stop()


def require_packages() -> None:
    """Raises SparkMissing that names what is not installed."""
    missing = [package for package in _PACKAGES if importlib.util.find_spec(package) is None]
    if missing:
        raise SparkMissing(f"These packages are not installed: {', '.join(missing)}.", hint=_INSTALL)


def _started_with(master: str, python: str) -> dict[str, str]:
    """Environment Spark is started with. Its Java, and the executors on this machine, inherit it."""
    java, looked = look_for_java()
    if java is None:
        raise SparkMissing(f"Spark needs Java {MINIMUM_JAVA} or later: {looked}.", hint=_INSTALL)
    drops = [_VECTORS]
    if (java_version(java) or 0) >= _WITHOUT_SECURITY_ACTIONS:
        drops.append(_SECURITY_ACTIONS)
    environment = {
        "JAVA_HOME": str(_LAUNCHER),
        "REGENCY_JAVA": str(java),
        "REGENCY_JAVA_DROPS": " ".join(drops),
        "PYSPARK_PYTHON": python,
    }
    if sys.platform == "linux" and _locale(os.environ) in ("", "C", "POSIX"):
        environment["LC_ALL"] = "C.UTF-8"  # as Python takes them: else Java finds no file whose name is not ASCII
    if master.startswith("local") and "SPARK_LOCAL_IP" not in os.environ:
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"  # or it warns of a host name without an address of its own
    return environment


def _locale(environment: Mapping[str, str]) -> str:
    """The locale that says how names of files are decoded. Pure."""
    return next((value for name in ("LC_ALL", "LC_CTYPE", "LANG") if (value := environment.get(name))), "")


def _quiet_start() -> str:
    """Java option for a log of errors alone from the first line on: spark.log.level counts only once Spark is up."""
    return f"-Dlog4j2.configurationFile={(_HERE / 'log4j2.properties').as_uri()}"


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
