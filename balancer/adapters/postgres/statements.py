"""The named queries of ``queries.sql``.

Decides nothing; a name that is not in the file is a fault at import.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_NAME: Final = re.compile(r"^-- name: (\w+)\n(?:-- .*\n)*", re.MULTILINE)


def read_statements(text: str) -> dict[str, str]:
    """Return name to statement."""
    parts = _NAME.split(text)
    return {
        name: statement.strip().removesuffix(";")
        for name, statement in zip(parts[1::2], parts[2::2], strict=True)
    }


STATEMENTS: Final = read_statements(
    (Path(__file__).parent / "queries.sql").read_text(encoding="utf-8")
)
