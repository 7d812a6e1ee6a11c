"""Followers: which partitions are fetched from which leader, and what is done with what comes back.

`fetcher_logic` decides everything and is passive; a `fetcher_thread` only sends and receives; `fetcher_pool` divides
partitions among threads by leader. Truncation by leader epochs (KIP-101, KIP-279, KIP-595) stands in
`fetcher_logic`.

Comes in:   orders to follow, answers of leaders, throttles.
Goes out:   fetches over `regency.kafka.fetching`, appends and truncations of followers' logs.
Hands out:  FetcherPool, Throttles.
Imports:    the kafka room; `replication.partition`, whose log is appended to and cut.
Threads:    one per fetcher for the wire; the logic on the data loop.
"""
