"""A document laid out for a terminal. Off a terminal it keeps its natural width: nothing wrapped or cut."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from msgspec.structs import replace
from rich import box
from rich.console import Console, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from xe_sizer.report.document import BRIEF_LINES, Facts, FactsPair, Figure, Notes, Steps, Summary, Table
from xe_sizer.report.format import encodable
from xe_sizer.report.text_charts import bar_text, gauge

if TYPE_CHECKING:
    from xe_sizer.report.document import Document, InCharacters, Options, Tone

_UNLIMITED = 100_000
_USUAL_WIDTH = 120
_SIDE_BY_SIDE = 100  # columns from which two lists of facts stand side by side
_NARROW = 76  # columns below which bars are short
_LEAST_TEXT = 18  # a server's name, or two or three words
_LEAST_TEXT_NARROW = 12  # the same where there is little room
_GAP = 3  # between the columns of a table
_STYLES: dict[Tone, str] = {"yes": "bold green", "caution": "bold yellow", "no": "bold red", "neutral": "bold"}
_TIE = "\ue000"  # for a blank that is not broken: to the library that wraps, a non-breaking space is a blank
_UNIT = re.compile(r"(?<=\d) (?=(?:%|ms|s|min|h|days?|GiB|TiB|kWh|kW|USD|EUR|GPUs?|GPU-hours|ms)(?![\w-]))")
# Words of a shell's command line: what stands in quotes is not broken, nor an option from its value.
_WORDS = re.compile(r"""(?:--?[\w-]+ (?!-))?(?:'[^']*'|"[^"]*"|[^\s'"])+""")


def render(content: Document, options: Options) -> str:
    """Lay out `content` for the terminal that `options` describes."""
    shown = shortened(content, options) if options.brief else content
    return encodable(_laid_out(shown, options), options.encoding)


def shortened(content: Document, options: Options) -> Document:
    """A brief report without the points that it can best spare, as far as it has too many lines for a terminal.

    A page, which has no width, is as long as that of a usual terminal.
    """
    laid_out = replace(options, width=options.width or _USUAL_WIDTH, color=False)
    while _laid_out(content, laid_out).count("\n") > BRIEF_LINES and (shorter := _without_one_point(content)):
        content = shorter
    return content


def _laid_out(content: Document, options: Options) -> str:
    console = _console(options)
    _verdict(console, content)
    for block in content.in_characters:
        if not options.brief:
            console.print()
        _block(console, block, options)
    return _output(console, options)


def _without_one_point(content: Document) -> Document | None:
    """The document without the point of its summary that can best be spared; None where none can."""
    for place, block in enumerate(content.blocks):
        if isinstance(block, Summary) and any(point.spare for point in block.points):
            spared = max(range(len(block.points)), key=lambda index: block.points[index].spare)
            blocks = (*content.blocks[:place], block.without(spared), *content.blocks[place + 1 :])
            return replace(content, blocks=blocks)
    return None


def _console(options: Options) -> Console:
    return Console(
        file=io.StringIO(),
        width=options.width or _UNLIMITED,
        force_terminal=options.color,
        force_jupyter=False,  # else rich writes into the cell by itself, and the text is empty
        color_system="standard" if options.color else None,
        no_color=not options.color,
        legacy_windows=False,
        highlight=False,
        emoji=False,
        markup=False,
        _environ={},
    )


def _output(console: Console, options: Options) -> str:
    stream = console.file
    assert isinstance(stream, io.StringIO)
    text = stream.getvalue()
    text = text.replace(_TIE, " ")
    return text if options.color else "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def _tied(text: str) -> str:
    """Prose in which a number stays on the line of its unit."""
    return _UNIT.sub(_TIE, text)


def _verdict(console: Console, content: Document) -> None:
    style = _STYLES[content.tone]
    console.print(Text.assemble((content.verdict, style), "  ", _tied(content.headline)))
    for reason in content.remarks:
        console.print(Padding(Text.assemble(("- ", style), _tied(reason)), (0, 0, 0, 2), expand=False))


def _block(console: Console, block: InCharacters, options: Options) -> None:
    match block:
        case Summary():
            _summary(console, block, options)
        case FactsPair():
            console.print(_pair(block, options))
        case Facts():
            console.print(_facts(block))
        case Table():
            _table(console, block, options)
        case Notes():
            console.print(Text(block.title, style="bold"))
            for note in block.items:
                console.print(_hanging("-", Text(_tied(note), style="yellow")))
        case Steps():
            _steps(console, block, options)
        case Figure():
            console.print(Text(block.title, style="bold"))
            console.print(Text("\n".join(block.lines)), soft_wrap=True)
            console.print(Text(_tied(block.note), style="dim"))


def _summary(console: Console, block: Summary, options: Options) -> None:
    """Labels to the left, and what they say beside them; commands below."""
    width = max((len(point.label) for point in block.shown), default=0)
    for point in block.shown:
        text = Text(_tied(point.text))
        if point.share is not None:
            cells = 8 if options.width is not None and options.width < _NARROW else 16
            bar = Text(gauge(point.share, cells), style="red" if point.share > 1 else "cyan")
            text = Text.assemble(bar, " ", text)
        grid = Grid.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True, min_width=width)
        grid.add_column(overflow="fold")
        grid.add_row(Text(point.label, style="bold"), text)
        console.print(grid)
        if point.command:
            _command(console, point.command, " " * (width + 2), options)


def _command(console: Console, command: str, indent: str, options: Options) -> None:
    """A command that can be copied: where it is wider than the terminal it goes on with the shell's own line ends."""
    for line in continued(command, None if options.width is None else options.width - len(indent)):
        console.print(Text(f"{indent}{line}", style="cyan"), soft_wrap=True)


def continued(command: str, width: int | None) -> list[str]:
    """A command as lines no wider than `width`, broken between its words with a backslash.

    A word is never broken, so that a line with one long word may be wider.
    """
    if width is None or len(command) <= width:
        return [command]
    lines: list[str] = []
    for word in _WORDS.findall(command):
        room = width - 2  # for the backslash
        if lines and len(lines[-1]) + 1 + len(word) <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(f"  {word}" if lines else word)
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]


def _hanging(mark: str, body: RenderableType) -> Grid:
    grid = Grid.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(mark), body)
    return grid


def _steps(console: Console, block: Steps, options: Options) -> None:
    console.print(Text(block.title, style="bold"))
    for place, step in enumerate(block.steps, start=1):
        body = f"{step.change}: {step.effect}" if step.effect else step.change
        console.print(_hanging(f"{place}.", Text(_tied(body))))
        if step.command:
            _command(console, step.command, "   ", options)


def _pair(pair: FactsPair, options: Options) -> Grid:
    grid = Grid.grid(padding=(0, 3))
    if options.width is not None and options.width < _SIDE_BY_SIDE:
        grid.add_row(_facts(pair.left))
        grid.add_row("")
        grid.add_row(_facts(pair.right))
    else:
        grid.add_row(_facts(pair.left), _facts(pair.right))
    return grid


def _facts(facts: Facts) -> Grid:
    grid = Grid.grid(padding=(0, 1, 0, 0))
    for wrap in (True, False, True):
        grid.add_column(no_wrap=wrap, overflow="fold")
    grid.add_row(Text(facts.title, style="bold"))
    for row in facts.rows:
        grid.add_row(Text(row.label), Text(row.value), Text(row.origin, style="dim"))
    return grid


def _table(console: Console, table: Table, options: Options) -> None:
    console.print(Text(table.title, style="bold"))
    shown = table if options.width is None else _narrowed(table, options.width)
    too_wide = options.width is not None and not shown.shares and _least_width(shown, options.width) > options.width
    console.print(_stacked(table) if too_wide else _grid(shown, options))
    if table.note:
        console.print(Text(_tied(table.note), style="dim"))


def _narrowed(table: Table, width: int) -> Table:
    """The table without the columns that it can spare, then without its bars, as far as the terminal is too narrow."""
    while _least_width(table, width) > width and any(column.spare for column in table.columns):
        place = max(range(len(table.columns)), key=lambda index: table.columns[index].spare)
        table = table.without(place)
    bars = _GAP + _bar_cells(width) if table.shares else 0
    return replace(table, shares=()) if bars and not table.mark and _least_width(table, width) + bars > width else table


def _bar_cells(width: int | None) -> int:
    return 10 if width is not None and width < _NARROW else 24


def _least_width(table: Table, width: int) -> int:
    """Columns of the terminal that a table needs: numbers whole, texts no narrower than can be read."""
    least, widths = _LEAST_TEXT if width >= _SIDE_BY_SIDE else _LEAST_TEXT_NARROW, []
    for place, column in enumerate(table.columns):
        cells = (column.name, *(row[place] for row in table.rows))
        natural = max(map(len, cells))
        longest_word = max(len(word) for cell in cells for word in (cell.split() or [""]))
        readable = max(least, column.least, min(longest_word, _LEAST_TEXT), _longest_word(column.name))
        widths.append(natural if column.whole else min(natural, readable))
    return sum(widths) + _GAP * (len(widths) - 1)


def _longest_word(text: str) -> int:
    """Characters of the longest word, which the head of a column keeps whole."""
    return max(map(len, text.split()), default=0)


def _stacked(table: Table) -> Grid:
    """A table too wide for the terminal: each row under its first cell, a line for every other cell."""
    grid = Grid.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    first, *others = table.columns
    for row in table.rows:
        if first.name:
            grid.add_row(Text(first.name, style="dim"), Text(row[0], style="bold"))
        else:
            grid.add_row(Text(row[0], style="bold"), "")
        for column, cell in zip(others, row[1:], strict=True):
            if cell:
                grid.add_row(Text(f"  {column.name}", style="dim"), Text(cell))
    return grid


def _grid(table: Table, options: Options) -> Grid:
    grid = Grid(
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
        show_edge=False,
        pad_edge=False,
        header_style="dim",
        border_style="dim",
    )
    for place, column in enumerate(table.columns):
        side: JustifyMethod = "right" if column.numeric else "left"
        longest = max((len(row[place]) for row in table.rows), default=0)
        least = max(min(column.least, longest), _longest_word(column.name)) or None
        grid.add_column(Text(column.name), justify=side, no_wrap=column.whole, overflow="fold", min_width=least)
    if table.shares:
        grid.add_column(Text(table.bars), no_wrap=True)
    first_total = len(table.rows) - table.totals
    for place, row in enumerate(table.rows):
        cells = [Text(_tied(cell)) for cell in row]
        if table.shares:
            cells.append(_bar(table, place, options))
        last = place == first_total - 1 and table.totals > 0
        grid.add_row(*cells, style="bold" if place >= first_total else "", end_section=last)
    return grid


def _bar(table: Table, place: int, options: Options) -> Text:
    """A bar; what exceeds the usable memory is red."""
    share = table.shares[place]
    cells = _bar_cells(options.width)
    return Text(bar_text(table, place, cells), style="red" if share is not None and share > 1 else "cyan")
