"""A figure of intervals as SVG text: small, the same for the same values, readable in light and dark pages."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from html import escape

from susd.experiments.statistics import Estimate

WIDTH, TOP, BOTTOM = 460, 8, 44
LINE, MARK, LONGEST = 15, 28, 62  # heights of a line of text and of an interval, and letters of a line
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#20242c}.head{font-weight:600}.pale{fill:#5b6472}.line{stroke:#c3c9d1}"
    ".mid{stroke:#5b6472;stroke-dasharray:4 3}.mark{stroke:#0b5c94;fill:#0b5c94}.one{stroke:#8b93a0;fill:none}"
    "@media(prefers-color-scheme:dark){text{fill:#e6e8eb}.pale{fill:#a4adb9}.line{stroke:#4a515c}.mid{stroke:#a4adb9}"
    ".mark{stroke:#6cb6ea;fill:#6cb6ea}.one{stroke:#8b93a0}}"
)


def intervals(rows: Sequence[tuple[str, Estimate]], axis: str, ends: tuple[float, float] = (0.0, 1.0)) -> str:
    """One row for each value with its interval, which stops at the ends of the axis; zero is marked where it is inside.

    What has no interval is a grey ring. Names are `WHERE: WHAT`.
    """
    left, right, top = 14, WIDTH - 14, TOP
    texts = [[line for part in name.split(": ", 1) for line in textwrap.wrap(part, LONGEST)] for name, _ in rows]
    base = TOP + sum(LINE * len(lines) + MARK for lines in texts)

    def x(value: float) -> float:
        return left + (right - left) * min(1.0, max(0.0, (value - ends[0]) / (ends[1] - ends[0])))

    parts = [f'<line class="line" x1="{left}" x2="{right}" y1="{base}" y2="{base}"/>']
    for tick in (ends[0] + quarter * (ends[1] - ends[0]) for quarter in (0.0, 0.25, 0.5, 0.75, 1.0)):
        anchor = {ends[0]: "start", ends[1]: "end"}.get(tick, "middle")
        parts.append(f'<text class="pale" x="{x(tick):.1f}" y="{base + 17}" text-anchor="{anchor}">{tick:g}</text>')
    parts.append(f'<text class="pale" x="{WIDTH / 2}" y="{base + 36}" text-anchor="middle">{escape(axis)}</text>')
    if ends[0] < 0 < ends[1]:
        parts.append(f'<line class="mid" x1="{x(0.0):.1f}" x2="{x(0.0):.1f}" y1="{TOP}" y2="{base}"/>')
    for lines, (_, found) in zip(texts, rows, strict=True):
        for number, text in enumerate(lines):
            kind = ' class="head"' if len(lines) > 1 and not number else ""
            parts.append(f'<text x="{left}" y="{top + LINE * (number + 1)}"{kind}>{escape(text)}</text>')
        y = top + LINE * len(lines) + MARK // 2
        top += LINE * len(lines) + MARK
        if found.known:
            span = f'x1="{x(found.low):.1f}" x2="{x(found.high):.1f}"'
            parts.append(f'<line class="mark" stroke-width="3" stroke-linecap="round" {span} y1="{y}" y2="{y}"/>')
        kind = "mark" if found.known else "one"
        parts.append(f'<circle class="{kind}" stroke-width="1.5" cx="{x(found.value):.1f}" cy="{y}" r="5"/>')
    words = "; ".join(f"{name} {found.value:.2f}" for name, found in rows)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {base + BOTTOM}" role="img" '
        f'aria-label="{escape(words)}">'
        f"<style>{STYLE}</style>{''.join(parts)}</svg>\n"
    )
