"""A run as one page: summary, plots and tables, with nothing from elsewhere.

Decides what is shown. The page has no script, no address and no font of its own; it is well-formed
XML, and light or dark as the reader's system is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from balancer.simulation.outcome import HostAccount, summary_lines
from balancer.simulation.plots import (
    Series,
    escape,
    largest,
    legend,
    lines,
    mean,
    plain,
    stacked,
    stretches,
)
from balancer.simulation.report import most_in_need
from balancer.simulation.results import Outcome
from worker_sdk.wire.shares import POINTS

MEMBERS_SHOWN: Final = 10
WINDOWS_SHOWN: Final = 10
BURST: Final = 2
"""Demand is drawn up to so many times of what else there is to be seen."""

STYLE: Final = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1c2127; --faint: #5b6570;
  --grid: #dfe3e8; --card: #f5f7f9; --demand: #c2410c; --used: #1d4ed8; --limit: #111827;
  --held: #6b7280; --even: #0f766e; --rest: #b6bec8;
  --m0: #4269d0; --m1: #efb118; --m2: #ff725c; --m3: #6cc5b0; --m4: #3ca951;
  --m5: #ff8ab7; --m6: #a463f2; --m7: #97bbf5; --m8: #9c6b4e; --m9: #9498a0; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171a; --ink: #e6e9ec; --faint: #9aa4af;
  --grid: #2c3238; --card: #1d2226; --demand: #fb923c; --used: #60a5fa; --limit: #f3f4f6;
  --held: #8b95a1; --even: #5eead4; --rest: #454d56; } }
body { background: var(--paper); color: var(--ink); margin: 0 auto; max-width: 62rem;
  padding: 1.5rem 1rem 3rem; font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.05rem; margin: 2rem 0 0.2rem; }
p { margin: 0.2rem 0; color: var(--faint); } p.bad { color: #dc2626; font-weight: 600; }
svg { width: 100%; height: auto; display: block; }
table { border-collapse: collapse; margin-top: 0.5rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.2rem 0.9rem 0.2rem 0; text-align: right; border-bottom: 1px solid var(--grid);
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
th { font-weight: 600; color: var(--faint); } .wide { overflow-x: auto; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 0.1rem 1rem; padding: 0;
  margin: 0.3rem 0 0; font-size: 0.85rem; }
.swatch { display: inline-block; width: 0.8rem; height: 0.8rem; border-radius: 2px;
  margin-right: 0.35rem; background: var(--c); }
.grid { stroke: var(--grid); stroke-width: 1; }
text { fill: var(--faint); font: 12px system-ui, sans-serif; }
.end { text-anchor: end; } .middle { text-anchor: middle; }
.line { fill: none; stroke: var(--c); stroke-width: 1.8; }
.line.limit { stroke-width: 1.3; stroke-dasharray: 6 4; }
.band { fill: var(--c); opacity: 0.25; } .stack { fill: var(--c); }
.hint { fill: transparent; } .hint:hover { fill: var(--ink); fill-opacity: 0.08; }
.demand { --c: var(--demand); } .used { --c: var(--used); } .limit { --c: var(--limit); }
.held { --c: var(--held); } .even { --c: var(--even); } .rest { --c: var(--rest); }
""" + "\n".join(f".m{number} {{ --c: var(--m{number}); }}" for number in range(MEMBERS_SHOWN))


def page(result: Mapping[str, object], outcome: Outcome, description: str) -> str:
    """Return the page.

    Args:
        result: the summary, with the even split, the seed and what was broken or not reached.
        outcome: the run.
        description: a line about the scenario.
    """
    windows = len(outcome.views)
    spans = stretches(windows)
    several = len(spans[0])
    note = (
        f"Each point is the mean of {several} windows; of the fullest windows it is the fullest."
        if several > 1
        else "One point a window."
    )
    title = escape(f"Simulation: {result['scenario']}")
    body = [
        f"<h1>{title}</h1>",
        f"<p>{escape(description)}</p>",
        f"<p>{_facts(result)}</p>",
        *(f'<p class="bad">{escape(line)}</p>' for line in _complaints(result)),
        "<h2>Summary</h2>",
        _summary_table(result),
        "<h2>Demand, use and capacity</h2>",
        f"<p>{note}</p>",
        _demand_plot(outcome, spans),
        "<h2>Shares by host</h2>",
        f"<p>By the document in force; the {MEMBERS_SHOWN} largest over the run, and the rest.</p>",
        _shares_plot(outcome, spans),
        "<h2>Fullest windows</h2>",
        "<p>What was used of each window's capacity; nothing may pass the bound.</p>",
        _fullness_plot(outcome, spans),
        _fullest_table(outcome),
        "<h2>Held points</h2>",
        "<p>Kept back for somebody who may still be spending them: the cost of safety.</p>",
        _held_plot(outcome, spans),
        "<h2>Hosts that went without most</h2>",
        _hosts_table(most_in_need(outcome, MEMBERS_SHOWN), windows - 1),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{title}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _facts(result: Mapping[str, object]) -> str:
    facts = [f"{result['hosts']} hosts", f"{result['windows']} windows"]
    facts.append(f"capacity {result['capacity']:,} permits a window")
    facts += [f"{name} {result[name]}" for name in ("strategy", "seed") if name in result]
    first = result.get("measured_from_window")
    if first:
        facts.append(f"figures from window {first} on")
    return escape(", ".join(facts))


def _complaints(result: Mapping[str, object]) -> list[str]:
    found = []
    for name, words in (("broken", "Not safe"), ("unmet", "Not reached")):
        listed = result.get(name)
        if isinstance(listed, list):
            found += [f"{words}: {line}" for line in listed]
    return found


def _summary_table(result: Mapping[str, object]) -> str:
    rows = []
    for line in summary_lines(result):
        name, value = line[:30].strip(), line[30:].strip()
        rows.append((name, value))
    return _table(("", ""), rows)


def _demand_plot(outcome: Outcome, spans: Sequence[range]) -> str:
    figures, views = outcome.figures, outcome.views

    def of(name: str, css: str, values: Sequence[int]) -> Series:
        return Series(name, css, [mean(values, span) for span in spans])

    parts = [
        of("used", "used", figures.arrived),
        of("demand", "demand", figures.wanted),
        of("used under an even split", "even", outcome.even.arrived),
        of("capacity", "limit", [view.capacity for view in views]),
    ]
    # A burst far above what can be served would leave nothing of the rest to be seen.
    highest = 1.2 * max(max(part.values) for part in parts if part.name != "demand")
    peak = max(parts[1].values)
    is_cut = peak > BURST * highest
    drawing = lines(
        parts,
        spans,
        label="demand, use and capacity by window",
        y_label="permits a window",
        filled=True,
        most=BURST * highest if is_cut else None,
    )
    note = f"<p>Demand is cut off here; its peak is {plain(peak)}.</p>" if is_cut else ""
    return note + drawing + legend(parts)


def _shares_plot(outcome: Outcome, spans: Sequence[range]) -> str:
    accounts = sorted(
        outcome.hosts.values(), key=lambda account: (-sum(account.points), account.host)
    )
    largest_ones = accounts[:MEMBERS_SHOWN]
    windows = range(len(outcome.views))
    rest = [0.0 for _ in windows]
    for account in accounts[MEMBERS_SHOWN:]:
        for place, points in enumerate(account.points, start=account.first_window):
            rest[place] += points
    parts = [
        _percents(account.host, f"m{number}", [account.points_in(w) for w in windows], spans)
        for number, account in enumerate(largest_ones)
    ]
    parts.append(_percents(f"the other {max(0, len(accounts) - 10)}", "rest", rest, spans))
    held = [view.held_points for view in outcome.views]
    parts.append(_percents("held", "held", held, spans))
    drawing = stacked(
        parts, spans, label="shares by host", y_label="percent of the capacity", write=_percent
    )
    return drawing + legend(parts)


def _fullness_plot(outcome: Outcome, spans: Sequence[range]) -> str:
    full = [
        100 * came / view.capacity if view.capacity else 0.0
        for came, view in zip(outcome.figures.arrived, outcome.views, strict=True)
    ]
    bound = [100 * view.bound / view.capacity if view.capacity else 100.0 for view in outcome.views]
    parts = [
        Series("used", "used", [largest(full, span) for span in spans]),
        Series("bound", "limit", [largest(bound, span) for span in spans]),
    ]
    drawing = lines(
        parts,
        spans,
        label="use over capacity by window",
        y_label="percent of the capacity",
        write=_percent,
    )
    return drawing + legend(parts)


def _fullest_table(outcome: Outcome) -> str:
    ranked = sorted(
        (
            (came / view.capacity, -view.window, came, view)
            for came, view in zip(outcome.figures.arrived, outcome.views, strict=True)
            if view.capacity
        ),
        key=lambda entry: entry[:2],
        reverse=True,
    )
    rows = [
        (view.window, plain(came), plain(view.capacity), plain(view.bound), f"{full:.2%}")
        for full, _, came, view in ranked[:WINDOWS_SHOWN]
    ]
    return _table(("window", "used", "capacity", "bound", "used / capacity"), rows)


def _held_plot(outcome: Outcome, spans: Sequence[range]) -> str:
    held = [view.held_points for view in outcome.views]
    parts = [_percents("held", "held", held, spans)]
    return lines(
        parts,
        spans,
        label="held points by window",
        y_label="percent of the capacity",
        filled=True,
        least=1.0,
        write=_percent,
    ) + legend(parts)


def _hosts_table(accounts: Sequence[HostAccount], last_window: int) -> str:
    rows = []
    for account in accounts:
        wanted, served = sum(account.wanted), sum(account.served)
        rows.append(
            (
                account.host,
                plain(wanted),
                plain(served),
                f"{served / wanted:.1%}" if wanted else "-",
                f"{account.points_in(last_window) / POINTS:.3%}",
                account.longest_zero_windows,
            )
        )
    head = ("host", "wanted", "used", "used / wanted", "share at the end", "longest at zero")
    return _table(head, rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    titles = "".join(f"<th>{escape(cell)}</th>" for cell in head) if any(head) else ""
    lines_of = [
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    ]
    first = f"<tr>{titles}</tr>" if titles else ""
    return f'<div class="wide"><table>{first}{"".join(lines_of)}</table></div>'


def _percents(name: str, css: str, points: Sequence[float], spans: Sequence[range]) -> Series:
    return Series(name, css, [100 * mean(points, span) / POINTS for span in spans])


def _percent(value: float) -> str:
    return f"{value:.4g} %"
