"""Generates the dashboards in deploy/grafana/dashboards. For the development environment; nothing runs it later."""
