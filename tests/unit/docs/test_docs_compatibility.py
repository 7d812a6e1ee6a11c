"""docs/internals/compatibility.md says what the reports of the suites say."""

from __future__ import annotations

from compat.page import PAGE, rendered


def test_the_page_is_made_from_the_reports() -> None:
    text = PAGE.read_text("utf-8")
    assert rendered(text) == text, "make it again: ./dev compat NAME --keep"
