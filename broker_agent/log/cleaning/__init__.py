"""Compaction: of every key of a log the last record stays. What is done with files; when, and what becomes of the
result, is decided by the log and its directories.

`job` says what is to be cleaned, `cleaner` does it: it fills an `offset_map` from the dirty part, and writes what
`keeping` says stays to `.cleaned` files. `records` finds records by the thousand, `batches` checks and unpacks them.

Comes in:   closed segments of one log, by path; settings; the last batches of live producers.
Goes out:   `.cleaned` files that are on the disk, and what they replace.
Hands out:  clean, CleaningJob, Cleaned.
Imports:    numpy, the disk and `regency.kafka`'s formats; of the log only `segments` and `errors`.
Threads:    none; it runs step by step, in a process of its own or in the simulation.
"""
