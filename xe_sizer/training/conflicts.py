"""What a scenario asks that its model, its hardware or its stack cannot do."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING

from xe_sizer.errors import did_you_mean
from xe_sizer.graph.inputs import BLOCK_SCALED
from xe_sizer.graph.model import VOCABULARY
from xe_sizer.graph.recompute import RECOMPUTE_MODULES, find_modules
from xe_sizer.laws.device import FP4, FP8, INT8, sixteen_bit
from xe_sizer.profiles.catalogue import has_optimizer, load_stack, optimizers_of, relative_on_several_gpus, stacks_with
from xe_sizer.scenario.conflicts import (
    Asked,
    Found,
    layout_divides,
    of_model,
    of_one_memory,
    of_server,
    servers_are_owned,
    too_many_stages,
    unknown_precision,
)
from xe_sizer.software.number_formats import casts_of, recipes_of
from xe_sizer.software.stack import DOES, OF_GRADIENTS, PARALLEL_WAYS
from xe_sizer.training.layout import can_offload, offloaded_parts
from xe_sizer.training.search_space import ENDS
from xe_sizer.training.workload import count_replicas

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.laws.hardware import Server
    from xe_sizer.profiles.finder import Finder
    from xe_sizer.scenario.scenario import Scenario
    from xe_sizer.software.stack import Stack


class AskedTraining(Asked):
    """A scenario of training and what its names stand for; None stands for what is not known."""

    def __init__(
        self, scenario: Scenario, model: ModelShape | None, server: Server | None, gpus: int | None,
        stack: Stack | None, precision: str | None, finder: Finder,
    ) -> None:  # fmt: skip
        super().__init__(scenario, model, server, gpus)
        self.train = scenario.values.train
        self.stack = stack
        self.precision = precision
        self.finder = finder


Rule = Callable[[AskedTraining], Found]


def of_stack(rule: Callable[[AskedTraining, Stack], Found]) -> Rule:
    """A rule of scenarios whose stack is known."""
    return lambda asked: rule(asked, asked.stack) if asked.stack is not None else iter(())


def gives_way(scenario: Scenario, key: str) -> bool:
    """Whether a key was said for another stack: a flag or variable names the stack, and neither of them the key."""
    of_caller = ("flag", "env")
    return scenario.origin.get("stack") in of_caller and scenario.origin.get(key) not in of_caller


def trains_here(asked: AskedTraining, server: Server) -> Found:
    """An accelerator that is sized for serving alone."""
    if server.accelerator.serving_only:
        key, name = "server" if asked.scenario.values.server else "gpu", server.accelerator.name
        told = f"{name} is sized for serving alone: no published training run shows how fast it is"
        yield key, told, "xe-sizer serve, or another GPU"


def precision_is_known(asked: AskedTraining, server: Server) -> Found:
    """A number format that the accelerator does not multiply."""
    return unknown_precision(asked, server, asked.precision)


WHOLE_LAYOUTS = {"pp": "pipelines", "cp": "context parallelism"}


def encoder_decoders_are_whole(asked: AskedTraining, model: ModelShape) -> Found:
    """Layouts that split the layers or the tokens of an encoder-decoder, and targets of a model without a decoder."""
    for key, words in WHOLE_LAYOUTS.items():
        if model.encoder_layers and (getattr(asked.layout, key) or 1) > 1:
            message = f"{words} of an encoder and a decoder have no equation yet ({model.name})"
            yield f"layout.{key}", message, "spread it over tp and dp, with ZeRO"
    if asked.train.target_len is not None and not model.encoder_layers:
        message = f"{model.name} has no decoder apart from an encoder, whose sequences 'target_len' would be"
        yield "train.target_len", message, "leave it out"


def experts_split(asked: AskedTraining) -> Found:
    """An expert is split over some of the tensor ranks, in models that have experts."""
    model, stack = asked.model, asked.stack
    layout, key = asked.layout, "layout.expert_tp"
    ranks = layout.expert_tp
    if ranks is None:
        return
    if model is not None and model.experts is None:
        yield key, f"{model.name} has no experts to split", "leave expert_tp out"
    elif stack is not None and not stack.supports.expert_parallel:
        hint = f"stacks that can: {', '.join(stacks_with('expert_parallel'))}"
        yield key, f"{stack.name} does not place experts apart from the other weights", hint
    elif layout.tp is not None and layout.tp % ranks:
        hint = f"use a divisor of tp {layout.tp}; 1 leaves experts whole"
        yield key, f"expert_tp {ranks} does not divide tp {layout.tp}", hint
    elif model is not None and model.experts is not None and model.experts.ffn % ranks:
        yield key, f"expert_tp {ranks} does not divide the {model.experts.ffn} columns of an expert", None


def experts_are_routed(asked: AskedTraining) -> Found:
    """How tokens are shared out among experts, of a model that has some; what is padded needs a capacity."""
    model, train = asked.model, asked.train
    for key in ("expert_skew", "capacity_factor", "pad_to_capacity"):
        if model is not None and model.experts is None and getattr(train, key):
            yield f"train.{key}", f"{model.name} has no experts", f"leave {key} out"
    if train.pad_to_capacity and train.capacity_factor is None:
        hint = "give capacity_factor too, e.g. 1.25"
        yield "train.pad_to_capacity", "the tokens of experts are padded to a capacity, and none is given", hint


def further_tokens_are_predicted(asked: AskedTraining) -> Found:
    """Layers that predict further tokens, of a model that reads the vocabulary's logits one after the other."""
    model, layers = asked.model, asked.train.mtp_layers
    if model is None or not layers:
        return
    if model.bidirectional or model.encoder_layers or model.head != VOCABULARY:
        message = f"{model.name} does not predict the next token here, and thus none after it"
        yield "train.mtp_layers", message, "leave mtp_layers out"


def context_kind_is_known(asked: AskedTraining, stack: Stack) -> Found:
    """What context-parallel ranks exchange is what the stack has; those that share out heads have some each."""
    model = asked.model
    layout, supports = asked.layout, stack.supports
    kind = layout.cp_kind or stack.kernels.context
    if layout.cp_kind is not None and not supports.context_parallel:
        hint = f"stacks that do: {', '.join(stacks_with('context_parallel'))}"
        yield (
            "layout.cp_kind",
            f"{stack.name} does not split sequences over GPUs, {kind} or otherwise",
            hint,
        )
    elif kind not in supports.context_kinds:
        hint = f"it has {', '.join(supports.context_kinds)}"
        yield "layout.cp_kind", f"{stack.name} has no context parallelism of the kind {kind}", hint
    elif kind == "ulysses" and model is not None and layout.cp and layout.cp > 1:
        ranks = (layout.tp or 1) * layout.cp
        if model.heads % ranks:
            words = f"cp {layout.cp}" if (layout.tp or 1) == 1 else f"tp x cp = {ranks}"
            others = " and ".join(other for other in supports.context_kinds if other != kind)
            advice = f"each GPU gets whole heads; {others} split sequences alone" if others else None
            yield "layout.cp", f"{words} does not divide the {model.heads} heads of {model.name}", advice


def modules_run_again(asked: AskedTraining) -> Found:
    """Modules that run again are part of selective recomputation, of the stack, and of the model."""
    model, stack = asked.model, asked.stack
    layout, key = asked.layout, "layout.recompute_modules"
    if layout.recompute_modules is None:
        return
    if layout.recompute not in (None, "selective"):
        hint = f"leave one of them out, or write {asked.setting('layout.recompute', 'selective')}"
        yield key, f"recompute_modules is selective recomputation, not {layout.recompute}", hint
    known = stack.supports.recompute_modules if stack is not None else RECOMPUTE_MODULES
    if stack is not None and not known:
        hint = f"stacks that can: {', '.join(stacks_with('recompute_modules'))}"
        yield key, f"{stack.name} does not recompute by module", hint
        return
    has = known if model is None else find_modules(model)
    for module in layout.recompute_modules:
        if stack is not None and module not in known:
            yield key, f"{stack.name} cannot recompute {module} alone", f"it can {', '.join(known)}"
        elif model is not None and module not in has:
            yield key, f"{model.name} has no {module}", f"it has {', '.join(has)}"


KEPT_BY_NAME = ("recompute_policy", "recompute_keep", "recompute_offload")


def tensors_are_kept_by_name(asked: AskedTraining) -> Found:
    """Tensors, or a policy that lists them, are kept by a stack that can, of layers that run again, in one place."""
    stack, layout = asked.stack, asked.layout
    given = [name for name in KEPT_BY_NAME if getattr(layout, name) is not None]
    if not given:
        return
    key = f"layout.{given[0]}"
    if layout.recompute not in (None, "selective"):
        hint = f"leave one of them out, or write {asked.setting('layout.recompute', 'selective')}"
        yield key, f"{given[0]} is selective recomputation, not {layout.recompute}", hint
    if layout.recompute_modules is not None:
        yield key, f"{given[0]} says what is kept, recompute_modules what is not", "give one of them"
    if layout.recompute_policy is not None and len(given) > 1:
        yield key, f"a policy says what is kept, and so does {given[1]}", "give one of them"
    twice = set(layout.recompute_keep or ()) & set(layout.recompute_offload or ())
    for tensor in sorted(twice):
        yield key, f"{tensor} is kept on the GPU and in host memory", "give it once"
    if stack is None:
        return
    if not stack.supports.recompute_tensors:
        hint = f"stacks that can: {', '.join(stacks_with('recompute_tensors'))}"
        yield key, f"{stack.name} does not keep tensors by name", hint
    elif layout.recompute_policy is not None and layout.recompute_policy not in stack.recompute_policies:
        policies = stack.recompute_policies
        close = did_you_mean(layout.recompute_policy, policies) or f"it has {', '.join(policies)}"
        yield key, f"{stack.name} has no policy '{layout.recompute_policy}'", close


def stages_hold_all_layers(asked: AskedTraining) -> Found:
    """Stages that are all given hold all layers, are as many as pp, and leave nothing to say about the ends."""
    model, stack = asked.model, asked.stack
    layout, key = asked.layout, "layout.stages"
    if layout.stages is None:
        return
    count, held = len(layout.stages), sum(layout.stages)
    if layout.pp not in (None, count):
        yield key, f"{count} stages are given, and pp is {layout.pp}", "give only one of the two"
    for end in ("first_stage_layers", "last_stage_layers"):
        if getattr(layout, end) is not None:
            yield f"layout.{end}", f"{end} is given, and the layers of every stage too", "give one of them"
    if model is not None and held != model.layers:
        more = "more" if held > model.layers else "fewer"
        yield key, f"the stages hold {held} layers, {more} than the {model.layers} of {model.name}", None
    if stack is not None and not stack.supports.pipeline_parallel:
        hint = f"stacks that support it: {', '.join(stacks_with('pipeline_parallel'))}"
        yield key, f"{stack.name} does not support pipelines", hint


def ends_take_places(asked: AskedTraining) -> Found:
    """Ends that take a layer's place do so where layers are spread evenly over the stages of a pipeline."""
    stack = asked.stack
    layout = asked.layout
    counting = next((f"account_for_{end}" for end in ENDS if getattr(layout, f"account_for_{end}")), None)
    if counting is None:
        return
    for key in ("first_stage_layers", "last_stage_layers", "stages"):
        if getattr(layout, key) is not None:
            yield f"layout.{key}", f"{key} is given, and {counting} spreads the layers", "give one of them"
    if stack is not None and not stack.supports.pipeline_parallel:
        hint = f"stacks that support it: {', '.join(stacks_with('pipeline_parallel'))}"
        yield f"layout.{counting}", f"{stack.name} does not support pipelines", hint


def groups_share_states(asked: AskedTraining, stack: Stack) -> Found:
    """Groups that share a copy of sharded states each, which are whole parts of the replicas."""
    layout, key = asked.layout, "layout.zero_group"
    if not layout.zero_group:
        return
    ranks = layout.dp * (layout.cp or 1) if layout.dp else None
    if not stack.supports.hybrid_sharding and ranks != layout.zero_group:
        hint = f"leave {asked.setting(key)} out, or choose another stack"
        yield key, f"{stack.name} shares states over all replicas alone", hint
    elif ranks is not None and ranks % layout.zero_group:
        words = f"dp {layout.dp}" if ranks == layout.dp else f"dp x cp = {ranks}"
        yield key, f"zero_group {layout.zero_group} does not divide {words}", "use a divisor"
    elif layout.zero == 0:
        yield (
            key,
            "without ZeRO there are no states to share",
            "use zero 1, 2 or 3, or leave zero_group out",
        )


def model_sees(asked: AskedTraining, model: ModelShape) -> Found:
    """Images for a model that sees none, and settings of images where there are none."""
    data = asked.scenario.values.data
    if data.images and model.vision is None:
        yield "data.images", f"{model.name} takes no images, as far as its profile says", None
    if data.images:
        return
    number = asked.setting("data.images", 1)
    if data.image_size is not None:
        yield "data.image_size", "an image size needs a number of images", f"add {number}"
    if asked.train.freeze is not None:
        yield (
            "train.freeze",
            "parts of a vision-language model are frozen only where samples have images",
            f"add {number}",
        )


def nodes_hold_the_layout(asked: AskedTraining) -> Found:
    """GPUs that nodes add up to; those that the scenario names itself were checked when it was read."""
    gpus = asked.gpus
    if gpus is None or asked.scenario.values.gpus is not None:
        return
    layout, maximum = asked.layout, asked.scenario.values.limits.max_gpus
    group = (layout.tp or 1) * (layout.pp or 1) * (layout.cp or 1) * (layout.dp or 1)
    if gpus % group:
        sizes = f"tp x pp x cp x dp = {group}"
        yield "nodes", f"{gpus} GPUs cannot hold a layout of {sizes}", f"give a multiple of {group} GPUs"
    if maximum is not None and gpus > maximum:
        yield "limits.max_gpus", f"{gpus} GPUs are asked for, but at most {maximum} allowed", None


def stack_supports(asked: AskedTraining, stack: Stack) -> Found:
    """What the stack does not have: an optimizer that ships, ways of spreading the model."""
    finder = asked.finder
    layout, supports = asked.layout, stack.supports
    optimizer = finder.called("optimizer", asked.scenario.values.optimizer or stack.defaults.optimizer)
    if not (has_optimizer(stack, optimizer, finder) or finder.is_users_own("optimizer", optimizer)):
        known = optimizers_of(stack, finder)
        hint = did_you_mean(optimizer, known) or f"it supports {', '.join(known)}"
        yield "optimizer", f"{stack.name} has no optimizer '{optimizer}'", hint
    for key, way in PARALLEL_WAYS.items():
        if (getattr(layout, key) or 1) > 1 and not getattr(supports, way):
            hint = f"stacks that support it: {', '.join(stacks_with(way))}"
            yield f"layout.{key}", f"{stack.name} does not support {key}", hint
    if layout.schedule is not None and supports.pipeline_parallel and layout.schedule not in supports.schedules:
        piped = stacks_with("pipeline_parallel")
        able = (name for name in piped if layout.schedule in load_stack(name).supports.schedules)
        hint = f"stacks that have it: {', '.join(able)}"
        yield "layout.schedule", f"{stack.name} has no schedule {layout.schedule}", hint
    overlap = asked.train.overlap or ()
    if len(overlap) > 1 and {"on", "off"} & set(overlap):
        yield "train.overlap", "on and off stand alone, for all exchanges", "name the exchanges that compute hides"
    for word in overlap:
        if word not in ("on", "off", *stack.overlap.can_hide):
            hint = f"it can hide {', '.join(stack.overlap.can_hide) or 'none'}"
            yield "train.overlap", f"{stack.name} hides no exchange of {word} behind compute", hint
    if layout.zero is not None and layout.zero not in supports.zero:
        yield (
            "layout.zero",
            f"{stack.name} does not support ZeRO stage {layout.zero}",
            f"it supports {', '.join(map(str, supports.zero))}",
        )


def recipe_is_known(asked: AskedTraining, stack: Stack) -> Found:
    """A recipe for products in 8 bit, which the stack's kernels have and the accelerator can apply."""
    server, precision = asked.server, asked.precision
    recipe = asked.train.fp8_recipe
    if recipe is None:
        return
    has = recipes_of(stack)
    if recipe not in has:
        yield "train.fp8_recipe", f"{stack.name} has no recipe {recipe}", f"it has {', '.join(has)}"
    elif precision is not None and precision != FP8:
        hint = asked.setting("precision", FP8)
        yield (
            "train.fp8_recipe",
            f"the recipe {recipe} is of products in fp8, not {precision}",
            f"add {hint}",
        )
    elif server is not None and recipe in BLOCK_SCALED and FP4 not in server.accelerator.peak_flops_per_s:
        others = ", ".join(name for name in has if name not in BLOCK_SCALED)
        message = f"{server.accelerator.name} does not scale blocks in its matrix units, as {recipe} needs"
        yield "train.fp8_recipe", message, f"use one of {others}"


def gradients_are_kept(asked: AskedTraining, stack: Stack) -> Found:
    """Gradients in a number format that the stack has for them, at the precision of the run."""
    if asked.precision is None:
        return
    for key, choice in OF_GRADIENTS.items():
        dtype, known = attrgetter(key)(asked.scenario.values), stack.gradient_dtypes(choice, asked.precision)
        if dtype is not None and dtype not in known and not gives_way(asked.scenario, key):
            does = DOES[choice]
            hint = f"it has {', '.join(known)}" if known else f"how it {does}s them is part of the stack"
            yield key, f"{stack.name} cannot {does} gradients in {dtype} at precision {asked.precision}", hint


def multiplies_integers(asked: AskedTraining, stack: Stack) -> Found:
    """Products in 8-bit integers need a library that casts to them."""
    if asked.precision == INT8 and asked.server is not None:
        peaks = asked.server.accelerator.peak_flops_per_s
        if casts_of(stack, INT8, peaks) is None:
            instead = FP8 if FP8 in peaks else sixteen_bit(peaks)
            yield "precision", f"{stack.name} multiplies in no {INT8}", f"write {asked.setting('precision', instead)}"


def packed_sequences_are_split(asked: AskedTraining, stack: Stack) -> Found:
    """Some stacks split packed sequences over context ranks one at a time."""
    train, ranks = asked.train, asked.layout.cp or 1
    packs = (train.padding or stack.defaults.padding) == "packed"
    if packs and stack.supports.splits_one_packed and ranks > 1 and (train.micro_batch or 1) > 1:
        message = f"{stack.name} splits packed sequences over cp {ranks} GPUs one at a time, not {train.micro_batch}"
        yield "train.micro_batch", message, f"use {asked.setting('train.micro_batch', 1)}"


def stack_offloads(asked: AskedTraining, stack: Stack) -> Found:
    """What the stack keeps in host memory, and with which ZeRO stages."""
    layout, supports = asked.layout, stack.supports
    if layout.offload_fraction is not None and "optimizer" not in offloaded_parts(layout.offload or "none"):
        hint = f"add {asked.setting('layout.offload', 'optimizer')}"
        yield "layout.offload_fraction", "it is a share of an offloaded optimizer, and none is offloaded", hint
    if layout.offload_layers is not None and "activations" not in offloaded_parts(layout.offload or "none"):
        hint = f"add {asked.setting('layout.offload', 'activations')}"
        yield "layout.offload_layers", "it is a number of offloaded layers, and none are offloaded", hint
    if layout.offload is None or layout.offload == "none":
        return
    if not can_offload(layout.offload, supports.offload):
        has = f"it supports {', '.join(supports.offload)}"
        yield "layout.offload", f"{stack.name} cannot offload {layout.offload}", has
        return
    if layout.offload == stack.defaults.usual_offload and layout.recompute not in (None, "full"):
        message = f"{stack.name} offloads {layout.offload} of layers that it recomputes, by one switch for both"
        yield "layout.offload", message, f"leave it out, or take {asked.setting('layout.recompute', 'full')}"
    stage = layout.zero if "optimizer" in offloaded_parts(layout.offload) else None
    if stage is not None and stage < supports.offload_from_zero:
        message = f"{stack.name} offloads from ZeRO stage {supports.offload_from_zero} on"
        yield "layout.zero", message, "leave the stage out, and it is chosen"


def offloads_elsewhere(asked: AskedTraining, server: Server) -> Found:
    """Offloading to a host whose memory the GPU shares, which moves nothing away."""
    offload = asked.layout.offload
    if offload not in (None, "none") and not server.host_apart:
        hint = f"leave it out, or write {asked.setting('layout.offload', 'none')}"
        yield "layout.offload", of_one_memory(server, f"offload {offload}"), hint
    if server.host_apart:
        return
    policy = asked.stack.recompute_policies.get(asked.layout.recompute_policy or "") if asked.stack else None
    hosted = {"recompute_offload": asked.layout.recompute_offload, "recompute_policy": policy and policy.offload}
    for name in (name for name, tensors in hosted.items() if tensors):
        hint = f"say what the GPU keeps: {asked.setting('layout.recompute_keep')}"
        yield f"layout.{name}", of_one_memory(server, f"'{name}'"), hint


def stack_trains_on_several(asked: AskedTraining, stack: Stack) -> Found:
    """A stack on one GPU shares nothing out: several processes of it are plain data parallelism, if asked for."""
    gpus, finder = asked.gpus, asked.finder
    layout = asked.layout
    several = max(gpus or 1, layout.dp or 1)
    if stack.supports.several_gpus or several == 1 or layout.zero == 0:
        return
    key = "layout.dp" if gpus is None else "gpus" if asked.scenario.values.gpus is not None else "nodes"
    relative = relative_on_several_gpus(stack, finder)
    other = f"for several use {asked.setting('stack', relative)}; " if relative else ""
    plain = f"{asked.setting('layout.zero', 0)} stands for a whole copy on each"
    yield key, f"{stack.name} trains on one GPU", f"{other}{plain}"


def recomputed_layers_are_whole(asked: AskedTraining) -> Found:
    """A number of layers that run again is of those that do so as a whole."""
    if asked.layout.recompute_layers is not None and asked.layout.recompute != "full":
        hint = f"it counts layers that are recomputed as a whole: add {asked.setting('layout.recompute', 'full')}"
        yield "layout.recompute_layers", "recompute_layers needs recompute full", hint


def stages_go_with_zero(asked: AskedTraining, stack: Stack) -> Found:
    """States that ZeRO shares out beside pipeline stages."""
    layout = asked.layout
    if stack.supports.sharded_stages or (layout.pp or 1) == 1:
        return
    if layout.zero is not None and layout.zero > 1:
        message = f"ZeRO stage {layout.zero} cannot be combined with pipeline stages by {stack.name}"
        yield "layout.zero", message, "use zero 1, or pp 1"


def nodes_have_the_gpus(asked: AskedTraining, server: Server) -> Found:
    gpus, nodes, each = asked.scenario.values.gpus, asked.scenario.values.nodes, server.accelerators
    if gpus is not None and nodes is not None and gpus != nodes * each:
        shape = f"{nodes} nodes of {each} have" if nodes > 1 else f"a node of {each} has"
        message = f"{gpus} GPUs are asked for, but {shape} {nodes * each}"
        yield "nodes", message, "give only one of the two"


def sequences_split(asked: AskedTraining) -> Found:
    """What splits sequences needs something to split, and over whom."""
    layout, seq_len = asked.layout, asked.train.seq_len
    if layout.sequence_parallel and layout.tp == 1:
        yield "layout.sequence_parallel", "sequence_parallel needs tp above 1", "it splits norms over tp"
    if layout.cp and layout.cp > 1 and seq_len and seq_len % (2 * layout.cp):
        message = f"cp {layout.cp} does not divide sequences of {seq_len} tokens"
        yield "layout.cp", message, f"each GPU gets two chunks: give a multiple of {2 * layout.cp} tokens"


def stages_divide_layers(asked: AskedTraining, model: ModelShape) -> Found:
    """Stages and chunks hold the same number of layers, or at least one each where they may differ.

    The embedding and the loss are one where they take a layer's place, and may take it where stages differ.
    """
    stack = asked.stack
    layout = asked.layout
    counting = [end for end in ENDS if getattr(layout, f"account_for_{end}")]
    uneven = asked.setting("layout.uneven_stages", True)
    by_itself = stack is not None and (stack.defaults.counts_ends or stack.defaults.fills_stages_by_cost)
    given_layers = (layout.first_stage_layers, layout.last_stage_layers, layout.stages)
    may_differ = by_itself or layout.uneven_stages or any(given_layers)
    hint = f"{uneven} (layout.uneven_stages: true) lets stages differ by a layer"
    both = " ".join(asked.setting(f"layout.account_for_{name}", True) for name in ENDS)
    ends = counting or (ENDS if may_differ else ())
    places, layers = model.layers + len(counting), f"{model.layers} layers of {model.name}"
    counted = f", with {' and '.join(counting)} {places}" if counting else ""
    for key, stages, words in (
        ("layout.pp", layout.pp or 1, f"pp {layout.pp}"),
        ("layout.vpp", (layout.pp or 1) * (layout.vpp or 1), f"pp x vpp = {(layout.pp or 1) * (layout.vpp or 1)}"),
    ):
        if key == "layout.vpp" and not (layout.vpp and layout.pp):
            continue
        problems = list(too_many_stages(model, key, stages, words, ends))
        yield from problems
        if not problems and stages <= places and places % stages and not may_differ:
            even = (model.layers + len(ENDS)) % stages == 0
            counts = f"{both} gives embedding and loss a layer's place each, which makes {model.layers + len(ENDS)}; "
            yield key, f"{words} does not divide the {layers}{counted}", counts * even + hint


def end_stages_leave_layers(asked: AskedTraining, model: ModelShape) -> Found:
    """The first and the last stage leave each of the others a layer, and all of them where there are no others."""
    layout = asked.layout
    keys = [key for key in ("first_stage_layers", "last_stage_layers") if getattr(layout, key) is not None]
    if not keys:
        return
    others, rest = (layout.pp or 2) - len(keys), model.layers - sum(getattr(layout, key) for key in keys)
    if layout.pp == 1:
        yield f"layout.{keys[0]}", f"{keys[0]} needs pp of at least 2", "one stage holds all layers"
    elif rest < others or (others == 0 and rest and layout.pp):
        words = f"{' and '.join(keys)} leave {rest} of {model.layers} layers to {others} stages"
        yield f"layout.{keys[0]}", words, "each of the others needs at least one"


def batch_splits_over_replicas(asked: AskedTraining) -> Found:
    """Over the replicas that the GPUs come to; those that the scenario names itself were checked when it was read."""
    gpus = asked.gpus
    layout, train = asked.layout, asked.train
    if gpus is None or train.global_batch is None or layout.dp or not (layout.tp and layout.pp):
        return
    dp = max(gpus // (layout.tp * layout.pp * (layout.cp or 1)), 1)
    share = dp * (train.micro_batch or 1)
    if train.global_batch % share:
        words = f"dp {dp} x micro-batch {train.micro_batch}" if train.micro_batch else f"dp {dp}"
        yield (
            "train.global_batch",
            f"a global batch of {train.global_batch} cannot be split over {words}",
            f"give a multiple of {share}",
        )


def batch_ramps_up(asked: AskedTraining) -> Found:
    """A batch that grows by whole steps from below to the global one."""
    train, key = asked.train, "train.batch_ramp_up"
    if train.batch_ramp_up is None:
        return
    start, increment, _ = train.batch_ramp_up
    if train.global_batch is None:
        hint = f"add {asked.setting('train.global_batch', start + increment)}"
        yield key, "batch_ramp_up needs the global batch in the end", hint
    elif start >= train.global_batch:
        yield key, f"batch_ramp_up starts with {start}, and the global batch is {train.global_batch}", None
    elif (train.global_batch - start) % increment:
        hint = f"use a divisor of {train.global_batch - start}"
        yield key, f"steps of {increment} do not lead from {start} to {train.global_batch}", hint


def batch_accumulates(asked: AskedTraining, stack: Stack) -> Found:
    """A global batch that is not what micro-batch, accumulation and the replicas that the GPUs come to make."""
    gpus = asked.gpus
    train, dp = asked.train, count_replicas(asked.scenario, gpus, stack)
    if train.global_batch is None or train.grad_accum is None or asked.layout.dp:
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
    hint = f"leave one of the two out; grad_accum is given at {asked.locate(('train', 'grad_accum'))}"
    yield "train.global_batch", f"a global batch of {train.global_batch} {is_no} {product}", hint


RULES: tuple[Rule, ...] = (
    of_server(trains_here),
    of_server(precision_is_known),
    of_server(servers_are_owned),
    of_server(nodes_have_the_gpus),
    of_model(layout_divides),
    of_model(stages_divide_layers),
    of_model(end_stages_leave_layers),
    of_model(encoder_decoders_are_whole),
    of_model(model_sees),
    of_stack(stack_supports),
    of_stack(stack_offloads),
    of_server(offloads_elsewhere),
    of_stack(recipe_is_known),
    of_stack(gradients_are_kept),
    of_stack(multiplies_integers),
    of_stack(stack_trains_on_several),
    experts_split,
    experts_are_routed,
    further_tokens_are_predicted,
    of_stack(context_kind_is_known),
    of_stack(packed_sequences_are_split),
    of_stack(groups_share_states),
    modules_run_again,
    tensors_are_kept_by_name,
    stages_hold_all_layers,
    ends_take_places,
    recomputed_layers_are_whole,
    of_stack(stages_go_with_zero),
    nodes_hold_the_layout,
    sequences_split,
    batch_splits_over_replicas,
    batch_ramps_up,
    of_stack(batch_accumulates),
)
"""What model, hardware and stack rule out, in the order in which it is told."""
