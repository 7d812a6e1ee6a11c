"""Lets Spark find `format("regency")` by itself: it looks for packages `pyspark_*` with a class `DefaultSource`.

Nothing else imports it; `regency.pipeline.source.register` does the same for a session whose Spark does not look.
"""

from regency.pipeline.source import RegencyDataSource as DefaultSource

__all__ = ["DefaultSource"]
