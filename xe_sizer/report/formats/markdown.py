"""Markdown for a pull-request comment: verdict and totals in sight, ledgers folded away."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xe_sizer.report.document import Facts, FactsPair, Figure, Notes, Steps, Summary, Table
from xe_sizer.report.format import encodable
from xe_sizer.report.text_charts import bar_text, gauge

if TYPE_CHECKING:
    from xe_sizer.report.document import Document, InCharacters, Options, Tone

SHOWS = "document"
ENDINGS = (".md", ".markdown")
MAX_CHARACTERS = 60_000  # GitHub refuses comments above 65,536
_CUT_NOTE = "\n_Cut here, as GitHub refuses longer comments. `--format json` has everything._\n"
_LONG_TABLE = 12
_BAR_CELLS, _GAUGE_CELLS = 24, 16
_SIGNS: dict[Tone, str] = {"yes": "✅", "caution": "⚠️", "no": "❌", "neutral": "ℹ️"}
_SPECIAL = re.compile(r"([\\`*_\[\]|~#])")


def render(content: Document, options: Options) -> str:
    parts = [f"### {_SIGNS[content.tone]} {content.verdict}\n\n{_escape(content.headline)}\n"]
    if content.remarks:
        parts.append("".join(f"- {_escape(remark)}\n" for remark in content.remarks))
    parts.extend(_block(block) for block in content.in_characters)
    return encodable(_capped(parts), options.encoding)


def _capped(parts: list[str]) -> str:
    """Whole blocks up to the cap: half a table would not render."""
    text = ""
    for part in parts:
        if len(text) + len(part) + 1 + len(_CUT_NOTE) > MAX_CHARACTERS:
            return text + _CUT_NOTE
        text += f"{part}\n"
    return text


def _block(block: InCharacters) -> str:
    match block:
        case Summary():
            return _summary(block)
        case FactsPair():
            return f"{_folded_facts(block.left)}\n{_folded_facts(block.right)}"
        case Facts():
            return _folded_facts(block)
        case Table():
            return _table(block)
        case Notes():
            notes = "".join(f"- {_escape(note)}\n" for note in block.items)
            return f"**{_escape(block.title)}**\n\n{notes}"
        case Steps():
            return _steps(block)
        case Figure():
            drawing = "\n".join(block.lines)
            return f"**{_escape(block.title)}**\n\n```\n{drawing}\n```\n\n{_escape(block.note)}\n"


def _summary(summary: Summary) -> str:
    """A table in sight, and below it the command of the change."""
    text = "| | |\n|---|---|\n"
    for point in summary.shown:
        bar = "" if point.share is None else f"`{gauge(point.share, _GAUGE_CELLS)}` "
        label = f"**{_escape(point.label)}**" if point.label else ""
        text += f"| {label} | {bar}{_escape(point.text)} |\n"
    for point in summary.points:
        if point.command:
            fence = _fence(point.command)
            text += f"\n{fence}sh\n{point.command}\n{fence}\n"
    return text


def _folded_facts(facts: Facts) -> str:
    rows = ((_escape(row.label), _escape(row.value), _escape(row.origin)) for row in facts.rows)
    lines = ["| | | from |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    return _folded(facts.title, "\n".join(lines))


def _table(table: Table) -> str:
    names = [_escape(column.name) for column in table.columns]
    rules = ["---:" if column.numeric else "---" for column in table.columns]
    rows = [[_escape(cell) for cell in row] for row in table.rows]
    if table.mark:
        names, rules = [*names, ""], [*rules, "---"]
        bars = (bar_text(table, place, _BAR_CELLS).ljust(_BAR_CELLS + 1) for place in range(len(rows)))
        # As code, empty cells drawn: renderers collapse spaces.
        rows = [[*row, f"`{bar.replace(' ', '░')}`"] for row, bar in zip(rows, bars, strict=True)]
    body = "\n".join(f"| {' | '.join(cells)} |" for cells in (names, rules, *rows))
    if table.note:
        body += f"\n\n{_escape(table.note)}"
    if table.shares or table.detail or len(table.rows) > _LONG_TABLE:
        return _folded(table.title, body)
    return f"**{_escape(table.title)}**\n\n{body}\n"


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{_html(title)}</summary>\n\n{body}\n\n</details>\n"


def _steps(block: Steps) -> str:
    text = f"**{_escape(block.title)}**\n\n"
    for place, step in enumerate(block.steps, start=1):
        effect = f": {step.effect}" if step.effect else ""
        text += f"{place}. {_escape(step.change + effect)}\n"
        if step.command:
            fence = _fence(step.command)
            text += f"\n   {fence}sh\n   {step.command}\n   {fence}\n"
    return text


def _fence(command: str) -> str:
    """A fence longer than any run of backticks inside."""
    return "`" * max(3, 1 + max((len(run) for run in re.findall("`+", command)), default=0))


def _html(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _escape(text: str) -> str:
    """Text that Markdown shows as it is and that mentions nobody."""
    return _SPECIAL.sub(r"\\\1", _html(text)).replace("@", "@\u200b")
