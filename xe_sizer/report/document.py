"""A report before it has a look: blocks of facts, tables, notes and steps for prose formats to lay out.

What a report says is decided once, in `answers/`; a format only decides how it looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from xe_sizer.immutable import Immutable

if TYPE_CHECKING:
    from xe_sizer.report.picture import Drawing

Tone = Literal["yes", "caution", "no", "neutral"]


class Fact(Immutable):
    """One resolved value; `origin` says where it came from (flag, env, file, stack, default) or is empty."""

    label: str
    value: str
    origin: str = ""


class Facts(Immutable):
    title: str
    rows: tuple[Fact, ...]


class FactsPair(Immutable):
    """Two lists of facts that stand side by side where there is room."""

    left: Facts
    right: Facts


class Column(Immutable):
    """`spare` columns are left out where a terminal is too narrow for all, the highest first.

    wraps : whether a numeric column, which stands to the right, may be broken all the same
    least : characters across that a column of text needs to be readable
    """

    name: str
    numeric: bool = False
    spare: int = 0
    wraps: bool = False
    least: int = 0

    @property
    def whole(self) -> bool:
        """Whether its cells stand on one line."""
        return self.numeric and not self.wraps


class Table(Immutable):
    """Rows of text; `shares` (0 to 1 a row, None for none) become bars; the last `totals` rows are sums.

    `bars` names what the bars show. `mark` makes them a chart: drawn to the scale of the longest, with a line where the
    share is 1.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    shares: tuple[float | None, ...] = ()
    totals: int = 0
    note: str = ""
    detail: bool = False
    mark: bool = False
    bars: str = ""

    def without(self, place: int) -> Table:
        """The table without one of its columns."""
        columns = self.columns[:place] + self.columns[place + 1 :]
        rows = tuple(row[:place] + row[place + 1 :] for row in self.rows)
        return replace(self, columns=columns, rows=rows)

    @property
    def bar_scale(self) -> float:
        """Share that fills a bar."""
        return max([1.0, *(share for share in self.shares if share is not None)]) if self.mark else 1.0


class Notes(Immutable):
    title: str
    items: tuple[str, ...]


class Step(Immutable):
    """One numbered piece of advice; `command` can be copied into a shell as it stands."""

    change: str
    effect: str
    command: str


class Steps(Immutable):
    title: str
    steps: tuple[Step, ...]


class Figure(Immutable):
    """A drawing of characters, whose lines are kept as they are."""

    title: str
    lines: tuple[str, ...]
    note: str = ""


class Picture(Immutable):
    """A drawing for formats that can draw; `says` is it in words, for who does not see it.

    figure : what formats of characters show in its place; None: nothing, as a table of the report says it already
    """

    title: str
    says: str
    drawing: Drawing
    note: str = ""
    figure: Figure | None = None


class Point(Immutable):
    """One thing that people ask first; `share` (0 to 1) becomes a bar before the text, `command` can be copied.

    `spare` points are left out where a brief report would be too long, the highest first.
    """

    label: str
    text: str
    share: float | None = None
    command: str = ""
    spare: int = 0


class Summary(Immutable):
    """The first screen: what people ask first, a line or two each.

    more : of how many things like the points there is no point, and how they are called
    """

    points: tuple[Point, ...]
    more: int = 0
    noun: str = ""

    @property
    def shown(self) -> tuple[Point, ...]:
        """The points, and how many there are besides where they are things of one kind."""
        if not self.noun or not self.more:
            return self.points
        return (*self.points, Point("", f"and {self.more:,} more {self.noun}{'s' if self.more > 1 else ''}"))

    def without(self, place: int) -> Summary:
        """The summary without one of its points."""
        return Summary(self.points[:place] + self.points[place + 1 :], self.more + 1, self.noun)


InCharacters = Summary | Facts | FactsPair | Table | Notes | Steps | Figure
Block = InCharacters | Picture


class Foot(Immutable):
    """What a reader needs who was not there: what was assumed, at which prices, and how to repeat the answer.

    command : empty where nobody typed one; date : of the answer, as YYYY-MM-DD, empty where it is not known
    job : what was asked, in words, which pages say at their top; empty where an answer is about no job
    """

    assumptions: tuple[Fact, ...]
    prices: tuple[Fact, ...]
    command: str
    version: str
    date: str
    job: str = ""


class Document(Immutable):
    """`verdict` is the word, `headline` the sentence a manager reads, `reasons` why the answer is no.

    `cautions` are what a reader must know although the answer may be yes. `foot` gives what stands below a page.
    neutral : whether a no of a part is no verdict on the whole
    """

    verdict: str
    ok: bool
    headline: str
    reasons: tuple[str, ...]
    blocks: tuple[Block, ...]
    cautions: tuple[str, ...] = ()
    foot: Callable[[], Foot] | None = None
    neutral: bool = False

    @property
    def brief(self) -> Document:
        """What a manager reads: the verdict with its gravest reason, the summary, and a picture where one is drawn."""
        cautions = () if self.reasons else self.cautions
        drawn = tuple(replace(picture, figure=None) for picture in self.pictures[:1])
        return replace(self, reasons=self.reasons[:1], cautions=cautions, blocks=(*self.first_screen, *drawn))

    @property
    def first_screen(self) -> tuple[Summary, ...]:
        return tuple(block for block in self.blocks if isinstance(block, Summary))

    @property
    def tone(self) -> Tone:
        """How the verdict looks: yes, a yes with a caution, no, or neither."""
        if not self.ok:
            return "neutral" if self.neutral else "no"
        return "caution" if self.cautions else "yes"

    @property
    def in_characters(self) -> tuple[InCharacters, ...]:
        """The blocks for formats that cannot draw: a picture is its figure of characters, or nothing."""
        shown = (block.figure if isinstance(block, Picture) else block for block in self.blocks)
        return tuple(block for block in shown if block is not None)

    @property
    def pictures(self) -> tuple[Picture, ...]:
        return tuple(block for block in self.blocks if isinstance(block, Picture))

    @property
    def beside_pictures(self) -> tuple[InCharacters, ...]:
        """What a format that draws has below the first screen and besides them."""
        return tuple(block for block in self.blocks if not isinstance(block, Picture | Summary))

    @property
    def remarks(self) -> tuple[str, ...]:
        """What stands below the headline: reasons, then the cautions."""
        return (*self.reasons, *self.cautions)


# Findings: what is judged, as test cases and remarks, for formats that show verdicts and no details.

State = Literal["passed", "skipped", "failed", "error"]
Level = Literal["notice", "warning", "error"]
TOOL = "xe-sizer"


class Case(Immutable):
    """One question that has a yes or a no.

    kind, message, details : why it is not passed: a word, a line, lines
    output : what a reader may want to know of it in any case
    """

    name: str
    state: State = "passed"
    kind: str = ""
    message: str = ""
    details: str = ""
    output: str = ""


class Remark(Immutable):
    """What a reviewer should see, with the place in a file that it is about."""

    level: Level
    title: str
    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None


def judgement(ok: bool, word: str, said: Iterable[str], doubtful: bool, file: str | None) -> Remark:
    """A verdict as a remark: an error, or a warning where it is doubtful; a plain yes is a notice.

    word : the verdict in a word or two; said : its lines
    """
    level: Level = "error" if not ok else "warning" if doubtful else "notice"
    return Remark(level, f"{TOOL}: {word}", "\n".join(said), file)


class Finding(Immutable):
    """Verdicts on one thing: a scenario file, an alternative, a plan. `properties` are figures beside them."""

    name: str
    cases: tuple[Case, ...]
    remarks: tuple[Remark, ...]
    properties: tuple[tuple[str, str], ...] = ()


# Options: colour, width, encoding, how deep to go.

BRIEF_LINES = 14
OPERATORS = "operators"
EXPLAINABLE = ("memory", "time", OPERATORS, "data", "sources")


class Options(Immutable):
    """`width` is the terminal's columns, None off a terminal: then nothing is wrapped or cut.

    `file` is the scenario file a report is about; annotations and test cases name it. `place` turns the name of a file
    into what a code host calls it. `worst` is how many of the largest errors are shown. `brief` keeps verdict and
    summary alone, at most BRIEF_LINES of a table.
    """

    color: bool = False
    width: int | None = None
    encoding: str = "utf-8"
    explain: tuple[str, ...] = ()
    file: str | None = None
    worst: int = 10
    place: Callable[[str], str] = str
    brief: bool = False
