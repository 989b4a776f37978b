"""Torchtune: YAML configurations of its recipes, and `tune run` commands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.interop import huggingface
from xe_sizer.interop.draft import Table
from xe_sizer.interop.huggingface import adapted_modules, is_replicated, shard_sizes, state_optimizer
from xe_sizer.interop.launch import (
    Hardware,
    Shape,
    command_arguments,
    find_command,
    launched_hardware,
    profile_layers,
    state_gpus,
    state_shape,
)
from xe_sizer.interop.readers.documents import overridden, resolved
from xe_sizer.interop.source import Tool
from xe_sizer.interop.values import (
    Written,
    inverse,
    is_on,
    listed,
    plain,
    positive,
    positive_or_open,
    switch,
    text,
)
from xe_sizer.interop.write import LEARNING_RATE, Added, Exporter, ToolFiles, yaml_text
from xe_sizer.profiles.catalogue import Registry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.interop.draft import Draft
    from xe_sizer.interop.readers.shell_script import Arguments, Command
    from xe_sizer.interop.source import Certainty, Source
    from xe_sizer.interop.values import Keys
    from xe_sizer.interop.write import Plan

# Torchtune configurations. Keys: torchtune recipes/*.py and models/*/_model_builders.py (0.6).

_TITLE = "torchtune"
_FAMILIES: Mapping[str, tuple[str, tuple[str, ...]]] = {  # by module: what the catalogue calls it, sizes written
    "gemma": ("gemma", ("2b", "7b")), "gemma2": ("gemma-2", ("2b", "9b", "27b")),
    "llama2": ("llama-2", ("7b", "13b", "70b")), "llama2_reward": ("llama-2", ()), "code_llama2": ("codellama", ()),
    "llama3": ("llama-3", ("8b", "70b")), "llama3_1": ("llama-3.1", ("8b", "70b", "405b")),
    "llama3_2": ("llama-3.2", ("1b", "3b")), "llama3_3": ("llama-3.3", ("70b",)),
    "llama4_scout": ("llama-4-scout", ()), "llama4_maverick": ("llama-4-maverick", ()), "phi4": ("phi-4", ("14b",)),
    "qwen2": ("qwen2", ("0.5b", "1.5b", "7b")),
    "qwen2_5": ("qwen2.5", ("0.5b", "1.5b", "3b", "7b", "14b", "32b", "72b")),
    "qwen3": ("qwen3", ("0.6b", "1.7b", "4b", "8b", "14b", "32b")), "smollm2": ("smollm2", ()),
}  # fmt: skip
_BOTH = ("qwen2_5_1_5b", "qwen2_5_7b", "qwen2_5_14b", "qwen2_5_32b", "qwen2_5_72b", "qwen3_0_6b", "qwen3_1_7b",
         "qwen3_4b", "qwen3_8b", "qwen3_14b")  # fmt: skip
_OTHERS = {"mistral-7b-v0.1": "mistral.mistral_7b", "phi-3-mini-4k": "phi3.phi3_mini"}
_BUILDERS = _OTHERS | {
    f"{family}-{size}": f"{module}.{module}_{size.replace('.', '_')}"
    for module, (family, sizes) in _FAMILIES.items()
    for size in sizes
}
_TOKENIZERS = {"qwen3": "qwen3", "qwen2_5": "qwen2_5", "qwen2": "qwen2", "mistral": "mistral", "phi4": "phi4"}
_OPTIMIZERS = {
    "adamw": "torch.optim.AdamW", "adamw-8bit": "bitsandbytes.optim.AdamW8bit", "sgd": "torch.optim.SGD",
    "paged-adamw": "bitsandbytes.optim.PagedAdamW", "paged-adamw-8bit": "bitsandbytes.optim.PagedAdamW8bit",
}  # fmt: skip
_OFFLOAD = {"params": (True, False), "activations": (False, True), "params+activations": (True, True)}
_MODULES = {"output_proj": "o_proj"}
_ATTENTION = ("q_proj", "k_proj", "v_proj", "output_proj")
_MLP = ("gate_proj", "up_proj", "down_proj")


def _write(plan: Plan) -> ToolFiles:
    job = plan.take("job")
    if job not in ("sft", "lora", "qlora"):
        raise InputError(Problem(f"{_TITLE} is written for sft, lora and qlora, not for {job}", Location("--to")))
    for key in ("precision", "train.weights_dtype"):
        if plan.peek(key) == "bf16":
            plan.said(key)
    gpus, builder = plan.take("gpus", 1), _builder(plan, job)
    one = gpus == 1
    name = f"{'full' if job == 'sft' else 'lora'}_{'single_device' if one else 'distributed'}"
    values: dict[str, Any] = {
        "output_dir": f"OUTPUT/{name}",
        "model": {"_component_": builder, **_write_adapters(plan, job)},
        "tokenizer": {
            "_component_": f"torchtune.models.{_tokenizer(builder)}_tokenizer",
            "path": "PATH",
            "max_seq_len": plan.take("train.seq_len"),
        },
        **_data(plan),
        "batch_size": plan.take("train.micro_batch"),
        "gradient_accumulation_steps": plan.take("train.grad_accum", 1),
        "epochs": 1 if plan.peek("train.steps") else plan.take("train.epochs"),
        "max_steps_per_epoch": plan.take("train.steps"),
        "save_every_n_steps": plan.take("train.checkpoint_every"),
        "enable_async_checkpointing": plan.take("train.async_checkpoint"),
        "run_val_every_n_steps": plan.take("train.evaluate_every"),
        "optimizer": {"_component_": _optimizer(plan), "lr": LEARNING_RATE},
        "loss": {"_component_": "torchtune.modules.loss.LinearCrossEntropyLoss"},
        **_layout(plan, one=one),
        "dtype": "bf16",
        "device": "cuda",
    }
    plan.said("loss")
    nodes, each = plan.take("nodes", 1), plan.take("gpus_per_node", 1)
    machines = f"--nnodes {nodes} " if nodes > 1 else ""
    flags = "" if one else f"{machines}--nproc_per_node {each} "
    recipe = name.replace("_", "_finetune_", 1)
    return ToolFiles(yaml_text(values), run=f"tune run {flags}{recipe} --config FILE")


def _builder(plan: Plan, job: str) -> str:
    """The builder of the model. Raises InputError: torchtune has none."""
    named = plan.take("model")
    try:
        known = _BUILDERS.get(Registry().model(str(named)).name)
    except InputError:
        known = None
    if known is None:
        raise InputError(Problem(f"{_TITLE} has no builder for {named}", Location("--to")))
    module, _, name = known.partition(".")
    prefix = "" if job == "sft" else f"{job}_"
    return f"torchtune.models.{module}.{prefix}{name}{'_base' if name in _BOTH else ''}"


def _tokenizer(builder: str) -> str:
    module = builder.split(".")[2]
    if module == "phi3":
        return "phi3.phi3_mini"
    start = "llama3" if module.startswith("llama3") else module.removesuffix("2") if module == "gemma2" else module
    return f"{start}.{_TOKENIZERS.get(start, start)}"


def _write_adapters(plan: Plan, job: str) -> dict[str, Any]:
    if job == "sft":
        return {}
    targets = [inverse(_MODULES).get(name, name) for name in adapted_modules(plan)] or ["all-linear"]
    every = targets == ["all-linear"]
    plan.said("train.bits", "train.quantiser")
    return {
        "lora_attn_modules": list(_ATTENTION) if every else [name for name in targets if name in _ATTENTION],
        "apply_lora_to_mlp": every or any(name in _MLP for name in targets),
        "lora_rank": plan.take("lora.rank"),
        "lora_alpha": plan.take("lora.alpha"),
        "lora_dropout": plan.take("lora.dropout", 0),
        "use_dora": plan.take("lora.dora") or None,
    }


def _data(plan: Plan) -> dict[str, Any]:
    packed = plan.peek("train.padding") == "packed"
    if plan.peek("train.padding") in ("packed", "longest-in-micro-batch"):
        plan.said("train.padding")
    data = {"_component_": "torchtune.datasets.chat_dataset", "source": "PATH", "packed": packed}
    return {"dataset": data}


def _optimizer(plan: Plan) -> str:
    found = _OPTIMIZERS.get(plan.peek("optimizer", "adamw"))
    if found is not None:
        plan.said("optimizer")
    return found or _OPTIMIZERS["adamw"]


def _layout(plan: Plan, *, one: bool) -> dict[str, Any]:
    """Parallelism, recomputation and offload. Raises InputError: unsharded weights on several GPUs."""
    if is_replicated(plan, _TITLE) and not one:
        raise InputError(
            Problem(f"{_TITLE} shards weights over several GPUs", Location("--to"), "fix layout.zero to 3")
        )
    if plan.peek("layout.recompute") in ("none", "full"):
        plan.said("layout.recompute")
    if plan.peek("attention") == "sdpa":
        plan.said("attention")
    weights, activations = _OFFLOAD.get(plan.peek("layout.offload"), (False, False))
    allowed = (plan.peek("layout.recompute") == "full" or not activations) and not (one and weights)
    if allowed and (weights or activations):
        plan.said("layout.offload")
    values: dict[str, Any] = {
        "enable_activation_checkpointing": plan.peek("layout.recompute") == "full",
        "enable_activation_offloading": allowed and activations,
    }
    if one:
        return values
    tp, cp = plan.take("layout.tp", 1), plan.take("layout.cp", 1)
    copies, shards = shard_sizes(plan) or (1, -1)
    degrees = {
        "tensor_parallel_dim": tp, "context_parallel_dim": cp, "data_parallel_replicate_dim": copies,
        "data_parallel_shard_dim": shards,
    }  # fmt: skip
    return values | degrees | {"fsdp_cpu_offload": allowed and weights}


SAYS = (
    "model", "job", "precision", "optimizer", "train.seq_len", "train.padding", "train.micro_batch",
    "train.grad_accum", "train.steps", "train.epochs", "layout.tp", "layout.cp", "layout.zero", "layout.offload",
    "layout.recompute", "lora.rank", "lora.dropout", "lora.alpha", "train.checkpoint_every", "train.evaluate_every",
    "train.async_checkpoint",
)  # fmt: skip
EXPORTERS = (
    Exporter(
        name="torchtune",
        title=_TITLE,
        ending=".yaml",
        write=_write,
        says=SAYS,
        added=Added("optimizer.lr, lr_scheduler", "max_steps_per_epoch or epochs", "model.lora_alpha"),
    ),
)


# Torchtune's model builders by the catalogue's names, and its keys.
#
# Builders: torchtune/models/*/_model_builders.py; keys and defaults: recipes/*.py (0.6 and later).

BUILDER = re.compile(r"torchtune\.models\.\w+\.(?:(q?lora)_)?(\w+)")
_SIZE = re.compile(r"_(base|instruct)$")
_NAMED = {
    "mistral_7b": "mistral-7b-v0.1", "mistral_reward_7b": "mistral-7b-v0.1", "mistral_classifier_7b": "mistral-7b-v0.1",
    "phi3_mini": "phi-3-mini-4k", "llama3_2_vision_11b": "meta-llama/Llama-3.2-11B-Vision-Instruct",
    "llama3_2_vision_90b": "meta-llama/Llama-3.2-90B-Vision-Instruct",
}  # fmt: skip
_SIZED = re.compile(r"(\d+(?:_\d+)?[bm])(_\w+)?")
SHAPE = {
    "num_layers": "layers", "embed_dim": "hidden", "num_heads": "heads", "num_kv_heads": "kv_heads",
    "intermediate_dim": "ffn", "vocab_size": "vocab",
}  # fmt: skip
"""Arguments of the builders without a size, by the keys of a model profile."""
TABLE = Table(file="torchtune")


def catalogue_name(builder: str) -> str | None:
    """What the catalogue calls the model of a builder (`qwen2_5_7b_instruct`); None for a builder without a size."""
    plain = _SIZE.sub("", builder)
    if plain in _NAMED:
        return _NAMED[plain]
    for family, (ours, _) in sorted(_FAMILIES.items(), key=lambda each: -len(each[0])):
        sized = _SIZED.fullmatch(plain.removeprefix(f"{family}_"))
        if plain.startswith(f"{family}_") and sized:
            return f"{ours}-{sized[1].replace('_', '.')}{(sized[2] or '').replace('_', '-')}"
    return None


_MODELS = ("model", "policy_model", "inference.model")
_GROUPS = {"quantizer._component_": "quantizer", "teacher_model._component_": "teacher_model"}
_ONE_GPU = "singledevice"
_TRAINER = "training."
_WORKERS = "orchestration.num_training_workers"
_WRITES = ("grpo", "ppo")
_OWN_ENGINE, _VLLM = huggingface.TRANSFORMERS, huggingface.VLLM
_PREFERENCES = {
    "dpoloss": "dpo",
    "rsoloss": "dpo",
    "simpoloss": "simpo",
    "ppoloss": "ppo",
    "grpo": "grpo",
    "kl": "distill",
}
_PRECISIONS = {"bf16": "bf16", "bfloat16": "bf16", "fp32": "fp32", "float32": "fp32", "fp16": "fp16"}


def _starts(words: tuple[str, ...]) -> bool:
    return len(words) > 1 and words[0].rpartition("/")[2] == "tune" and words[1] == "run"


def _launch(source: Source) -> tuple[Command, Arguments] | None:
    command = find_command(source, _starts)
    return None if command is None else (command, command_arguments(command, skipped=2))


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
    """Keys, where the component of a group that is lost as a whole goes by the name of the group.

    The trainer of the asynchronous recipe has a group of its own for what others have outside of any.
    """
    of_trainer = _TRAINER if _WORKERS in keys else ""
    return {
        _GROUPS.get(name, name): written
        for name, written in ((name.removeprefix(of_trainer), written) for name, written in keys.items())
    }


def _recognises(source: Source) -> Certainty:
    if source.kind == "shell":
        return 95 if find_command(source, _starts) is not None else 0
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
    if draft.fact("job") in _WRITES:
        _answers(draft)
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
    elif draft.peek("grpo_samples", "inference.group_size") is not None:
        draft.state("job", "grpo", draft.peek("grpo_samples", "inference.group_size"))
    elif draft.peek("policy_model._component_") is not None:
        draft.state("job", "ppo", draft.peek("policy_model._component_"))
    elif builder is not None and draft.peek("optimizer._component_") is None:
        draft.assume("job", "inference", "no optimizer is named", builder.where)
    built = BUILDER.fullmatch(str(builder.value)) if builder is not None else None
    named = huggingface.LORA if "full" not in recipe and "lorafinetune" in recipe else None
    prefix = (built[1] if built is not None else None) or named
    quantised = draft.on("model.quantize_base")
    if prefix == huggingface.QLORA or quantised is not None:
        draft.state("job", huggingface.QLORA, quantised or builder)
        if builder is not None:
            huggingface.state_bits(draft, 4, quantised or builder, "torchao")
    elif prefix is not None:
        draft.state("job", prefix, builder)
    draft.state("job", huggingface.SFT, builder, "all weights are trained")


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
        state_gpus(draft, _of_flags(launch[1]) | launched_hardware(source.script, launch[0]))
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
    if draft.fact("job") == "grpo" and draft.peek(_WORKERS) is None:
        draft.default("layout.zero", 2, "weights stay gathered, for the answers")
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
        layers = profile_layers(draft.fact("model"))
        draft.state("layout.recompute", "full", kind, f"of every layer whose number {every} divides")
        draft.state("layout.recompute_layers", layers // every if layers else None, option, f"every {every} layers")
    else:
        draft.state("layout.recompute", "selective", kind)


# GRPO and PPO: who writes answers, how many, and on which GPUs.
#
# Rules: recipes/dev/grpo_full_finetune_distributed.py, recipes/dev/async_grpo_full_finetune_distributed.py and
# torchtune/dev/rl, and recipes/ppo_full_finetune_single_device.py (0.7).

_ANSWERS: Mapping[str, huggingface.Stated] = {
    "group": (("grpo_samples", "inference.group_size"), positive, 1),
    "max_output_tokens": (("max_generated_tokens", "inference.max_generated_tokens"), positive, None),
    "updates": (("ppo_epochs",), positive, 1),
}


def _answers(draft: Draft) -> None:
    """What an iteration writes and learns from; a reference stands beside the policy in all recipes."""
    huggingface.state_rollout(draft, _ANSWERS)
    steps = draft.take("num_steps", "orchestration.num_steps")
    count = draft.value(steps, positive)
    draft.default("train.reference", huggingface.COPY)
    if draft.peek(_WORKERS) is not None:
        _apart(draft, count, steps)
        return
    draft.default("rollout.engine", _OWN_ENGINE, "the model that is trained writes")
    draft.state("train.steps", count, steps)
    if draft.fact("job") == "grpo":
        _in_turn(draft)
    else:
        batch = draft.peek("batch_size")
        draft.state("rollout.prompts", draft.value(batch, positive), batch)


def _in_turn(draft: Draft) -> None:
    """Every rank answers `batch_size` prompts and learns from all of its answers in one pass."""
    batch, group = draft.take("batch_size"), draft.fact("rollout.group")
    prompts = draft.value(batch, positive)
    if not isinstance(prompts, int) or not isinstance(group, int):
        return
    draft.state("train.micro_batch", prompts * group, batch, f"{prompts} x {group} answers in one pass")
    draft.default("train.grad_accum", 1)
    at_once = draft.take("forward_batch_size")
    passed = draft.value(at_once, positive)
    if isinstance(passed, int):
        draft.state("rollout.max_sequences", passed * group, at_once, f"{passed} x {group} answers at once")

    def settle(known: Draft) -> None:
        ranks = known.fact("gpus")
        if isinstance(ranks, int):
            note = f"{prompts} of each of {ranks} GPUs"
            known.derive("rollout.prompts", prompts * ranks, ["train.micro_batch", "gpus"], note)

    draft.following.append(settle)


def _apart(draft: Draft, steps: object, written: Written | None) -> None:
    """Workers of vLLM and of the trainer have GPUs of their own, and weights go over after some optimizer steps."""
    workers, tp = draft.take("orchestration.num_inference_workers"), draft.take("inference.tensor_parallel_dim")
    trainers, rating = draft.take(_WORKERS), draft.peek("orchestration.num_postprocessing_workers")
    batch, apart = draft.take("batch_size"), draft.take("steps_before_weight_sync")
    counts = [draft.value(each, positive) for each in (workers, trainers, batch)]
    size, between = draft.value(tp, positive) or 1, draft.value(apart, positive) or 1
    draft.state("rollout.engine", _VLLM, draft.take("inference.engine") or workers)
    draft.state("rollout.tp", size, tp)
    draft.state("rollout.asynchronous", True, workers)
    draft.default("rollout.max_staleness", 1)
    draft.state("train.micro_batch", counts[2], batch, "of a pass of each trainer")
    draft.default("train.grad_accum", 1)
    draft.default("precision", "bf16", "the recipe's")
    draft.default("train.weights_dtype", "bf16", "the recipe's")
    if rating is not None:
        why = "gives the reference GPUs of its own, which is taken to share those that train"
        draft.lose("orchestration.num_postprocessing_workers", why)
    group = draft.fact("rollout.group")
    if not all(isinstance(each, int) for each in (*counts, size, between, group)):
        return
    writing, training, each = (int(str(count)) for count in counts)
    draft.state("gpus", training, trainers)
    huggingface.state_pools(draft, writing * int(str(size)), workers)
    answers = int(str(between)) * each * training
    note = f"{between} steps of {training} x {each} answers between transfers of weights"
    draft.state("rollout.prompts", max(answers // int(str(group)), 1), apart or batch, note)
    if isinstance(steps, int):
        note = f"{steps} optimizer steps, {between} of each iteration" if between != 1 else ""
        draft.state("train.steps", max(steps // int(str(between)), 1), written, note)


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
    prompt = draft.peek("tokenizer.max_seq_len")
    answer = draft.peek("max_generated_tokens", "inference.max_generated_tokens")
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
