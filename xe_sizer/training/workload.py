"""How much there is to train: token lengths, sequences, optimizer steps."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Problem
from xe_sizer.immutable import Immutable
from xe_sizer.profiles.catalogue import load_dataset
from xe_sizer.profiles.text import at_home
from xe_sizer.scenario.provenance import relative
from xe_sizer.scenario.schema import DataSection, Histogram
from xe_sizer.software.stack import PARALLEL_WAYS
from xe_sizer.training.token_lengths import constant_lengths, histogram_lengths, mixed_lengths, statistics_lengths
from xe_sizer.units import whole_percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xe_sizer.profiles.dataset import DatasetProfile
    from xe_sizer.profiles.finder import Finder
    from xe_sizer.scenario.caller import Caller
    from xe_sizer.scenario.scenario import Scenario
    from xe_sizer.software.stack import Stack
    from xe_sizer.training.token_lengths import TokenLengths

# The data set that a scenario names: a profile, or a file of samples whose tokens are counted.

PROFILE_SUFFIXES = (".yaml", ".yml")
COUNTED_SUFFIXES = (".jsonl", ".json", ".parquet")
OTHER_SUFFIXES = (".arrow", ".csv", ".tsv", ".txt", ".gz", ".zst")
STATISTICS_EXAMPLE = (("samples", "50000"), ("mean_tokens", "350"), ("max_tokens", "2048"))


class KnownData(Immutable):
    """A data set's profile, whether its samples were counted just now, and what is to be known of its figures."""

    profile: DatasetProfile
    counted: bool = False
    remarks: tuple[str, ...] = ()


def known_data(scenario: Scenario, finder: Finder) -> KnownData | None:
    """The data set that the scenario names, None where it names none. Raises InputError."""
    data = scenario.values.data
    key, name = ("profile", data.profile) if data.file is None else ("file", data.file)
    if name is None:
        return None
    path = _path(scenario, f"data.{key}", name)
    suffix = path.suffix.lower()
    if key == "file" or suffix in COUNTED_SUFFIXES:
        return _counted(scenario, key, name, path, finder)
    if suffix in OTHER_SUFFIXES or (path.is_file() and suffix not in PROFILE_SUFFIXES):
        raise InputError(_other_file(scenario, name, path))
    where = partial(scenario.locate, ("data", "profile"))
    return KnownData(load_dataset(relative(scenario, "data.profile", name), where, finder))


def _path(scenario: Scenario, key: str, name: str) -> Path:
    """Where a file is: a path in a scenario starts at the scenario's folder."""
    return (scenario.folder_for(key) or Path()) / at_home(name)


def _counted(scenario: Scenario, key: str, name: str, path: Path, finder: Finder) -> KnownData:
    """A file of samples, counted with the scenario's tokenizer or assumed from bytes. Raises InputError."""
    from xe_sizer.datasets.profile import counted_samples

    if not path.exists():
        raise InputError(Problem(f"no such file: {path}", scenario.locate(("data", key)), _statistics_hint(scenario)))
    tokenizer = scenario.values.data.tokenizer
    by = None if tokenizer is None else _path(scenario, "data.tokenizer", tokenizer)
    if by is not None and not by.exists():
        hint = "the path of a tokenizer.json, or of a folder with one; without it tokens are assumed from bytes"
        raise InputError(Problem(f"no such file or folder: {by}", scenario.locate(("data", "tokenizer")), hint))
    found = counted_samples(path, by, finder)
    return KnownData(found.profile, counted=True, remarks=found.remarks)


def _other_file(scenario: Scenario, name: str, path: Path) -> Problem:
    """What to say to a file of a format that is not counted."""
    known = path.exists()
    message = f"'{name}' is no data set profile (.yaml) and no file of samples" if known else f"no such file: {path}"
    return Problem(message, scenario.locate(("data", "profile")), _statistics_hint(scenario))


def _statistics_hint(scenario: Scenario) -> str:
    keys = (scenario.caller.setting(f"data.{key}", number) for key, number in STATISTICS_EXAMPLE)
    return (
        "samples are read from .jsonl, .json and .parquet; or say how long they are, for example "
        f"{' '.join(keys)}, or name a data set profile (.yaml) that does"
    )


DEFAULT_SEQ_LEN = 4096
DEFAULT_STEPS = 1000
PAIR = 2  # sequences of a sample that is a chosen and a rejected answer
PAIRS_HAVE = ("chosen_tokens", "rejected_tokens")  # statistics that pairs alone have


class Workload(Immutable):
    """Lengths of the samples, samples in the data set, batches and steps; what was assumed, and what it gives to say.

    known_samples : those in the data set, None where nobody said: then `samples` are those of the steps
    lengths_assumed : nothing says how long sequences are, neither the job nor its data
    source : of the data set's statistics
    """

    lengths: TokenLengths
    samples: float
    known_samples: float | None
    seq_len: int
    padding: str
    global_batch: int
    steps: int
    defaults: dict[str, object]
    warnings: tuple[str, ...]
    source: str | None
    lengths_assumed: bool = False


def _statistics(data: DataSection, profile: DatasetProfile) -> DataSection:
    """Statistics of the scenario, those of its data set profile filled in under them.

    What is known of the data set stays known: a `max_tokens` below its longest sample cuts samples there, see `_cut`.
    """
    known = (one for one in (data.max_tokens, profile.max_tokens) if one is not None)
    found = None if data.mean_tokens or data.min_tokens else profile.histogram
    return DataSection(
        histogram=None if found is None else Histogram(lengths=found.lengths, counts=found.counts),
        samples=data.samples or profile.samples,
        mean_tokens=data.mean_tokens or profile.tokens_read,
        chosen_tokens=data.chosen_tokens,
        rejected_tokens=data.rejected_tokens,
        min_tokens=data.min_tokens or profile.min_tokens,
        max_tokens=max(known, default=None),
    )


def _cut(lengths: TokenLengths, data: DataSection, profile: DatasetProfile | None) -> TokenLengths:
    """The samples as long as the scenario lets them be, where their data set has longer ones."""
    known = None if profile is None else profile.max_tokens
    return lengths if known is None or data.max_tokens is None else lengths.truncated(data.max_tokens)


def _lengths(data: DataSection, seq_len: int, sequences_per_sample: int) -> tuple[TokenLengths, float | None]:
    """Distribution of the tokens per sample, and the number of samples where it is known."""
    if data.histogram is not None:
        lengths = histogram_lengths(data.histogram.lengths, data.histogram.counts)
        return lengths, float(data.samples or sum(data.histogram.counts) / sequences_per_sample)
    if sequences_per_sample == PAIR and (data.chosen_tokens or data.rejected_tokens):
        return _of_pairs(data), data.samples
    mean = data.mean_tokens
    if mean is None and data.tokens and data.samples:
        mean = data.tokens / (data.samples * sequences_per_sample)
    if mean is not None:
        samples = data.samples or (data.tokens / (mean * sequences_per_sample) if data.tokens else None)
        return statistics_lengths(samples, mean, data.min_tokens, data.max_tokens), samples
    samples = data.samples or (data.tokens / (seq_len * sequences_per_sample) if data.tokens else None)
    return constant_lengths(seq_len), samples


def _of_pairs(data: DataSection) -> TokenLengths:
    """Lengths of chosen and rejected answers with their prompts; of which nobody said one has those of the other."""
    stated = (data.chosen_tokens, data.rejected_tokens)
    means = [each or data.mean_tokens or next(filter(None, stated)) for each in stated]
    first, second = (statistics_lengths(data.samples, each, data.min_tokens, data.max_tokens) for each in means)
    return mixed_lengths(first, second)


def _steps(
    scenario: Scenario, samples: float | None, global_batch: int, packed_share: float
) -> tuple[int, dict[str, object], list[str]]:
    """Optimizer steps, and what was assumed to get them."""
    train = scenario.values.train
    if train.steps is not None:
        return train.steps, {}, []
    if samples is None:
        message = f"neither the steps nor the size of the data set is given: {DEFAULT_STEPS:,} steps assumed"
        return DEFAULT_STEPS, {"train.steps": DEFAULT_STEPS}, [message]
    epochs = train.epochs or 1.0
    sequences = samples * packed_share * epochs
    assumed: dict[str, object] = {} if train.epochs else {"train.epochs": 1.0}
    return max(-int(-sequences // global_batch), 1), assumed, []


def workload(
    scenario: Scenario, seq_len: int, global_batch: int, padding: str, finder: Finder, sequences_per_sample: int = 1
) -> Workload:
    """Build the job's data and steps.

    steps = ceil(epochs x samples / global batch); packing first turns samples into sequences of `seq_len`. Lengths are
    those of sequences, of which a sample may have several.

    Raises
    ------
    InputError : unknown data set; problems in its file or in the statistics
    """
    asked, found = scenario.values.data, known_data(scenario, finder)
    profile = None if found is None else found.profile
    data = asked if profile is None else _statistics(asked, profile)
    lengths, samples = _lengths(data, seq_len, sequences_per_sample)
    lengths = _cut(lengths, asked, profile)
    packed_share = lengths.mean / seq_len if padding == "packed" else 1.0
    steps, defaults, warnings = _steps(scenario, samples, global_batch, packed_share)
    for key in PAIRS_HAVE:
        if f"data.{key}" in scenario.origin and sequences_per_sample != PAIR:
            warnings.append(
                f"{scenario.caller.setting(f'data.{key}')} has no effect on a job whose samples are no pairs"
            )
    warnings += _of_data(found, asked, sequences_per_sample, scenario.caller)
    known = data.max_tokens is not None or data.histogram is not None
    if data.mean_tokens is not None and not known:
        warnings.append(f"no longest sample given: {lengths.assumption}, the longest {lengths.longest:,.0f} tokens")
    if profile is not None and asked.mean_tokens is None:
        defaults["data.mean_tokens"] = profile.tokens_read
    if known or _cut_share(lengths, seq_len) >= SAID:
        warnings += cut_samples(lengths, seq_len, padding)
    return Workload(
        lengths=lengths,
        samples=samples or float(steps * global_batch),
        known_samples=samples,
        seq_len=seq_len,
        padding=padding,
        global_batch=global_batch,
        steps=steps,
        defaults=defaults,
        warnings=tuple(warnings),
        source=None if profile is None else profile.described,
        lengths_assumed=_lengths_assumed(scenario),
    )


def _lengths_assumed(scenario: Scenario) -> bool:
    """Whether nothing says how long sequences are, neither the job nor its data."""
    data = scenario.values.data
    stated = (data.mean_tokens, data.chosen_tokens, data.rejected_tokens, data.max_tokens)
    told = (scenario.values.train.seq_len, data.profile, data.file, data.histogram, *stated)
    return all(one is None for one in told)


SAID = 0.01  # chosen: share of the tokens from which it is said that samples of an assumed length are cut


def _cut_share(lengths: TokenLengths, seq_len: int) -> float:
    """Share of the tokens that are beyond the sequences and not trained on."""
    return 1.0 - lengths.truncated(seq_len).mean / lengths.mean


def cut_samples(lengths: TokenLengths, seq_len: int, padding: str) -> Iterator[str]:
    """What to say where samples are longer than a sequence."""
    if lengths.longest > seq_len and padding != "packed":
        share, longest = share_words(lengths.share_above(seq_len)), f"the longest has {lengths.longest:,.0f}"
        lost = share_words(_cut_share(lengths, seq_len))
        yield f"samples longer than {seq_len:,} tokens ({share} of them, {longest}) are cut: {lost} of the tokens"


def _of_data(found: KnownData | None, asked: DataSection, sequences_per_sample: int, caller: Caller) -> Iterator[str]:
    """What a data set gives to say: how its tokens came about, and what of the scenario it has no use for."""
    if asked.tokenizer is not None and not (found and found.counted):
        setting, samples = caller.setting("data.tokenizer"), caller.setting("data.profile", "train.jsonl")
        yield f"{setting} has no effect without a file of samples: {samples}, for example"
    if found is None:
        return
    profile = found.profile
    low, high = profile.mean_tokens_low, profile.mean_tokens_high
    if low is not None and high is not None and asked.mean_tokens is None:
        mean = f"{profile.mean_tokens:,.0f} a sequence, between {low:,.0f} and {high:,.0f}"
        counts = caller.setting("data.tokenizer") if found.counted else "a tokenizer"
        yield f"tokens of {profile.name} are assumed from bytes: {mean}; {counts} counts them"
    if profile.sequences_per_sample > sequences_per_sample:
        yield f"{profile.name} has {profile.sequences_per_sample} sequences a sample: this job reads one of them"
    yield from found.remarks


def share_words(share: float) -> str:
    """A share as per cent, with a decimal where it is small."""
    if share < 0.001:
        return "less than 0.1 %"
    return f"{100 * share:.1f} %" if share < 0.1 else whole_percent(share)


# The sequences of an optimizer step: as given, as micro-batches, accumulation and replicas make them, or as usual.

DEFAULT_GLOBAL_BATCH = 128  # chosen: sequences of a step where neither somebody nor the stack says how many


def count_replicas(scenario: Scenario, gpus: int | None, stack: Stack) -> int | None:
    """Data-parallel replicas that are given, or that the GPUs come to; None where the search chooses them [-]."""
    layout = scenario.values.layout
    dp: int | None = layout.dp
    if dp is not None or gpus is None:
        return dp
    sizes = {key: getattr(layout, key) for key in ("tp", "pp", "cp")}
    if any(size is None and getattr(stack.supports, PARALLEL_WAYS[key]) for key, size in sizes.items()):
        return None
    return max(gpus // int(math.prod(size or 1 for size in sizes.values())), 1)


def global_batch(scenario: Scenario, gpus: int | None, stack: Stack) -> int | None:
    """Sequences of a step over all GPUs [-]; None where they follow the layout that a search chooses.

    Where nobody gives them they are micro-batch x accumulation x replicas, as far as these are given.
    """
    train = scenario.values.train
    whole: int | None = train.global_batch
    if whole is not None:
        return whole
    if assumes_batch(scenario):
        return default_global_batch(scenario, gpus, stack)
    replicas = count_replicas(scenario, gpus, stack)
    together = (train.micro_batch or 1) * (train.grad_accum or 1)
    return None if replicas is None else together * replicas


def assumes_batch(scenario: Scenario) -> bool:
    """Whether the global batch is assumed: nobody gives it, nor what makes it."""
    train = scenario.values.train
    return train.global_batch is None and (train.micro_batch is None or train.grad_accum is None)


def default_global_batch(scenario: Scenario, gpus: int | None, stack: Stack) -> int:
    """The smallest batch at or above the usual one that can be split: over micro-batches, steps, replicas and GPUs.

    The usual one is what each of the GPUs takes by the stack's own defaults, where it has such and the GPUs are known.
    GPUs: their odd factor must go into the batch or the model; powers of two find their place in any layout.
    """
    each, odd = stack.defaults.batch_per_gpu, gpus or 1
    usual = DEFAULT_GLOBAL_BATCH if each is None or gpus is None else each * gpus
    while odd % 2 == 0:
        odd //= 2
    train, dp = scenario.values.train, scenario.values.layout.dp
    parts = (train.micro_batch or 1) * (train.grad_accum or 1)
    share = parts * (dp or 1)
    if share % odd == 0 and (dp or train.grad_accum is None):
        return math.ceil(usual / share) * share
    step = math.lcm(share, odd)
    if train.grad_accum is not None:
        step = math.lcm(step, parts * (count_replicas(scenario, gpus, stack) or 1))
    return step << max(math.ceil(math.log2(usual / step)), 0)
