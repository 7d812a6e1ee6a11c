"""What can be wrong with bytes that came over a Kafka connection."""

from __future__ import annotations

from regency.model.errors import RegencyError


class FrameMalformed(RegencyError):
    """Bytes of a request or response that the protocol does not allow there. Close the connection they came from."""

    code = "frame_malformed"


class TooManyElements(FrameMalformed):
    """More array elements and tagged fields than this decoder was to take."""

    code = "too_many_elements"


class UnsupportedApi(RegencyError):
    """A request for an API, or a version of one, that is not offered. Kafka closes the connection, except for
    ApiVersions."""

    code = "unsupported_api"

    def __init__(self, api_key: int, version: int, correlation_id: int) -> None:
        super().__init__(f"API key {api_key} version {version} is not offered.")
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
