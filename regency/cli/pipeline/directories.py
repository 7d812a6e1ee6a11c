"""Options that name a directory which a job writes: a wrong name is refused before Spark has taken its seconds."""

from __future__ import annotations

import click

from regency.pipeline.files.place_names import why_no_directory, why_no_new_directory


class Directory(click.ParamType[str]):
    """A directory, anywhere that Spark can write; `new`: one that the job is to make."""

    name = "directory"

    def __init__(self, *, new: bool) -> None:
        self._why = why_no_new_directory if new else why_no_directory

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Raises BadParameter."""
        why = self._why(value)
        if why:
            self.fail(f"{value!r} {why}.", param, ctx)
        return value
