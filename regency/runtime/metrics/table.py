"""Every metric there is, but for prometheus_client's own (process_*, python_*): what docs and tests go by."""

from __future__ import annotations

from typing import Final

from regency.runtime.metrics.names import MetricName
from regency.runtime.metrics.table_agent import AGENT_METRICS
from regency.runtime.metrics.table_common import COMMON_METRICS
from regency.runtime.metrics.table_controller import CONTROLLER_METRICS

ALL_METRICS: Final[tuple[MetricName, ...]] = (*AGENT_METRICS, *COMMON_METRICS, *CONTROLLER_METRICS)
