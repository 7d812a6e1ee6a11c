"""Records in and out: produce, consume, load, and the judge of what clients did and saw.

Comes in:   lines, rates, histories of clients.
Goes out:   records, counts, verdicts.
Hands out:  the commands `produce`, `consume`, `load`, `judge`.
Imports:    `asking`, `topics.making` (load makes its topic), `regency.judge`.
Files:      a module per command; `librdkafka` is what those that carry records share.
Rule:       records that were not delivered are counted and told, whatever ended the command.
Tests:      tests/unit/cli; the judge itself in tests/unit/judge.
"""
