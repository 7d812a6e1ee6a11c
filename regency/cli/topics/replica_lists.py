"""Brokers of partitions as people type them."""

from __future__ import annotations

import click

from regency.cli.context import INT32_MAX


def parse_assignment(text: str) -> dict[int, list[int]]:
    """Brokers by partition from `1:2:3,2:3:1`. Raises a usage error naming the partition that is wrong."""
    parsed: dict[int, list[int]] = {}
    for number, replicas in enumerate(text.split(",")):
        brokers = replicas.split(":")
        if not all(broker.strip().isdecimal() and int(broker) <= INT32_MAX for broker in brokers):
            raise click.BadParameter(
                f"partition {number}: {replicas!r} is not broker ids with ':' between them.", param_hint="--assignment"
            )
        parsed[number] = [int(broker) for broker in brokers]
    return parsed
