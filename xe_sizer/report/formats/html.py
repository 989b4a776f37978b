"""One self-contained HTML page: no script, no external resource, light and dark, printable."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

from xe_sizer.report.document import Facts, FactsPair, Figure, Notes, Steps, Summary, Table
from xe_sizer.report.svg import COLOURS, STYLE, svg

if TYPE_CHECKING:
    from xe_sizer.report.document import Document, Fact, Foot, InCharacters, Options, Picture, Point

# The style sheet: a wide screen, a narrow one, and paper, A4 or Letter.

PAPER_PX = 672.0  # width of the text on A4, the narrower of the two: 210 mm less the margins, at 96 px an inch
PAPER_FONT_PX = 11.0
PAGE = (
    COLOURS
    + """
:root { color-scheme: light dark; }
* { box-sizing: border-box; }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 72rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; margin: 0 0 .3rem; }
h1.yes { color: var(--yes); } h1.caution { color: var(--caution); } h1.no { color: var(--no); }
h2 { font-size: 1.05rem; margin: 1.8rem 0 .4rem; }
.lead { text-wrap: pretty; font-size: 1.1rem; margin: 0 0 1rem; max-width: 60rem; }
.pictures { column-width: 26rem; column-gap: 3rem; margin-top: 1.5rem; }
.pictures.one { columns: auto; max-width: 36rem; }
figure { break-inside: avoid; margin: 0 0 1.8rem; }
figcaption { font-size: 1.05rem; font-weight: 600; margin-bottom: .4rem; }
svg.picture { display: block; width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { padding: .2rem .9rem .2rem 0; text-align: left; vertical-align: top; }
thead th { color: var(--soft); font-weight: 500; border-bottom: 1px solid var(--line); vertical-align: bottom; }
tbody tr:hover td { background: color-mix(in srgb, var(--line) 35%, transparent); }
.many th, .many td { padding-right: .55rem; }
.n { text-align: right; font-variant-numeric: tabular-nums; } .whole { white-space: nowrap; }
.sum td { font-weight: 600; } .sum.first td { border-top: 1px solid var(--line); }
.origin, .note, footer { color: var(--soft); font-size: .87em; } .note { margin: .3rem 0 0; }
.pair { display: flex; flex-wrap: wrap; gap: 0 3rem; } .pair section { max-width: 100%; min-width: 0; }
.bar { width: 9rem; min-width: 5rem; } .bar i { display: block; height: .75rem; margin-top: .35rem;
  background: var(--fill); }
.summary th { font-weight: 600; min-width: 5.5rem; max-width: 20rem; }
.gauge { display: inline-block; width: 12rem; margin-right: .7rem; border: 1px solid var(--line); }
.gauge i { display: block; height: .6rem; background: var(--fill); }
.bar i.over, .gauge i.over { background: var(--no); }
.chart { position: relative; min-height: 1.4rem; }
.chart b { position: absolute; top: 0; bottom: 0; border-left: 2px solid var(--ink); }
pre { background: color-mix(in srgb, var(--line) 40%, transparent); padding: .5rem .8rem; margin: .4rem 0;
  white-space: pre-wrap; overflow-wrap: anywhere; }
pre span { display: inline-block; max-width: 100%; }
footer { border-top: 1px solid var(--line); margin-top: 2.5rem; padding-bottom: 1rem; }
footer h2 { color: var(--ink); font-size: .95rem; margin: 1rem 0 .2rem; } footer p { margin: .2rem 0; }
footer dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 17rem), 1fr)); gap: .1rem 2rem;
  margin: .2rem 0; }
footer dl div { break-inside: avoid; } footer dt { display: inline; } footer dt::after { content: ": "; }
footer dd { display: inline; margin: 0; color: var(--ink); }
@media (max-width: 640px) { body { margin: 1rem auto; } th, td { padding-right: .6rem; } .bar { min-width: 4rem; }
  .prose { min-width: 9.5rem; } tr:has(.prose ~ .prose) > * { min-width: 0; padding-right: .4rem; font-size: .8rem;
    white-space: normal; }
  .wide { font-size: .85rem; }
  .summary th, .summary td { display: block; } .summary th { padding-bottom: 0; } }
@page { margin: 16mm; }
@media print {
  :root { color-scheme: light; font-size: 10pt; }
  body { margin: 0; padding: 0; max-width: none; font-size: .94rem; }
  .pictures { column-width: 7.5cm; column-gap: 1cm; } .pictures.one { max-width: 13cm; }
  .wide { overflow: visible; }
  table { font-size: calc(8.25pt * var(--fit, 1)); } th, td { padding: .12rem .5rem .12rem 0; }
  .broken .whole { white-space: normal; }
  .bar { width: 4rem; min-width: 2.5rem; }
  h2, figcaption, thead { break-after: avoid; } tr, figure, li, footer section { break-inside: avoid; }
  thead { display: table-header-group; }
  svg, .bar i, .gauge i { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
    + STYLE
)


SHOWS = "document"
ENDINGS = (".html", ".htm")
_WHOLE = 24  # characters of a figure at most; more are prose
_LEAST_FIT = 0.8  # of the usual size: rather than smaller, figures are broken between words
_LONG = 16  # letters of a word that is not broken
_NARROW = 76  # characters across of a table that takes half the page
_WIDE = 240  # characters across from which on figures may be broken between words
_PAPER_GAP_PX = 9.0  # between columns on paper
_LETTER = 0.64  # of the size, a letter of a wide font
_MANY = 12  # columns from which on they stand closer
_BARS = 8  # characters that the bars of a table take
_BREAKS = re.compile(r"(?<=[/_=:,])(?=[^\s/_=:,])")  # where a long name may be broken


def render(content: Document, options: Options) -> str:
    if options.brief:
        from xe_sizer.report.terminal import shortened

        content = shortened(content, options)
    foot = content.foot() if content.foot else None
    job = f'\n<p class="job"><b>Job</b> {escape(foot.job)}</p>' if foot and foot.job else ""
    remarks = _list(content.remarks) if content.remarks else ""
    body = "\n".join(_beside(content.beside_pictures))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(content.verdict)}: {escape(content.headline)}</title>
<style>{PAGE}</style>
</head>
<body>
<h1 class="{content.tone}">{escape(content.verdict)}</h1>
<p class="lead">{escape(content.headline)}</p>{job}
{remarks}
{"".join(map(_block, content.first_screen))}
{_pictures(content.pictures)}
{body}
{_foot(foot) if foot else ""}
</body>
</html>
"""


FRAGMENT_STYLE = """
.xe-sizer table { border-collapse: collapse; } .xe-sizer :is(th, td) { text-align: left; vertical-align: top; }
.xe-sizer .gauge { display: inline-block; width: 12rem; margin-right: .7rem; border: 1px solid currentColor; }
.xe-sizer .gauge i { display: block; height: .6rem; background: #4a7ebb; }
.xe-sizer .gauge i.over { background: #c0392b; }
.xe-sizer pre { white-space: pre-wrap; margin: .2rem 0; }
"""


def fragment(content: Document) -> str:
    """Verdict, headline, remarks and first screen, to stand within another page."""
    remarks = _list(content.remarks) if content.remarks else ""
    return f"""<div class="xe-sizer">
<style>{FRAGMENT_STYLE}</style>
<p><b>{escape(content.verdict)}</b> {escape(content.headline)}</p>
{remarks}{"".join(map(_block, content.first_screen))}
</div>
"""


def _beside(blocks: Sequence[InCharacters]) -> Iterator[str]:
    """Blocks below each other; narrow tables stand beside those that follow, as far as there is room."""
    for narrow, group in groupby(blocks, key=_is_narrow):
        drawn = map(_block, group)
        yield '<div class="pair">\n' + "\n".join(drawn) + "\n</div>" if narrow else "\n".join(drawn)


def _is_narrow(block: InCharacters) -> bool:
    return isinstance(block, Table) and _natural(block) <= _NARROW and len(block.note) <= _NARROW


def _natural(table: Table) -> int:
    """Characters across where nothing is broken."""
    widest = (max(len(text) for text in (c.name, *(r[p] for r in table.rows))) for p, c in enumerate(table.columns))
    return sum(widest) + 2 * len(table.columns) + (2 * _BARS if table.shares else 0)


def _block(block: InCharacters) -> str:
    match block:
        case Summary():
            rows = "\n".join(map(_point, block.shown))
            return f'<table class="summary"><tbody>\n{rows}\n</tbody></table>'
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


def _pictures(pictures: Sequence[Picture]) -> str:
    if not pictures:
        return ""
    figures = "\n".join(_picture(picture, place) for place, picture in enumerate(pictures, start=1))
    return f'<div class="pictures{" one" if len(pictures) == 1 else ""}">\n{figures}\n</div>'


def _picture(picture: Picture, place: int) -> str:
    note = f'\n<p class="note">{escape(picture.note)}</p>' if picture.note else ""
    drawing = svg(picture, f"picture-{place}")
    return f"<figure>\n<figcaption>{escape(picture.title)}</figcaption>\n{drawing}{note}\n</figure>"


def _point(point: Point) -> str:
    bar = ""
    if point.share is not None:
        over = ' class="over"' if point.share > 1 else ""
        filled = f'<i{over} style="width:{100 * min(max(point.share, 0.0), 1.0):.1f}%"></i>'
        bar = f'<div class="gauge">{filled}</div>'
    command = _command(point.command) if point.command else ""
    return f"<tr><th>{_name(point.label)}</th><td>{bar}{escape(point.text)}{command}</td></tr>"


def _list(items: tuple[str, ...]) -> str:
    return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"


def _facts(facts: Facts) -> str:
    rows = "\n".join(
        f'<tr><td>{_name(row.label)}</td><td>{_name(row.value)}</td><td class="origin">{escape(row.origin)}</td></tr>'
        for row in facts.rows
    )
    return f"<section><h2>{escape(facts.title)}</h2>\n<table><tbody>\n{rows}\n</tbody></table></section>"


def _table(table: Table) -> str:
    sides = _column_sides(table)
    heads = "".join(
        f"<th{_class(side.removesuffix(' whole'))}>{_name(column.name)}</th>"
        for column, side in zip(table.columns, sides, strict=True)
    )
    heads += f"<th>{escape(table.bars)}</th>" if table.shares else ""
    rows = "\n".join(_row(table, place, sides) for place in range(len(table.rows)))
    note = f'\n<p class="note">{escape(table.note)}</p>' if table.note else ""
    whole, broken = _paper_fit(table, True), _paper_fit(table, False)
    fit, kinds = (whole, []) if whole >= _LEAST_FIT else (broken, ["broken"])
    kinds += ["many"] if len(table.columns) >= _MANY else []
    style = f' style="--fit: {fit:.2f}"' if fit < 1 else ""
    return (
        f'<section><h2>{escape(table.title)}</h2>\n<div class="wide"><table{_class(" ".join(kinds))}{style}>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>{note}</section>"
    )


def _paper_fit(table: Table, whole: bool) -> float:
    """The share of the usual size at which the longest words of all columns stand beside each other on paper.

    whole : figures are words, with their units
    """
    letters = sum(max(map(len, _words(table, place, whole)), default=1) for place in range(len(table.columns)))
    letters += _BARS if table.shares else 0
    return PAPER_PX / (letters * _LETTER * PAPER_FONT_PX + len(table.columns) * _PAPER_GAP_PX)


def _words(table: Table, place: int, whole: bool) -> Iterator[str]:
    """What is not broken between lines in a column."""
    cells = [row[place] for row in table.rows]
    if whole and table.columns[place].numeric and all(len(cell) <= _WHOLE for cell in cells):
        yield from cells
        cells = []
    for text in (table.columns[place].name, *cells):
        yield from (piece for word in text.split() for piece in _pieces(word))


def _pieces(word: str) -> list[str]:
    """A long word between the places where it may be broken."""
    return _BREAKS.split(word) if len(word) > _LONG else [word]


def _column_sides(table: Table) -> list[str]:
    """The class of each column: figures stand right, and in one line where the table has room; prose stands left."""
    figure = "n whole" if _natural(table) <= _WIDE else "n"
    short = [all(len(row[place]) <= _WHOLE for row in table.rows) for place in range(len(table.columns))]
    return [
        "prose" if not one else figure if column.numeric else ""
        for column, one in zip(table.columns, short, strict=True)
    ]


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _row(table: Table, place: int, sides: Sequence[str]) -> str:
    first_total = len(table.rows) - table.totals
    kind = "" if place < first_total else ' class="sum first"' if place == first_total else ' class="sum"'
    cells = "".join(
        f"<td{_class(side)}>{_name(cell)}</td>" for side, cell in zip(sides, table.rows[place], strict=True)
    )
    if table.shares:
        cells += f'<td class="bar">{_bar(table, place)}</td>'
    return f"<tr{kind}>{cells}</tr>"


def _name(text: str) -> str:
    """Text that may be broken within long words."""
    return " ".join("<wbr>".join(map(escape, _pieces(word))) for word in text.split(" "))


def _bar(table: Table, place: int) -> str:
    share, scale = table.shares[place], table.bar_scale
    bar = ""
    if share is not None:
        over = ' class="over"' if share > 1 else ""
        bar = f'<i{over} style="width:{100 * min(max(share / scale, 0.0), 1.0):.1f}%"></i>'
    return f'<div class="chart">{bar}<b style="left:{100 / scale:.1f}%"></b></div>' if table.mark else bar


def _steps(block: Steps) -> str:
    items = ""
    for step in block.steps:
        effect = f": {escape(step.effect)}" if step.effect else ""
        command = _command(step.command) if step.command else ""
        items += f"<li>{escape(step.change)}{effect}{command}</li>\n"
    return f"<h2>{escape(block.title)}</h2>\n<ol>\n{items}</ol>"


def _command(text: str) -> str:
    """A command, broken between its words alone."""
    words = " ".join(f"<span>{escape(word)}</span>" for word in text.split(" "))
    return f"<pre><code>{words}</code></pre>"


def _foot(foot: Foot) -> str:
    """What was assumed, the prices, the command, the version and the date."""
    parts = [_sides("Assumptions: what the stack or a default says", foot.assumptions), _sides("Prices", foot.prices)]
    if foot.command:
        parts.append(f"<section><h2>The command that repeats this report</h2>{_command(foot.command)}</section>")
    parts.append(f"<p>{escape(', '.join(text for text in (foot.version, foot.date) if text))}</p>")
    return f"<footer>\n{''.join(parts)}\n</footer>"


def _sides(title: str, facts: Sequence[Fact]) -> str:
    if not facts:
        return ""
    entries = "".join(f"<div><dt>{_name(fact.label)}</dt><dd>{_fact(fact)}</dd></div>" for fact in facts)
    return f"<section><h2>{escape(title)}</h2><dl>{entries}</dl></section>"


def _fact(fact: Fact) -> str:
    return _name(fact.value) + (f' <span class="origin">({escape(fact.origin)})</span>' if fact.origin else "")
