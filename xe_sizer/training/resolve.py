"""A scenario with everything resolved: names to profiles, gaps to the stack's defaults, contradictions to errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

import xe_sizer.training.jobs  # noqa: F401
from xe_sizer.errors import InputError, Problem, did_you_mean
from xe_sizer.graph.inputs import Learning, Part
from xe_sizer.graph.vision import encoder_weights, projector_weights, seen_image
from xe_sizer.immutable import Immutable
from xe_sizer.laws.device import BF16, FP8, FP16, FP32, NO_AUTOCAST, supported_precisions
from xe_sizer.laws.hardware import TRAINING_POWER_SHARE
from xe_sizer.laws.network import network
from xe_sizer.profiles.catalogue import load_optimizer, load_quantiser, load_stack
from xe_sizer.profiles.finder import default_name
from xe_sizer.scenario.conflicts import conflicts
from xe_sizer.scenario.options import SERVE_ALONE
from xe_sizer.scenario.provenance import (
    Provenance,
    assumptions,
    borrowed_laws,
    collect,
    efficiency_of,
    gpu_count,
    in_reading_order,
    model_and_server,
    problem_at,
    relative,
)
from xe_sizer.scenario.scenario import serves
from xe_sizer.scenario.tariff import TRAINING_UTILISATION, tariff_of
from xe_sizer.software.adapter_targets import ALL_LINEAR, resolve_targets
from xe_sizer.software.host import on_host
from xe_sizer.software.number_formats import recipe_of
from xe_sizer.software.stack import DEEPSPEED, OF_GRADIENTS, POOLS, Objective
from xe_sizer.training.adapters import ADAPTERS, ALL_WEIGHTS, AdapterOptions, Quantised
from xe_sizer.training.adapters.adapter import VIRTUAL_TOKENS
from xe_sizer.training.adapters.low_rank import resolve_end
from xe_sizer.training.conflicts import RULES, AskedTraining, gives_way
from xe_sizer.training.device import build_device, without_losses
from xe_sizer.training.job import OWN, BatchRamp, Images, Job, Pauses
from xe_sizer.training.layout import SELECTIVE, WORDS
from xe_sizer.training.methods import DEFAULT_METHOD, METHODS, MethodOptions
from xe_sizer.training.methods.method import Compared
from xe_sizer.training.padding import LONGEST_IN_MICRO_BATCH, PACKED
from xe_sizer.training.resolved import ResolvedTraining
from xe_sizer.training.token_lengths import TokenLengths
from xe_sizer.training.uncertainty import memory_suffices
from xe_sizer.training.workload import DEFAULT_SEQ_LEN, assumes_batch, global_batch, known_data, workload
from xe_sizer.units import FLOAT32, GIB, GIGA, SIXTEEN_BIT

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape, VisionTower
    from xe_sizer.laws.device import Efficiency
    from xe_sizer.laws.hardware import Server
    from xe_sizer.profiles.catalogue import Registry
    from xe_sizer.scenario.scenario import Scenario
    from xe_sizer.scenario.schema import LayoutSection, LimitsSection, ScenarioFile
    from xe_sizer.software.optimizer import Optimizer
    from xe_sizer.software.stack import Stack
    from xe_sizer.training.adapters import AdapterKind, Trained
    from xe_sizer.training.job import Gathering
    from xe_sizer.training.methods import Method, MethodKind
    from xe_sizer.training.workload import Workload

# Encoder-decoders under training: the length of what they answer, and the layouts that they have no equation for.

# Published: T5 reads 512 tokens and answers with 114, the spans that are missing there (arXiv:1910.10683).
MISSING_SPANS = 114 / 512
TUNED_TARGETS = 0.25  # assumed: summaries are shorter, translations as long


def target_share(provenance: Provenance, model: ModelShape, seq_len: int, fine_tunes: bool) -> float:
    """Tokens of the decoder's sequence over those of the encoder's; 1 for models of one half.

        share = target_len / seq_len,  target_len = max(part x seq_len, 1) where nobody says it
        part = 114 / 512 (the missing spans), 1 (the whole text), 1 / 4 (fine-tuning)

    Parameters
    ----------
    provenance : of the scenario's keys
    model : the model that is trained
    seq_len : tokens of the encoder's sequence [-]
    fine_tunes : the job answers something else than pre-training does

    Returns
    -------
    float [-]

    Source: definition; pre-training of T5 (arXiv:1910.10683) and of BART, which rebuilds all of a text whose spans are
    masks (arXiv:1910.13461, section 2.2).
    """
    if not model.encoder_layers:
        return 1.0
    part = TUNED_TARGETS if fine_tunes else 1.0 if model.whole_targets else MISSING_SPANS
    return int(provenance.resolve_default("train.target_len", max(int(part * seq_len), 1))) / seq_len


# What a scenario asks of layers and layouts, in the words of the equations.

PLAIN_FIELDS = ("tp", "pp", "vpp", "cp", "ep", "dp", "zero", "zero_group", "expert_tp")


SELECTED = ("recompute_modules", "recompute_policy", "recompute_keep", "recompute_offload")
"""Keys of a layout that say what selective recomputation runs again, or what is kept for it."""


def fixed_layout(values: ScenarioFile) -> dict[str, int]:
    """Return what was chosen of the layout; an accumulation that makes the global batch says nothing else about it."""
    layout: Any = values.layout
    train = values.train
    fixed = {name: getattr(layout, name) for name in PLAIN_FIELDS if getattr(layout, name) is not None}
    if train.micro_batch is not None:
        fixed["micro_batch"] = train.micro_batch
    if train.grad_accum is not None and (train.global_batch is not None or train.micro_batch is None):
        fixed["grad_accum"] = train.grad_accum
    for name, words in WORDS.items():
        if getattr(layout, name) is not None:
            fixed[name] = words.index(getattr(layout, name))
    if layout.stages is not None:
        fixed["pp"] = len(layout.stages)
    if any(getattr(layout, name) is not None for name in SELECTED):
        fixed["recompute"] = SELECTIVE
    if layout.sequence_parallel is not None:
        fixed["sequence_parallel"] = int(layout.sequence_parallel)
    return fixed


def layers_asked(values: ScenarioFile) -> dict[str, Any]:
    """Which layers stand where, run again, wait in host memory or learn, and how the batch grows: fields of a job."""
    layout, train = values.layout, values.train
    return {
        "recompute_layers": layout.recompute_layers,
        "offload_layers": layout.offload_layers,
        "offload_fraction": layout.offload_fraction or 1.0,
        "trainable_layers": train.trainable_layers,
        "expert_skew": train.expert_skew,
        "expert_capacity": train.capacity_factor,
        "pads_experts": bool(train.pad_to_capacity),
        "empty_cache_steps": train.empty_cache_steps,
        "batch_ramp": None if train.batch_ramp_up is None else BatchRamp(*train.batch_ramp_up),
        "first_stage_layers": layout.first_stage_layers,
        "last_stage_layers": layout.last_stage_layers,
        "stage_layers": layout.stages or (),
        "account_for_embedding": bool(layout.account_for_embedding),
        "account_for_loss": bool(layout.account_for_loss),
        "gathering": _gathering(layout),
    }


def _gathering(layout: LayoutSection) -> Gathering:
    """What ZeRO-3 gathers and keeps, as the user says it or as DeepSpeed does by itself."""
    told = {
        "ahead": layout.prefetch_elements,
        "live": layout.live_elements,
        "reuse": layout.reuse_elements,
        "whole": layout.persistent_elements,
    }
    return replace(OWN, **{name: float(value) for name, value in told.items() if value is not None})


def refuse_layers(scenario: Scenario, model: ModelShape, method: Method) -> None:
    """Raises InputError where layers shall learn that are frozen, or that the model does not have."""
    layers, where = scenario.values.train.trainable_layers, scenario.locate(("train", "trainable_layers"))
    if layers is not None and not method.learning.base:
        told = "the layers are frozen, and what learns beside them learns in all"
        raise InputError(Problem(told, where, "leave it out"))
    if layers is not None and layers > model.layers:
        told = f"{model.name} has {model.layers} layers, not {layers:,} that could learn"
        raise InputError(Problem(told, where, "left out, all of the model learns"))


def routed_as_asked(scenario: Scenario, model: ModelShape) -> ModelShape:
    """The model with as many experts a token as are asked for. Raises InputError where it has none, or fewer."""
    asked = scenario.values.train.experts_per_token
    if asked is None:
        return model
    where = scenario.locate(("train", "experts_per_token"))
    if model.experts is None:
        raise InputError(Problem(f"{model.name} has no experts", where, "leave experts_per_token out"))
    if asked > model.experts.count:
        told = f"{model.name} has {model.experts.count} experts, not {asked:,} for a token"
        raise InputError(Problem(told, where, f"left out, a token goes through {model.experts.per_token}"))
    return replace(model, experts=replace(model.experts, per_token=asked))


# The images of a job's samples as the scenario asks for them, and which parts of a model that sees learn.

ENCODER, PROJECTOR, LANGUAGE, NOTHING = "vision", "projector", "language", "none"
DEFAULT_IMAGE_SIZE = "1024x1024"
# Modules that encoders and language models of transformers call alike, so that peft finds both by these names.
SHARED_NAMES = frozenset({"q", "k", "v", "q_proj", "k_proj", "v_proj"})
GROUPS = frozenset({ALL_LINEAR, "attention", "mlp"})


def with_images(
    provenance: Provenance, model: ModelShape, stack: Stack, method: Method, work: Workload
) -> tuple[Method, Images | None, Workload]:
    """The job with the images of its samples; as it is where they have none.

        tokens of a sample = text + images x tokens of an image      where the data says how long texts are

    Parameters
    ----------
    provenance : the keys `data.images`, `data.image_size`, `train.freeze` and `lora.targets`
    model, stack, method, work : the job as it is without images

    Returns
    -------
    the method with what learns of each part, the images, and the data with their tokens

    Raises
    ------
    InputError : sequences that do not hold their images; nothing that learns

    Source: `graph.vision.seen_image`; what is frozen stands in the stack's file.
    """
    scenario, tower = provenance.scenario, model.vision
    count = scenario.values.data.images
    if not count or tower is None:
        return method, None, work
    width, height = provenance.resolve_default("data.image_size", DEFAULT_IMAGE_SIZE).split("x")
    seen = seen_image(tower, int(width), int(height))
    lengths = _with_tokens(work, float(count * seen.tokens))
    if count * seen.tokens >= work.seq_len:
        text = f"{count} images of {seen.tokens:,} tokens do not leave room for text in sequences of {work.seq_len:,}"
        hint = f"{scenario.caller.setting('train.seq_len', 2 * count * seen.tokens)}, or smaller images"
        raise InputError(problem_at(scenario, "data.images", text, hint))
    frozen_parts = set(provenance.resolve_default("train.freeze", stack.defaults.freeze or (NOTHING,), "stack"))
    chosen = _learning(provenance, method, tower, frozen_parts, stack.defaults.splits_encoder)
    others_learn = chosen.added_parameters > 0 or any(part.learns for part in chosen.parts)
    if not chosen.learning.base and not chosen.learning.adapters and not others_learn:
        raise InputError(problem_at(scenario, "train.freeze", "nothing is left that learns"))
    packed = work.padding == PACKED
    images = Images(
        tower=tower,
        encoder=chosen.parts[0].learning,
        projector=chosen.parts[1].learning,
        each=count * (work.seq_len / lengths.mean if packed else 1.0),
        seen=seen,
        forced=stack.defaults.gradients_through_encoder and bool(chosen.learning.adapters),
    )
    return chosen, images, replace(work, lengths=lengths)


def _with_tokens(work: Workload, tokens: float) -> TokenLengths:
    """Lengths of text and images together; sequences of full length whatever the data hold their images already."""
    known = work.lengths
    if known.lengths.size == 1 and known.longest == work.seq_len:
        return known
    return TokenLengths(known.lengths + tokens, known.probabilities, known.assumption)


def _learning(provenance: Provenance, method: Method, tower: VisionTower, still: set[str], split: bool) -> Method:
    """The method with what learns of the language model, the encoder and the projector; `still` are frozen."""
    targets = provenance.values.lora.targets or ()
    encoder = _of_part(method, _encoder_names(tower.encoder, targets), ENCODER in still)
    projector = _of_part(method, _products(tower, targets), PROJECTOR in still)
    parts = (
        Part(ENCODER, encoder_weights(tower), encoder, split),
        Part(PROJECTOR, projector_weights(tower), projector, split),
    )
    language = method.learning
    if LANGUAGE in still:
        language = replace(language, base=False, adapters={}, saved=())
    language = replace(language, before=any(part.learns for part in parts))
    return replace(method, trained=replace(method.trained, learning=language, parts=parts))


def _of_part(method: Method, names: Iterable[str], still: bool) -> Learning:
    """What learns of a part: all, its adapters, or nothing."""
    learning = method.learning
    if still:
        return Learning(base=False)
    if learning.base:
        return Learning(base=True)
    form = next(iter(learning.adapters.values()), None)
    return replace(learning, adapters={} if form is None else dict.fromkeys(names, form), saved=())


def _encoder_names(encoder: ModelShape, targets: Iterable[str]) -> tuple[str, ...]:
    """Weights of the encoder that get adapters: of groups those that it has, and those that bear the same names."""
    names: list[str] = []
    for target in targets:
        alike = target in SHARED_NAMES and not encoder.fused
        if target in GROUPS or alike:
            names += resolve_targets(encoder, (target,))
    return tuple(dict.fromkeys(names))


def _products(tower: VisionTower, targets: Iterable[str]) -> tuple[str, ...]:
    """Products of the projector, which adapters on all linear layers sit on too."""
    products = len(tower.projector.widths) - 1
    return tuple(f"projector_{place}" for place in range(products)) if ALL_LINEAR in targets else ()


def left_out(scenario: Scenario, job: Job) -> Iterator[str]:
    """What to say of a model that sees where nothing is said of images: its encoder is no part of the answer."""
    if job.model.vision is None or job.images is not None or scenario.values.data.images == 0:
        return
    told = f"{job.model.name} is trained without its image encoder"
    if job.method.kind.rollout is None:
        yield f"{told}, as no sample has images: {scenario.caller.setting('data.images', 1)} adds it"
    else:
        yield f"{told}: prompts are text"


# What jobs that compare answers do otherwise than those that learn the next token: their batches, and their loss.


def usual_padding(stack: Stack, method: Method) -> str:
    """What samples are padded to unless somebody says: packed where a model is made, else as the stack has it."""
    if not method.kind.fine_tunes:
        return PACKED
    usual, packs = stack.defaults.padding, stack.supports.packs_answers or not method.compares
    return LONGEST_IN_MICRO_BATCH if usual == PACKED and not packs else usual


def without_effect(scenario: Scenario, job: Job) -> Iterator[str]:
    """What of the scenario a job that compares answers has no use for."""
    if "loss" in scenario.origin and job.method.objective is not Objective.NEXT_TOKEN:
        yield f"{scenario.caller.setting('loss', scenario.values.loss)} has no effect on the job {job.method.name}"
    if "train.padding" in scenario.origin and job.padding == PACKED and not job.packs:
        yield f"{job.stack.name} does not pack the answers of {job.method.kind.label}: it pads them"


# The stack as a scenario has it: what the user chose over what the stack does by itself.


OF_A_STACK = {
    "layout.cp_kind": ("kernels", "context"),
    "layout.recompute_modules": ("kernels", "selective"),
    "layout.recompute_keep": ("kernels", "kept"),
    "layout.recompute_offload": ("kernels", "hosted"),
    "train.reduce_every_micro_batch": ("defaults", "reduces_every_micro_batch"),
    "layout.bucket_gib": ("memory", "bucket_gib"),
}
"""Keys that take the place of what a stack does by itself: section of the stack, and what they are there."""


def as_chosen(stack: Stack, provenance: Provenance, precision: str, server: Server, method: Method) -> Stack:
    """The stack with kernels, exchanges, reduction and recipe as the user chose, or as it has them by itself."""
    values = provenance.scenario.values
    changes = [(*place, value) for key, place in OF_A_STACK.items() if (value := attrgetter(key)(values)) is not None]
    if method.objective is Objective.NEXT_TOKEN:
        changes.append(("kernels", "loss", provenance.resolve_default("loss", stack.kernels.loss, "stack")))
    if values.train.dropout is not None:
        changes.append(("kernels", "dropout", values.train.dropout > 0))
    if values.layout.recompute_policy is not None:
        policy = stack.recompute_policies[values.layout.recompute_policy]  # `training.conflicts` refuses others
        changes += [("kernels", "kept", policy.keep), ("kernels", "hosted", policy.offload)]
    stack = _mixed(stack, provenance.scenario, precision)
    stack = _with_gradients(stack, provenance.scenario, precision)
    if values.train.overlap is not None:
        stack = replace(stack, overlap=stack.overlap.switched(values.train.overlap))
    recipe = recipe_of(stack, precision, server.accelerator.peak_flops_per_s)
    if precision == FP8 and recipe is not None:
        recipe = provenance.resolve_default("train.fp8_recipe", recipe, "stack")
        changes += [("defaults", "fp8_recipe", recipe), ("defaults", "block_scaled_recipe", None)]
    for section, name, value in changes:
        stack = replace(stack, **{section: replace(getattr(stack, section), **{name: value})})
    return stack


def _mixed(stack: Stack, scenario: Scenario, precision: str) -> Stack:
    """The stack with autocast as asked. Raises InputError where it has no choice, or computes in what is not loaded."""
    asked, where = scenario.values.train.mixed_precision, scenario.locate(("train", "mixed_precision"))
    if asked is None or not (stack.mixes or chosen(scenario, "train.mixed_precision")):
        return stack
    if not stack.mixes:
        name = stack.backend if stack.backend == DEEPSPEED else stack.name
        told = f"mixed precision '{asked}' is no choice of {name}, which has no autocast to turn on or off"
        raise InputError(Problem(told, where, "leave it out"))
    loaded = stack.defaults.weights_dtype
    if asked == NO_AUTOCAST and loaded is not None and precision in stack.weights_dtypes and precision != loaded:
        told = f"without mixed precision a run computes in what its weights are loaded in, {loaded}, not in {precision}"
        raise InputError(Problem(told, where, scenario.caller.setting("train.weights_dtype", precision)))
    return stack.in_mixed_precision(asked)


def _with_gradients(stack: Stack, scenario: Scenario, precision: str) -> Stack:
    """The stack with gradients kept and exchanged as asked; `training.conflicts` refuses what it cannot."""
    for key, choice in OF_GRADIENTS.items():
        dtype, half = attrgetter(key)(scenario.values), precision in stack.defaults.half_gradients
        dtype = precision if dtype is None and half else dtype
        if dtype in stack.gradient_dtypes(choice, precision):
            stack = stack.with_gradients(choice, dtype, precision)
    return stack


# Checkpoints, evaluations and failures of a scenario, with defaults for what it leaves out.

EVALUATED_SHARE = 0.05  # of the data set, chosen: val_set_size of the examples that axolotl ships
MOST_BATCHES = 100  # published: global batches of one evaluation: --eval-iters of Megatron-LM


def build_pauses(provenance: Provenance, work: Workload, *, writes: bool) -> Pauses:
    """Build the pauses of a training, as its scenario has them, or as is usual.

    An evaluation of which nobody says how much it reads is left out, and `unsized_evaluation` says so.
    writes : whether the job writes answers, so that its evaluations have prompts of their own
    """
    values = provenance.scenario.values
    train, rate = values.train, values.storage.write_gb_per_s
    evaluated = train.evaluate_samples if writes else train.evaluate_samples or guess_evaluated_samples(work)
    every = train.evaluate_every if evaluated else None
    if every is not None:
        evaluated = provenance.resolve_default("train.evaluate_samples", evaluated)
    return Pauses(
        checkpoint_every=train.checkpoint_every,
        asynchronous=bool(train.async_checkpoint),
        write_bytes_per_s=None if rate is None else rate * GIGA,
        evaluate_every=every,
        evaluated_samples=0.0 if every is None else float(evaluated or 0.0),
        failures_per_gpu_day=train.failures_per_gpu_day or 0.0,
    )


def unsized_evaluation(scenario: Scenario, pauses: Pauses) -> Iterator[str]:
    """That evaluations are asked for and left out, as nobody says what they read."""
    every = scenario.values.train.evaluate_every
    if every is not None and pauses.evaluate_every is None:
        adds = scenario.caller.setting("train.evaluate_samples", 1000)
        yield f"evaluation every {every:,} steps is left out: its number of samples is not known; {adds} adds it"


def guess_evaluated_samples(work: Workload) -> int | None:
    """Samples of one evaluation where nobody says: a share of the data set, at most so many global batches.

    None where nobody says how much data there is.
    """
    if work.known_samples is None:
        return None
    per_sequence = work.seq_len / work.lengths.mean if work.padding == PACKED else 1.0
    most = MOST_BATCHES * work.global_batch * per_sequence
    return max(round(min(EVALUATED_SHARE * work.known_samples, most)), 1)


# The training method as the scenario asks for it, with the stack's defaults where it leaves something open.

Value = TypeVar("Value")
QUANTISING = ("train.quantiser", "train.bits")
"""Keys that ask for frozen weights in few bits."""
REFERENCE, TEACHER = "train.reference", "train.teacher_model"


def build_method(
    provenance: Provenance, model: ModelShape, stack: Stack, kind: MethodKind, registry: Registry
) -> Method:
    """Apply the method to the model. Raises InputError for what the model or the quantiser does not have."""
    options = MethodOptions(
        trained=_trained(provenance, model, stack, kind),
        reference=_reference(provenance, kind),
        teacher=_other_model(provenance, kind, TEACHER, registry),
        teacher_top_k=provenance.scenario.values.train.teacher_top_k,
        compared=_compared(provenance.scenario),
    )
    try:
        return kind.applied_to(model, options)
    except InputError as error:
        raise InputError(_placed(problem, provenance.scenario, kind) for problem in error.problems) from None


def _reference(provenance: Provenance, kind: MethodKind) -> str | None:
    """Where a reference comes from, as somebody says who names a job that has one."""
    if REFERENCE not in kind.reads:
        return None
    chosen = provenance.scenario.values.train.reference
    return None if chosen is None else str(provenance.resolve_default(REFERENCE, None))


def _compared(scenario: Scenario) -> Compared:
    """What is compared, as somebody says; else the passages of a micro-batch."""
    asked = scenario.values.embedding
    return Compared(asked.hard_negatives or 0, bool(asked.across_gpus), bool(asked.cached))


def _other_model(provenance: Provenance, kind: MethodKind, key: str, registry: Registry) -> ModelShape | None:
    """Another model that the job needs. Raises InputError for one that nobody knows."""
    scenario, name = provenance.scenario, getattr(provenance.scenario.values.train, key.rpartition(".")[2])
    if key not in kind.reads or name is None:
        return None
    provenance.resolve_default(key, None)
    return registry.model(relative(scenario, key, name), partial(scenario.locate, tuple(key.split("."))))


def _placed(problem: Problem, scenario: Scenario, kind: MethodKind) -> Problem:
    """A problem of a job with what it was told, at the key that says it, or at the job's."""
    told = [key for key in kind.reads if key in scenario.origin]
    return replace(
        problem, location=problem.location or scenario.locate(tuple(told[0].split(".") if told else ("job",)))
    )


def find_adapter(scenario: Scenario, kind: MethodKind) -> AdapterKind | None:
    """What learns beside frozen weights: as asked for, as the job means it, or as settings of adapters imply it."""
    if asked := scenario.values.adapter:
        return ADAPTERS.get(asked)
    if kind.usual_adapter or not kind.implies_adapter:
        return kind.usual_adapter
    sections = {key.partition(".")[0] for key in scenario.origin}
    return next((one for one in ADAPTERS.values() if one.usual and sections & set(one.settings)), None)


def quantises(scenario: Scenario, kind: MethodKind) -> bool:
    """Whether frozen weights are held in few bits."""
    adapter = find_adapter(scenario, kind)
    asked = any(key in scenario.origin for key in QUANTISING)
    return adapter is not None and (kind.quantises or adapter.quantises or (asked and not kind.adapter))


def _trained(provenance: Provenance, model: ModelShape, stack: Stack, kind: MethodKind) -> Trained:
    """What learns of the model, with the stack's defaults where the scenario leaves something open."""
    scenario = provenance.scenario
    adapter, held = find_adapter(scenario, kind), quantises(scenario, kind)
    if not held:
        _refuse_quantiser(scenario, kind)
    if adapter is None and kind.adapter:
        hint = f"{scenario.caller.setting('job', DEFAULT_METHOD.name)} trains all weights"
        raise InputError(Problem(f"the job {kind.name} trains adapters", scenario.locate(("adapter",)), hint))
    if "adapter" in scenario.origin or adapter is not kind.usual_adapter:
        provenance.resolve_default("adapter", adapter.name if adapter else None)
    if adapter is None:
        return ALL_WEIGHTS
    try:
        return adapter.applied_to(model, _options(provenance, model, stack, adapter, held))
    except InputError as error:
        asked = next((key for key in ("lora.targets", "adapter", "job") if key in scenario.origin), "lora.targets")
        where = scenario.locate(tuple(asked.split(".")))
        raise InputError(replace(problem, location=problem.location or where) for problem in error.problems) from None


def _options(
    provenance: Provenance, model: ModelShape, stack: Stack, adapter: AdapterKind, held: bool
) -> AdapterOptions:
    scenario, projections = provenance.scenario, "lora" in adapter.settings
    prompt, quantised = scenario.values.p_tuning, _quantised(provenance, stack) if held else None
    return AdapterOptions(
        lora_rank=provenance.resolve_default("lora.rank", *_default(adapter.rank, stack.defaults.lora_rank))
        if projections
        else 0,
        lora_targets=provenance.resolve_default(
            "lora.targets", *_default(adapter.targets, _default_targets(model, stack))
        )
        if projections
        else (),
        virtual_tokens=prompt.virtual_tokens or VIRTUAL_TOKENS,
        encoder_hidden=prompt.encoder_hidden,
        prompt_embedding=stack.defaults.prompt_embedding,
        block_size=scenario.values.lora.block_size,
        frequencies=scenario.values.lora.frequencies,
        element_bytes=stack.states.adapter_weight_bytes,
        frozen_gradients=stack.states.frozen_gradients,
        lora_dropout=_lora_dropout(provenance, stack, adapter),
        dora=bool(scenario.values.lora.dora),
        modules_to_save=_saved_ends(scenario) if projections else (),
        saved_element_share=_saved_element_share(stack, quantised),
        quantised=quantised,
    )


def _lora_dropout(provenance: Provenance, stack: Stack, adapter: AdapterKind) -> float:
    """Share of an adapter's input that dropout zeroes [-]; by itself a trainer has it for LoRA and its kin alone."""
    usual = stack.defaults.lora_dropout * float(adapter.drops)
    if usual and provenance.scenario.values.lora.dropout is None:
        return float(provenance.resolve_default("lora.dropout", usual, "stack"))
    return provenance.scenario.values.lora.dropout or 0.0


def _default(own: Value | None, stack: Value) -> tuple[Value, str]:
    """What a kind of adapters has by itself, else what the stack has, and whose it is."""
    return (stack, "stack") if own is None else (own, "default")


def _saved_ends(scenario: Scenario) -> tuple[str, ...]:
    """Modules that learn beside the adapters. Raises InputError for such as are neither embedding nor head."""
    names = scenario.values.lora.modules_to_save or ()
    try:
        return tuple(resolve_end(name) for name in names)
    except InputError as error:
        where = scenario.locate(("lora", "modules_to_save"))
        raise InputError(replace(problem, location=where) for problem in error.problems) from None


def _saved_element_share(stack: Stack, quantised: Quantised | None) -> float:
    """Size of an element of a copied module, which has the frozen one's type (ModulesToSaveWrapper of peft) [-]."""
    states = stack.states
    upcast = quantised is not None and quantised.quantiser.upcasts and states.quantised_upcast
    kept = FLOAT32 if upcast else states.frozen_bytes
    return kept / states.adapter_weight_bytes


def _default_targets(model: ModelShape, stack: Stack) -> tuple[str, ...]:
    """The stack's targets; all of attention where its projections have other names; all where there is no attention."""
    for targets in (stack.defaults.lora_targets, ("attention",)):
        try:
            resolve_targets(model, targets)
        except InputError:
            continue
        return targets
    return (ALL_LINEAR,)


def _quantised(provenance: Provenance, stack: Stack) -> Quantised:
    """How frozen weights are held. Raises InputError for bits that the quantiser does not have.

    Weights are quantised from 16 bit unless somebody loads them in float32: transformers 4 sets float16 where none is
    asked for (quantizer_bnb_4bit.py, update_dtype), transformers 5 and other libraries take the checkpoint's type.
    """
    scenario = provenance.scenario
    name = str(provenance.resolve_default("train.quantiser", stack.defaults.quantiser, "stack"))
    path = relative(scenario, "train.quantiser", name)
    quantiser = load_quantiser(path, partial(scenario.locate, ("train", "quantiser")), provenance.finder)
    bits = int(provenance.resolve_default("train.bits", quantiser.bits[0]))
    if bits not in quantiser.bits:
        where = scenario.locate(("train", "bits"))
        hint = f"it has {', '.join(map(str, quantiser.bits))}"
        raise InputError(Problem(f"the quantiser {quantiser.name} has no weights of {bits} bits", where, hint))
    wide = (scenario.values.train.weights_dtype or stack.defaults.quantised_weights_dtype) == FP32
    return Quantised(quantiser, quantiser.width(bits), FLOAT32 if wide else SIXTEEN_BIT)


def _refuse_quantiser(scenario: Scenario, kind: MethodKind) -> None:
    """Raises InputError where weights shall be quantised that learn, or that the job keeps as they are."""
    keys = [key for key in QUANTISING if key in scenario.origin]
    if not keys:
        return
    names = [one.name for one in METHODS.values() if one.quantises]
    hint = f"{scenario.caller.setting('job', names[0])} does" if names else None
    raise InputError(
        Problem(f"the job {kind.name} does not quantise frozen weights", scenario.locate(tuple(key.split("."))), hint)
        for key in keys
    )


METHOD_SECTIONS = ("lora", "p_tuning")


class Setup(Immutable):
    """What the names of a scenario stand for, whatever is trained on. gpus : that train; None: open."""

    model: ModelShape
    server: Server
    stack: Stack
    method: Method
    precision: str
    gpus: int | None


def find_stack(scenario: Scenario, registry: Registry, provenance: Provenance) -> Stack | None:
    """Find the stack asked for, with states, weights and kernels as the scenario has them; None: its key is wrong.

    Raises
    ------
    InputError : a stack that nobody knows, or what it does not have
    """
    name = provenance.resolve_default("stack", default_name("stack"))
    if "stack" in scenario.invalid_keys:
        return None
    try:
        stack = load_stack(relative(scenario, "stack", name), partial(scenario.locate, ("stack",)), registry)
    except InputError as error:
        raise InputError([_sharding_meant(one, str(name), scenario, registry) for one in error.problems]) from None
    return _fused(_loaded(_shared_out(stack, scenario), scenario), scenario)


def _shared_out(stack: Stack, scenario: Scenario) -> Stack:
    """The stack with states shared out by the library that is asked for. Raises InputError where it has none such."""
    name = scenario.values.train.backend
    if name is None or (name not in stack.runs_on and gives_way(scenario, "train.backend")):
        return stack
    if name not in stack.runs_on:
        known = f"it has {', '.join(stack.runs_on)}" if stack.runs_on else "what shares its states out is part of it"
        where = scenario.locate(("train", "backend"))
        hint = did_you_mean(name, stack.runs_on) or known
        raise InputError(Problem(f"the stack {stack.name} has no backend '{name}'", where, hint))
    return stack if name == stack.backend else stack.on_backend(name)


def chosen(scenario: Scenario, key: str) -> bool:
    """Whether somebody chose the value of a key; what a tool fills in where its file says nothing is no choice."""
    return scenario.origin.get(key) in ("file", "env", "flag")


def _loaded(stack: Stack, scenario: Scenario) -> Stack:
    """The stack with weights in the number format that is asked for. Raises InputError where it has none such."""
    dtype = scenario.values.train.weights_dtype
    if dtype is None or (dtype not in stack.weights_dtypes and gives_way(scenario, "train.weights_dtype")):
        kind = METHODS.get(scenario.values.job or DEFAULT_METHOD.name)
        quantised = bool(kind and quantises(scenario, kind))
        dtype = stack.defaults.quantised_weights_dtype if quantised else None
        if scenario.values.train.mixed_precision == NO_AUTOCAST and not quantised:
            precision = scenario.values.precision  # which then is that of the weights
            dtype = precision if precision in stack.weights_dtypes else None
        return stack.loaded_in(dtype) if dtype else stack
    if dtype not in stack.weights_dtypes:
        known = ", ".join(stack.weights_dtypes)
        hint = f"it has {known}" if known else "what it keeps weights in is part of the stack"
        where = scenario.locate(("train", "weights_dtype"))
        raise InputError(Problem(f"the stack {stack.name} cannot load weights in {dtype}", where, hint))
    return stack.loaded_in(dtype)


def _fused(stack: Stack, scenario: Scenario) -> Stack:
    """The stack with the fused kernels that are asked for. Raises InputError for names that it does not know."""
    asked = scenario.values.train.fused_kernels or ()
    where = scenario.locate(("train", "fused_kernels"))
    unknown = [name for name in asked if name not in stack.fused]
    if unknown:
        known = f"known: {', '.join(stack.fused)}"
        hints = {name: did_you_mean(name, stack.fused) or known for name in unknown}
        raise InputError(Problem(f"no fused kernel is called '{name}'", where, hints[name]) for name in unknown)
    return stack.with_fused(asked)


def _sharding_meant(problem: Problem, name: str, scenario: Scenario, registry: Registry) -> Problem:
    """The problem of a stack; where its name is that of a way to share states, with what to write instead."""
    from xe_sizer.scenario.foreign_words import sharding_in

    framework, stage = sharding_in(name) or ("", None)
    if stage is None:
        return problem
    zero: dict[str, object] = {"layout.zero": stage}
    if framework and registry.find("stack", framework):
        return replace(problem, hint=f"write {scenario.caller.settings({'stack': framework, **zero})}")
    told = f"that is ZeRO {stage} here: write {scenario.caller.settings(zero)} and name what trains as the stack"
    return replace(problem, hint=f"{told}; {problem.hint}")


def find_optimizer(scenario: Scenario, registry: Registry, stack: Stack) -> Optimizer:
    """Find the optimizer asked for, which the stack has or a file of the user's describes, or the stack's own.

    Raises
    ------
    InputError : one that nobody knows, or a rank for one that has none
    """
    name = scenario.values.optimizer or stack.defaults.optimizer
    found = load_optimizer(relative(scenario, "optimizer", name), partial(scenario.locate, ("optimizer",)), registry)
    rank = scenario.values.train.optimizer_rank
    if rank is None:
        return found
    if found.low_rank is None:
        where = scenario.locate(("train", "optimizer_rank"))
        hint = "leave it out, or choose an optimizer that does"
        raise InputError(Problem(f"{found.label} projects no gradients to a rank", where, hint))
    return found.at_rank(rank)


def resolve(scenario: Scenario, registry: Registry) -> ResolvedTraining:
    """Everything that the estimate needs.

    Raises
    ------
    InputError : every unknown name, unsupported combination and contradiction with the model or hardware
    """
    if serves(scenario):
        raise InputError(_inference(scenario))
    return resolve_without_serving(scenario, registry)


def resolve_without_serving(scenario: Scenario, registry: Registry) -> ResolvedTraining:
    """As `resolve`, for a scenario that may have settings of inference."""
    problems: list[Problem] = []
    resolved = _resolved(scenario, registry, problems)
    if problems or resolved is None:
        raise InputError(in_reading_order(problems, scenario))
    return resolved


def rearranged(resolved: ResolvedTraining, scenario: Scenario, registry: Registry) -> ResolvedTraining | None:
    """The same job on other GPUs of its kind, or under another layout, as a changed scenario has them.

    None where the change makes another job of it: a batch that nobody gave may depend on the GPUs, and so may the
    optimizer; or where their number is open.

    Raises
    ------
    InputError : every contradiction with the model, the hardware or the stack
    """
    job = resolved.job
    gpus = gpu_count(Provenance(scenario, registry), job.server)
    asked = AskedTraining(scenario, job.model, job.server, gpus, job.stack, job.precision, registry)
    problems = conflicts(asked, RULES)
    if problems:
        raise InputError(in_reading_order(problems, scenario))
    if gpus is None or global_batch(scenario, gpus, job.stack) != job.global_batch:
        return None
    if job.stack.defaults.single_gpu_optimizer and (gpus == 1) != (resolved.gpus == 1):
        return None
    return replace(resolved, scenario=scenario, fixed=fixed_layout(scenario.values), gpus=gpus)


def _inference(scenario: Scenario) -> Problem:
    """What to say to a scenario that another command answers."""
    asked = (
        "the job is inference" if scenario.values.job else "a scenario with a 'serve' section and no job is inference"
    )
    serve, train = (
        scenario.caller.call("serve", scenario.path, {}, ()),
        scenario.caller.setting("job", DEFAULT_METHOD.name),
    )
    hint = f"{serve!r} sizes inference; {train} and others are trained"
    return Problem(asked, scenario.locate(("job",) if scenario.values.job else ("serve",), key=True), hint)


def _resolved(
    scenario: Scenario,
    registry: Registry,
    problems: list[Problem],
    replicas: int | None = None,
    batch: int | None = None,
) -> ResolvedTraining | None:
    """The resolved job, or None with every problem that can be found added to the list.

    replicas : those that make the global batch, where it follows the layout
    batch : the global batch that is assumed, where it follows the GPUs
    Where one name is unknown, the rest is still checked against what the other names stand for.
    """
    provenance = Provenance(scenario, registry)
    model, server = model_and_server(problems, scenario, registry, provenance)
    collect(problems, known_data, scenario, registry)
    stack = collect(problems, find_stack, scenario, registry, provenance)
    setup = find_setup(provenance, registry, problems, model, server, stack)
    if setup is None:
        return None
    again = partial(_resolved_again, scenario, registry)
    fitted = setup.gpus is None and assumes_batch(scenario)
    sequences, at_replicas = resolve_batch(provenance, setup, again, replicas, batch)
    longest = min(setup.model.max_positions or DEFAULT_SEQ_LEN, DEFAULT_SEQ_LEN)
    seq_len = provenance.resolve_default("train.seq_len", longest)
    padding = provenance.resolve_default("train.padding", usual_padding(setup.stack, setup.method), "stack")
    per_sample = setup.method.sequences_per_sample
    work = collect(problems, workload, scenario, seq_len, sequences, padding, registry, per_sample)
    optimizer = collect(problems, find_optimizer, scenario, registry, setup.stack)
    if work is None or optimizer is None:
        return None
    seen = collect(problems, with_images, provenance, setup.model, setup.stack, setup.method, work)
    if seen is None:
        return None
    method, images, work = seen
    made = resolve_setup(provenance, replace(setup, method=method), optimizer, work, images)
    at_batch = cache(partial(again, None)) if fitted else None  # many numbers of GPUs have the same
    return replace(made, at_replicas=at_replicas, at_batch=at_batch)


def find_setup(
    provenance: Provenance, registry: Registry, problems: list[Problem], model: ModelShape | None,
    server: Server | None, stack: Stack | None, beside: int | None = 0,
) -> Setup | None:  # fmt: skip
    """Find what the names of a scenario stand for; None where one is not known, with every problem added to the list.

    model, server, stack : as they are asked for; None: not known, which was told
    beside : GPUs of all that do not train; None: open
    """
    scenario = provenance.scenario
    model = model and collect(problems, routed_as_asked, scenario, model)
    if model is not None and scenario.values.train.mtp_layers:
        model = replace(model, trained_mtp_layers=scenario.values.train.mtp_layers)
    job_name = provenance.resolve_default("job", DEFAULT_METHOD.name)
    model = model and METHODS.get(job_name, DEFAULT_METHOD).read_by(model, scenario.values.train.task)
    # What a method asks of a model hardly depends on the stack: an unknown one need not hide the answer.
    assumed = stack or load_stack(default_name("stack"))
    method = model and collect(problems, _method, provenance, model, assumed, job_name, registry)
    precision = _precision(provenance, server, stack) if server and stack else scenario.values.precision
    gpus = gpu_count(provenance, server)
    if gpus is not None:
        gpus = None if beside is None else max(gpus - beside, 1)
    if stack and method and gpus == 1 and method.learning.base and stack.defaults.single_gpu_optimizer:
        own = replace(stack.defaults, optimizer=stack.defaults.single_gpu_optimizer)
        stack = replace(stack, defaults=own)
    problems += conflicts(AskedTraining(scenario, model, server, gpus, stack, precision, registry), RULES)
    if server:
        collect(problems, tariff_of, provenance, server, TRAINING_POWER_SHARE, TRAINING_UTILISATION)
    if problems or scenario.invalid_keys or not (model and server and stack and method and precision):
        return None
    return Setup(model, server, stack, method, precision, gpus)


def resolve_batch(
    provenance: Provenance, setup: Setup, again: Callable[[int], ResolvedTraining],
    replicas: int | None, assumed: int | None,
) -> tuple[int, Callable[[int], ResolvedTraining] | None]:  # fmt: skip
    """The global batch; and where it follows the layout, what resolves the scenario for a number of replicas.

    Then the batch is that of one replica, or of as many as are asked for.
    again : resolves the scenario for a number of replicas; assumed : the batch where nobody gives it, nor what makes it
    """
    scenario, train = provenance.scenario, provenance.scenario.values.train
    batch, follows = assumed or global_batch(scenario, setup.gpus, setup.stack), None
    if batch is None:
        batch = (train.micro_batch or 1) * (train.grad_accum or 1) * (replicas or 1)
        follows = cache(again) if replicas is None else None
    made = train.grad_accum is not None and train.micro_batch is not None
    origin = scenario.origin["train.grad_accum"] if made else "default"
    return provenance.resolve_default("train.global_batch", batch, origin), follows


def _resolved_again(
    scenario: Scenario, registry: Registry, replicas: int | None, batch: int | None = None
) -> ResolvedTraining:
    """A scenario that is known to resolve, with the global batch of so many replicas, or another that is assumed."""
    found = _resolved(scenario, registry, [], replicas, batch)
    assert found is not None
    return found


def resolve_setup(
    provenance: Provenance, setup: Setup, optimizer: Optimizer, work: Workload, images: Images | None = None
) -> ResolvedTraining:
    """Resolve the training of a setup on its data. Raises InputError for layers that cannot learn."""
    scenario, values = provenance.scenario, provenance.scenario.values
    model, server, stack, method, precision = setup.model, setup.server, setup.stack, setup.method, setup.precision
    efficiency = efficiency_of(scenario)
    refuse_layers(scenario, model, method)
    if not optimizer.masters and precision in stack.weights_dtypes:  # it keeps no float32 copy of all weights
        stack = stack.loaded_in(precision)
    if precision == FP16 and stack.defaults.weights_dtype == BF16 and not chosen(scenario, "train.weights_dtype"):
        stack = stack.loaded_in(FP16) if FP16 in stack.weights_dtypes else stack
    narrow = stack.states.narrow_parameters and not method.learning.base and precision in stack.weights_dtypes
    if narrow and not chosen(scenario, "train.weights_dtype"):  # products in 8 bit read weights that are kept so
        stack = stack.loaded_in(precision)
    chosen_stack = on_host(as_chosen(stack, provenance, precision, server, method), server.accelerator)
    stack_used = without_losses(chosen_stack, efficiency)
    provenance.resolve_default("optimizer", stack.defaults.optimizer, "stack")
    job = Job(
        model=model,
        method=method,
        stack=stack_used,
        server=server,
        network=network(server),
        device=build_device(server.accelerator, stack_used, method, precision, efficiency),
        precision=precision,
        optimizer=optimizer,
        attention=provenance.resolve_default("attention", stack.kernels.attention, "stack"),
        lengths=work.lengths,
        target_share=target_share(provenance, model, work.seq_len, method.kind.fine_tunes),
        padding=work.padding,
        seq_len=work.seq_len,
        samples=work.samples,
        global_batch=work.global_batch,
        steps=work.steps,
        **layers_asked(values),
        pauses=build_pauses(provenance, work, writes=method.kind.rollout is not None),
        images=images,
        lengths_assumed=work.lengths_assumed,
    )
    read = ("data",) if method.kind.rollout is None else ()
    provenance.keep((*read, "train", "storage", "layout", "p_tuning", "limits", "cost", "efficiency"))
    _of_stack(provenance, chosen_stack, precision)
    for key, value in work.defaults.items():
        provenance.note(key, value, "default")
    return ResolvedTraining(
        scenario=scenario,
        job=job,
        fixed=fixed_layout(values),
        gpus=setup.gpus,
        min_headroom_bytes=_headroom_bytes(values.limits, job),
        tariff=tariff_of(provenance, server, TRAINING_POWER_SHARE, TRAINING_UTILISATION),
        efficiency=efficiency,
        values=provenance.values,
        origins=provenance.origins,
        warnings=(*work.warnings, *_warnings(scenario, job, efficiency)),
        data_source=work.source,
        known_samples=work.known_samples,
    )


def _otherwise(scenario: Scenario, job: Job) -> Iterator[str]:
    """Precision, weights and backend that are not what a tool's default or another stack's file says."""
    known, usual = (
        supported_precisions(job.server.accelerator),
        (scenario.values.precision, job.stack.defaults.precision),
    )
    if not chosen(scenario, "precision") and (
        missing := [one for one in usual if one is not None and one not in known]
    ):
        yield f"{job.server.accelerator.name} has no {missing[0]}: the run computes in {job.precision} instead"
    backend, dtype = scenario.values.train.backend, scenario.values.train.weights_dtype
    if backend is not None and backend not in job.stack.runs_on:
        yield f"the stack {job.stack.name} has no backend {backend}, which the file says: it shares states out itself"
    for key, choice in OF_GRADIENTS.items():
        asked = attrgetter(key)(scenario.values)
        if asked not in (None, job.stack.gradient_dtype(choice, job.precision)):
            setting = scenario.caller.setting(key, asked)
            yield f"{setting} has no effect: it is no choice of the stack {job.stack.name}"
    if dtype is not None and dtype not in job.stack.weights_dtypes:
        yield f"the stack {job.stack.name} cannot load weights in {dtype}, which the file says: it keeps its own type"
    elif dtype is not None and job.stack.loads_alike and chosen(scenario, "train.weights_dtype"):
        setting, keeps = scenario.caller.setting("train.weights_dtype", dtype), job.stack.backend or job.stack.name
        yield f"{setting} has no effect: {keeps} keeps 16-bit weights with float32 copies, whatever is loaded"
    now, copied = job.stack.defaults.weights_dtype, any(one.copies for one in job.method.frozen)
    if dtype is None and copied and now == FP32 and job.precision in job.stack.weights_dtypes:
        setting = scenario.caller.setting("train.weights_dtype", job.precision)
        yield f"{job.stack.name} loads the model and its frozen copy in {now} by itself: {setting} halves both"


def _headroom_bytes(limits: LimitsSection, job: Job) -> float:
    """What a layout must leave free of the card: what is asked, and what memory as sure as is asked takes [bytes]."""
    asked = (limits.min_headroom_gib or 0.0) * GIB
    if limits.confidence is None:
        return asked
    card_bytes = job.server.accelerator.memory_bytes
    room = memory_suffices(job.lengths_assumed).quantile(limits.confidence)
    return card_bytes - (card_bytes - asked) / max(room, 1.0)


def _method(provenance: Provenance, model: ModelShape, stack: Stack, job_name: str, registry: Registry) -> Method:
    kind = METHODS.get(job_name)
    if kind is None:  # a job of the other wing, beside other problems of the scenario
        raise InputError(_inference(provenance.scenario))
    return build_method(provenance, model, stack, kind, registry)


def _precision(provenance: Provenance, server: Server, stack: Stack) -> str:
    known = supported_precisions(server.accelerator)
    default = stack.defaults.precision
    scenario = provenance.scenario
    if chosen(scenario, "precision"):
        return str(provenance.resolve_default("precision", default, "stack"))
    asked = scenario.values.train.mixed_precision if stack.mixes else None
    mixed = stack.defaults.weights_dtype if asked == NO_AUTOCAST else asked
    default = scenario.values.precision or mixed or default
    usable = default if default in known else FP16 if FP16 in known else known[0]
    provenance.note("precision", usable, scenario.origin.get("precision", "stack"))
    return usable


def _of_stack(provenance: Provenance, stack: Stack, precision: str) -> None:
    """Note number formats of weights and gradients, and the backend, also where the stack has other ones than asked."""
    scenario = provenance.scenario
    noted = {"train.weights_dtype": stack.defaults.weights_dtype, "train.backend": stack.backend}
    noted |= {key: stack.gradient_dtype(choice, precision) for key, choice in OF_GRADIENTS.items()}
    for key, value in noted.items():
        if value is None or (key == "train.backend" and key not in scenario.origin):
            provenance.drop(key)
        else:
            asked = attrgetter(key)(scenario.values) == value
            provenance.note(key, value, scenario.origin.get(key, "stack") if asked else "stack")


OF_ITERATIONS = frozenset({"rollout", "environment", *POOLS})
"""Sections of a scenario that only reinforcement learning has a use for."""


def _sparse_attention(job: Job) -> Iterator[str]:
    """Warnings where queries pick the tokens they attend to, and the stack has no kernels for that."""
    picks, kernels = job.model.indexer, job.stack.kernels
    if picks and picks.kind in kernels.sparse_dense:
        tokens = f"{max(picks.top_k, picks.dense_tokens):,}"
        yield f"{job.stack.name} attends to all tokens: sequences of more than {tokens} are not attended to as served"
    elif picks and picks.kind in kernels.sparse_masked:
        lacks = f"{job.stack.name} has no kernels for the sparse attention of {job.model.name}"
        yield f"{lacks}: it masks all pairs of tokens, in every layer"


def _warnings(scenario: Scenario, job: Job, efficiency: Efficiency) -> Iterator[str]:
    model = job.model
    if model.max_positions and job.seq_len > model.max_positions:
        trained = f"the {model.max_positions:,} positions that {model.name} was trained for"
        yield f"seq_len {job.seq_len:,} is above {trained}"
    if (ramp := job.batch_ramp) is not None:
        more = ramp.more_steps(job.global_batch, float(job.steps * job.global_batch))
        grows = f"the batch grows from {ramp.start:,} to {job.global_batch:,} sequences over {ramp.samples:,}"
        yield f"{grows}: {more:,.0f} steps more than the {job.steps:,} of whole batches, which memory is for"
    for section in METHOD_SECTIONS:
        if section not in job.method.settings and any(key.startswith(f"{section}.") for key in scenario.origin):
            yield f"{section} settings have no effect on the job {job.method.name}"
    others = {key for kind in METHODS.values() for key in kind.reads} - set(job.method.kind.reads)
    for key in sorted(others & set(scenario.origin)):
        yield f"{scenario.caller.setting(key)} has no effect on the job {job.method.name}"
    yield from without_effect(scenario, job)
    yield from _otherwise(scenario, job)
    if job.method.kind.rollout is None:
        sections = {key.partition(".")[0] for key in scenario.origin} & OF_ITERATIONS
        yield from (f"{one} settings have no effect on the job {job.method.name}" for one in sorted(sections))
    served = {key for key, origin in scenario.origin.items() if origin != "env" and key in SERVE_ALONE}
    if any(key.startswith("serve.") and origin != "env" for key, origin in scenario.origin.items()):
        served.add("serve settings")
    if served:
        verb = "have" if len(served) > 1 or "serve settings" in served else "has"
        yield f"{' and '.join(sorted(served))} {verb} no effect on the job {job.method.name}"
    yield from left_out(scenario, job)
    yield from _sparse_attention(job)
    yield from assumptions(model, job.server)
    yield from borrowed_laws(job.server.accelerator, efficiency)
