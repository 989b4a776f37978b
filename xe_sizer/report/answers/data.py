"""Token lengths of a data set: what `data` reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from xe_sizer.report.document import TOOL, Case, Column, Document, Fact, Facts, Finding, Notes, Remark, Table
from xe_sizer.report.format import clean, count, number, percent, plural, value_range, whole
from xe_sizer.result.studies import DataStatistics

if TYPE_CHECKING:
    from xe_sizer.report.document import Block, Options
    from xe_sizer.result.studies import EndOfLengths

ANSWER = DataStatistics
WORDS = {
    "counted": "every sequence counted",
    "sampled": "a sample tokenised, the others by their bytes",
    "assumed": "assumed from bytes, without a tokenizer",
}


def document(result: DataStatistics, options: Options) -> Document:
    """Lengths, how they were counted, and where samples would be cut."""
    notes = tuple(clean(f"{row.file}:{row.number}: {row.reason}") for row in result.unread_rows)
    more = result.unread - len(notes)
    if more > 0 and notes:
        notes = (*notes, f"and {plural(more, 'more row')}")
    blocks: list[Block] = [_lengths(result), _method(result), _table(result)]
    if result.warnings:
        blocks.append(Notes("Mind", tuple(map(clean, result.warnings))))
    if notes:
        blocks.append(Notes("Rows that were left out", notes))
    return Document("DATA", True, _headline(result), (), tuple(blocks))


def _headline(result: DataStatistics) -> str:
    """Samples and tokens in one sentence."""
    mean = result.mean_tokens
    spread = f" ({value_range(mean.low, mean.high, whole)})" if mean.low < mean.high else ""
    tokens = f"{plural(result.samples, 'sample')}, {count(result.tokens.expected)} tokens"
    return f"{tokens}: {number(mean.expected)} {_each(result)}{spread}, the longest {result.longest.tokens:,}"


def _each(result: DataStatistics) -> str:
    return "a sample" if result.sequences_per_sample == 1 else "a sequence"


def _lengths(result: DataStatistics) -> Facts:
    mean, total = result.mean_tokens, result.tokens
    kinds = ", ".join(f"{clean(kind)} ({each:,})" if len(result.kinds) > 1 else clean(kind)
                      for kind, each in result.kinds.items())  # fmt: skip
    rows = [
        Fact("Samples", f"{result.samples:,}"),
        Fact("Read as", kinds),
        Fact("Tokens", _ranged(total.low, total.expected, total.high, count)),
        Fact("Mean", _ranged(mean.low, mean.expected, mean.high, number)),
        Fact("Shortest", _place(result.shortest)),
        *(Fact(name, number(tokens)) for name, tokens in result.percentiles.items()),
        Fact("Longest", _place(result.longest)),
    ]
    if result.sequences_per_sample != 1:
        rows.insert(2, Fact("Sequences per sample", number(result.sequences_per_sample)))
    return Facts("Tokens of a sequence", tuple(rows))


def _ranged(low: float, expected: float, high: float, text: Callable[[float], str]) -> str:
    """A value, with its range where it has one."""
    differ = text(low) != text(high)
    return f"{text(expected)} ({text(low)} to {text(high)})" if differ else text(expected)


def _place(end: EndOfLengths) -> str:
    """Tokens of the longest or shortest, and its row."""
    where = f", {clean(end.file)} {end.unit} {end.number:,}"
    return f"{'' if end.exact else 'about '}{end.tokens:,}{where}"


def _method(result: DataStatistics) -> Facts:
    rows = [Fact("Tokens", WORDS[result.method])]
    if result.tokenizer is not None:
        rows += [Fact("Tokenizer", clean(result.tokenizer)), Fact("Tokenised", plural(result.tokenised, "sequence"))]
    if result.template is not None:
        rows.append(Fact("Chat template", clean(result.template)))
    if result.tokens_per_message is not None:
        rows.append(Fact("Tokens added per message", f"{result.tokens_per_message}, no chat template"))
    return Facts("How they were counted", tuple(rows))


def _table(result: DataStatistics) -> Table:
    """Sequences by length, in powers of two, and what a sequence length there would cut."""
    columns = (
        Column("tokens up to", True),
        Column("sequences", True),
        Column("share", True),
        Column("longer", True),
        Column("tokens cut", True, spare=1),
    )
    pairs = list(zip(result.histogram.lengths, result.histogram.counts, strict=True))
    sequences, tokens = sum(each for _, each in pairs), sum(length * each for length, each in pairs)
    rows, shares = [], []
    for edge in _edges(pairs[0][0], pairs[-1][0]):
        inside = sum(each for length, each in pairs if edge / 2 < length <= edge)
        longer = sum(each for length, each in pairs if length > edge)
        cut = sum((length - edge) * each for length, each in pairs if length > edge)
        rows.append((
            f"{edge:,}", f"{inside:,}", percent(inside / sequences), percent(longer / sequences), percent(cut / tokens),
        ))  # fmt: skip
        shares.append(inside / sequences)
    note = "longer, tokens cut: what does not fit where sequences are cut at so many tokens"
    return Table("By length", columns, tuple(rows), tuple(shares), note=note, bars="share")


def _edges(shortest: int, longest: int) -> Iterator[int]:
    """Powers of two from above the shortest to above the longest."""
    edge = 1 << max(shortest - 1, 0).bit_length()
    yield edge
    while edge < longest:
        edge *= 2
        yield edge


def rows(result: DataStatistics, options: Options) -> Iterator[tuple[object, ...]]:
    """One line a bin of the histogram."""
    yield "tokens", "sequences"
    yield from zip(result.histogram.lengths, result.histogram.counts, strict=True)


def findings(result: DataStatistics, options: Options) -> Iterator[Finding]:
    """Every file was read; rows that were not are a warning."""
    cases = tuple(Case(file, output=_headline(result)) for file in result.files)
    remarks = [Remark("notice", f"{TOOL}: data", _headline(result), options.file)]
    remarks += [
        Remark("warning", f"{TOOL}: data", clean(row.reason), row.file, row.number) for row in result.unread_rows
    ]
    yield Finding("data", cases, tuple(remarks))
