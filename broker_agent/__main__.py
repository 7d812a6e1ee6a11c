"""`python -m regency.broker_agent --config server.properties [--set key=value]...`: one broker agent.

Starts its own controller process. One JSON line on stdout when it is registered; the log goes to stderr.
SIGTERM and SIGINT stop it in order, a second one hurries it; SIGUSR1 writes the stacks of all threads to stderr.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from regency.broker_agent.agent import run_agent
from regency.broker_agent.process.loop_meter import LoopMeter, MeteredSelector
from regency.runtime import logging as log_format
from regency.runtime.daemon_options import HELP_OPTIONS, SettingsOptions, run_daemon, settings_options
from regency.runtime.descriptors import keep_large_buffers, raise_limit

logger = logging.getLogger("regency.broker_agent")

SWITCH_INTERVAL_S = 0.0005
"""How long a thread may keep the interpreter: the data loop never waits longer for another thread's Python code."""

GC_THRESHOLDS = (20_000, 20, 100)
"""Kafka's requests make few cycles and many objects that live for one answer. Python's own (700, 10, 10) looks through
every waiting request and every partition again and again: a fifth of what a thousand idle consumers cost."""


@click.command("python -m regency.broker_agent", context_settings=HELP_OPTIONS)
@settings_options
@click.option(
    "--probe-file", type=click.Path(path_type=Path), metavar="FILE", help="Say there where /readyz is served."
)
def agent(probe_file: Path | None, **options: Any) -> int:
    """Run one broker agent, with its controller, until SIGTERM or SIGINT."""
    source = SettingsOptions(**options)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    log_format.configure("agent")
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    keep_large_buffers()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.freeze()  # modules and message schemas stay for good
    settings = source.load()
    log_format.configure(f"agent-{settings.broker_id}", state_changes=settings.regency_state_change_log)
    raise_limit()
    selector = MeteredSelector()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        return runner.run(run_agent(settings, source.words(), LoopMeter(selector), probe_file))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run an agent. The exit status: 0 stopped, 1 failed, 2 wrong use."""
    return run_daemon(agent, arguments)


if __name__ == "__main__":
    sys.exit(main())
