"""Decision records: what the controller and leaders decided, when, and why.

Comes in:   records where a decision is made.
Goes out:   lines of JSON in files per process, and records of them in order (`files`); pages of them over gRPC
            (`pages`).
Hands out:  Decision and its codec (`records`).
Imports:    `regency.model`; both daemons, the command line and the pipeline import it.
Rule:       a record is written after its decision is committed; a lost file loses no state.
Files:      in regency.history.dir, one per process that rotates at 8 MiB; the newest eight are kept.
Tests:      tests/unit/history.
"""
