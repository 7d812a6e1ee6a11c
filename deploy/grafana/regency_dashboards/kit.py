"""What every dashboard is built from: variables, links, and the few kinds of panels, all with the same looks.

Panels lie on a grid 24 columns wide, placed from left to right in the order they are added. Every panel has a
description: what it shows, what is good, what to do otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from string import ascii_uppercase

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common as looks
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
TAG = "regency"
UNITS_OF_COUNTS = "short"
LABEL_VALUES = 1
"""What Grafana's editor of variables calls a query by label_values()."""
GREEN, ORANGE, RED = "green", "orange", "red"
STAT_WIDTH, STAT_HEIGHT = 3, 4
GRAPH_WIDTH, GRAPH_HEIGHT = 8, 8

CLUSTER = 'kafka_cluster=~"$cluster"'
"""Selects the chosen clusters; for what only controllers say, whichever of them rules."""
BROKER = f'{CLUSTER}, instance=~"$instance"'
"""Selects the chosen brokers of the chosen clusters."""
TOPIC = f'{CLUSTER}, topic=~"$topic"'
"""Selects the chosen topics, on all brokers."""

PanelBuilder = Builder[model.Panel]
Steps = Sequence[tuple[float | None, str]]

ZERO_IS_GOOD: Steps = ((None, GREEN), (1, RED))
ZERO_IS_BETTER: Steps = ((None, GREEN), (1, ORANGE))
ONE_IS_GOOD: Steps = ((None, RED), (1, GREEN), (2, RED))
ONE_IS_BETTER: Steps = ((None, GREEN), (2, ORANGE))
NEUTRAL: Steps = ((None, "blue"),)


def board(
    uid: str,
    title: str,
    about: str,
    sections: Mapping[str, Iterable[PanelBuilder]],
    *variables: Builder[model.VariableModel],
) -> dashboard.Dashboard:
    """A dashboard of panels under headings, with its variables, and links to the others that keep both."""
    others = (
        dashboard.DashboardLink("Regency")
        .type(model.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .include_vars(True)
        .keep_time(True)
    )
    failovers = (
        dashboard.AnnotationQuery()
        .name("Failovers")
        .datasource(SOURCE)
        .enable(True)
        .icon_color("purple")
        .expr(f"changes(max by (kafka_cluster) (regency_controller_epoch{{{CLUSTER}}})[1m:5s]) > 0")
    )
    made = (
        dashboard.Dashboard(title)
        .uid(uid)
        .description(about)
        .tags([TAG, "kafka"])
        .time("now-30m", "now")
        .refresh("10s")
        .timezone("browser")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .link(others)
        .annotation(failovers)
        .variables([_datasource(), _values("cluster", "Cluster", CLUSTERS), *variables])
    )
    for heading, panels in sections.items():
        made.with_row(dashboard.Row(heading))
        for panel in panels:
            made.with_panel(panel)
    return made


CLUSTERS = "label_values(kafka_server_kafkaserver_brokerstate, kafka_cluster)"
BROKERS = f"label_values(kafka_server_kafkaserver_brokerstate{{{CLUSTER}}}, instance)"
TOPICS = f"label_values(kafka_topic_partitions{{{CLUSTER}}}, topic)"


def brokers() -> Builder[model.VariableModel]:
    """The variable `instance`: brokers of the chosen clusters."""
    return _values("instance", "Broker", BROKERS)


def topics() -> Builder[model.VariableModel]:
    """The variable `topic`: topics of the chosen clusters."""
    return _values("topic", "Topic", TOPICS)


def stat_panel(
    title: str, expr: str, about: str, steps: Steps, *, unit: str = UNITS_OF_COUNTS, width: int = STAT_WIDTH
) -> PanelBuilder:
    """One number, coloured by `steps`."""
    return (
        stat.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .with_target(_query(expr).instant())
        .unit(unit)
        .thresholds(_thresholds(steps))
        .color_mode(looks.BigValueColorMode.BACKGROUND_SOLID)
        .graph_mode(looks.BigValueGraphMode.NONE)
        .reduce_options(_last())
        .span(width)
        .height(STAT_HEIGHT)
    )


def graph(
    title: str,
    series: Mapping[str, str],
    about: str,
    *,
    unit: str = UNITS_OF_COUNTS,
    width: int = GRAPH_WIDTH,
    steps: Steps | None = None,
    stacked: bool = False,
    top: float | None = None,
) -> PanelBuilder:
    """Lines over time, from legend to expression. `steps` are drawn as lines; `top` fixes the upper end of the axis."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .unit(unit)
        .min(0)
        .line_width(1)
        .fill_opacity(30 if stacked else 8)
        .show_points(looks.VisibilityMode.NEVER)
        .legend(_legend())
        .tooltip(common.VizTooltipOptions().mode(looks.TooltipDisplayMode.MULTI).sort(looks.SortOrder.DESCENDING))
        .span(width)
        .height(GRAPH_HEIGHT)
    )
    if top is not None:
        panel.max(top)
    if stacked:
        panel.stacking(common.StackingConfig().mode(looks.StackingMode.NORMAL).group("A"))
    if steps is not None:
        panel.thresholds(_thresholds(steps))
        panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(looks.GraphTresholdsStyleMode.DASHED))
    for letter, (legend, expr) in zip(ascii_uppercase, series.items(), strict=False):
        panel.with_target(_query(expr).range().legend_format(legend).ref_id(letter))
    return panel


def timeline(
    title: str, expr: str, legend: str, about: str, values: Mapping[int, tuple[str, str]], *, width: int = GRAPH_WIDTH
) -> PanelBuilder:
    """States over time, one line per series; `values` gives text and colour of each."""
    texts = {
        str(value): model.ValueMappingResult(text=text, color=colour, index=index)
        for index, (value, (text, colour)) in enumerate(values.items())
    }
    return (
        statetimeline.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .with_target(_query(expr).range().legend_format(legend))
        .mappings([model.ValueMap(options=texts)])
        .color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
        .thresholds(_thresholds(NEUTRAL))
        .show_value(looks.VisibilityMode.AUTO)
        .merge_values(True)
        .span(width)
        .height(GRAPH_HEIGHT)
    )


def bars(
    title: str, expr: str, legend: str, about: str, steps: Steps, *, unit: str, width: int = GRAPH_WIDTH
) -> PanelBuilder:
    """The present value of each series as a bar."""
    return (
        bargauge.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .with_target(_query(expr).instant().legend_format(legend))
        .unit(unit)
        .min(0)
        .thresholds(_thresholds(steps))
        .display_mode(looks.BarGaugeDisplayMode.BASIC)
        .orientation(looks.VizOrientation.HORIZONTAL)
        .reduce_options(_last())
        .span(width)
        .height(GRAPH_HEIGHT)
    )


def rows(
    title: str,
    columns: Mapping[str, str],
    keys: Sequence[str],
    about: str,
    *,
    units: Mapping[str, str],
    width: int = 24,
) -> PanelBuilder:
    """A table: one row per combination of the labels `keys`, one column per expression, which has those labels.

    `units` are those of columns that are no plain counts.
    """
    panel = (
        table.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .unit(UNITS_OF_COUNTS)
        .show_header(True)
        .span(width)
        .height(GRAPH_HEIGHT + 2)
    )
    for name, unit in units.items():
        panel.override_by_name(name, [model.DynamicConfigValue(id_val="unit", value=unit)])
    names: dict[str, str] = {}
    for letter, (name, expr) in zip(ascii_uppercase, columns.items(), strict=False):
        by = ", ".join(keys)
        query = _query(f"max by ({by}) ({expr})").instant().format(PromQueryFormat.TABLE).ref_id(letter)
        panel.with_target(query)
        names[f"Value #{letter}"] = name
    # Rows of different queries are one row where all labels are equal; the time is not among them.
    panel.with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
    organise = {"excludeByName": {"Time": True}, "renameByName": names}
    panel.with_transformation(model.DataTransformerConfig(id_val="organize", options=organise))
    return panel


def _query(expr: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(expr).ref_id("A").datasource(SOURCE)


def _thresholds(steps: Steps) -> dashboard.ThresholdsConfig:
    return (
        dashboard.ThresholdsConfig()
        .mode(model.ThresholdsMode.ABSOLUTE)
        .steps([model.Threshold(value=value, color=colour) for value, colour in steps])
    )


def _last() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"])


def _legend() -> common.VizLegendOptions:
    return (
        common.VizLegendOptions()
        .display_mode(looks.LegendDisplayMode.LIST)
        .placement(looks.LegendPlacement.BOTTOM)
        .show_legend(True)
    )


def _datasource() -> dashboard.DatasourceVariable:
    return dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")


def _values(name: str, label: str, query: str) -> dashboard.QueryVariable:
    """A choice of label values; all at first. All matches series without the label too, so a plain scrape works."""
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .query({"qryType": LABEL_VALUES, "query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"})
        .datasource(SOURCE)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_CASE_INSENSITIVE_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(model.VariableOption(selected=True, text=["All"], value=["$__all"]))
    )
