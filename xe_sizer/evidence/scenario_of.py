"""A record as the scenario that a user would have written: the same keys, the same path to an estimate.

Nothing here looks at what was measured, at the id or at the source.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from xe_sizer.evidence.adapters_of import adapters, adapts, quantiser
from xe_sizer.evidence.batch_of import PRETRAINING_SEQ_LEN, batch_of, replicas_fit
from xe_sizer.evidence.flags import Flags
from xe_sizer.evidence.hardware_of import hardware_of
from xe_sizer.evidence.images_of import images_of
from xe_sizer.evidence.job_of import job_of, optimizer_of_job
from xe_sizer.evidence.model_of import model_of
from xe_sizer.evidence.names import choose_stack, look_up, names, plain, recipes
from xe_sizer.evidence.record_parts import Shape
from xe_sizer.evidence.reinforcement_of import gpus_of, reinforces, rollout_of, trainer_of, usual_prompts
from xe_sizer.frozen import frozen
from xe_sizer.graph.casts import BLOCK_SCALED
from xe_sizer.laws.precision import BF16, FP4, FP8, FP16
from xe_sizer.profiles.dataset import load_dataset
from xe_sizer.profiles.finder import BUILT_IN
from xe_sizer.software.optimizer import load_optimizer, optimizer_names
from xe_sizer.training.layout import OFFLOAD, offloaded_parts
from xe_sizer.training.schedules import ROWS

if TYPE_CHECKING:
    from xe_sizer.evidence.flags import RecordRegistry
    from xe_sizer.evidence.names import ChosenStack, Recipes
    from xe_sizer.evidence.records import Record
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.laws.hardware import Accelerator
    from xe_sizer.profiles.dataset import DatasetProfile
    from xe_sizer.software.stack_parts import Defaults
    from xe_sizer.training.methods import MethodKind

# Where a source says nothing about lengths. Public instruction data have means of 77 (Alpaca), 210 (MetaMath) and
# about 300 tokens (Orca-Math).
INSTRUCTION_TOKENS = 200.0
INSTRUCTION_SEQ_LEN = 2048
NOT_STATED = ("lengths not stated", "length not stated", "global batch not stated", "prompts not stated")
FULLY_SHARDED = 3  # ZeRO stage
SAME_MEAN = 1e-4  # means of two data sets differ by more


@frozen
class Asked:
    """Flags of a scenario, what was assumed for them, and how the record's stack counts steps.

    tuned : recomputation is not stated, and the framework's recipes set it to what memory needs
    guessed : neither lengths nor batch may be what the run had, for the record leaves them out; or its optimizer, which
    has a name that is unknown here, or the release of its stack, where neither that nor a month is stated
    """

    flags: Mapping[str, Any]
    assumed: tuple[str, ...]
    counts_micro_batches: bool
    tuned: bool
    guessed: bool


def scenario_of(record: Record, registry: RecordRegistry) -> Asked:
    """The flags of `read_scenario` that say what the record says; models and nodes go into the registry.

    Raises
    ------
    InputError : what makes the record impossible to size, in words that fit after "skipped:"
    """
    flags = Flags()
    job = job_of(record, flags)
    model = model_of(record, registry)
    registry.built_models[model.name] = model.shape
    hardware = hardware_of(record, registry)
    registry.built_servers[hardware.key] = hardware.server
    stack = choose_stack(record)
    registry.built_stacks[stack.name] = stack.stack
    flags.assumed += [*model.assumed, *hardware.assumed, *stack.assumed]
    flags.put("model", model.name)
    flags.put("server", hardware.key)
    flags.put("gpus", gpus_of(record, flags))
    flags.put("stack", stack.name)
    _precision(record, hardware.server.accelerator, stack, adapts(record, job, flags), flags)
    _software(record, stack, flags)
    _fp8_recipe(record, stack, hardware.server.accelerator, flags)
    known = _batch_and_layout(record, job, model.shape, stack, registry, flags)
    _companions(record, job, registry, flags)
    flags.put("train.dropout", record.dropout)
    flags.put("train.empty_cache_steps", record.empty_cache_steps or None)
    flags.put("train.target_len", record.target_len)
    adapters(record, job, model.shape, flags)
    quantiser(record, job, stack.quantiser, flags)
    table = names()
    _optimizer(record, stack.optimizers, flags)
    flags.word("attention", table.attention, record.attention)
    _uneven_stages(model.shape, flags)
    guessed = any(text.endswith(NOT_STATED) for text in flags.assumed)
    guessed |= record.optimizer is not None and "optimizer" not in flags.values  # one that nobody here knows
    return Asked(
        flags=flags.values,
        assumed=tuple(flags.assumed),
        counts_micro_batches=stack.counts_micro_batches,
        tuned=record.recompute is None and known.tuned,
        guessed=guessed,
    )


def _batch_and_layout(
    record: Record, job: MethodKind, model: ModelShape, stack: ChosenStack, registry: RecordRegistry, flags: Flags
) -> Recipes:
    """What an optimizer step takes and how it is spread; of those that write answers, over the GPUs that train."""
    written = reinforces(record)
    if written:
        rollout_of(record, registry, flags)
    else:
        _lengths(record, job, model.max_positions, flags)
    trained = trainer_of(record) if written else record
    known = recipes(record, stack.plain_name)
    _layout(trained, known, flags)
    _usual_layout(trained, stack.defaults, known, job, flags)
    batch_of(trained, job, flags)
    if written:
        usual_prompts(record, flags)
    images_of(record, model, flags)
    return known


def _companions(record: Record, job: MethodKind, registry: RecordRegistry, flags: Flags) -> None:
    """What stands beside the model that learns: where a reference comes from, and the model that teaches."""
    if "train.reference" in job.reads:
        flags.put("train.reference", record.reference)
    if "train.teacher_model" in job.reads and record.teacher_model is not None:
        teacher = model_of(msgspec.structs.replace(record, model=record.teacher_model, shape=Shape()), registry)
        registry.built_models[teacher.name] = teacher.shape
        flags.put("train.teacher_model", teacher.name)


def _precision(record: Record, gpu: Accelerator, stack: ChosenStack, adapts: bool, flags: Flags) -> None:
    """The precision, or the next one that the accelerator has: fp8 to bf16, bf16 to fp16.

    Where it is not stated, that of the stack's recipes: NVIDIA's of adapters keep frozen weights in 8 bit.
    """
    if record.precision is None:
        if adapts and FP8 in stack.weights_dtypes and FP8 in gpu.peak_flops_per_s:
            flags.put("precision", FP8, "precision fp8, as recipes of adapters have it: precision not stated")
        return
    stated = record.precision.strip().lower()
    wanted = look_up(names().precisions, stated) or stated
    found = wanted
    for narrower, wider in ((FP4, FP8), (FP8, BF16), (BF16, FP16)):
        if found == narrower and found not in gpu.peak_flops_per_s:
            found = wider
    if found not in gpu.peak_flops_per_s:
        flags.assumed.append(f"precision '{record.precision}' is unknown here: the stack's default")
        return
    flags.put("precision", found, None if found == stated else f"precision {record.precision} predicted as {found}")


def _software(record: Record, stack: ChosenStack, flags: Flags) -> None:
    """What the weights were loaded in and which kernels were fused, where the stack has that."""
    table = names()
    for stated in (record.load_dtype, record.weights):
        dtype = look_up(table.weights_dtypes, stated or "")
        if dtype in stack.weights_dtypes and "train.weights_dtype" not in flags.values:
            flags.put("train.weights_dtype", dtype)
    words = [plain(word) for word in _words(record.fused_kernels)]
    kernels = [name for word in words for name in table.fused_kernels.get(word, ())]
    kernels += _named_kernels(record, flags)
    framework = (record.framework or "").lower()
    fuses = stack.stands_in or stack.stack.kernels.norm == "eager"  # others bring modules of their own
    in_words = table.fused_in_words if fuses else {}
    kernels += [name for word, name in (in_words | table.dispatch_in_words).items() if word in framework]
    flags.put("train.fused_kernels", tuple(dict.fromkeys(kernels)) or None)
    for word in words:
        if word not in table.fused_kernels:
            flags.assumed.append(f"fused kernel '{word}' is unknown here")


def _fp8_recipe(record: Record, stack: ChosenStack, gpu: Accelerator, flags: Flags) -> None:
    """The stated recipe of products in 8 bit, or the one that the name of a precision is, where both can do it."""
    stated = look_up(names().fp8_recipes, record.fp8_recipe or record.precision or "")
    if stated is None or flags.values.get("precision") != FP8:
        return
    if stated in stack.fp8_recipes and (stated not in BLOCK_SCALED or FP4 in gpu.peak_flops_per_s):
        flags.put("train.fp8_recipe", stated)
    else:
        flags.assumed.append(f"fp8 recipe '{stated}' is not one of {stack.name} here: the stack's")


def _words(stated: str | bool | tuple[str, ...] | None) -> list[str]:
    """The things that a field lists."""
    if isinstance(stated, tuple):
        return list(stated)
    return [] if stated is None else re.split(r"\s*[,;+]\s*", str(stated).strip().lower())


def _named_kernels(record: Record, flags: Flags) -> list[str]:
    """Fused kernels among those that a run is named by; where these are of attention alone, the norm is not fused."""
    table, words = names(), _words(record.kernel)
    attention = [found for word in words if (found := look_up(table.attention, word.rstrip("0123456789.")))]
    if record.attention is None and attention:
        flags.word("attention", table.attention, attention[0])
    fused = [name for word in words for name in table.fused_kernels.get(plain(word), ())]
    return ["eager-norm"] if words and len(attention) == len(words) else fused


def _lengths(record: Record, job: MethodKind, most: int, flags: Flags) -> None:
    """Sequences of one length where `seq_len` is stated alone, else lengths of samples and how they are padded.

    Those of a known data set stand for what is not stated.

    most : positions that the model has [tokens]
    """
    flags.put("data.samples", record.samples)
    data = _data_set(record, flags)
    if record.mean_tokens is not None:
        _sample_lengths(record, flags, record.mean_tokens, data)
    elif record.seq_len is not None:
        flags.put("train.seq_len", record.seq_len)
        flags.put("train.padding", "packed")
    elif not job.fine_tunes:
        text = f"sequences of {PRETRAINING_SEQ_LEN} tokens: length not stated"
        flags.put("train.seq_len", record.max_seq_len or PRETRAINING_SEQ_LEN, None if record.max_seq_len else text)
        flags.put("train.padding", "packed")
    elif data is not None:
        _sample_lengths(record, flags, data.tokens_read, data)
    else:
        cut = record.longest_sample_tokens or record.max_seq_len or min(INSTRUCTION_SEQ_LEN, most)
        mean = min(INSTRUCTION_TOKENS, cut / 2)
        flags.assumed.append(f"samples of {mean:g} tokens on average: lengths not stated")
        _sample_lengths(record, flags, mean, None)
    if record.packing and record.seq_len:
        flags.put("train.padding", "packed")
    elif _without_padding(record) and flags.values.get("train.padding") != "packed":
        flags.put("train.padding", "none")
    elif any(word in _said_of_padding(record) for word in names().grouped_by_length):
        flags.put("train.padding", "grouped-by-length")
    elif record.padding is not None:
        flags.word("train.padding", names().padding, record.padding)


def _without_padding(record: Record) -> bool:
    return bool(record.packing) or any(word in _said_of_padding(record) for word in names().without_padding)


def _said_of_padding(record: Record) -> str:
    return f"{record.framework or ''} {record.padding or ''}".lower()


def _sample_lengths(record: Record, flags: Flags, mean: float, data: DatasetProfile | None) -> None:
    """Statistics of the samples; those of a known data set where the record names it or the stated mean is its own."""
    longest = record.longest_sample_tokens
    flags.put("train.seq_len", record.max_seq_len or record.seq_len or longest)
    same = [one for one in _data_sets() if math.isclose(one.mean_tokens, mean, rel_tol=SAME_MEAN)]
    whole = data if data and mean == data.tokens_read else next(iter(same), None)
    if whole and longest is None and record.samples is None:
        told = "named" if whole is data else "which has this mean"
        flags.put("data.profile", whole.name, f"lengths of the data set {whole.name}, {told}")
        return
    flags.put("data.mean_tokens", mean, f"samples of {mean:g} tokens, as {data.name} has" if data and whole else None)
    longest = longest or (data.max_tokens if data else None)
    flags.put("data.max_tokens", longest if longest and longest > mean else None)


def _data_set(record: Record, flags: Flags) -> DatasetProfile | None:
    """The known data set that the record names."""
    if record.dataset is None:
        return None
    named = BUILT_IN.called("dataset", record.dataset.strip())
    known = next((data for data in _data_sets() if data.name == named), None)
    if known is None:
        flags.assumed.append(f"data set '{record.dataset}' is unknown here")
    return known


@cache
def _data_sets() -> tuple[DatasetProfile, ...]:
    return tuple(load_dataset(name) for name in BUILT_IN.names("dataset"))


def _layout(record: Record, known: Recipes, flags: Flags) -> None:
    """What the record fixes of the layout.

    Where a pipeline is stated without it, interleaving is off, or left to the search if the recipes interleave or the
    schedule has several chunks by itself.
    """
    layout, table = record.layout, names()
    schedule = look_up(table.schedules, record.pipeline_schedule or "")
    chunked = any(row.least_chunks > 1 for row in ROWS if row.name == schedule)
    for name in ("tp", "pp", "vpp", "cp", "ep", "dp", "zero"):
        size = getattr(layout, name)
        flags.put(f"layout.{name}", size if size or name == "zero" else None)
    if (layout.ep or 1) > 1 or (layout.tp or 1) > 1:
        flags.put("layout.expert_tp", layout.expert_tp or None)
    if (layout.cp or 1) > 1:
        flags.put("layout.cp_kind", layout.cp_kind)
    if (layout.pp or 1) > 1:
        flags.put("layout.first_stage_layers", layout.first_stage_layers or None)
        flags.put("layout.last_stage_layers", layout.last_stage_layers or None)
    if layout.pp is not None and layout.vpp is None and not (known.interleaves or chunked):
        flags.put("layout.vpp", 1)
    if layout.megatron_fsdp:
        flags.put("layout.zero", 3)
    if (layout.tp or 1) > 1:
        flags.put("layout.sequence_parallel", layout.sequence_parallel)
    _recompute(record, flags)
    _offload(record, flags)
    flags.word("layout.schedule", table.schedules, record.pipeline_schedule)
    if also := look_up(table.schedules_also, record.pipeline_schedule or ""):
        flags.assumed.append(f"{record.pipeline_schedule} {also}")
    replicas_fit(record, flags)


def _recompute(record: Record, flags: Flags) -> None:
    """What runs again in the backward: whole layers and how many, or what is selected and of which modules."""
    flags.word("layout.recompute", names().recompute, record.recompute)
    if flags.values.get("layout.recompute") == "selective":
        flags.put("layout.recompute_modules", record.recompute_modules or None)
    if flags.values.get("layout.recompute") == "full":
        flags.put("layout.recompute_layers", record.recompute_layers or None)


def _offload(record: Record, flags: Flags) -> None:
    """What the record keeps in host memory, however many things and in whatever order it names them."""
    if record.offload is None:
        return
    words = re.split(r"\s*(?:[+,;&]|\band\b)\s*", str(record.offload).lower())
    known = {look_up(names().offload, word) for word in words}
    parts = frozenset().union(*(offloaded_parts(word) for word in known if word))
    flags.put("layout.offload", next(name for name in OFFLOAD if offloaded_parts(name) == parts))
    if None in known:
        flags.assumed.append(f"offload '{record.offload}' is not all known here")


def _usual_layout(record: Record, defaults: Defaults, known: Recipes, job: MethodKind, flags: Flags) -> None:
    """Recomputation and sharding as the record's framework has them where the record says nothing of either.

    Who shards with ZeRO-3 is short of memory and may have turned recomputation on: left to the layout search.
    """
    layout, zero = record.layout, defaults.usual_zero
    split = any((size or 1) > 1 for size in (layout.tp, layout.pp, layout.cp, layout.ep)) or layout.megatron_fsdp
    if layout.zero is None and zero is not None and (record.gpus or 1) > 1 and not split and not record.offload:
        flags.put("layout.zero", zero, f"ZeRO {zero}: usual for {record.stack}")
    sharded = flags.values.get("layout.zero") == FULLY_SHARDED
    recompute = defaults.recompute_of(quantised=job.quantises, sharded=sharded) or known.recompute
    may_be_on = recompute == "none" and layout.zero == FULLY_SHARDED
    if record.recompute is None and recompute and not may_be_on:
        flags.put("layout.recompute", recompute, f"recompute {recompute}: usual for {record.stack}")


def _uneven_stages(model: ModelShape, flags: Flags) -> None:
    """Pipelines whose stages differ: published ones count the embedding and the head as layers."""
    pp, vpp = (flags.values.get(f"layout.{name}", 1) for name in ("pp", "vpp"))
    if model.layers % (pp * vpp):
        flags.put("layout.uneven_stages", True, f"{model.layers} layers on {pp} x {vpp} stages: the fullest decides")


def _optimizer(record: Record, known: tuple[str, ...], flags: Flags) -> None:
    """The optimizer as stated, or as the framework names it more exactly; unpaged where the stack has no pages."""
    words, text = names().optimizers_in_words, (record.framework or "").lower()
    named = next((words[word] for word in words if word in text), record.optimizer or optimizer_of_job(record))
    called = BUILT_IN.called("optimizer", str(named).strip()) if named else None
    flags.put("train.optimizer_rank", record.optimizer_rank)
    flags.word("optimizer", names().optimizers | {name: name for name in optimizer_names()}, called)
    chosen = flags.values.get("optimizer")
    if chosen is not None and chosen not in known:
        optimizer = load_optimizer(str(chosen))
        if optimizer.paged and optimizer.parent in known:
            flags.values["optimizer"] = optimizer.parent
