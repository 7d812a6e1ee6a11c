"""`format("regency")`: what Spark hears of the connector. Its halves are imported when they are asked for.

The class travels to Spark's workers by reference, so every worker needs Regency installed (docs/use/spark.md). It holds
its options and nothing else: no connection is ever pickled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

FORMAT = "regency"


class RegencyDataSource(DataSource):
    """Topics of a cluster as a table and as a stream, with the options of Spark's own Kafka source and sink."""

    @classmethod
    def name(cls) -> str:
        """The name in `spark.read.format(...)`."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns that are read. Raises PipelineOptionInvalid for a value of includeHeaders that is no boolean."""
        from regency.pipeline.reading.options import include_headers  # noqa: PLC0415
        from regency.pipeline.reading.planning import source_schema  # noqa: PLC0415

        return source_schema(include_headers(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """`spark.read`. Raises PipelineOptionInvalid."""
        from regency.pipeline.reading.batch_reader import batch_reader  # noqa: PLC0415

        return batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """`spark.readStream`. The reader reports wrong options, since Spark would hide an error of this call."""
        from regency.pipeline.reading.stream_reader import stream_reader  # noqa: PLC0415

        return stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """`df.write`; `overwrite` for every mode but append."""
        from regency.pipeline.sink.writer import batch_writer  # noqa: PLC0415

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """`df.writeStream`; `overwrite` for the output mode complete."""
        from regency.pipeline.sink.writer import stream_writer  # noqa: PLC0415

        return stream_writer(self.options, schema, overwrite)


def register(spark: SparkSession) -> None:
    """Let `spark` know `format("regency")`."""
    spark.dataSource.register(RegencyDataSource)
