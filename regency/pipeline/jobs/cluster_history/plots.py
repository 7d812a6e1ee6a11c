"""Plots as SVG text that stands in a page by itself: no scripts, no links, no fonts of their own. No Spark."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

WIDTH, BAR = 9.0, 0.28
"""Inches: the width of a plot, and the height of one bar of a list."""
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "text.parse_math": False,
}
_COLOURS = (
    "#4c78a8",
    "#f58518",
    "#54a24b",
    "#e45756",
    "#72b7b2",
    "#b279a2",
    "#eeca3b",
    "#9d755d",
    "#bab0ac",
    "#439894",
)
_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))

Series = Mapping[str, Sequence[float]]
"""Values of each kind, in the order of the labels."""


def columns(name: str, labels: Sequence[str], series: Series, unit: str) -> str:
    """Stacked columns, one for each label, such as a day. `name` tells the ids in it from those of other plots."""
    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=(WIDTH, 2.8), layout="constrained")
        axes = figure.add_subplot()
        bottom = [0.0] * len(labels)
        for colour, (kind, values) in zip(_colours(len(series)), series.items(), strict=True):
            axes.bar(range(len(labels)), values, bottom=bottom, label=kind, color=colour, width=0.8)
            bottom = [low + value for low, value in zip(bottom, values, strict=True)]
        step = max(1, len(labels) // 12)
        axes.set_xticks(range(0, len(labels), step), labels[::step], rotation=30, ha="right")
        axes.set_ylabel(unit)
        axes.grid(axis="y", alpha=0.3)
        return _svg(figure, axes, len(series))


def bars(name: str, labels: Sequence[str], series: Series, unit: str) -> str:
    """Stacked horizontal bars, the first label on top. `name` as of `columns`."""
    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=(WIDTH, 0.9 + BAR * len(labels)), layout="constrained")
        axes = figure.add_subplot()
        left = [0.0] * len(labels)
        for colour, (kind, values) in zip(_colours(len(series)), series.items(), strict=True):
            axes.barh(range(len(labels)), values, left=left, label=kind, color=colour, height=0.7)
            left = [low + value for low, value in zip(left, values, strict=True)]
        axes.set_yticks(range(len(labels)), [label if len(label) <= 40 else f"{label[:38]}…" for label in labels])
        axes.invert_yaxis()
        axes.set_xlabel(unit)
        axes.grid(axis="x", alpha=0.3)
        return _svg(figure, axes, len(series))


def _colours(many: int) -> list[str]:
    return [_COLOURS[index % len(_COLOURS)] for index in range(many)]


def _svg(figure: Any, axes: Any, kinds: int) -> str:
    if kinds > 1:
        handles, names = axes.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncols=min(kinds, 6), frameon=False)
    written = io.StringIO()
    canvas: Any = FigureCanvasSVG(figure)
    canvas.print_svg(written, metadata=_METADATA)
    text = written.getvalue()
    return text[text.index("<svg") :]
