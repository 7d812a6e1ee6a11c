"""`python -m regency`: the command `regency`."""

from __future__ import annotations

from regency.cli.program import main

if __name__ == "__main__":
    main()
