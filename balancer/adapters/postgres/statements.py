"""The named queries of ``queries.sql`` and ``history.sql``.

Decides nothing; a name that is in none of them is a fault at import.
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


_FOLDER: Final = Path(__file__).parent

STATEMENTS: Final = {
    name: statement
    for file in ("queries.sql", "history.sql")
    for name, statement in read_statements((_FOLDER / file).read_text(encoding="utf-8")).items()
}
