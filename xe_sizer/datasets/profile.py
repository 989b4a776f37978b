"""A data set measured: its samples read once, their tokens counted or estimated, and what to say about them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from xe_sizer.datasets.files import open_source
from xe_sizer.datasets.fit import (
    BANDS,
    KINDS,
    UNKNOWN,
    Extremes,
    Fine,
    Spill,
    assumed_tokens,
    bound,
    class_counts,
    find_bins,
    fitted,
    histogram,
    keys_of,
    picked,
    text_kinds,
    unknown,
)
from xe_sizer.datasets.tokens import TOKENS_PER_MESSAGE, Piece, TokenCounter, in_batches, read_sample
from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.immutable import Immutable
from xe_sizer.profiles.dataset import DatasetProfile, LengthHistogram

if TYPE_CHECKING:
    from xe_sizer.datasets.files import Source
    from xe_sizer.datasets.fit import Extreme, Histogram, Picks, Records
    from xe_sizer.profiles.finder import Finder

# The scan: every row is decoded once, and its sequences are measured in bytes.

Count = Callable[[Sequence[Piece]], list[int]]
Said = Callable[[int, int], None]
"""Is told how many bytes of how many have been read."""


@dataclass
class Scan:
    """What a pass found. kinds : samples by how they were read; images : that are in them besides the text."""

    spill: Spill
    kinds: Counter[str] = field(default_factory=Counter)
    samples: int = 0
    images: int = 0


def scan(sources: Sequence[Source], field_: str | None, spill: Spill, said: Said, count: Count | None) -> Scan:
    """Reads all sources to their end. count : counts tokens of all sequences at once, None: later, of some of them.

    Raises
    ------
    InputError : a file that cannot be read
    """
    found = Scan(spill)
    for batch in in_batches(_rows(sources, field_, found, said), lambda row: len(row[1].content)):
        pieces = [piece for _, piece in batch]
        counted = iter(count([piece for piece in pieces if piece.tokens is None]) if count else ())
        for where, piece in batch:
            tokens = next(counted, UNKNOWN) if piece.tokens is None else piece.tokens
            spill.add((*where, len(piece.messages), tokens, class_counts(piece.content)))
    return found


def read_pieces(sources: Sequence[Source], field_: str | None, records: Records) -> Iterator[tuple[int, Piece]]:
    """Read the sequences of some records again, each behind its place among the records."""
    order = np.lexsort((records["part"], records["place"], records["file"]))
    for file, places in groupby(order.tolist(), key=lambda each: int(records["file"][each])):
        same_row = [(row, list(each)) for row, each in groupby(places, key=lambda one: int(records["place"][one]))]
        rows = sources[file].again([row for row, _ in same_row])
        for row, (_, wanted) in zip(rows, same_row, strict=True):
            sequences = read_sample(row.value, field_).sequences
            for place in wanted:
                yield place, sequences[int(records["part"][place])]


def _rows(
    sources: Sequence[Source], field_: str | None, found: Scan, said: Said
) -> Iterator[tuple[tuple[int, int, int, int], Piece]]:
    """Every sequence with its file, its part, and the place and number of its row."""
    total, before = sum(source.size_bytes for source in sources), 0
    for file, source in enumerate(sources):
        for row in source.rows(partial(_say, said, before, total)):
            try:
                sample = read_sample(row.value, field_)
            except ValueError as error:
                source.broken.add(row.number, str(error))
                continue
            found.samples += 1
            found.kinds[sample.kind] += 1
            for part, piece in enumerate(sample.sequences):
                found.images += piece.images
                yield (file, part, row.place, row.number), piece
        before += source.size_bytes


def _say(said: Said, before: int, total: int, done: int) -> None:
    said(before + done, total)


# Token lengths: counted, estimated from a sample that is tokenised, or assumed from bytes.

SAMPLE = 1000
Z80 = 1.2816  # standard errors to each side that hold 80 % of a normal distribution


class Asked(Immutable):
    """How to count.

    tokenizer : a tokenizer.json or a folder with one; None: tokens are assumed from bytes
    field : the key of a row that holds its sample, where the usual names do not
    per_message : tokens that are added for each message; None: the chat template, else an assumption
    sample : sequences that are tokenised; None: all of them
    """

    tokenizer: Path | None = None
    field: str | None = None
    per_message: int | None = None
    sample: int | None = SAMPLE
    seed: int = 0

    @property
    def added_per_message(self) -> int:
        """Tokens that are added for each message where no template is applied."""
        return TOKENS_PER_MESSAGE if self.per_message is None else self.per_message


class Measured(Immutable):
    """What is known of the token lengths of files.

    scan : samples, and how they were read; sequences : that trainers read of them, two of a preference pair
    mean : low, expected and high tokens of a sequence; an 80 % range where a sample was tokenised
    tokenised : sequences whose tokens were counted by a tokenizer; counted : whether all are known
    per_message : tokens that are added for each message without a template
    """

    sources: tuple[Source, ...]
    scan: Scan
    sequences: int
    mean: tuple[float, float, float]
    shortest: Extreme
    longest: Extreme
    histogram: Histogram
    tokenised: int
    counted: bool
    tokenizer: TokenCounter | None
    per_message: int


class _Estimate(Immutable):
    """Lengths in fine bins, the sum of all tokens (low, expected, high), and the two ends."""

    fine: Fine
    total: tuple[float, float, float]
    shortest: Extreme
    longest: Extreme
    tokenised: int


def measure(paths: Sequence[Path], asked: Asked, said: Said) -> Measured:
    """Token lengths of the samples in some files, read as one data set.

    said : is told how many bytes of how many have been read

    Raises
    ------
    InputError : a file that cannot be read, or without samples; a tokenizer that is none; a library that is missing
    """
    sources = tuple(open_source(path) for path in paths)
    with ExitStack() as stack:
        spill = stack.enter_context(Spill())
        counter = None
        if asked.tokenizer is not None:
            counter = stack.enter_context(TokenCounter(asked.tokenizer, asked.per_message))
        found = scan(sources, asked.field, spill, said, counter.count if counter and asked.sample is None else None)
        if not spill.count:
            raise InputError(_nothing(sources))
        estimate = _Pass(sources, asked, found, counter).estimate()
        total, sequences = estimate.total[1], spill.count
        ends = estimate.shortest.tokens, estimate.longest.tokens
        return Measured(
            sources=sources,
            scan=found,
            sequences=sequences,
            mean=(estimate.total[0] / sequences, total / sequences, estimate.total[2] / sequences),
            shortest=estimate.shortest,
            longest=estimate.longest,
            histogram=histogram(estimate.fine, total, *ends),
            tokenised=estimate.tokenised,
            counted=estimate.total[0] == estimate.total[2],
            tokenizer=counter,
            per_message=asked.added_per_message,
        )


def _nothing(sources: Sequence[Source]) -> list[Problem]:
    """What to say of files without a sample: the first rows with the reason."""
    hint = "--field NAME names the key that holds the text, the messages or the token ids"
    problems = [problem for source in sources for problem in source.broken.problems[:3]]
    named = [Problem(problem.message, problem.location, hint) for problem in problems[:1]] + problems[1:]
    return named or [Problem("the file has no samples", Location(str(sources[0].path)), hint)]


class _Pass(Immutable):
    """What is known after a pass over the files, to make an estimate of.

    counted : tokens of sequences that were tokenised after the pass, by file, place and part
    """

    sources: Sequence[Source]
    asked: Asked
    found: Scan
    counter: TokenCounter | None
    counted: dict[tuple[int, int, int], int] = msgspec.field(default_factory=dict)

    def estimate(self) -> _Estimate:
        """Lengths of all sequences, as exactly as is asked and possible."""
        if self.counter is None:
            return self._assumed()
        picks = picked(self.found.spill, self.asked.sample or SAMPLE, self.asked.seed)
        tokens = self._tokens(picks.records)
        if picks.whole:
            return self._counted(picks, tokens)
        return self._extrapolated(picks, tokens)

    def _counted(self, picks: Picks, tokens: NDArray[np.float64]) -> _Estimate:
        """All are known, from the files or because so few were not that every one of them was tokenised."""
        fine, ends = Fine(), Extremes()
        total = self._add_known(fine, ends, _with_tokens(picks.records, tokens))
        tokenised = picks.records.size or self._known_by_tokenizer()
        return _Estimate(fine, (total,) * 3, ends.shortest(self._tokens), ends.longest(self._tokens), tokenised)

    def _known_by_tokenizer(self) -> int:
        """Sequences that the pass tokenised: all but those that are token ids."""
        return self.found.spill.count - self.found.kinds["token ids"]

    def _assumed(self) -> _Estimate:
        """Tokens from bytes, without a tokenizer."""
        per_message = self.asked.added_per_message
        fine, ends = Fine(), Extremes()
        totals = np.full(3, self._add_known(fine, ends))
        for chunk in self._unknown():
            low, expected, high = (assumed_tokens(chunk, per_message, level) for level in range(3))
            totals += (low.sum(), expected.sum(), high.sum())
            fine.add(expected)
            ends.add(chunk, expected, expected)
        low, expected, high = totals.tolist()
        return _Estimate(fine, (low, expected, high), ends.shortest(None), ends.longest(None), 0)

    def _extrapolated(self, picks: Picks, tokens: NDArray[np.float64]) -> _Estimate:
        """A sample was tokenised; a law that is fitted to it gives the others, spread as the sample was."""
        assert self.counter
        law = fitted(picks, tokens, self.counter.per_message)
        fine, ends = Fine(), Extremes()
        known, predicted, picked_keys = self._add_known(fine, ends), 0.0, keys_of(picks.records)
        _, once = np.unique(picked_keys, return_index=True)
        fine.add(tokens[once])
        ends.add_known(_with_tokens(picks.records, tokens))
        binned = np.zeros((KINDS, BANDS, fine.counts.size))
        for every in self._unknown():
            predicted += float(law.tokens(every).sum())
            chunk = every[~np.isin(keys_of(every), picked_keys)]
            lengths, kinds = law.tokens(chunk), text_kinds(chunk)
            np.add.at(binned, (kinds, law.bands(kinds, lengths), find_bins(lengths)), 1.0)
            ends.add(chunk, lengths, bound(lengths, law.highest[kinds]))
        for kind in range(KINDS):
            for band in range(BANDS):
                left = law.residuals[kind][band]
                fine.add_spread(binned[kind, band], left.logs, left.weights)
        rest, error = law.remainder(picks, tokens)
        total = known + predicted + rest
        span = (total - Z80 * error, total, total + Z80 * error)
        return _Estimate(fine, span, ends.shortest(self._tokens), ends.longest(self._tokens), picks.records.size)

    def _add_known(self, fine: Fine, ends: Extremes, more: Records | None = None) -> float:
        """Adds the sequences whose tokens are known; the sum of these."""
        total = 0.0
        known = (chunk[chunk["tokens"] != UNKNOWN] for chunk in self.found.spill.chunks())
        for chunk in known if more is None else chain(known, [more]):
            fine.add(chunk["tokens"].astype(np.float64))
            ends.add_known(chunk)
            total += float(chunk["tokens"].sum())
        return total

    def _unknown(self) -> Iterator[Records]:
        return unknown(self.found.spill)

    def _tokens(self, records: Records) -> NDArray[np.float64]:
        """Tokens of some records; the rows of those that were not counted before are read again."""
        assert self.counter
        keys = list(zip(*(records[name].tolist() for name in ("file", "place", "part")), strict=True))
        first = {key: place for place, key in enumerate(keys) if key not in self.counted}  # long ones are drawn often
        new = np.array(sorted(first.values()), dtype=np.intp)
        pieces = read_pieces(self.sources, self.asked.field, records[new])
        for batch in in_batches(pieces, lambda each: len(each[1].content)):
            counted = self.counter.count([piece for _, piece in batch])
            self.counted.update((keys[new[place]], tokens) for (place, _), tokens in zip(batch, counted, strict=True))
        return np.array([self.counted[key] for key in keys], dtype=np.float64)


def _with_tokens(records: Records, tokens: NDArray[np.float64]) -> Records:
    """The same records, their tokens known."""
    known = records.copy()
    known["tokens"] = tokens
    return known


# The profile, in memory and as a YAML file.

NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_PER_LINE = 12
_SHOWN_FILES = 3


def profile_name(path: Path) -> str:
    """A name that a profile of the file can have."""
    return re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-") or "data"


def build_profile(measured: Measured, name: str) -> DatasetProfile:
    """Build the profile of what was measured. name : see `NAME`"""
    low, mean, high = measured.mean
    source = {"title": _title(measured), "counted": how_counted(measured)}
    if measured.tokenizer is not None:
        source["tokenizer"] = str(measured.tokenizer.path)
    assumed = measured.tokenizer is None and not measured.counted
    found = measured.histogram
    return DatasetProfile(
        name=name,
        samples=measured.scan.samples,
        mean_tokens=round(mean, 4),
        source=source,
        min_tokens=round(measured.shortest.tokens),
        max_tokens=round(measured.longest.tokens),
        mean_tokens_low=round(low, 4) if assumed else None,
        mean_tokens_high=round(high, 4) if assumed else None,
        sequences_per_sample=max(round(measured.sequences / measured.scan.samples), 1),
        histogram=LengthHistogram(lengths=found.lengths, counts=tuple(map(float, found.counts))),
    )


def _title(measured: Measured) -> str:
    names = [source.path.name for source in measured.sources]
    more = f" and {len(names) - _SHOWN_FILES} more" if len(names) > _SHOWN_FILES else ""
    return f"{', '.join(names[:_SHOWN_FILES])}{more}"


def how_counted(measured: Measured) -> str:
    """How tokens came about, in words."""
    if measured.tokenizer is None:
        return "token ids" if measured.counted else "assumed from bytes, without a tokenizer"
    if measured.counted:
        return "every sequence tokenised"
    return f"{measured.tokenised:,} of {measured.sequences:,} sequences tokenised, the others by their bytes"


def profile_yaml(profile: DatasetProfile, remarks: Sequence[str]) -> str:
    """The file of a profile. remarks : sentences that stand in it as comments"""
    found = profile.histogram
    assert found is not None
    lines = [*(f"# {_plain(remark)}" for remark in remarks), f"name: {profile.name}"]
    for key in ("samples", "sequences_per_sample", "mean_tokens", "mean_tokens_low", "mean_tokens_high"):
        value = getattr(profile, key)
        lines += [f"{key}: {value}"] if value is not None else []
    lines += [f"min_tokens: {profile.min_tokens}", f"max_tokens: {profile.max_tokens}"]
    lines += ["histogram:", *_list("lengths", found.lengths), *_list("counts", [int(each) for each in found.counts])]
    lines += ["source:", *(f"  {key}: {_quoted(text)}" for key, text in profile.source.items())]
    return "\n".join(lines) + "\n"


def _list(key: str, values: Sequence[int]) -> list[str]:
    rows = [values[start : start + _PER_LINE] for start in range(0, len(values), _PER_LINE)]
    return [f"  {key}: [", *(f"    {', '.join(map(str, row))}," for row in rows), "  ]"]


def _quoted(text: str) -> str:
    escaped = _plain(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _plain(text: str) -> str:
    """One line that can be shown: names of files may hold anything."""
    return "".join(each if each.isprintable() else " " for each in text)


# Remarks on measured lengths.

_SHOWN_REASONS = 2


def remarks(measured: Measured) -> Iterator[str]:
    """Rows that were left out, what was not counted, and samples of several kinds."""
    unread = sum(source.broken.count for source in measured.sources)
    if unread:
        rows = f"{unread:,} row{'s' if unread > 1 else ''} of {unread + measured.scan.samples:,}"
        yield f"{rows} could not be read and {'are' if unread > 1 else 'is'} left out"
    if measured.tokenizer is not None and not measured.longest.exact:
        yield "many sequences are about as long as the longest: a longer one than was tokenised is possible"
    refused = measured.tokenizer.refused if measured.tokenizer else {}
    for reason, times in list(refused.items())[:_SHOWN_REASONS]:
        yield f"the chat template refused {times:,} of the tokenised conversations, counted without it: {reason}"
    if measured.scan.images:
        yield f"{measured.scan.images:,} images are not counted: their tokens depend on the model"
    if len(measured.scan.kinds) > 1:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in measured.scan.kinds.most_common())
        yield f"samples of several kinds: {kinds}"


# A file in place of a profile: its tokens are counted when a scenario names it.


class CountedSamples(Immutable):
    """The profile of a file of samples, and what is to be known of its figures."""

    profile: DatasetProfile
    remarks: tuple[str, ...]


def counted_samples(path: Path, tokenizer: Path | None, finder: Finder) -> CountedSamples:
    """Token lengths of a file; each file is counted once for a finder.

    tokenizer : a tokenizer.json or a folder with one; None: tokens are assumed from bytes

    Raises
    ------
    InputError : a file that cannot be read, or without samples; a tokenizer that is none; a library that is missing
    """
    return finder.once(f"samples by {tokenizer or 'bytes'}", path, partial(_counted, tokenizer))


def _counted(tokenizer: Path | None, path: Path) -> CountedSamples:
    found = measure([path], Asked(tokenizer), lambda done, total: None)
    return CountedSamples(build_profile(found, profile_name(path)), tuple(remarks(found)))
