"""One self-contained HTML page: no script, no external resource, light and dark, printable."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from xe_sizer.report.document import Facts, FactsPair, Figure, Notes, Steps, Table

if TYPE_CHECKING:
    from xe_sizer.report.document import Block, Document
    from xe_sizer.report.options import Options

SHOWS = "document"
ENDINGS = (".html", ".htm")
_STYLE = """
:root { color-scheme: light dark; --ink: #1a1c20; --soft: #5d6470; --line: #d8dce3; --page: #fff;
  --bar: #2f6fb5; --yes: #17753a; --caution: #8a5a00; --no: #b3261e; --code: #f2f4f7; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ec; --soft: #9aa3b0; --line: #363c46;
  --page: #16181c; --bar: #6aa5e6; --yes: #57c27d; --caution: #e3b341; --no: #f28b82; --code: #22262d; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .3rem; }
h1.yes { color: var(--yes); } h1.caution { color: var(--caution); } h1.no { color: var(--no); }
h2 { font-size: 1.05rem; margin: 1.8rem 0 .4rem; }
.lead { font-size: 1.1rem; margin: 0 0 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { padding: .2rem .9rem .2rem 0; text-align: left; vertical-align: top; }
thead th { color: var(--soft); font-weight: 500; border-bottom: 1px solid var(--line); }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.sum td { font-weight: 600; } .sum.first td { border-top: 1px solid var(--line); }
.origin, .note { color: var(--soft); font-size: .85em; }
.pair { display: flex; flex-wrap: wrap; gap: 0 3rem; }
.bar { width: 12rem; } .bar i { display: block; height: .75rem; margin-top: .35rem; background: var(--bar); }
.chart { position: relative; min-height: 1.4rem; }
.chart b { position: absolute; top: 0; bottom: 0; border-left: 2px solid var(--ink); }
pre { background: var(--code); padding: .5rem .8rem; overflow-x: auto; }
@media print { body { margin: 0; max-width: none; } pre { white-space: pre-wrap; } h2 { break-after: avoid; }
  tr { break-inside: avoid; } .bar i { print-color-adjust: exact; } }
"""


def render(content: Document, options: Options) -> str:
    remarks = _list(content.remarks) if content.remarks else ""
    body = "\n".join(_block(block) for block in content.blocks)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(content.verdict)}: {escape(content.headline)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1 class="{content.tone}">{escape(content.verdict)}</h1>
<p class="lead">{escape(content.headline)}</p>
{remarks}
{body}
</body>
</html>
"""


def _block(block: Block) -> str:
    match block:
        case FactsPair():
            return f'<div class="pair">\n{_facts(block.left)}\n{_facts(block.right)}\n</div>'
        case Facts():
            return _facts(block)
        case Table():
            return _table(block)
        case Notes():
            return f"<h2>{escape(block.title)}</h2>\n{_list(block.items)}"
        case Steps():
            return _steps(block)
        case Figure():
            drawing = escape("\n".join(block.lines))
            return f"<h2>{escape(block.title)}</h2>\n<pre>{drawing}</pre>\n<p>{escape(block.note)}</p>"


def _list(items: tuple[str, ...]) -> str:
    return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"


def _facts(facts: Facts) -> str:
    rows = "\n".join(
        f'<tr><td>{escape(row.label)}</td><td>{escape(row.value)}</td><td class="origin">{escape(row.origin)}</td></tr>'
        for row in facts.rows
    )
    return f"<section><h2>{escape(facts.title)}</h2>\n<table><tbody>\n{rows}\n</tbody></table></section>"


def _table(table: Table) -> str:
    heads = "".join(f"<th{_numeric(column.numeric)}>{escape(column.name)}</th>" for column in table.columns)
    heads += "<th></th>" if table.shares else ""
    rows = "\n".join(_row(table, place) for place in range(len(table.rows)))
    note = f'\n<p class="note">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<h2>{escape(table.title)}</h2>\n<div class="wide"><table><thead><tr>{heads}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>{note}"
    )


def _numeric(numeric: bool) -> str:
    return ' class="n"' if numeric else ""


def _row(table: Table, place: int) -> str:
    first_total = len(table.rows) - table.totals
    kind = "" if place < first_total else ' class="sum first"' if place == first_total else ' class="sum"'
    cells = "".join(
        f"<td{_numeric(column.numeric)}>{escape(cell)}</td>"
        for column, cell in zip(table.columns, table.rows[place], strict=True)
    )
    if table.shares:
        cells += f'<td class="bar">{_bar(table, place)}</td>'
    return f"<tr{kind}>{cells}</tr>"


def _bar(table: Table, place: int) -> str:
    share, scale = table.shares[place], table.bar_scale
    bar = ""
    if share is not None:
        color = ";background:var(--no)" if share > 1 else ""
        bar = f'<i style="width:{100 * min(max(share / scale, 0.0), 1.0):.1f}%{color}"></i>'
    return f'<div class="chart">{bar}<b style="left:{100 / scale:.1f}%"></b></div>' if table.mark else bar


def _steps(block: Steps) -> str:
    items = ""
    for step in block.steps:
        effect = f": {escape(step.effect)}" if step.effect else ""
        command = f"<pre><code>{escape(step.command)}</code></pre>" if step.command else ""
        items += f"<li>{escape(step.change)}{effect}{command}</li>\n"
    return f"<h2>{escape(block.title)}</h2>\n<ol>\n{items}</ol>"
