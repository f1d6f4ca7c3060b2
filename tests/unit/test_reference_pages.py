"""The reference pages say what the code does."""

from __future__ import annotations

import pytest

from tests.support.reference_pages import PAGES, REFERENCE


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_is_up_to_date(name: str) -> None:
    """`python -m tests.support.reference_pages` writes the pages anew."""
    assert (REFERENCE / name).read_text(encoding="utf-8") == PAGES[name]()
