"""The suites, a module each: where one comes from, how it is built and run, how its outcome is read."""

from compat.suite import Suite
from compat.suites import franz_go, kafka_brokers, kafka_python, kafka_tools, kaskade, kcat, rust

SUITES: dict[str, Suite] = {
    each.name: each
    for each in (
        franz_go.SUITE,
        rust.LIBRDKAFKA,
        rust.RUST_RDKAFKA,
        kafka_python.SUITE,
        kafka_tools.SUITE,
        kafka_brokers.SUITE,
        kcat.SUITE,
        kaskade.SUITE,
    )
}
