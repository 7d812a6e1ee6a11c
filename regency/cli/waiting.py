"""What a command waits for, said on a terminal while it does: one line that overwrites itself."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from regency.cli.context import stderr_is_terminal

_AFTER_S = 1.0
"""What is over sooner needs no words."""
_CLEAR = "\r\033[K"


@contextmanager
def waiting(words: Callable[[], str] | str) -> Iterator[None]:
    """For the length of a `with` block that prints nothing: what is waited for, and since when, on stderr.

    `words` may be asked again each second, on a thread of its own; it must not fail. Not on a terminal: nothing.
    """
    if not stderr_is_terminal():
        yield
        return
    over, began = threading.Event(), time.monotonic()

    def tell() -> None:
        told = False
        while not over.wait(_AFTER_S):
            line = f"{words if isinstance(words, str) else words()}: {time.monotonic() - began:.0f} s"
            click.echo(f"{_CLEAR}{line[: shutil.get_terminal_size().columns - 1]}", err=True, nl=False)
            told = True
        if told:
            click.echo(_CLEAR, err=True, nl=False)

    teller = threading.Thread(target=tell, name="waiting", daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()
