"""The image's HEALTHCHECK: exit status 0 once the agent says on /readyz that it is ready, and why not on stdout."""

from __future__ import annotations

import http.client
import os
import sys

PORT_VARIABLE = "KAFKA_REGENCY_HTTP_PORT"
TIMEOUT_S = 4.0


def main() -> int:
    """Ask once."""
    said = os.environ.get(PORT_VARIABLE, "9404").strip()
    if not said.isdecimal() or not 0 < int(said) < 65536:
        sys.stdout.write(f"{PORT_VARIABLE}={said} is no port to ask; turn the container's health check off\n")
        return 1
    port = int(said)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        sys.stdout.write(answer.read(2000).decode(errors="replace"))
    except (OSError, http.client.HTTPException) as error:
        sys.stdout.write(f"no answer from port {port}: {error}\n")
        return 1
    return 0 if answer.status == http.client.OK else 1


if __name__ == "__main__":
    sys.exit(main())
