"""Torchtune: YAML configurations of its recipes, and `tune run` commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from xe_sizer.importers.parts import peft
from xe_sizer.importers.parts.commands import arguments_of, command_of
from xe_sizer.importers.parts.launchers import Hardware, hardware_of, state_gpus
from xe_sizer.importers.parts.optimizers import state_optimizer
from xe_sizer.importers.parts.shapes import Shape, layers_of, state_shape
from xe_sizer.importers.parts.torchtune_keys import BUILDER, SHAPE, TABLE, catalogue_name
from xe_sizer.importers.readers.interpolation import overridden, resolved
from xe_sizer.importers.tool import Tool
from xe_sizer.importers.values import is_on, listed, plain, positive, positive_or_open, switch, text
from xe_sizer.importers.written import Written

if TYPE_CHECKING:
    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.readers.shell import Arguments, Command
    from xe_sizer.importers.source import Source
    from xe_sizer.importers.tool import Certainty
    from xe_sizer.importers.written import Keys

_MODELS = ("model", "policy_model", "inference.model")
_GROUPS = {"quantizer._component_": "quantizer", "teacher_model._component_": "teacher_model"}
_ONE_GPU = "singledevice"
_PREFERENCES = {
    "dpoloss": "dpo",
    "rsoloss": "dpo",
    "simpoloss": "simpo",
    "ppoloss": "ppo",
    "grpo": "grpo",
    "kl": "distill",
}
_PRECISIONS = {"bf16": "bf16", "bfloat16": "bf16", "fp32": "fp32", "float32": "fp32", "fp16": "fp16"}
_MLP = ("gate_proj", "up_proj", "down_proj")
_MODULES = {"output_proj": "o_proj"}


def _starts(words: tuple[str, ...]) -> bool:
    return len(words) > 1 and words[0].rpartition("/")[2] == "tune" and words[1] == "run"


def _launch(source: Source) -> tuple[Command, Arguments] | None:
    command = command_of(source, _starts)
    return None if command is None else (command, arguments_of(command, skipped=2))


def _keys(source: Source) -> Keys:
    """The keys of a configuration, or of the one that a command names, with the command's own on top."""
    if source.kind == "yaml":
        return _by_group(resolved(source.keys, source.given))
    launch = _launch(source)
    if launch is None:
        return {}
    named = launch[1].flags.get("config")
    file = source.companion(named.values[0].text) if named is not None and named.values else None
    overrides = [
        Written(f"{flag.sign}{name}={flag.values[0].text}", flag.where)
        for name, flag in launch[1].flags.items()
        if flag.override and flag.values
    ]
    return _by_group(resolved(overridden(file.keys if file is not None else {}, overrides), source.given))


def _by_group(keys: Keys) -> Keys:
    """Keys, where the component of a group that is lost as a whole goes by the name of the group."""
    return {_GROUPS.get(name, name): written for name, written in keys.items()}


def _recognises(source: Source) -> Certainty:
    if source.kind == "shell":
        return 95 if command_of(source, _starts) is not None else 0
    own = [
        name for name, written in source.keys.items()
        if name.endswith("_component_") and str(written.value).startswith("torchtune.")
    ]  # fmt: skip
    return 95 if own and source.kind == "yaml" else 0


def _read(draft: Draft, source: Source) -> None:
    builder = next((found for each in _MODELS if (found := draft.take(f"{each}._component_"))), None)
    draft.state("stack", TOOL.name, builder or Written(TOOL.name, source.start))
    launch = _launch(source)
    recipe = _recipe(launch, draft, source)
    _model(draft, builder, launch)
    _job(draft, builder, recipe)
    _adapters(draft)
    _precision(draft)
    _hardware(draft, source, launch, recipe)
    _recompute(draft)
    _lengths(draft)
    state_optimizer(draft, "optimizer._component_", draft.peek("optimizer._component_"))
    draft.default("attention", "sdpa")
    loss = draft.take("loss._component_")
    if loss is not None and any(word in plain(loss.value) for word in ("linearcrossentropy", "chunked")):
        draft.state("loss", "fused", loss, "in chunks of tokens")


def _recipe(launch: tuple[Command, Arguments] | None, draft: Draft, source: Source) -> str:
    """Words that tell the recipe: that of the command, the name of the file and its folder of results."""
    words = [word.text for word in launch[1].positionals[:1]] if launch is not None else []
    named = launch[1].flags.get("config") if launch is not None else None
    words += [named.values[0].text] if named is not None and named.values else []
    words += [Path(source.name).stem] if launch is None else []
    folder = draft.peek("output_dir")
    return plain(" ".join([*words, str(folder.value) if folder is not None else ""]))


def _model(draft: Draft, builder: Written | None, launch: tuple[Command, Arguments] | None) -> None:
    found = BUILDER.fullmatch(str(builder.value)) if builder is not None else None
    if builder is None or found is None:
        draft.miss("model", "no model builder is named", "the configuration too (`tune cp` copies it)")
        return
    draft.state("model", catalogue_name(found[2]), builder)
    if "model" in draft.facts:
        return
    taken = {ours: draft.take(f"model.{theirs}") for theirs, ours in SHAPE.items()}
    values = {ours: (draft.value(written, positive), written) for ours, written in taken.items() if written is not None}
    state_shape(draft, Shape({key: (value, written) for key, (value, written) in values.items()}))
    if not any(key.startswith("model") for key in draft.facts):
        draft.miss("model", f"{found[2]} is not known here", "--model NAME")


def _job(draft: Draft, builder: Written | None, recipe: str) -> None:
    """The job, by the loss and the models that are named, else by the builder's prefix."""
    loss = draft.peek("loss._component_", "kd_loss._component_")
    word = plain(loss.value).rpartition("loss")[0] + "loss" if loss is not None else ""
    teacher = draft.peek("teacher_model")
    kind = next((job for name, job in _PREFERENCES.items() if name in word and name != "kl"), None)
    if teacher is not None:
        draft.state("job", "distill", teacher)
    elif kind is not None:
        draft.state("job", kind, loss)
    elif draft.peek("grpo_samples") is not None:
        draft.state("job", "grpo", draft.peek("grpo_samples"))
    elif draft.peek("policy_model._component_") is not None:
        draft.state("job", "ppo", draft.peek("policy_model._component_"))
    elif builder is not None and draft.peek("optimizer._component_") is None:
        draft.assume("job", "inference", "no optimizer is named", builder.where)
    prefix = _prefix(builder) or _prefix_of(recipe)
    quantised = draft.on("model.quantize_base")
    if prefix == peft.QLORA or quantised is not None:
        draft.state("job", peft.QLORA, quantised or builder)
        if builder is not None:
            peft.state_bits(draft, 4, quantised or builder, "torchao")
    elif prefix is not None:
        draft.state("job", prefix, builder)
    draft.state("job", peft.SFT, builder, "all weights are trained")


def _prefix(builder: Written | None) -> str | None:
    found = BUILDER.fullmatch(str(builder.value)) if builder is not None else None
    return found[1] if found is not None else None


def _prefix_of(recipe: str) -> str | None:
    """What the name of a recipe says where no configuration is there: `lora_finetune_distributed`."""
    return None if "full" in recipe or "lorafinetune" not in recipe else peft.LORA


def _adapters(draft: Draft) -> None:
    modules = draft.take("model.lora_attn_modules")
    if modules is None:
        return
    targets = [_MODULES.get(name, name) for name in listed(modules.value) or ()]
    everywhere = draft.on("model.apply_lora_to_mlp")
    draft.state("lora.targets", (*targets, *(_MLP if everywhere is not None else ())), modules)
    dropout = draft.take("model.lora_dropout")
    if dropout is not None:
        draft.state("lora.dropout", dropout.value, dropout)
    draft.default("lora.dropout", 0)
    if draft.peek("model.lora_rank") is None:
        draft.default("lora.rank", 8)
    if draft.peek("model.use_dora") is None:
        draft.default("lora.dora", value=False)


def _precision(draft: Draft) -> None:
    """`dtype` is that of weights, gradients, optimizer states and products alike."""
    eight, recipe = draft.on("enable_fp8_training"), draft.take("fp8_recipe_name")
    if eight is not None:
        draft.state("precision", "fp8", eight)
        draft.state("train.fp8_recipe", text(recipe.value) if recipe is not None else None, recipe)
    elif recipe is not None:
        draft.lose("fp8_recipe_name", "enable_fp8_training is off", "none")
    found = draft.take("dtype")
    kind = _PRECISIONS.get(plain(found.value)) if found is not None else None
    draft.state("precision", kind, found)
    draft.state("train.weights_dtype", kind, found)


def _hardware(draft: Draft, source: Source, launch: tuple[Command, Arguments] | None, recipe: str) -> None:
    sharded = draft.take("fsdp_reshard_after_forward")
    if launch is not None and source.script is not None:
        flags = launch[1].flags
        state_gpus(draft, _of_flags(launch[1]) | hardware_of(source.script, launch[0]))
        if "nproc_per_node" not in flags and "nnodes" not in flags:
            draft.default("gpus", 1, "tune run starts one process unless it is told otherwise")
    replicas, shards = draft.take("data_parallel_replicate_dim"), draft.take("data_parallel_shard_dim")
    copies, size = draft.value(replicas, positive_or_open), draft.value(shards, positive_or_open)
    if isinstance(copies, int) and copies > 1 and isinstance(size, int):
        draft.state("layout.zero_group", size * draft.size("context_parallel_dim"), shards)
    one = _ONE_GPU in recipe or (draft.fact("gpus") == 1 and launch is not None)
    if one:
        draft.default("gpus", 1, "a recipe for a single device")
        draft.default("layout.zero", 0, "a recipe for a single device")
    elif sharded is not None and not switch(sharded.value):
        draft.state("layout.zero", 2, sharded)
    draft.default("layout.zero", 3, "FSDP")


def _of_flags(arguments: Arguments) -> Hardware:
    """GPUs of the flags that `tune run` passes on to torchrun."""
    found = {}
    for ours, names in (("per_node", ("nproc_per_node", "nproc-per-node")), ("nodes", ("nnodes",))):
        flag = next((arguments.flags[name] for name in names if name in arguments.flags), None)
        word = flag.values[0] if flag is not None and flag.values else None
        if word is not None and word.text.isdecimal():
            found[ours] = Written(int(word.text), word.where)
    return Hardware(found.get("nodes"), found.get("per_node"))


def _recompute(draft: Draft) -> None:
    again, kind = draft.take("enable_activation_checkpointing"), draft.take("ac_mode")
    if kind is not None:
        _selective(draft, kind)
    elif again is not None:
        draft.state("layout.recompute", "full" if is_on(again.value) else "none", again)
    draft.default("layout.recompute", "none")
    weights, activations = draft.on("fsdp_cpu_offload", "fsdp.cpu_offload"), draft.on("enable_activation_offloading")
    parts = [part for part, on in (("params", weights), ("activations", activations)) if on is not None]
    if parts:
        draft.state("layout.offload", "+".join(parts), weights or activations)


def _selective(draft: Draft, kind: Written) -> None:
    """Recomputation by `ac_mode`: of all layers, of every n-th one (`ac_option: 2`), or of single operators."""
    option = draft.take("ac_option")
    every = option.value if option is not None else None
    if plain(kind.value) == "full":
        draft.state("layout.recompute", "full", kind)
    elif isinstance(every, int) and every > 0:
        layers = layers_of(draft.fact("model"))
        draft.state("layout.recompute", "full", kind, f"of every layer whose number {every} divides")
        draft.state("layout.recompute_layers", layers // every if layers else None, option, f"every {every} layers")
    else:
        draft.state("layout.recompute", "selective", kind)


def _lengths(draft: Draft) -> None:
    """Padding, steps, and where answers are generated the length and micro-batch of prompt and answer."""
    packed = draft.take("dataset.packed")
    if packed is not None:
        draft.state("train.padding", "packed" if is_on(packed.value) else "longest-in-micro-batch", packed)
    draft.default("train.padding", "longest-in-micro-batch")
    each, passes = draft.take("max_steps_per_epoch"), draft.value(draft.peek("epochs"), positive)
    steps = draft.value(each, positive_or_open)
    if isinstance(steps, int):
        count = passes if isinstance(passes, int) else 1
        draft.state("train.steps", steps * count, each, f"{steps} in each of {count} epochs" if count > 1 else "")
    prompt, answer = draft.peek("tokenizer.max_seq_len"), draft.peek("max_generated_tokens")
    lengths = draft.value(prompt, positive), draft.value(answer, positive)
    if isinstance(lengths[0], int) and isinstance(lengths[1], int):
        draft.state("train.seq_len", lengths[0] + lengths[1], answer, "prompt and answer")
    total = draft.peek("ppo_batch_size")
    batch, accumulated = draft.value(total, positive), draft.value(draft.peek("gradient_accumulation_steps"), positive)
    if draft.fact("job") == "ppo" and isinstance(batch, int) and isinstance(accumulated, int):
        draft.state("train.micro_batch", max(1, batch // accumulated), total, "of a PPO step")


TOOL = Tool(
    name="torchtune",
    title="torchtune",
    reads="YAML configurations of its recipes, and `tune run` commands with the configuration that they name",
    recognises=_recognises,
    read=_read,
    table=TABLE,
    keys=_keys,
)
