"""`python limited_agent.py FLAG AGENT-ARGUMENTS...`: an agent with little, whose writes of logs hang while FLAG exists.

256 descriptors, hard limit too, and 512 MiB of address space: what leaks or grows with what strangers send runs out at
once. Stacks and the allocator's arenas are made small first, which take more than that by themselves.
"""

from __future__ import annotations

import os
import resource
import sys
import time

DESCRIPTORS = 256
ADDRESS_SPACE_BYTES = 512 << 20
STACK_BYTES = 512 << 10
_LIMITED = "--limited"


def limit() -> None:
    """Take the limits, and begin anew with them."""
    for kind, most in (
        (resource.RLIMIT_NOFILE, DESCRIPTORS),
        (resource.RLIMIT_STACK, STACK_BYTES),
        (resource.RLIMIT_AS, ADDRESS_SPACE_BYTES),
    ):
        resource.setrlimit(kind, (most, most))
    os.environ["MALLOC_ARENA_MAX"] = "1"
    os.execv(sys.executable, [sys.executable, "-P", sys.argv[0], _LIMITED, *sys.argv[1:]])


def run(flag: str, arguments: list[str]) -> int:
    from regency.broker_agent.__main__ import main

    write = os.pwrite

    def hanging(fd: int, data: bytes, position: int) -> int:
        while os.path.exists(flag):  # noqa: PTH110  (nothing that needs a descriptor, or memory)
            time.sleep(0.01)
        return write(fd, data, position)

    os.pwrite = hanging  # type: ignore[assignment]
    return main(arguments)


if sys.argv[1] == _LIMITED:
    sys.exit(run(sys.argv[2], sys.argv[3:]))
limit()
