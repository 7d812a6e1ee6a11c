"""The image's HEALTHCHECK: exit status 0 once the agent says on /readyz that it is ready, and why not on stdout.

The agent has written where it can be asked (`regency agent --probe-file`), whatever its settings are and wherever they
come from.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import time
from pathlib import Path

FILE_VARIABLE = "REGENCY_PROBE_FILE"
TIMEOUT_S = 4.0


def main() -> int:
    """Ask once."""
    path = os.environ.get(FILE_VARIABLE, "")
    try:
        served = json.loads(Path(path).read_text(encoding="utf-8"))
        addresses, port = [str(address) for address in served["addresses"]], int(served["port"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        sys.stdout.write(f"no agent has said in {FILE_VARIABLE}={path} where it answers: {reason}\n")
        return 1
    if port < 0:
        sys.stdout.write("regency.http.port is -1, so nobody can be asked; turn the container's health check off\n")
        return 1
    return ask(addresses, port)


def ask(addresses: list[str], port: int) -> int:
    """Ask the first address that answers."""
    until = time.monotonic() + TIMEOUT_S
    failures = []
    for address in addresses:
        connection = http.client.HTTPConnection(address, port, timeout=max(0.1, until - time.monotonic()))
        try:
            connection.request("GET", "/readyz")
            answer = connection.getresponse()
            sys.stdout.write(answer.read(2000).decode(errors="replace"))
        except (OSError, http.client.HTTPException) as error:
            failures.append(f"no answer from {address}, port {port}: {error}")
        else:
            return 0 if answer.status == http.client.OK else 1
        finally:
            connection.close()
    sys.stdout.write("\n".join(failures) + "\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
