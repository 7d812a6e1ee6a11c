"""`python -m regency.broker_agent --config server.properties [--override key=value]...`: one broker agent.

Starts its own controller process. One JSON line on stdout when it is registered; the log goes to stderr.
SIGTERM and SIGINT stop it in order, a second one hurries it; SIGUSR1 writes the stacks of all threads to stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import gc
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from regency.broker_agent.agent import run_agent
from regency.broker_agent.process.loop_meter import LoopMeter, MeteredSelector
from regency.model.errors import RegencyError
from regency.runtime import logging as log_format
from regency.runtime.allocator import keep_large_buffers
from regency.runtime.descriptors import raise_limit
from regency.runtime.settings_loader import load_settings

logger = logging.getLogger("regency.broker_agent")

SWITCH_INTERVAL_S = 0.0005
"""How long a thread may keep the interpreter: the data loop never waits longer for another thread's Python code."""

GC_THRESHOLDS = (20_000, 20, 100)
"""Kafka's requests make few cycles and many objects that live for one answer. Python's own (700, 10, 10) looks through
every waiting request and every partition again and again: a fifth of what a thousand idle consumers cost."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run an agent until it is told to stop. The exit status: 0 stopped, 1 failed."""
    parser = argparse.ArgumentParser(prog="python -m regency.broker_agent", description="One broker agent.")
    parser.add_argument("--config", type=Path, metavar="FILE", help="server.properties")
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE", help="in place of its key")
    parser.add_argument("--environment", action="store_true", help="take settings from variables KAFKA_* too")
    parser.add_argument("--probe-file", type=Path, metavar="FILE", help="say there where /readyz is served")
    options = parser.parse_args(arguments)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    log_format.configure("agent")
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    keep_large_buffers()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.freeze()  # modules and message schemas stay for good
    try:
        settings = load_settings(options.config, options.override, os.environ if options.environment else None)
        log_format.configure(f"agent-{settings.broker_id}", state_changes=settings.regency_state_change_log)
        raise_limit()
        inherited = [*(["--config", str(options.config)] if options.config else [])]
        inherited += ["--environment"] if options.environment else []
        for override in options.override:
            inherited += ["--override", override]
        selector = MeteredSelector()
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
            return runner.run(run_agent(settings, inherited, LoopMeter(selector), options.probe_file))
    except RegencyError as error:
        sys.stderr.write(f"Error: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
