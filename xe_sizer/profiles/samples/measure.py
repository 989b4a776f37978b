"""Token lengths of files of samples: counted, estimated from a sample that is tokenised, or assumed from bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.frozen import frozen
from xe_sizer.profiles.samples.batches import in_batches
from xe_sizer.profiles.samples.distribution import Fine, bin_of, histogram
from xe_sizer.profiles.samples.extremes import Extremes, bound
from xe_sizer.profiles.samples.fit import BANDS, KINDS, assumed_tokens, fitted, kind_of
from xe_sizer.profiles.samples.opened import open_source
from xe_sizer.profiles.samples.picks import picked, unknown
from xe_sizer.profiles.samples.scan import pieces_of, scan
from xe_sizer.profiles.samples.spill import UNKNOWN, Spill, keys_of
from xe_sizer.profiles.samples.tokenizer import TOKENS_PER_MESSAGE, TokenCounter

if TYPE_CHECKING:
    from xe_sizer.profiles.samples.distribution import Histogram
    from xe_sizer.profiles.samples.extremes import Extreme
    from xe_sizer.profiles.samples.picks import Picks
    from xe_sizer.profiles.samples.rows import Source
    from xe_sizer.profiles.samples.scan import Scan
    from xe_sizer.profiles.samples.spill import Records

SAMPLE = 1000
Z80 = 1.2816  # standard errors to each side that hold 80 % of a normal distribution
Said = Callable[[int, int], None]


@frozen
class Asked:
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


@frozen
class Measured:
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


@frozen
class _Estimate:
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


@frozen
class _Pass:
    """What is known after a pass over the files, to make an estimate of.

    counted : tokens of sequences that were tokenised after the pass, by file, place and part
    """

    sources: Sequence[Source]
    asked: Asked
    found: Scan
    counter: TokenCounter | None
    counted: dict[tuple[int, int, int], int] = field(default_factory=dict)

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
            lengths, kinds = law.tokens(chunk), kind_of(chunk)
            np.add.at(binned, (kinds, law.bands(kinds, lengths), bin_of(lengths)), 1.0)
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
        pieces = pieces_of(self.sources, self.asked.field, records[new])
        for batch in in_batches(pieces, lambda each: len(each[1].content)):
            counted = self.counter.count([piece for _, piece in batch])
            self.counted.update((keys[new[place]], tokens) for (place, _), tokens in zip(batch, counted, strict=True))
        return np.array([self.counted[key] for key in keys], dtype=np.float64)


def _with_tokens(records: Records, tokens: NDArray[np.float64]) -> Records:
    """The same records, their tokens known."""
    known = records.copy()
    known["tokens"] = tokens
    return known
