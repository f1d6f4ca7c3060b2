"""Reference pages that are made from the code: settings, metrics, scenarios of the simulator.

``python -m tests.support.reference_pages`` writes them anew; a test holds them against the code.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic_core import PydanticUndefined

from balancer.app.catalogue import CATALOGUE, Metric
from balancer.settings import EXAMPLES, PREFIX, Settings
from balancer.simulation.catalogue import CATALOGUE as SCENARIOS
from balancer.simulation.requirements import Requirements
from worker_sdk.metrics import CATALOGUE as WORKER_CATALOGUE
from worker_sdk.metrics import Measure
from worker_sdk.wire.shares import POINTS

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
            "the start with one line; a variable that nothing reads is warned of. Credentials for",
            "S3 are found as boto3 finds them (`AWS_*`).",
            "",
            "| setting | default | example |",
            "|---|---|---|",
            *rows,
            "",
            "Binding HTTP to more than loopback needs `PERMIT_HTTP_TOKEN`; changes then need",
            "`Authorization: Bearer <token>`. A worker's settings are in the",
            "[reference of the client](client.md); its `flush_seconds` must equal",
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
    return "\n".join(
        [
            "# Metrics of the balancer",
            "",
            "`GET /metrics`, in the text format of Prometheus.",
            "",
            *_metrics_table(CATALOGUE),
            "",
        ]
    )


def worker_metrics_page() -> str:
    """Return the page of a worker's metrics."""
    return "\n".join(
        [
            "# Metrics of a worker",
            "",
            "For Prometheus by `worker_sdk.adapters.prometheus`. For OpenTelemetry by",
            "`worker_sdk.adapters.opentelemetry`, where `permit_client_used_permits_total` is",
            "`permit.client.used_permits`. Counters count from the client's start.",
            "",
            *_metrics_table(WORKER_CATALOGUE),
            "",
        ]
    )


def _metrics_table(catalogue: Sequence[Metric | Measure]) -> list[str]:
    return [
        "| name | kind | unit | labels | meaning |",
        "|---|---|---|---|---|",
        *(
            f"| `{metric.name}` | {metric.kind} | {metric.unit} | "
            f"{', '.join(f'`{label}`' for label in metric.labels)} | {metric.meaning} |"
            for metric in catalogue
        ),
    ]


def scenarios_page() -> str:
    """Return the page of the simulator's scenarios."""
    rows = [
        f"| `{name}` | {known.windows} | {known.description} | {_demands(known.demanded)} |"
        for name, known in SCENARIOS.items()
    ]
    return "\n".join(
        [
            "# Scenarios of the simulator",
            "",
            "`permit-balancer simulate --scenario NAME`. Of each it is demanded that no window",
            "passes its bound, that no plan breaks an invariant, and what the last column says, by",
            "the default timetable. [How to read it](../explanation/simulation.md).",
            "",
            "| scenario | windows | what it is | demanded |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _demands(demanded: Requirements) -> str:
    found = []
    if demanded.least_served_over_ideal is not None:
        found.append(f"at least {demanded.least_served_over_ideal:.1%} of what is possible")
    if demanded.most_worst_window is not None:
        found.append(f"fullest window at most {demanded.most_worst_window:.0%}")
    if demanded.most_zero_windows is not None:
        found.append(f"at most {demanded.most_zero_windows} windows at zero")
    if demanded.most_moved_points is not None:
        found.append(f"at most {demanded.most_moved_points / POINTS:.1%} moved a round")
    least: dict[int, list[str]] = {}
    for host, permits in demanded.least_permits.items():
        least.setdefault(permits, []).append(host)
    found += [
        f"{hosts[0] if len(hosts) == 1 else f'{len(hosts)} hosts'} at least {permits} permits"
        for permits, hosts in least.items()
    ]
    return "; ".join(found)


PAGES = {
    "settings.md": settings_page,
    "metrics.md": metrics_page,
    "worker-metrics.md": worker_metrics_page,
    "scenarios.md": scenarios_page,
}


if __name__ == "__main__":
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")
