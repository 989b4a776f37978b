"""TorchTitan: TOML files, registries of configurations in Python, and the commands that start them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.interop.draft import Table
from xe_sizer.interop.huggingface import is_replicated, shard_sizes, state_optimizer
from xe_sizer.interop.launch import (
    Shape,
    command_arguments,
    find_command,
    flag_keys,
    launched_hardware,
    profile_layers,
    state_gpus,
    state_overlap,
    state_shape,
)
from xe_sizer.interop.readers.python_values import call_keys
from xe_sizer.interop.source import Tool
from xe_sizer.interop.values import Written, inverse, is_on, listed, plain, positive, positive_or_open
from xe_sizer.interop.write import LEARNING_RATE, Added, Exporter, ToolFiles
from xe_sizer.profiles.catalogue import Registry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.interop.draft import Draft
    from xe_sizer.interop.readers.shell_script import Command
    from xe_sizer.interop.source import Certainty, Source
    from xe_sizer.interop.values import Keys
    from xe_sizer.interop.write import Plan

# TorchTitan's TOML files. Keys: torchtitan/config/job_config.py (0.2).

_TITLE = "TorchTitan"
_CAPITALS = ("llama3", "qwen3", "deepseek_v3")  # families whose flavours are written so
_WRITTEN = (*_CAPITALS, "llama4", "gpt_oss")
_UNWRITTEN = ("llama-3.2-1b", "llama-3.2-3b")  # flavours that are read alone
_GRADIENTS = 2  # the stage of sharding that keeps gathered weights
_EAGER = "torchtitan-eager"
ROTATIONS = {"allgather": "all-gather", "alltoall": "ring"}


def _write(plan: Plan) -> ToolFiles:
    if plan.take("job") != "pretrain":
        raise InputError(Problem(f"{_TITLE} is written for pretrain alone", Location("--to")))
    for key, value in (("precision", "bf16"), ("train.weights_dtype", "fp32"), ("train.padding", "packed"),
                       ("train.reduce_dtype", "fp32"),
                       ("optimizer", "adamw"), ("attention", "sdpa")):  # fmt: skip
        if plan.peek(key) == value:
            plan.said(key)
    if plan.steps is None:
        hint = "give --steps, or --epochs and --samples"
        raise InputError(Problem(f"{_TITLE} counts steps, and the scenario does not", Location("--to"), hint))
    plan.said("train.steps", "train.epochs")
    family, flavor = _model_name(plan)
    micro, accumulated = plan.take("train.micro_batch", 1), plan.take("train.grad_accum", 1)
    piped, replicated = plan.take("layout.pp", 1), is_replicated(plan, _TITLE)
    offload = plan.peek("layout.offload") == "params" and not replicated
    if offload:
        plan.said("layout.offload")
    kept = plan.peek("layout.zero") == _GRADIENTS
    if kept:
        plan.said("layout.zero")
    copies, shards = shard_sizes(plan) or ((plan.peek("gpus", 1), 1) if replicated else (1, -1))
    sections: dict[str, dict[str, Any]] = {
        "model": {"name": family, "flavor": flavor},
        "optimizer": {"name": "AdamW", "lr": LEARNING_RATE},
        "training": {
            "local_batch_size": micro * accumulated if piped > 1 else micro,
            "global_batch_size": plan.take("train.global_batch"),
            "seq_len": plan.take("train.seq_len"),
            "steps": plan.steps,
            "enable_cpu_offload": offload,
        },
        "parallelism": {
            "data_parallel_replicate_degree": copies,
            "data_parallel_shard_degree": shards,
            "fsdp_reshard_after_forward": "never" if kept else "always",
            **{f"{name}_parallel_degree": plan.take(f"layout.{key}", 1)
               for key, name in (("tp", "tensor"), ("cp", "context"), ("ep", "expert"))},
            "expert_tensor_parallel_degree": plan.take("layout.expert_tp") or None,
            "context_parallel_rotate_method": inverse(ROTATIONS).get(plan.take("layout.cp_kind")),
            "pipeline_parallel_degree": piped,
            "pipeline_parallel_microbatch_size": micro if piped > 1 else None,
        },
        "activation_checkpoint": {"mode": plan.take("layout.recompute", "none")},
        "compile": {"enable": plan.peek("stack") != _EAGER},
    }  # fmt: skip
    plan.said("layout.sequence_parallel")
    nodes, each = plan.take("nodes", 1), plan.take("gpus_per_node", 1)
    plan.said("gpus")
    machines = f"--nnodes {nodes} " if nodes > 1 else ""
    run = f"torchrun {machines}--nproc_per_node {each} -m torchtitan.train --job.config_file FILE"
    return ToolFiles("\n".join(_section(name, values) for name, values in sections.items()), run=run)


def _model_name(plan: Plan) -> tuple[str, str]:
    """Name and flavour of the model. Raises InputError: TorchTitan has none."""
    named = plan.take("model")
    try:
        name = Registry().model(str(named)).name
    except InputError:
        name = ""
    for family in _WRITTEN:
        flavor = inverse(_FLAVORS[family]).get(name)
        if flavor is not None and name not in _UNWRITTEN:
            return family, flavor.upper() if family in _CAPITALS else flavor
    raise InputError(Problem(f"{_TITLE} has no flavour for {named}", Location("--to")))


def _section(name: str, values: Mapping[str, Any]) -> str:
    """A section of TOML; numbers, switches and plain text are written as in JSON."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items() if value is not None]
    return "\n".join([f"[{name}]", *lines, ""])


SAYS = (
    "model", "job", "precision", "train.seq_len", "train.micro_batch", "train.global_batch", "train.steps",
    "layout.tp", "layout.pp", "layout.cp", "layout.cp_kind", "layout.zero", "layout.zero_group", "layout.offload",
    "layout.recompute", "layout.expert_tp",
    "train.reduce_dtype",
)  # fmt: skip
EXPORTERS = (
    Exporter(
        name="torchtitan",
        title=_TITLE,
        ending=".toml",
        write=_write,
        says=SAYS,
        added=Added("optimizer.lr, lr_scheduler"),
    ),
)


# How TorchTitan spreads a model over GPUs: sharding, the pipeline's order, and accumulation.
#
# Source: torchtitan/distributed/parallel_dims.py, pipeline_parallel.py, fsdp.py, trainer.py.

_SCHEDULES = {
    "1f1b": "1f1b", "interleaved1f1b": "1f1b-interleaved", "gpipe": "gpipe", "zbvzerobubble": "zb-v",
    "interleavedzerobubble": "1f1b-interleaved", "flexibleinterleaved1f1b": "1f1b-interleaved",
    "dualpipev": "dualpipe-v",
}  # fmt: skip
_SINGLE = ("1f1b", "gpipe")
_OLDER = ("parallelism", "training", "experimental")


def _named(word: str) -> tuple[str, ...]:
    return tuple(f"{section}.{word}" for section in _OLDER)


def state_layout(draft: Draft) -> None:
    """State sharding, the order of a pipeline's passes and gradient accumulation."""
    stages = draft.value(draft.peek(*_named("pipeline_parallel_degree")), positive) or 1
    ranks = draft.value(draft.peek(*_named("tensor_parallel_degree")), positive) or 1
    _sharding(draft, piped=stages != 1)
    split = draft.take("parallelism.enable_sequence_parallel")
    if split is not None:
        draft.state("layout.sequence_parallel", is_on(split.value), split)
    elif isinstance(ranks, int) and ranks > 1:
        draft.default("layout.sequence_parallel", value=True)
    asked = draft.take(*_named("enable_async_tensor_parallel"), "compile.enable_async_tensor_parallel")
    state_overlap(draft, {} if asked is None else {"tensor-parallel": (asked, is_on(asked.value))})
    schedule, per_stage = (
        draft.take(*_named("pipeline_parallel_schedule")), draft.take(*_named("pipeline_parallel_layers_per_stage"))
    )  # fmt: skip
    micro = draft.take("parallelism.pipeline_parallel_microbatch_size")
    if isinstance(stages, int) and stages > 1:
        _order(draft, schedule, per_stage, stages)
        _micro_batches(draft, micro)
    if (
        "train.global_batch" not in draft.facts
        and draft.value(draft.peek("training.global_batch_size"), positive_or_open) is None
    ):
        draft.default("train.grad_accum", 1, "the global batch is one micro-batch of each data-parallel rank")


def _sharding(draft: Draft, *, piped: bool) -> None:
    """FSDP over the ranks that are left, in groups where there are replicas; DDP where nothing is sharded."""
    replicas, shards = (
        draft.take(*_named("data_parallel_replicate_degree")),
        draft.take(*_named("data_parallel_shard_degree")),
    )
    again = draft.take(*_named("fsdp_reshard_after_forward"))
    copies, size = draft.value(replicas, positive_or_open) or 1, draft.value(shards, positive_or_open)
    policy = plain(again.value) if again is not None else "default"
    kept = policy == "never" or (policy == "default" and piped)
    note = "weights stay whole between the passes of micro-batches" if kept else ""
    if size == 1:
        draft.state("layout.zero", 0, shards, "not sharded")
    elif shards is not None or policy == "never":
        draft.state("layout.zero", 2 if kept else 3, again if policy == "never" else shards, note)
    draft.default("layout.zero", 2 if kept else 3, note)
    if isinstance(copies, int) and copies > 1 and isinstance(size, int) and size > 1:
        draft.state("layout.zero_group", size * draft.size(*_named("context_parallel_degree")), shards)


def _order(draft: Draft, schedule: Written | None, per_stage: Written | None, stages: int) -> None:
    word = plain(schedule.value) if schedule is not None else "1f1b"
    if schedule is not None and word not in _SCHEDULES:
        name = next(key for key, each in draft.keys.items() if each is schedule)
        draft.lose(name, f"{schedule.value} is not known here; interleaved stages are assumed")
        draft.assume("layout.schedule", "1f1b-interleaved", f"in place of {schedule.value}", schedule.where)
    elif schedule is not None:
        draft.state("layout.schedule", _SCHEDULES[word], schedule)
    draft.default("layout.schedule", "1f1b")
    each, layers = draft.value(per_stage, positive_or_open), profile_layers(draft.fact("model"))
    if isinstance(each, int) and layers:
        draft.state("layout.vpp", max(1, round(layers / (each * stages))), per_stage, f"{each} layers in each chunk")
    elif word not in _SINGLE and schedule is not None:
        draft.default("layout.vpp", 2, "two chunks in each stage")


def _micro_batches(draft: Draft, micro: Written | None) -> None:
    """A pipeline works on parts of the local batch, one after the other."""
    local = draft.peek("training.local_batch_size", "training.batch_size")
    if local is None:
        return
    count, size = draft.value(local, positive) or 1, draft.value(micro, positive) or 1
    if isinstance(count, int) and isinstance(size, int) and count >= size:
        if micro is not None:
            draft.state("train.micro_batch", size, micro)
        draft.default("train.micro_batch", size)
        if draft.value(draft.peek("training.global_batch_size"), positive_or_open) is None:
            note = f"local batch of {count} in micro-batches of {size}"
            draft.derive("train.grad_accum", count // size, ("train.micro_batch",), note)


# TorchTitan's flavours of models by the catalogue's names, and its keys of all releases.
#
# Flavours: torchtitan/models/*/__init__.py; keys and defaults: torchtitan/config/job_config.py (TOML, to February 2026)
# and config/configs.py, trainer.py (Python registries).

_LLAMA3 = {
    "1b": "llama-3.2-1b", "3b": "llama-3.2-3b", "8b": "llama-3.1-8b", "70b": "llama-3.1-70b", "405b": "llama-3.1-405b",
}  # fmt: skip
_FLAVORS = {
    "llama3": _LLAMA3, "llama3_ft": _LLAMA3, "llama3_simple_fsdp": _LLAMA3, "simple_fsdp.llama3": _LLAMA3,
    "llama2": {"7b": "llama-2-7b", "13b": "llama-2-13b", "70b": "llama-2-70b"},
    "llama4": {"17bx16e": "llama-4-scout-17b-16e", "17bx128e": "llama-4-maverick-17b-128e"},
    "deepseek_v3": {"16b": "deepseek-v2-lite", "236b": "deepseek-v2", "671b": "deepseek-v3"},
    "qwen3": {
        size: f"qwen3-{size}" for size in ("0.6b", "1.7b", "4b", "8b", "14b", "32b", "30b-a3b", "235b-a22b")
    },
    "qwen3_5": {
        size: f"qwen3.5-{size}"
        for size in ("0.8b", "2b", "4b", "9b", "27b", "35b-a3b", "122b-a10b", "397b-a17b")
    },
    "qwen3_vl": {
        size: f"qwen3-vl-{size}" for size in ("2b", "4b", "8b", "32b", "30b-a3b", "235b-a22b")
    },
    "gpt_oss": {"20b": "gpt-oss-20b", "120b": "gpt-oss-120b"},
    "kimi_k2_7": {"kimi-k2.5": "kimi-k2.5", "moonlight-16b-a3b": "moonlight-16b-a3b"},
    "muse_glimmer": {"30b": "muse-glimmer-30b", "30b_mm": "muse-glimmer-30b"},
}  # fmt: skip
_TINY: dict[str, object] = {
    "hidden": 256, "heads": 16, "vocab": 2048, "tied_embeddings": False, "norm": "rmsnorm", "activation": "swiglu",
    "position": "rope",
}  # fmt: skip
_QWEN3_TINY: dict[str, object] = {
    **_TINY, "layers": 8, "kv_heads": 8, "head_dim": 128, "ffn": 3072, "qk_norm": "perhead", "max_positions": 4096,
}  # fmt: skip
SHAPES: dict[str, dict[str, object]] = {
    "llama3": {**_TINY, "layers": 6, "kv_heads": 16, "ffn": 768, "max_positions": 131_072},
    "qwen3": {**_QWEN3_TINY, "tied_embeddings": True},
    "qwen3 moe": {**_QWEN3_TINY, "experts.count": 64, "experts.per_token": 8, "experts.ffn": 768},
    "deepseek_v3": {
        **_TINY, "layers": 6, "ffn": 1024, "max_positions": 16_384, "experts.count": 8, "experts.per_token": 3,
        "experts.ffn": 256, "experts.shared_ffn": 512, "experts.first_dense_layers": 1, "latent_attention.kv_rank": 512,
        "latent_attention.qk_nope_head_dim": 128, "latent_attention.qk_rope_head_dim": 64,
        "latent_attention.v_head_dim": 128,
    },
}  # fmt: skip
"""Shapes of flavours for debugging, by family."""
_ATTENTION = re.compile(r"_(flex|varlen)(_attn|_flash)?$|_irope$")


def catalogue_name(family: str, flavor: str) -> str | None:
    """What the catalogue calls a flavour of a family; None where it has none."""
    size = _ATTENTION.sub("", flavor.lower())
    return _FLAVORS.get(family, {}).get(size)


def family_in(text: str) -> str | None:
    """The family that a path or the name of a function tells."""
    words = text.lower()
    return max((family for family in _FLAVORS if family in words), key=len, default=None)


def tiny_shape(family: str, flavor: str) -> dict[str, object] | None:
    """The shape of a flavour for debugging; None where it is none, or is not known."""
    if not flavor.startswith("debugmodel"):
        return None
    start = "llama3" if family.startswith("llama3") else family
    return SHAPES.get(f"{start} moe" if flavor == "debugmodel_moe" else start)


TABLE = Table(file="torchtitan")


_CONFIGS = ("job.config_file", "config_file", "CONFIG_FILE")
_SECTIONS = frozenset({"training", "parallelism", "activation_checkpoint", "lr_scheduler", "experimental", "job"})
_OWN = frozenset({
    "training.seq_len", "training.local_batch_size", "training.batch_size", "model.flavor",
    "parallelism.data_parallel_shard_degree", "training.data_parallel_shard_degree", "training.tensor_parallel_degree",
    "activation_checkpoint.mode", "lr_scheduler.warmup_steps",
})  # fmt: skip
_ENOUGH = 2
_TOKENS = ("training.num_tokens_per_microbatch_per_dp_rank", "training.num_tokens_per_train_step")
_PRECISIONS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_EIGHT = (("mx", "mxfp8"), ("float8", None))
_CHECKPOINTS = {"none": "none", "selective": "selective", "full": "full", "memorybudget": "selective"}


def _starts(words: tuple[str, ...]) -> bool:
    program = words[0] if words else ""
    if program in ("torchtitan.train", "torchtitan/train.py") or program.endswith("/torchtitan/train.py"):
        return True
    flags = any(word.partition("=")[0] in ("--job.config_file", "--module", "--job.config-file") for word in words)
    return (program.endswith("train.py") and flags and "--job" in " ".join(words)) or program.endswith("run_train.sh")


def _launch(source: Source) -> Command | None:
    return find_command(source, _starts)


def _keys(source: Source) -> Keys:
    if source.kind == "toml":
        return source.keys
    if source.kind == "python":
        return _entry(source, source.given.get("config"))
    command = _launch(source)
    return _of_command(source, command) if command is not None else {}


def _of_command(source: Source, command: Command) -> Keys:
    """Keys of the file that a command names, and its flags on top."""
    flags = flag_keys(command_arguments(command))
    variables = {name: Written(word.text, word.where) for name, word in command.environment.items()}
    named = next((found for name in _CONFIGS if (found := flags.get(name) or variables.get(name))), None)
    file = source.companion(named.value) if named is not None else None
    keys = dict(file.keys) if file is not None else {}
    chosen = {"module": flags.get("module") or variables.get("MODULE")}
    chosen["config"] = flags.get("config") or variables.get("CONFIG")
    own = {name: each for name, each in flags.items() if name not in _CONFIGS}
    return keys | own | {name: each for name, each in chosen.items() if each is not None}


def _entry(source: Source, name: str | None) -> Keys:
    """Keys of one configuration of a registry: the one that is named, else the first that is not for debugging."""
    module = source.module
    if module is None:
        return {}
    entries = list(module.entries)
    found = name or next((each for each in entries if "debug" not in each), entries[0] if entries else None)
    return call_keys(module.entry(found)) if found is not None else {}


def _recognises(source: Source) -> Certainty:
    if source.kind == "toml":
        tops = {name.partition(".")[0] for name in source.keys}
        return 90 if len(_OWN & source.keys.keys()) >= _ENOUGH and len(tops & _SECTIONS) >= _ENOUGH else 0
    if source.kind == "python":
        return 90 if "torchtitan" in source.text and "Trainer.Config" in source.text else 0
    if source.kind == "shell":
        command = _launch(source)
        own = command is not None and ("torchtitan" in source.text or "run_train" in source.text)
        return 70 if own and "primus" not in source.text.lower() else 0
    return 0


def _read(draft: Draft, source: Source) -> None:
    first = Written(TOOL.name, source.start)
    command = _launch(source) if source.kind == "shell" else None
    if command is not None and source.script is not None:
        state_gpus(draft, launched_hardware(source.script, command))
    if source.kind == "python":
        _say_which(draft, source)
    compiled, parts = draft.take("compile.enable", "training.compile"), draft.take("compile.components")
    whole = parts is None or "model" in (listed(parts.value) or ())
    if compiled is not None:
        draft.state("stack", TOOL.name if is_on(compiled.value) and whole else f"{TOOL.name}-eager", compiled)
    draft.default("stack", f"{TOOL.name}-eager", "compile.enable is off")
    _model(draft, source)
    _batch(draft)
    state_layout(draft)
    _precision(draft)
    _optimizer(draft)
    _recompute(draft)
    _job(draft, first)
    loss = draft.take("loss._target_")
    if loss is not None and "Chunked" in str(loss.value):
        draft.state("loss", "fused", loss, "in chunks of tokens")
    draft.default("train.padding", "packed")


def _say_which(draft: Draft, source: Source) -> None:
    """Say which of the configurations of a registry is read, and that others can be chosen."""
    entries = list(source.module.entries) if source.module is not None else []
    if len(entries) > 1 and "config" not in source.given:
        name = next((each for each in entries if "debug" not in each), entries[0])
        others = ", ".join(each for each in entries if each != name)
        draft.keys["config"] = Written(name, source.start)
        draft.lose("config", f"{name} is read; --set config=NAME reads another: {others}", "none")


def _model(draft: Draft, source: Source) -> None:
    """The model: its name and flavour, the flavour of a registry, else the folder of its tokenizer."""
    name, chosen = draft.take("model.name"), draft.peek("config", "module")
    flavor, assets = (
        draft.take("model.flavor", "model_spec._args_.0"),
        draft.take("hf_assets_path", "model.hf_assets_path"),
    )
    foreign = draft.take("hf_transformers.model", "model.hf_model", "job.hf_model")
    family = str(name.value) if name is not None else _family(draft, source)
    size = str(flavor.value) if flavor is not None else ""
    written = flavor or name
    if foreign is not None and not size.startswith("debug"):
        draft.state("model", str(foreign.value), foreign)
    if written is None and chosen is not None:
        written, size = chosen, str(chosen.value).removeprefix(f"{family}_")
        size = size.replace("_", ".") if size[:1].isdigit() and "x" not in size else size
    found = catalogue_name(family, size)
    if found is not None:
        draft.state("model", found, written)
    shape = tiny_shape(family, size)
    if shape is not None and "model" not in draft.facts and foreign is None:
        state_shape(draft, Shape({key: (value, written) for key, value in shape.items()}))
    folder = Path(str(assets.value)).name if assets is not None else ""
    if assets is not None and "debug" not in size and folder not in ("tokenizer", ""):
        draft.state("model", folder, assets)
    if not any(key.partition(".")[0] == "model" for key in draft.facts):
        draft.miss("model", f"flavour '{size}' of '{family}' is not known here", "--model NAME")


def _family(draft: Draft, source: Source) -> str:
    """The family that the name of a configuration, its module, or a folder of the file tells, the nearest first."""
    chosen = [str(draft.keys[name].value) for name in ("config", "module") if name in draft.keys]
    around = [source.given.get("config", ""), *chosen, *reversed(source.path.parts)]
    return next((family for each in around if (family := family_in(each))), "")


def _batch(draft: Draft) -> None:
    """Sequences of a micro-batch where the file says its tokens."""
    tokens, total = draft.take(_TOKENS[0]), draft.take(_TOKENS[1])
    length = draft.peek("training.max_context_length", "training.seq_len")
    each = draft.value(tokens, positive), draft.value(length, positive) or 2048
    if isinstance(each[0], int) and isinstance(each[1], int):
        count = max(1, each[0] // each[1])
        draft.state("train.micro_batch", count, tokens, f"{each[0]:,} tokens of {each[1]:,} each")
    whole = draft.value(total, positive_or_open)
    if isinstance(whole, int) and isinstance(each[1], int):
        draft.state("train.global_batch", max(1, whole // each[1]), total, f"{whole:,} tokens")


def _precision(draft: Draft) -> None:
    weights, products = draft.take("training.dtype"), draft.take("training.mixed_precision_param")
    for name, written in _converters(draft).items():
        for word, recipe in _EIGHT:
            if word in name:
                draft.state("precision", "fp8", written)
                named = draft.take(
                    *(key for key in draft.keys if key.endswith("recipe_name") and word in _near(draft, key))
                )
                said = plain(named.value) if named is not None else ""
                draft.state(
                    "train.fp8_recipe", recipe or (said if said in ("tensorwise", "rowwise") else None), written
                )
        if "nvfp4" in name:
            draft.lose(next(key for key, each in draft.keys.items() if each is written), "trains in 4 bit")
    for key, found, otherwise in (("precision", products, "bf16"), ("train.weights_dtype", weights, "fp32")):
        if found is not None:
            draft.state(key, _PRECISIONS.get(str(found.value)), found)
        draft.default(key, otherwise)


def _near(draft: Draft, key: str) -> str:
    """The group of a key, and what is called there."""
    group = key.rpartition(".")[0]
    target = draft.peek(f"{group}._target_")
    return plain(f"{group} {target.value if target is not None else ''}")


def _converters(draft: Draft) -> Mapping[str, Written]:
    """What converts the model, by the plain name of each converter."""
    found = draft.take("model.converters")
    words = {plain(word): found for word in listed(found.value) or ()} if found is not None else {}
    called = {
        plain(str(each.value)): each
        for name, each in draft.keys.items()
        if "converters." in name and name.endswith("_target_")
    }
    old = draft.on("float8.enable_float8_linear", "training.enable_fp8_training")
    return {**words, **called, **({"float8": old} if old is not None else {})}


def _optimizer(draft: Draft) -> None:
    target = draft.take("optimizer._target_")
    groups = [name for name in draft.keys if name.endswith(".optimizer_name")]
    muon = next((name for name in groups if "muon" in plain(draft.keys[name].value)), None)
    if muon is not None or groups:
        state_optimizer(draft, muon or groups[0], draft.keys[muon or groups[0]])
    elif target is not None and "adamw" in plain(target.value):
        draft.state("optimizer", "adamw", target)
    state_optimizer(draft, "optimizer.name", draft.peek("optimizer.name"))
    draft.default("optimizer", "adamw")


def _recompute(draft: Draft) -> None:
    mode, target = draft.take("activation_checkpoint.mode"), draft.take("activation_checkpoint._target_")
    none = draft.keys.get("activation_checkpoint")
    if mode is not None:
        draft.state("layout.recompute", _CHECKPOINTS.get(plain(mode.value)), mode)
    elif target is not None:
        word = str(target.value)
        draft.state("layout.recompute", "full" if "FullAC" in word else "selective", target)
    elif none is not None and none.value is None:
        draft.state("layout.recompute", "none", none)
    draft.default("layout.recompute", "selective")
    host = draft.on("training.enable_cpu_offload", "experimental.enable_cpu_offload")
    if host is not None:
        draft.state("layout.offload", "params", host)
    saved, interval = draft.take("checkpoint.enable", "checkpoint.enable_checkpoint"), draft.take("checkpoint.interval")
    mode = draft.take("checkpoint.async_mode")
    if saved is not None and is_on(saved.value):
        draft.state("train.checkpoint_every", draft.value(interval, positive_or_open) or 500, interval or saved)
        draft.state("train.async_checkpoint", plain(mode.value) != "disabled" if mode is not None else None, mode)
    tested, every = draft.on("validation.enable", "validator.enable"), draft.take("validation.freq", "validator.freq")
    if tested is not None:
        draft.state("train.evaluate_every", draft.value(every, positive_or_open) or 10, every or tested)


def _job(draft: Draft, first: Written) -> None:
    """Pre-training, unless adapters are added or the data are conversations."""
    adapted = next((name for name in draft.keys if "LoRAConverter" in str(draft.keys[name].value)), None)
    talks = next((each for each in draft.keys.values() if "ChatProcessor" in str(each.value)), None)
    if adapted is not None:
        group = adapted.rpartition(".")[0]
        draft.state("job", "lora", draft.take(adapted))
        rank, targets = draft.take(f"{group}.rank"), draft.take(f"{group}.target_modules")
        draft.state("lora.rank", draft.value(rank, positive), rank)
        draft.default("lora.rank", 8)
        if targets is not None:
            draft.state("lora.targets", listed(targets.value), targets)
        draft.default("lora.targets", ("all-linear",))
    draft.state("job", "sft", talks) if talks is not None else None
    draft.state("job", "pretrain", draft.peek("model.name", "model_spec._target_", "training.dataset") or first)


TOOL = Tool(
    name="torchtitan",
    title="TorchTitan",
    reads="TOML files, registries of configurations in Python, and the commands that start them",
    recognises=_recognises,
    read=_read,
    table=TABLE,
    keys=_keys,
)
