"""Measurement records: what a file of published or own measurements may hold, and how it is read.

A file is a YAML list, a JSON list or JSON Lines. Keys that xe-sizer knows must have the right type; keys that it
does not know are passed over and reported once, since publications state more than any schema foresees.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from xe_sizer.errors import InputError, Location, Problem, collecting, did_you_mean, file_order
from xe_sizer.immutable import Immutable
from xe_sizer.profiles.convert import convert
from xe_sizer.profiles.text import read_text
from xe_sizer.profiles.yaml_reader import load_yaml
from xe_sizer.units import GIB, HOUR_S, MINUTE_S

if TYPE_CHECKING:
    from xe_sizer.profiles.convert import Locate

# Sections of a record.

Count = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
Degree = Annotated[int, msgspec.Meta(ge=0, le=10**6)]
Size = Annotated[int, msgspec.Meta(ge=0, le=10**7)]
Layers = Annotated[int, msgspec.Meta(ge=0, le=10**4)]
Total = Annotated[float, msgspec.Meta(ge=0, le=1e18)]
Time = Annotated[float, msgspec.Meta(gt=1e-9, le=1e12)]
Rate = Annotated[float, msgspec.Meta(gt=1e-9, le=1e12)]
Gib = Annotated[float, msgspec.Meta(gt=1e-6, le=1e9)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
HitShare = Annotated[float, msgspec.Meta(ge=0, le=1)]
Spread = Annotated[float, msgspec.Meta(ge=0, le=20)]


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes that define a model or override a known one's."""

    layers: Layers | None = None
    hidden: Size | None = None
    heads: Size | None = None
    kv_heads: Size | None = None
    head_dim: Size | None = None
    ffn: Size | None = None
    vocab: Size | None = None
    tied_embeddings: bool | None = None
    params: Total | None = None
    experts: Size | None = None
    experts_per_token: Size | None = None


class LayoutStated(msgspec.Struct, frozen=True, kw_only=True):
    tp: Degree | None = None
    pp: Degree | None = None
    vpp: Degree | None = None
    cp: Degree | None = None
    ep: Degree | None = None
    dp: Degree | None = None
    zero: Degree | None = None
    zero_group: Degree | None = None
    sequence_parallel: bool | None = None
    megatron_fsdp: Degree | None = None
    attention_dp: Degree | None = None
    moe_tp: Degree | None = None
    expert_tp: Degree | None = None
    cp_kind: str | None = None
    first_stage_layers: Degree | None = None
    last_stage_layers: Degree | None = None


class Batch(msgspec.Struct, frozen=True, kw_only=True, rename={"total": "global"}):
    """What one optimizer step takes; of reinforcement learning also an iteration's prompts, `group` answers to each."""

    micro: Degree | None = None
    total: Degree | None = None
    grad_accum: Degree | None = None
    tokens: Total | str | None = None
    prompts: Degree | None = None
    group: Degree | None = None


class Lora(msgspec.Struct, frozen=True, kw_only=True):
    rank: Degree | None = None
    targets: str | list[str] | None = None
    dropout: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None = None
    modules_to_save: str | list[str] | None = None
    dora: bool | None = None


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """The generating side of reinforcement learning; `gpu` where it is another kind than the trainer's.

    partial : answers go on while the weights change; staleness : updates that weights may be behind those that learn
    offload : of the trainer, what waits in host memory while answers are written: none, optimizer or params (with it)
    """

    engine: str | None = None
    gpu: str | None = None
    gpus: Degree | None = None
    tp: Degree | None = None
    pp: Degree | None = None
    ep: Degree | None = None
    gpu_memory_utilization: Share | None = None
    weights: str | None = None
    max_sequences: Degree | None = None
    partial: bool | None = None
    staleness: Degree | None = None
    offload: str | None = None


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured; times as the source states them.

    iteration_s : from one batch of prompts to the next; its phases: rollout_s, logprob_s (of the policy before the
    update, the reference and a critic), reward_s, train_s (all updates of policy and critic), sync_s
    memory_stage : last where a rank of the last pipeline stage says its memory, as Megatron-LM's logs do; else the
    worst GPU's
    forward_ms : one forward of a batch without answers, neither tokenised nor sent
    """

    step_time_s: Time | None = None
    iteration_s: Time | None = None
    rollout_s: Time | None = None
    logprob_s: Time | None = None
    reward_s: Time | None = None
    train_s: Time | None = None
    sync_s: Time | None = None
    tokens_per_s_per_gpu: Rate | None = None
    tokens_per_s_total: Rate | None = None
    samples_per_s: Rate | None = None
    minutes: Time | None = None
    seconds: Time | None = None
    steps: Total | None = None
    epochs: Total | None = None
    rows: Total | None = None
    tokens: Total | None = None
    gpu_hours: Time | None = None
    peak_memory_gib: Gib | None = None
    reserved_memory_gib: Gib | None = None
    nvidia_smi_gib: Gib | None = None
    memory_metric: str | None = None
    memory_stage: Literal["last"] | None = None
    oom: bool | None = None
    fits: bool | None = None
    ttft_ms: Time | None = None
    prefill_ms: Time | None = None
    tpot_ms: Time | None = None
    tpot_ms_p50: Time | None = None
    output_tokens_per_s: Rate | None = None
    total_tokens_per_s: Rate | None = None
    requests_per_s: Rate | None = None
    output_tokens_per_s_per_gpu: Rate | None = None
    request_latency_s: Time | None = None
    forward_ms: Time | None = None


# Records and their files.

SHIPPED = Path(__file__).parent / "data"
"""The records that come with xe-sizer."""
ENDINGS = (".yaml", ".yml", ".jsonl", ".ndjson")
LINE_SUFFIXES = (".jsonl", ".ndjson")
INFERENCE = "inference"
_KNOWN_BUT_UNUSED = frozenset({
    "source", "interconnect", "trainable_params", "gpu_memory_gb", "gpu_memory_gib",
})  # fmt: skip


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement with the conditions that its source states; what it left out is None.

    date : of the run, a year or a year and a month
    overlap : what compute hides of the exchanges: on, off, or their names
    adapters : LoRA adapters of a service that requests ask for, each as often
    backend : the library that shares states out, where the stack runs on several
    mixed_precision : what autocast computes in, or no; what weights are loaded in is load_dtype
    gradient_dtype, reduce_dtype : what gradients are kept and exchanged in, as the keys of `train`
    statistic : of latencies, mean or median (p50); window_s : in which clients measure a load that runs on
    documents : texts of a request that gets no answer, each of `input_len` tokens; output_len is 0
    prefix_hit_share : of prompt tokens that were cached before, all but the last block of prompts that are the same
    dispatcher, redundant_experts, two_batch_overlap : of a served mixture, as the keys of `serve`
    expert_skew : of a mixture, served or trained; mtp_layers : that are trained behind the model's own
    capacity_factor, pad_to_capacity : of a mixture that learns, as the keys of `estimate`
    phase : prefill or decode, of replicas that do nothing else: their sequences are all in it
    speculative, draft_model : the method of speculative decoding, and what drafts
    draft_tokens, draft_depth, acceptance_rate : proposed in a step, positions of a tree, and the probability that each
    is kept, one for all positions or one for each
    """

    id: str
    job: str
    task: str | None = None
    measured: Measured = Measured()
    source: Any = None
    date: Any = None
    model: str | None = None
    shape: Shape = Shape()
    stack: str | None = None
    framework: str | None = None
    backend: str | None = None
    gpu: str | None = None
    gpus: Degree | None = None
    gpus_per_node: Degree | None = None
    interconnect: Any = None
    precision: str | None = None
    weights: str | None = None
    layout: LayoutStated = LayoutStated()
    pipeline_schedule: str | None = None
    batch: Batch = Batch()
    seq_len: Count | None = None
    target_len: Count | None = None
    mean_tokens: Total | None = None
    max_seq_len: Count | None = None
    longest_sample_tokens: Count | None = None
    dataset: str | None = None
    samples: Count | None = None
    packing: bool | None = None
    padding: str | None = None
    attention: str | None = None
    recompute: str | bool | None = None
    recompute_layers: Degree | None = None
    recompute_modules: tuple[str, ...] | None = None
    recompute_policy: str | None = None
    recompute_keep: tuple[str, ...] | None = None
    recompute_offload: tuple[str, ...] | None = None
    offload: str | bool | None = None
    optimizer: str | None = None
    optimizer_rank: Degree | None = None
    mtp_layers: Degree | None = None
    lora: Lora = Lora()
    fused_kernels: str | bool | tuple[str, ...] | None = None
    kernel: str | None = None
    load_dtype: str | None = None
    gradient_dtype: str | None = None
    reduce_dtype: str | None = None
    mixed_precision: str | bool | None = None
    overlap: str | bool | tuple[str, ...] | None = None
    fp8_recipe: str | None = None
    dropout: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None = None
    quantiser: str | None = None
    bits: Annotated[float, msgspec.Meta(gt=0, le=32)] | None = None
    compile: bool | str | None = None
    empty_cache_steps: Degree | None = None
    capacity_factor: Annotated[float, msgspec.Meta(gt=0)] | None = None
    pad_to_capacity: bool | None = None
    notes: str | None = None
    inferred: tuple[str, ...] | str | None = None
    virtual_tokens: Degree | None = None
    tp: Degree | None = None
    pp: Degree | None = None
    kv_cache: str | None = None
    sequences: Degree | None = None
    concurrency: Degree | None = None
    requests: Degree | None = None
    documents: Degree | None = None
    request_rate: Rate | None = None
    gpu_memory_utilization: Share | None = None
    max_step_tokens: Degree | None = None
    adapters: Degree | None = None
    window_s: Time | None = None
    statistic: str | None = None
    prefix_cache: bool | None = None
    prefix_hit_share: HitShare | None = None
    dispatcher: str | None = None
    redundant_experts: Annotated[int, msgspec.Meta(ge=0)] | None = None
    expert_skew: Annotated[float, msgspec.Meta(ge=1)] | None = None
    two_batch_overlap: bool | None = None
    phase: Literal["prefill", "decode"] | None = None
    speculative: str | None = None
    draft_model: str | None = None
    draft_tokens: Degree | None = None
    draft_depth: Degree | None = None
    acceptance_rate: tuple[Share, ...] | Share | None = None
    beams: Degree | None = None
    scheduler_recv_interval: Degree | None = None
    batch_wait_iters: Degree | None = None
    input_len: Total | None = None
    output_len: Total | None = None
    input_spread: Spread | None = None
    output_spread: Spread | None = None
    images: Degree | None = None
    image_size: str | None = None
    freeze: tuple[str, ...] | None = None
    reference: str | None = None
    teacher_model: str | None = None
    critic_model: str | None = None
    reward_model: str | None = None
    max_prompt_len: Count | None = None
    max_output_len: Count | None = None
    colocated: bool | None = None
    asynchronous: bool | None = None
    trainer_gpus: Degree | None = None
    rollout: Rollout = Rollout()

    @property
    def serves(self) -> bool:
        """Whether the record is of inference: said so, or a prompt or an answer has a length and nothing learns."""
        answers = self.input_len is not None or self.output_len is not None
        return self.job == INFERENCE or (answers and not self.reinforces)

    @property
    def encodes(self) -> bool:
        """Whether it is of inference without answers: embeddings, scores or classes."""
        return self.serves and self.output_len == 0

    @property
    def reinforces(self) -> bool:
        """Whether something learns from answers that it generates itself."""
        stated = (self.colocated, self.trainer_gpus, self.critic_model, self.batch.prompts, self.batch.group)
        return self.rollout != Rollout() or any(value is not None for value in stated)

    @property
    def title(self) -> str:
        """Title of the source, or where it stands."""
        if isinstance(self.source, Mapping):
            return str(self.source.get("title") or self.source.get("url") or "unnamed source")
        return str(self.source or "unnamed source")


class RecordFile(msgspec.Struct, frozen=True):
    """Records of one file and what a reader should know about it."""

    records: tuple[Record, ...]
    notes: tuple[Problem, ...] = ()


def read_records(path: Path) -> RecordFile:
    """All records of a file.

    Raises
    ------
    InputError : every malformed record of the file, each with its line
    """
    problems: list[Problem] = []
    unknown: Counter[str] = Counter()
    records = []
    for raw, locate in _entries(path, problems):
        with collecting(problems):
            records.append(_record(raw, locate, unknown))
    problems += _repeated(records, Location(str(path)))
    if problems:
        raise InputError(sorted(problems, key=file_order))
    return RecordFile(tuple(records), tuple(_notes(unknown, Location(str(path)))))


def read_all(paths: Sequence[Path]) -> RecordFile:
    """Read the records of all files, and of all record files in the folders among them.

    Raises
    ------
    InputError : every malformed record of every file; a folder, or files, without records
    """
    records: list[Record] = []
    notes: list[Problem] = []
    problems: list[Problem] = []
    for path in _record_files(paths):
        with collecting(problems):
            found = read_records(path)
            records += found.records
            notes += found.notes
    if paths and not problems and not records:
        problems.append(Problem("no measurement records", Location(", ".join(map(str, paths)))))
    if problems:
        raise InputError(problems)
    return RecordFile(tuple(records), tuple(notes))


def _record_files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        inside = sorted(file for ending in ENDINGS for file in path.glob(f"*{ending}"))
        if not inside:
            raise InputError(Problem(f"no {', '.join(ENDINGS)} file in this folder", Location(str(path))))
        yield from inside


def records_of(entries: Iterable[Mapping[str, Any]], place: Location) -> RecordFile:
    """Records given as plain data. Raises InputError with the problems of all of them, at this place."""
    problems: list[Problem] = []
    unknown: Counter[str] = Counter()
    records = []
    for raw in entries:
        with collecting(problems):
            records.append(_record(raw, lambda key_path, key=False: place, unknown))
    problems += _repeated(records, place)
    if problems:
        raise InputError(problems)
    return RecordFile(tuple(records), tuple(_notes(unknown, place)))


def _notes(unknown: Counter[str], place: Location) -> Iterator[Problem]:
    for key, count in sorted(unknown.items()):
        homes = [name for name, section in _sections(Record).items() if section and key in _sections(section)]
        hint = f"'{key}' belongs under {homes[0]}:" if homes else did_you_mean(key, _sections(Record))
        of = "1 record" if count == 1 else f"{count} records"
        yield Problem(f"note: the unknown key '{key}' of {of} is not used", place, hint)


def _entries(path: Path, problems: list[Problem]) -> Iterator[tuple[Any, Locate]]:
    """Plain data of each record, with what tells where its keys stand."""
    suffix = path.suffix.lower()
    is_yaml = suffix in (".yaml", ".yml")
    if not is_yaml and (suffix in LINE_SUFFIXES or read_text(path).lstrip().startswith("{")):
        yield from _lines(path, problems)
        return
    document = load_yaml(path, root=list)
    entries: Any = document.value
    for index, entry in enumerate(entries):
        yield entry, lambda key_path, key=False, index=index: document.locate((index, *key_path), key=key)


def _lines(path: Path, problems: list[Problem]) -> Iterator[tuple[Any, Locate]]:
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        where = Location(str(path), number)
        try:
            yield msgspec.json.decode(line), lambda key_path, key=False, where=where: where
        except RecursionError:
            problems.append(Problem("nested too deeply", where))
        except msgspec.DecodeError as error:
            problems.append(Problem(f"not valid JSON: {error}", where, "one record, a JSON object, on each line"))


def _record(raw: Any, locate: Locate, unknown: Counter[str]) -> Record:
    """One record; the batch of an inference record is a number of sequences. Raises InputError."""
    if not isinstance(raw, Mapping):
        raise InputError(Problem("a record must be a group of keys", locate(())))
    if isinstance(raw.get("batch"), int):
        raw = {"sequences" if key == "batch" else key: value for key, value in raw.items()}
    return convert(_known(raw, Record, unknown), Record, locate)


def _known(raw: Mapping[str, Any], struct: Any, unknown: Counter[str] | None = None) -> dict[str, Any]:
    """The keys that a struct has, whole numbers as such; others are counted, or passed over inside sections."""
    fields = _sections(struct)
    found = {}
    for key, value in raw.items():
        if key not in fields:
            if unknown is not None and key not in _KNOWN_BUT_UNUSED:
                unknown[key] += 1
            continue
        section = fields[key]
        if section is not None and value is None:
            continue
        found[key] = _known(value, section) if section and isinstance(value, Mapping) else _whole(value)
    return found


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


@cache
def _sections(struct: Any) -> dict[str, Any]:
    """Keys of a struct; the struct below each that has one, else None."""
    found = {}
    for field in msgspec.structs.fields(struct):
        is_struct = isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)
        found[field.encode_name] = field.type if is_struct else None
    return found


def _repeated(records: Iterable[Record], place: Location) -> Iterator[Problem]:
    for name, count in Counter(record.id for record in records).items():
        if count > 1:
            message = f"the id '{name}' is given {count} times"
            yield Problem(message, place, "ids tell records apart in the report")


# What was measured, as seconds of an optimizer step, bytes of a GPU and a verdict.

UNSTATED = "unstated"
METRICS = ("allocated", "reserved", "nvidia-smi", UNSTATED)


class Step(Immutable, eq=True):
    """The estimated step that a rate refers to.

    samples : sequences of one optimizer step; micro_batches : per replica and step
    tokens : tokens of a sequence as the source would count them; `lengths_stated` unless they are assumed
    """

    samples: int
    micro_batches: int
    tokens: float
    gpus: int
    lengths_stated: bool


class Conversion(Immutable, eq=True):
    """A measured figure in SI units, and how it was derived where the source does not state it as such."""

    value: float
    assumed: str | None = None


def measured_step_s(record: Record, step: Step, counts_micro_batches: bool) -> Conversion | None:
    """Seconds of one optimizer step, from the most direct figure that the record has; None where it has none.

    tokens_per_s_per_gpu        first where lengths are not stated: a rate in tokens depends least on them
    step_time_s                 as stated; x micro-batches where the framework calls each of them a step
    samples_per_s               global batch / rate
    minutes or seconds, steps   time / steps
    seconds, rows, epochs       global batch x time / (rows x epochs), one epoch where none is stated
    tokens_per_s_per_gpu        global batch x tokens / (rate x GPUs)
    gpu_hours, tokens           global batch x tokens x hours / (all tokens x GPUs)
    """
    m = record.measured
    share = step.micro_batches if counts_micro_batches else 1
    unit = "a step is one micro-batch in this framework" if counts_micro_batches and share > 1 else None
    whole_s = m.seconds or (m.minutes * MINUTE_S if m.minutes else None)
    rate = m.tokens_per_s_per_gpu * step.gpus if m.tokens_per_s_per_gpu else m.tokens_per_s_total
    if rate and not step.lengths_stated:
        return Conversion(step.samples * step.tokens / rate, "compared by tokens per second: lengths not stated")
    if m.step_time_s:
        return Conversion(m.step_time_s * share, unit)
    if m.samples_per_s:
        return Conversion(step.samples / m.samples_per_s)
    if whole_s and m.steps:
        return Conversion(whole_s / m.steps * share, unit or "the whole job's time over its steps")
    if rate:
        return Conversion(step.samples * step.tokens / rate)
    if whole_s and m.rows:
        epochs = "" if m.epochs else ", one epoch"
        return Conversion(step.samples * whole_s / (m.rows * (m.epochs or 1.0)), f"the whole job over its rows{epochs}")
    if m.gpu_hours and m.tokens:
        seconds = step.samples * step.tokens * m.gpu_hours * HOUR_S / (m.tokens * step.gpus)
        return Conversion(seconds, "GPU-hours of the whole job over its tokens")
    return None


def measured_peak_bytes(measured: Measured) -> tuple[Conversion, str] | None:
    """Peak memory of a GPU and its metric; a figure of no stated metric stays one.

    Publications that do not say print what PyTorch allocated or reserved about as often as what a monitor shows.
    """
    for value, metric in (
        (measured.peak_memory_gib, measured.memory_metric or UNSTATED),
        (measured.reserved_memory_gib, "reserved"),
        (measured.nvidia_smi_gib, "nvidia-smi"),
    ):
        if value:
            known = metric if metric in METRICS else "nvidia-smi"
            note = None if known == metric else f"memory metric '{metric}' read as nvidia-smi"
            if metric == UNSTATED:
                note = "memory metric not stated: between allocated and nvidia-smi"
            return Conversion(value * GIB, note), known
    return None


def measured_oom(measured: Measured) -> bool | None:
    """Whether the run met the end of memory: as stated, else false where anything else was measured."""
    if measured.oom is not None:
        return measured.oom
    figures = (
        measured.step_time_s, measured.samples_per_s, measured.tokens_per_s_per_gpu, measured.tokens_per_s_total,
        measured.minutes, measured.seconds, measured.gpu_hours, measured.peak_memory_gib, measured.nvidia_smi_gib,
        measured.ttft_ms, measured.prefill_ms, measured.tpot_ms, measured.tpot_ms_p50, measured.output_tokens_per_s,
        measured.total_tokens_per_s, measured.requests_per_s, measured.iteration_s, measured.rollout_s,
        measured.train_s, measured.forward_ms,
    )  # fmt: skip
    return False if measured.fits or any(figures) else None
