"""`./dev compat NAME`: other people's test suites, unchanged, against a Regency cluster of real processes.

`suite` says what a suite is and how one is fetched and run; `suites` has them, one module each; `__main__` starts a
cluster, runs the suites that were named, and prints a table: tests run, passed, failed, left out and the reason.

Comes in:   packages by the ordinary clients (go, cargo, mvn, pip, apt), kept in `~/.cache/regency/compat`.
Goes out:   a table, or JSON; the suites' own output in `tests/out/compat/NAME.log`.
Imports:    regency.cluster. Nothing of these suites is part of the repository.
"""
