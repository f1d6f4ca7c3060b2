"""Reference pages that are made from the code: settings and metrics.

``python -m tests.support.reference_pages`` writes them anew; a test holds them against the code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic_core import PydanticUndefined

from balancer.app.catalogue import CATALOGUE
from balancer.settings import EXAMPLES, PREFIX, Settings

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def settings_page() -> str:
    """Return the page of settings."""
    rows = [
        f"| `{PREFIX}{name.upper()}` | {_default(field.default)} | {_example(name)} |"
        for name, field in Settings.model_fields.items()
    ]
    return "\n".join(
        [
            "# Settings of the balancer",
            "",
            "In the environment, or in a TOML file given with `--config`, where names are in lower",
            f"case and without `{PREFIX}`. The environment goes first. A wrong value stops",
            "the start with one line. Credentials for S3 are found as boto3 finds them (`AWS_*`).",
            "",
            "| setting | default | example |",
            "|---|---|---|",
            *rows,
            "",
            "Binding HTTP to more than loopback needs `PERMIT_HTTP_TOKEN`; changes then need",
            "`Authorization: Bearer <token>`. A worker's `flush_seconds` must equal",
            "`PERMIT_ROUND_SECONDS`.",
            "",
        ]
    )


def _default(value: Any) -> str:
    return "none" if value is None or value is PydanticUndefined else f"`{value}`"


def _example(name: str) -> str:
    return f"`{EXAMPLES[name]}`" if name in EXAMPLES else ""


def metrics_page() -> str:
    """Return the page of metrics."""
    rows = [
        f"| `{metric.name}` | {metric.kind} | {metric.unit} | "
        f"{', '.join(f'`{label}`' for label in metric.labels)} | {metric.meaning} |"
        for metric in CATALOGUE
    ]
    return "\n".join(
        [
            "# Metrics of the balancer",
            "",
            "`GET /metrics`, in the text format of Prometheus.",
            "",
            "| name | kind | unit | labels | meaning |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


PAGES = {"settings.md": settings_page, "metrics.md": metrics_page}


if __name__ == "__main__":
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")
