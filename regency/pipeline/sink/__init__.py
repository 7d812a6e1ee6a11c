"""The writer of `format("regency")`: rows of Spark into topics, once also where tasks are repeated.

`identity` names a write; `tail` finds what an earlier attempt has written, from `floors` on; `state` keeps it across
micro-batches; `producer` sends, in `tasks`.

Comes in:   rows (`rows`), options.
Goes out:   records with headers that tell the write, the task and the row.
Hands out:  `writer`.
Imports:    `regency.clients` and confluent-kafka; `records` to read the tail.
Runs:       `writer` and `state` on the driver, `tasks` on executors.
"""
