"""Pieces of the report as texts of one page: HTML, and plots as SVG that stands in it by itself.

No Spark, no scripts, no links, no fonts: nothing from elsewhere.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #222; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; border-bottom: 1px solid #ddd; }
p.note { color: #666; font-size: 0.9rem; margin: 0.3rem 0; }
p.problem { background: #fdecea; border-left: 4px solid #c0392b; padding: 0.4rem 0.7rem; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(13rem, 1fr)); gap: 0.6rem; }
dl div { background: #f5f6f8; padding: 0.5rem 0.7rem; border-radius: 4px; }
dt { color: #666; font-size: 0.85rem; } dd { margin: 0; font-size: 1.2rem; font-variant-numeric: tabular-nums; }
table { border-collapse: collapse; font-size: 0.87rem; } th { text-align: left; }
th, td { padding: 0.15rem 0.8rem 0.15rem 0; border-bottom: 1px solid #eee; vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
svg { max-width: 100%; height: auto; } div.wide { overflow-x: auto; }
"""


def document(title: str, parts: Sequence[str]) -> str:
    """The page."""
    body = "\n".join(parts)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n{body}\n</body>\n</html>\n"
    )


def heading(words: str) -> str:
    """Begins a section."""
    return f"<h2>{escape(words)}</h2>"


def note(words: str) -> str:
    """A sentence about what stands below."""
    return f'<p class="note">{escape(words)}</p>'


def problem(words: str) -> str:
    """A sentence that no reader shall miss."""
    return f'<p class="problem">{escape(words)}</p>'


def figures(pairs: Sequence[tuple[str, str]]) -> str:
    """A few numbers in boxes, each with what it counts."""
    return f"<dl>{''.join(f'<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>' for name, value in pairs)}</dl>"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table; numbers stand to the right, None is a dash."""
    top = "".join(f"<th>{escape(each)}</th>" for each in head)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def many(number: int, one: str, more: str) -> str:
    """A number with what it counts: `1 file`, `2 files`."""
    return f"{number} {one if number == 1 else more}"


def moment(ms: int | None) -> str:
    """A time in UTC; a dash for None."""
    if ms is None:
        return "–"
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{ms % 1000:03}"


def span(ms: float | None) -> str:
    """A duration for people; a dash for None."""
    if ms is None:
        return "–"
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms >= size:
            return f"{ms / size:,.1f} {unit}"
    return f"{ms:,.0f} ms"


def _cell(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f'<td class="number">{value:,}</td>'
    return f"<td>{'–' if value is None else escape(str(value))}</td>"


WIDTH, BAR = 9.0, 0.28
"""Inches: the width of a plot, and the height of one bar of a list."""
_PLOT_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "text.parse_math": False,
}
_COLOURS = [
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
]
_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))

Series = Mapping[str, Sequence[float]]
"""Values of each kind, in the order of the labels."""


def columns(name: str, labels: Sequence[str], series: Series, unit: str) -> str:
    """Stacked columns, one for each label, such as a day. `name` tells the ids in it from those of other plots."""
    with mpl.rc_context({**_PLOT_STYLE, "svg.hashsalt": name}):
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
    with mpl.rc_context({**_PLOT_STYLE, "svg.hashsalt": name}):
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
