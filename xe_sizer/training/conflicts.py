"""What a scenario asks that its model, its hardware or its stack cannot do."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from xe_sizer.errors import did_you_mean
from xe_sizer.graph.inputs import BLOCK_SCALED
from xe_sizer.graph.recompute import RECOMPUTE_MODULES, find_modules
from xe_sizer.laws.device import FP4, FP8
from xe_sizer.scenario.provenance import indivisible, problem_at, too_many_stages, unknown_precision
from xe_sizer.software.number_formats import recipes_of
from xe_sizer.software.stack import (
    PARALLEL_WAYS,
    has_optimizer,
    optimizers_of,
    relative_on_several_gpus,
    stacks_with,
    stacks_with_schedule,
)
from xe_sizer.training.layout import can_offload, offloaded_parts
from xe_sizer.training.search_space import ENDS
from xe_sizer.training.workload import count_replicas

if TYPE_CHECKING:
    from xe_sizer.errors import Problem
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.laws.hardware import Server
    from xe_sizer.profiles.finder import Finder
    from xe_sizer.scenario.read import Given
    from xe_sizer.software.stack import Stack

# Encoder-decoders under training: the length of what they answer, and the layouts that they have no equation for.

WHOLE_LAYOUTS = {"pp": "pipelines", "cp": "context parallelism"}


def half_conflicts(given: Given, model: ModelShape) -> Iterator[Problem]:
    """Layouts that split the layers or the tokens of an encoder-decoder, and targets of a model without a decoder."""
    for key, words in WHOLE_LAYOUTS.items():
        if model.encoder_layers and (getattr(given.values.layout, key) or 1) > 1:
            message = f"{words} of an encoder and a decoder have no equation yet ({model.name})"
            yield problem_at(given, f"layout.{key}", message, "spread it over tp and dp, with ZeRO")
    if given.values.train.target_len is not None and not model.encoder_layers:
        message = f"{model.name} has no decoder apart from an encoder, whose sequences 'target_len' would be"
        yield problem_at(given, "train.target_len", message, "leave it out")


# What a scenario asks of groups of ranks, of stages and of recomputation that model and stack cannot do.


def layout_conflicts(given: Given, model: ModelShape | None, stack: Stack | None, problem: Any) -> Iterator[Problem]:
    """Each with the place of its key and what to write instead; None stands for what is not known."""
    yield from _split_experts(given, model, stack, problem)
    if stack is not None:
        yield from _context_kind(given, model, stack, problem)
        yield from _groups(given, stack, problem)
    yield from _modules(given, model, stack, problem)
    yield from _stages(given, model, stack, problem)
    yield from _ends(given, stack, problem)


def _split_experts(given: Given, model: ModelShape | None, stack: Stack | None, problem: Any) -> Iterator[Problem]:
    """An expert is split over some of the tensor ranks, in models that have experts."""
    layout, key = given.values.layout, "layout.expert_tp"
    ranks = layout.expert_tp
    if ranks is None:
        return
    if model is not None and model.experts is None:
        yield problem(key, f"{model.name} has no experts to split", "leave expert_tp out")
    elif stack is not None and not stack.supports.expert_parallel:
        hint = f"stacks that can: {', '.join(stacks_with('expert_parallel'))}"
        yield problem(key, f"{stack.name} does not place experts apart from the other weights", hint)
    elif layout.tp is not None and layout.tp % ranks:
        hint = f"use a divisor of tp {layout.tp}; 1 leaves experts whole"
        yield problem(key, f"expert_tp {ranks} does not divide tp {layout.tp}", hint)
    elif model is not None and model.experts is not None and model.experts.ffn % ranks:
        yield problem(key, f"expert_tp {ranks} does not divide the {model.experts.ffn} columns of an expert")


def _context_kind(given: Given, model: ModelShape | None, stack: Stack, problem: Any) -> Iterator[Problem]:
    """What context-parallel ranks exchange is what the stack has; those that share out heads have some each."""
    layout, supports = given.values.layout, stack.supports
    kind = layout.cp_kind or stack.kernels.context
    if layout.cp_kind is not None and not supports.context_parallel:
        hint = f"stacks that do: {', '.join(stacks_with('context_parallel'))}"
        yield problem("layout.cp_kind", f"{stack.name} does not split sequences over GPUs, {kind} or otherwise", hint)
    elif kind not in supports.context_kinds:
        hint = f"it has {', '.join(supports.context_kinds)}"
        yield problem("layout.cp_kind", f"{stack.name} has no context parallelism of the kind {kind}", hint)
    elif kind == "ulysses" and model is not None and layout.cp and layout.cp > 1:
        ranks = (layout.tp or 1) * layout.cp
        if model.heads % ranks:
            words = f"cp {layout.cp}" if (layout.tp or 1) == 1 else f"tp x cp = {ranks}"
            others = " and ".join(other for other in supports.context_kinds if other != kind)
            advice = f"each GPU gets whole heads; {others} split sequences alone" if others else None
            yield problem("layout.cp", f"{words} does not divide the {model.heads} heads of {model.name}", advice)


def _modules(given: Given, model: ModelShape | None, stack: Stack | None, problem: Any) -> Iterator[Problem]:
    """Modules that run again are part of selective recomputation, of the stack, and of the model."""
    layout, key = given.values.layout, "layout.recompute_modules"
    if layout.recompute_modules is None:
        return
    if layout.recompute not in (None, "selective"):
        hint = f"leave one of them out, or write {given.caller.setting('layout.recompute', 'selective')}"
        yield problem(key, f"recompute_modules is selective recomputation, not {layout.recompute}", hint)
    known = stack.supports.recompute_modules if stack is not None else RECOMPUTE_MODULES
    if stack is not None and not known:
        hint = f"stacks that can: {', '.join(stacks_with('recompute_modules'))}"
        yield problem(key, f"{stack.name} does not recompute by module", hint)
        return
    has = known if model is None else find_modules(model)
    for module in layout.recompute_modules:
        if stack is not None and module not in known:
            yield problem(key, f"{stack.name} cannot recompute {module} alone", f"it can {', '.join(known)}")
        elif model is not None and module not in has:
            yield problem(key, f"{model.name} has no {module}", f"it has {', '.join(has)}")


def _stages(given: Given, model: ModelShape | None, stack: Stack | None, problem: Any) -> Iterator[Problem]:
    """Stages that are all given hold all layers, are as many as pp, and leave nothing to say about the ends."""
    layout, key = given.values.layout, "layout.stages"
    if layout.stages is None:
        return
    count, held = len(layout.stages), sum(layout.stages)
    if layout.pp not in (None, count):
        yield problem(key, f"{count} stages are given, and pp is {layout.pp}", "give only one of the two")
    for end in ("first_stage_layers", "last_stage_layers"):
        if getattr(layout, end) is not None:
            yield problem(f"layout.{end}", f"{end} is given, and the layers of every stage too", "give one of them")
    if model is not None and held != model.layers:
        more = "more" if held > model.layers else "fewer"
        yield problem(key, f"the stages hold {held} layers, {more} than the {model.layers} of {model.name}")
    if stack is not None and not stack.supports.pipeline_parallel:
        hint = f"stacks that support it: {', '.join(stacks_with('pipeline_parallel'))}"
        yield problem(key, f"{stack.name} does not support pipelines", hint)


def _ends(given: Given, stack: Stack | None, problem: Any) -> Iterator[Problem]:
    """Ends that take a layer's place do so where layers are spread evenly over the stages of a pipeline."""
    layout = given.values.layout
    counting = next((f"account_for_{end}" for end in ENDS if getattr(layout, f"account_for_{end}")), None)
    if counting is None:
        return
    for key in ("first_stage_layers", "last_stage_layers", "stages"):
        if getattr(layout, key) is not None:
            yield problem(f"layout.{key}", f"{key} is given, and {counting} spreads the layers", "give one of them")
    if stack is not None and not stack.supports.pipeline_parallel:
        hint = f"stacks that support it: {', '.join(stacks_with('pipeline_parallel'))}"
        yield problem(f"layout.{counting}", f"{stack.name} does not support pipelines", hint)


def _groups(given: Given, stack: Stack, problem: Any) -> Iterator[Problem]:
    """Groups that share a copy of sharded states each, which are whole parts of the replicas."""
    layout, key = given.values.layout, "layout.zero_group"
    if not layout.zero_group:
        return
    ranks = layout.dp * (layout.cp or 1) if layout.dp else None
    if not stack.supports.hybrid_sharding and ranks != layout.zero_group:
        hint = f"leave {given.caller.setting(key)} out, or choose another stack"
        yield problem(key, f"{stack.name} shares states over all replicas alone", hint)
    elif ranks is not None and ranks % layout.zero_group:
        words = f"dp {layout.dp}" if ranks == layout.dp else f"dp x cp = {ranks}"
        yield problem(key, f"zero_group {layout.zero_group} does not divide {words}", "use a divisor")
    elif layout.zero == 0:
        yield problem(key, "without ZeRO there are no states to share", "use zero 1, 2 or 3, or leave zero_group out")


# The images of a job's samples as the scenario asks for them, and which parts of a model that sees learn.


def image_conflicts(given: Given, model: ModelShape) -> Iterator[Problem]:
    """Images for a model that sees none, and settings of images where there are none."""
    data = given.values.data
    if data.images and model.vision is None:
        yield problem_at(given, "data.images", f"{model.name} takes no images, as far as its profile says")
    if data.images:
        return
    number = given.caller.setting("data.images", 1)
    if data.image_size is not None:
        yield problem_at(given, "data.image_size", "a size of images needs their number", f"add {number}")
    if given.values.train.freeze is not None:
        yield problem_at(given, "train.freeze", "what is frozen of a model that sees needs images", f"add {number}")


def conflicts(
    given: Given,
    model: ModelShape | None,
    server: Server | None,
    stack: Stack | None,
    precision: str | None,
    gpus: int | None,
    finder: Finder,
) -> Iterator[Problem]:
    """Every conflict, each with the place of the key and, where there is one, what to write instead.

    None stands for what is not known: the checks that need it are left out.
    """
    problem = partial(problem_at, given)
    if server is not None:
        yield from unknown_precision(given, server, precision)
        yield from _nodes(given, server, problem)
    if model is not None:
        yield from indivisible(given, model)
        yield from _whole_stages(given, model, stack, problem)
        yield from _end_stages(given, model, problem)
        yield from half_conflicts(given, model)
        yield from image_conflicts(given, model)
    if stack is not None:
        yield from _support(given, stack, finder, problem)
        yield from _offload(given, stack, problem)
        yield from _fp8_recipe(given, stack, server, precision, problem)
        yield from _one_gpu(given, stack, gpus, finder, problem)
    yield from layout_conflicts(given, model, stack, problem)
    yield from _pipeline(given, stack, problem)
    yield from _counts(given, gpus, problem)
    yield from _sequences(given, problem)
    yield from _batch(given, gpus, problem)
    yield from _ramp(given, problem)
    if stack is not None:
        yield from _accumulation(given, gpus, stack, problem)


def _counts(given: Given, gpus: int | None, problem: Any) -> Iterator[Problem]:
    """GPUs that nodes add up to; those that the scenario names itself were checked when it was read."""
    if gpus is None or given.values.gpus is not None:
        return
    layout, maximum = given.values.layout, given.values.limits.max_gpus
    group = (layout.tp or 1) * (layout.pp or 1) * (layout.cp or 1) * (layout.dp or 1)
    if gpus % group:
        sizes = f"tp x pp x cp x dp = {group}"
        yield problem("nodes", f"{gpus} GPUs cannot hold a layout of {sizes}", f"give a multiple of {group} GPUs")
    if maximum is not None and gpus > maximum:
        yield problem("limits.max_gpus", f"{gpus} GPUs are asked for, but at most {maximum} allowed")


def _support(given: Given, stack: Stack, finder: Finder, problem: Any) -> Iterator[Problem]:
    """What the stack does not have: an optimizer that ships, ways of spreading the model."""
    layout, supports = given.values.layout, stack.supports
    optimizer = finder.called("optimizer", given.values.optimizer or stack.defaults.optimizer)
    if not (has_optimizer(stack, optimizer, finder) or finder.is_users_own("optimizer", optimizer)):
        known = optimizers_of(stack, finder)
        hint = did_you_mean(optimizer, known) or f"it supports {', '.join(known)}"
        yield problem("optimizer", f"{stack.name} has no optimizer '{optimizer}'", hint)
    for key, way in PARALLEL_WAYS.items():
        if (getattr(layout, key) or 1) > 1 and not getattr(supports, way):
            hint = f"stacks that support it: {', '.join(stacks_with(way))}"
            yield problem(f"layout.{key}", f"{stack.name} does not support {key}", hint)
    if layout.schedule is not None and supports.pipeline_parallel and layout.schedule not in supports.schedules:
        hint = f"stacks that have it: {', '.join(stacks_with_schedule(layout.schedule))}"
        yield problem("layout.schedule", f"{stack.name} has no schedule {layout.schedule}", hint)
    if layout.zero is not None and layout.zero not in supports.zero:
        yield problem(
            "layout.zero",
            f"{stack.name} does not support ZeRO stage {layout.zero}",
            f"it supports {', '.join(map(str, supports.zero))}",
        )


def _fp8_recipe(
    given: Given, stack: Stack, server: Server | None, precision: str | None, problem: Any
) -> Iterator[Problem]:
    """A recipe for products in 8 bit, which the stack's kernels have and the accelerator can apply."""
    recipe = given.values.train.fp8_recipe
    if recipe is None:
        return
    has = recipes_of(stack)
    if recipe not in has:
        yield problem("train.fp8_recipe", f"{stack.name} has no recipe {recipe}", f"it has {', '.join(has)}")
    elif precision is not None and precision != FP8:
        hint = given.caller.setting("precision", FP8)
        yield problem("train.fp8_recipe", f"the recipe {recipe} is of products in fp8, not {precision}", f"add {hint}")
    elif server is not None and recipe in BLOCK_SCALED and FP4 not in server.accelerator.peak_flops_per_s:
        others = ", ".join(name for name in has if name not in BLOCK_SCALED)
        message = f"{server.accelerator.name} does not scale blocks in its matrix units, as {recipe} needs"
        yield problem("train.fp8_recipe", message, f"use one of {others}")


def _offload(given: Given, stack: Stack, problem: Any) -> Iterator[Problem]:
    """What the stack keeps in host memory, and with which ZeRO stages."""
    layout, supports = given.values.layout, stack.supports
    if layout.offload_fraction is not None and "optimizer" not in offloaded_parts(layout.offload or "none"):
        hint = f"add {given.caller.setting('layout.offload', 'optimizer')}"
        yield problem("layout.offload_fraction", "no optimizer is offloaded of which it could be a share", hint)
    if layout.offload_layers is not None and "activations" not in offloaded_parts(layout.offload or "none"):
        hint = f"add {given.caller.setting('layout.offload', 'activations')}"
        yield problem("layout.offload_layers", "no layers are offloaded of which it could be the number", hint)
    if layout.offload is None or layout.offload == "none":
        return
    if not can_offload(layout.offload, supports.offload):
        has = f"it supports {', '.join(supports.offload)}"
        yield problem("layout.offload", f"{stack.name} cannot offload {layout.offload}", has)
        return
    stage = layout.zero if "optimizer" in offloaded_parts(layout.offload) else None
    if stage is not None and stage < supports.offload_from_zero:
        message = f"{stack.name} offloads from ZeRO stage {supports.offload_from_zero} on"
        yield problem("layout.zero", message, "leave the stage out, and it is chosen")


def _one_gpu(given: Given, stack: Stack, gpus: int | None, finder: Finder, problem: Any) -> Iterator[Problem]:
    """A stack on one GPU shares nothing out: several processes of it are plain data parallelism, if asked for."""
    layout = given.values.layout
    several = max(gpus or 1, layout.dp or 1)
    if stack.supports.several_gpus or several == 1 or layout.zero == 0:
        return
    key = "layout.dp" if gpus is None else "gpus" if given.values.gpus is not None else "nodes"
    relative = relative_on_several_gpus(stack, finder)
    other = f"for several use {given.caller.setting('stack', relative)}; " if relative else ""
    plain = f"{given.caller.setting('layout.zero', 0)} stands for a whole copy on each"
    yield problem(key, f"{stack.name} trains on one GPU", f"{other}{plain}")


def _pipeline(given: Given, stack: Stack | None, problem: Any) -> Iterator[Problem]:
    layout = given.values.layout
    if layout.recompute_layers is not None and layout.recompute != "full":
        hint = (
            f"it counts layers that are recomputed as a whole: add {given.caller.setting('layout.recompute', 'full')}"
        )
        yield problem("layout.recompute_layers", "recompute_layers needs recompute full", hint)
    if stack is None or stack.supports.sharded_stages or (layout.pp or 1) == 1:
        return
    if layout.zero is not None and layout.zero > 1:
        message = f"ZeRO stage {layout.zero} cannot be combined with pipeline stages by {stack.name}"
        yield problem("layout.zero", message, "use zero 1, or pp 1")


def _nodes(given: Given, server: Server, problem: Any) -> Iterator[Problem]:
    gpus, nodes, each = given.values.gpus, given.values.nodes, server.accelerators
    if gpus is not None and nodes is not None and gpus != nodes * each:
        shape = f"{nodes} nodes of {each} have" if nodes > 1 else f"a node of {each} has"
        message = f"{gpus} GPUs are asked for, but {shape} {nodes * each}"
        yield problem("nodes", message, "give only one of the two")


def _sequences(given: Given, problem: Any) -> Iterator[Problem]:
    """What splits sequences needs something to split, and over whom."""
    layout, seq_len = given.values.layout, given.values.train.seq_len
    if layout.sequence_parallel and layout.tp == 1:
        yield problem("layout.sequence_parallel", "sequence_parallel needs tp above 1", "it splits norms over tp")
    if layout.cp and layout.cp > 1 and seq_len and seq_len % (2 * layout.cp):
        message = f"cp {layout.cp} does not divide sequences of {seq_len} tokens"
        yield problem("layout.cp", message, f"each GPU gets two chunks: give a multiple of {2 * layout.cp} tokens")


def _whole_stages(given: Given, model: ModelShape, stack: Stack | None, problem: Any) -> Iterator[Problem]:
    """Stages and chunks hold the same number of layers, or at least one each where they may differ.

    The embedding and the loss are one where they take a layer's place, and may take it where stages differ.
    """
    layout = given.values.layout
    counting = [end for end in ENDS if getattr(layout, f"account_for_{end}")]
    uneven = given.caller.setting("layout.uneven_stages", True)
    by_itself = stack is not None and (stack.defaults.counts_ends or stack.defaults.fills_stages_by_cost)
    given_layers = (layout.first_stage_layers, layout.last_stage_layers, layout.stages)
    may_differ = by_itself or layout.uneven_stages or any(given_layers)
    hint = f"{uneven} (layout.uneven_stages: true) lets stages differ by a layer"
    both = " ".join(given.caller.setting(f"layout.account_for_{name}", True) for name in ENDS)
    ends = counting or (ENDS if may_differ else ())
    places, layers = model.layers + len(counting), f"{model.layers} layers of {model.name}"
    counted = f", with {' and '.join(counting)} {places}" if counting else ""
    for key, stages, words in (
        ("layout.pp", layout.pp or 1, f"pp {layout.pp}"),
        ("layout.vpp", (layout.pp or 1) * (layout.vpp or 1), f"pp x vpp = {(layout.pp or 1) * (layout.vpp or 1)}"),
    ):
        if key == "layout.vpp" and not (layout.vpp and layout.pp):
            continue
        yield from too_many_stages(given, model, key, stages, words, ends)
        if stages <= places and places % stages and not may_differ:
            even = (model.layers + len(ENDS)) % stages == 0
            counts = f"{both} gives embedding and loss a layer's place each, which makes {model.layers + len(ENDS)}; "
            yield problem(key, f"{words} does not divide the {layers}{counted}", counts * even + hint)


def _end_stages(given: Given, model: ModelShape, problem: Any) -> Iterator[Problem]:
    """The first and the last stage leave each of the others a layer, and all of them where there are no others."""
    layout = given.values.layout
    keys = [key for key in ("first_stage_layers", "last_stage_layers") if getattr(layout, key) is not None]
    if not keys:
        return
    others, rest = (layout.pp or 2) - len(keys), model.layers - sum(getattr(layout, key) for key in keys)
    if layout.pp == 1:
        yield problem(f"layout.{keys[0]}", f"{keys[0]} needs pp of at least 2", "one stage holds all layers")
    elif rest < others or (others == 0 and rest and layout.pp):
        words = f"{' and '.join(keys)} leave {rest} of {model.layers} layers to {others} stages"
        yield problem(f"layout.{keys[0]}", words, "each of the others needs at least one")


def _batch(given: Given, gpus: int | None, problem: Any) -> Iterator[Problem]:
    """Over the replicas that the GPUs come to; those that the scenario names itself were checked when it was read."""
    layout, train = given.values.layout, given.values.train
    if gpus is None or train.global_batch is None or layout.dp or not (layout.tp and layout.pp):
        return
    dp = max(gpus // (layout.tp * layout.pp * (layout.cp or 1)), 1)
    share = dp * (train.micro_batch or 1)
    if train.global_batch % share:
        words = f"dp {dp} x micro-batch {train.micro_batch}" if train.micro_batch else f"dp {dp}"
        yield problem(
            "train.global_batch",
            f"a global batch of {train.global_batch} cannot be split over {words}",
            f"give a multiple of {share}",
        )


def _ramp(given: Given, problem: Any) -> Iterator[Problem]:
    """A batch that grows by whole steps from below to the global one."""
    train, key = given.values.train, "train.batch_ramp_up"
    if train.batch_ramp_up is None:
        return
    start, increment, _ = train.batch_ramp_up
    if train.global_batch is None:
        hint = f"add {given.caller.setting('train.global_batch', start + increment)}"
        yield problem(key, "batch_ramp_up needs the global batch in the end", hint)
    elif start >= train.global_batch:
        yield problem(key, f"batch_ramp_up starts with {start}, and the global batch is {train.global_batch}")
    elif (train.global_batch - start) % increment:
        hint = f"use a divisor of {train.global_batch - start}"
        yield problem(key, f"steps of {increment} do not lead from {start} to {train.global_batch}", hint)


def _accumulation(given: Given, gpus: int | None, stack: Stack, problem: Any) -> Iterator[Problem]:
    """A global batch that is not what micro-batch, accumulation and the replicas that the GPUs come to make."""
    train, dp = given.values.train, count_replicas(given, gpus, stack)
    if train.global_batch is None or train.grad_accum is None or given.values.layout.dp:
        return
    of_a_rank = (train.micro_batch or 1) * train.grad_accum
    if dp is None:  # any number that divides the GPUs may be chosen
        dp = train.global_batch // of_a_rank
        if not train.micro_batch or gpus is None or (dp * of_a_rank == train.global_batch and dp and gpus % dp == 0):
            return
        product = f"grad_accum {train.grad_accum} x dp for any dp on {gpus} GPUs"
    else:
        made = of_a_rank * dp
        whole = train.global_batch % made == 0
        if train.global_batch == made or (whole and train.micro_batch is None):
            return
        product = f"grad_accum {train.grad_accum} x dp {dp} ({made})"
    product = f"micro_batch {train.micro_batch} x {product}" if train.micro_batch else product
    is_no = "is not" if train.micro_batch else "is not a multiple of"
    hint = f"leave one of the two out; grad_accum is given at {given.locate(('train', 'grad_accum'))}"
    yield problem("train.global_batch", f"a global batch of {train.global_batch} {is_no} {product}", hint)
