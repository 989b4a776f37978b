"""NeMo AutoModel: YAML recipes, and the commands that start them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from xe_sizer.interop import huggingface
from xe_sizer.interop.draft import Table
from xe_sizer.interop.huggingface import adapted_modules, is_replicated, shard_sizes, state_optimizer
from xe_sizer.interop.launch import (
    Hardware,
    command_arguments,
    find_command,
    flag_keys,
    launched_hardware,
    profile_layers,
    state_gpus,
    state_overlap,
)
from xe_sizer.interop.readers.documents import overridden, resolved
from xe_sizer.interop.source import Tool
from xe_sizer.interop.values import (
    Written,
    interval,
    inverse,
    is_on,
    plain,
    positive,
    positive_or_open,
    word_of,
)
from xe_sizer.interop.write import LEARNING_RATE, Added, Exporter, ToolFiles, yaml_text

if TYPE_CHECKING:
    from xe_sizer.interop.draft import Draft
    from xe_sizer.interop.readers.shell_script import Arguments, Command
    from xe_sizer.interop.source import Certainty, Source
    from xe_sizer.interop.values import Keys
    from xe_sizer.interop.write import Plan

# NeMo AutoModel recipes. Keys: nemo_automodel/components/{training,distributed,_peft} (0.5).

_JOBS = ("sft", "lora", "qlora", "pretrain")
_OPTIMIZERS = {
    "adamw": "torch.optim.AdamW", "adamw-8bit": "bitsandbytes.optim.AdamW8bit", "adafactor": "torch.optim.Adafactor",
    "paged-adamw": "bitsandbytes.optim.PagedAdamW", "paged-adamw-8bit": "bitsandbytes.optim.PagedAdamW8bit",
    "sgd": "torch.optim.SGD",
}  # fmt: skip
ATTENTION = {
    "flash_attention_2": "flash", "flash_attention_3": "flash", "te": "flash", "sdpa": "sdpa", "eager": "eager",
    "torch": "eager", "flash": "flash", "flash_varlen": "flash", "kernels-community/flash-attn3": "flash",
}  # fmt: skip
_SCHEDULES = {
    "1f1b": "1f1b", "interleaved1f1b": "1f1b-interleaved", "gpipe": "gpipe", "ZBVZeroBubble": "zb-v",
    "InterleavedZeroBubble": "1f1b-interleaved", "LoopedBFS": "1f1b-interleaved",
    "DualPipeV": "dualpipe-v",
}  # fmt: skip
_CHECKPOINTING = {"none": False, "full": True, "selective": "selective"}
_TITLE = "NeMo AutoModel"
_LOSS_CLASSES = {"fused": "linear_ce.FusedLinearCrossEntropy", "eager": "masked_ce.MaskedCrossEntropy"}


def _write(plan: Plan) -> ToolFiles:
    job = plan.peek("job")
    if job in _JOBS:
        plan.said("job")
    if plan.peek("precision") == "bf16":
        plan.said("precision")
    values: dict[str, Any] = {
        "recipe": "TrainFinetuneRecipeForNextTokenPrediction",
        "step_scheduler": _steps(plan),
        "model": {
            "_target_": "nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained",
            "pretrained_model_name_or_path": plan.take("model"),
            "torch_dtype": "bfloat16",
            "attn_implementation": plan.word("attention", inverse(ATTENTION)),
        },
        "distributed": _layout(plan),
        "loss_fn": _loss(plan),
        **_data(plan),
        **_write_adapters(plan),
        "optimizer": {"_target_": _write_optimizer(plan), "lr": LEARNING_RATE},
    }
    if plan.peek("train.weights_dtype") == "bf16":
        plan.said("train.weights_dtype")
    nodes, each = plan.take("nodes", 1), plan.take("gpus_per_node", 1)
    plan.said("gpus")
    machines = f"torchrun --nnodes {nodes} --nproc-per-node {each} -m nemo_automodel.cli.app FILE"
    return ToolFiles(yaml_text(values), run=machines if nodes > 1 else f"automodel FILE --nproc-per-node {each}")


def _steps(plan: Plan) -> dict[str, Any]:
    """Batches and length of the run; with a pipeline the local batch is that of all its micro-batches."""
    micro, accumulated = plan.take("train.micro_batch", 1), plan.take("train.grad_accum", 1)
    piped = plan.peek("layout.pp", 1) > 1
    return {
        "global_batch_size": plan.take("train.global_batch"),
        "local_batch_size": micro * accumulated if piped else micro,
        "max_steps": plan.take("train.steps"),
        "num_epochs": None if plan.peek("train.steps") else plan.take("train.epochs"),
        "ckpt_every_steps": plan.take("train.checkpoint_every"),
        "val_every_steps": plan.peek("train.evaluate_every"),
    }


def _layout(plan: Plan) -> dict[str, Any]:
    """FSDP2, which shards all, or data parallelism alone."""
    alone, piped = is_replicated(plan, _TITLE), plan.take("layout.pp", 1)
    values: dict[str, Any] = {
        "strategy": "ddp" if alone else "fsdp2",
        **{f"{key}_size": plan.take(f"layout.{key}", 1) for key in ("tp", "cp", "ep")},
        "pp_size": piped,
        "sequence_parallel": plan.take("layout.sequence_parallel") or False,
        "activation_checkpointing": _CHECKPOINTING[plan.take("layout.recompute", "none")],
    }
    if not alone and plan.take("train.reduce_dtype") == "bf16":
        types = {f"{name}_dtype": "bfloat16" for name in ("param", "reduce", "output")}
        values["mp_policy"] = {"_target_": "torch.distributed.fsdp.MixedPrecisionPolicy", **types}
    if (sizes := shard_sizes(plan)) is not None and not alone:
        values |= {"dp_replicate_size": sizes[0], "dp_size": sizes[0] * sizes[1]}
    if plan.peek("layout.offload") == "params" and not alone:
        plan.said("layout.offload")
        values["offload_policy"] = {"_target_": "torch.distributed.fsdp.CPUOffloadPolicy"}
    if piped > 1:
        layers, chunks = plan.shape.layers, plan.peek("layout.vpp", 1)
        each = math.ceil(layers / (piped * chunks))
        if math.ceil(layers / (piped * each)) == chunks:  # otherwise no number of layers makes as many chunks
            plan.said("layout.vpp")
        values["pipeline"] = {
            "pp_schedule": plan.word("layout.schedule", inverse(_SCHEDULES)) or "1f1b",
            "layers_per_stage": each if chunks > 1 else None,
            "pp_microbatch_size": plan.peek("train.micro_batch", 1),
        }
    return values


def _loss(plan: Plan) -> dict[str, Any] | None:
    found = _LOSS_CLASSES.get(plan.peek("loss"))
    if found is not None:
        plan.said("loss")
    return {"_target_": f"nemo_automodel.components.loss.{found}"} if found else None


def _data(plan: Plan) -> dict[str, Any]:
    """A data set in place of one's own, of the plan's length, and how its samples are padded."""
    length, padding = plan.take("train.seq_len"), plan.peek("train.padding")
    folder = "nemo_automodel.components.datasets.llm"
    evaluated = plan.take("train.evaluate_every")
    if plan.peek("job") == "pretrain":
        if padding == "packed":
            plan.said("train.padding")
        data = {"_target_": f"{folder}.megatron_dataset.MegatronPretraining", "paths": "PATH", "seq_length": length}
        return {"dataset": data, "validation_dataset": data if evaluated else None}
    if padding in ("packed", "to-seq-len", "longest-in-micro-batch"):
        plan.said("train.padding")
    data = {
        "_target_": f"{folder}.chat_dataset.ChatDataset",
        "path_or_dataset_id": "PATH",
        "seq_length": length,
        "padding": "max_length" if padding == "to-seq-len" else "do_not_pad",
    }
    packed = {"packed_sequence_size": length if padding == "packed" else 0}
    return {"dataset": data, "validation_dataset": data if evaluated else None, "packed_sequence": packed}


def _write_adapters(plan: Plan) -> dict[str, Any]:
    job = plan.peek("job")
    if job not in ("lora", "qlora"):
        return {}
    targets = adapted_modules(plan)
    every = targets == ["all-linear"]
    values: dict[str, Any] = {
        "peft": {
            "_target_": "nemo_automodel.components._peft.lora.PeftConfig",
            "match_all_linear": every or None,
            "target_modules": None if every else [f"*{name}" for name in targets],
            "dim": plan.take("lora.rank"),
            "alpha": plan.take("lora.alpha"),
            "dropout": plan.take("lora.dropout", 0),
            "use_dora": plan.take("lora.dora") or None,
        }
    }
    if job == "qlora":
        plan.said("train.bits", "train.quantiser")
        values["quantization"] = {"load_in_4bit": True}
    return values


def _write_optimizer(plan: Plan) -> str:
    found = _OPTIMIZERS.get(plan.peek("optimizer", "adamw"))
    if found is not None:
        plan.said("optimizer")
    return found or _OPTIMIZERS["adamw"]


SAYS = (
    "model", "job", "precision", "optimizer", "attention", "loss", "train.seq_len", "train.padding",
    "train.micro_batch", "train.global_batch", "train.steps", "train.epochs", "layout.tp", "layout.pp", "layout.cp",
    "layout.ep", "layout.vpp", "layout.schedule", "train.checkpoint_every", "train.evaluate_every", "layout.zero",
    "layout.offload", "layout.recompute", "lora.rank", "lora.targets", "lora.alpha", "lora.dropout",
    "train.reduce_dtype",
)  # fmt: skip
EXPORTERS = (
    Exporter(
        name="nemo",
        aliases=("nemo-automodel", "automodel"),
        title=_TITLE,
        ending=".yaml",
        write=_write,
        says=SAYS,
        added=Added("optimizer.lr, lr_scheduler", "step_scheduler.max_steps or num_epochs", "peft.alpha"),
    ),
)


# NeMo AutoModel's keys. Source: nemo_automodel/components and nemo_automodel/recipes (0.5).

TYPES = {
    "bf16": "bf16", "bfloat16": "bf16", "torch.bfloat16": "bf16", "float32": "fp32", "fp32": "fp32",
    "torch.float32": "fp32", "float16": "fp16", "fp16": "fp16", "torch.float16": "fp16", "auto": None,
}  # fmt: skip
DTYPE = word_of(TYPES)
"""A number format by PyTorch's name of it."""


TABLE = Table(file="nemo_automodel")


_PACKAGE = "nemo_automodel"
_PROGRAMS = ("automodel", "nemo_automodel.cli.app")
_SCRIPTS = ("finetune.py", "pretrain.py", "benchmark.py", "train.py", "kd.py", "app.py")
_OWN = (
    {"step_scheduler.global_batch_size", "distributed.strategy"},
    {"recipe", "recipe_args.target_model_name_or_path"},
)
_NOT_KEYS = frozenset({"config", "c", "nproc_per_node"})
_STRATEGIES = {"fsdp2": 3, "fsdp": 3, "megatronfsdp": 3, "ddp": 0}
_LOSSES = {"fusedlinear": "fused", "chunked": "fused", "teparallel": "vocab-parallel", "masked": "eager"}
_PRETRAINING = ("megatron", "nanogpt", "pretrain")
_LENGTHS = ("dataset.seq_length", "dataset.seq_len", "dataset.max_length", "dataset.max_seq_length",
            "dataset.block_size", "packed_sequence.max_length", "dataloader.collate_fn.max_length",
            "recipe_args.seq_length", "dataset.dataset.seq_length")  # fmt: skip


def _starts(words: tuple[str, ...]) -> bool:
    if not words:
        return False
    program = words[0].rpartition("/")[2]
    named = program in _SCRIPTS and any(word.endswith((".yaml", ".yml")) for word in words)
    return program in _PROGRAMS or words[0].endswith("nemo_automodel/cli/app.py") or named


def _launch(source: Source) -> tuple[Command, Arguments] | None:
    command = find_command(source, _starts)
    return None if command is None else (command, command_arguments(command))


def _keys(source: Source) -> Keys:
    """The keys of a recipe, or of the one that a command names, with the command's own on top."""
    if source.kind == "yaml":
        return resolved(source.keys, source.given)
    launch = _launch(source)
    if launch is None:
        return {}
    flags = flag_keys(launch[1])
    named = [flags[name].value for name in ("config", "c") if name in flags]
    named += [word.text for word in launch[1].positionals if word.text.endswith((".yaml", ".yml"))]
    file = source.companion(named[0]) if named else None
    overrides = [Written(f"{name}={each.value}", each.where) for name, each in flags.items() if name not in _NOT_KEYS]
    return resolved(overridden(file.keys if file is not None else {}, overrides), source.given)


def _recognises(source: Source) -> Certainty:
    if source.kind == "shell":
        found = _launch(source)
        return 85 if found is not None and "automodel" in source.text.lower() else 0
    if source.kind != "yaml":
        return 0
    if any(str(written.value).startswith((f"{_PACKAGE}.", "NeMoAuto")) for written in source.keys.values()):
        return 95
    return 70 if any(own <= source.keys.keys() for own in _OWN) else 0


def _read(draft: Draft, source: Source) -> None:
    draft.state("stack", TOOL.name, draft.peek("recipe", "model._target_") or Written(TOOL.name, source.start))
    _hardware(draft, source)
    _job(draft)
    _adapters(draft)
    _precision(draft)
    _sharding(draft)
    _pipeline(draft)
    _lengths(draft)
    _kernels(draft)
    _optimizer(draft)
    _intervals(draft)
    if "recipe_args.target_model_name_or_path" in draft.keys:
        draft.assume("job", "distill", "a draft model learns from the answers of its target")
    if (
        draft.peek(
            "model.pretrained_model_name_or_path",
            "recipe_args.target_model_name_or_path",
            "model.config.pretrained_model_name_or_path",
            "model.config.name_or_path",
            "model.config",
        )
        is None
    ):
        draft.miss("model", "the file names none", "--model NAME")  # fmt: skip


def _hardware(draft: Draft, source: Source) -> None:
    launch = _launch(source) if source.kind == "shell" else None
    if launch is not None and source.script is not None:
        flag = launch[1].flags.get("nproc_per_node")
        word = flag.values[0] if flag is not None and flag.values else None
        own = Written(int(word.text), word.where) if word is not None and word.text.isdecimal() else None
        state_gpus(draft, Hardware(per_node=own) | launched_hardware(source.script, launch[0]))
    nodes, each = (
        draft.take("slurm.nodes", "benchmark.num_nodes"),
        draft.take("slurm.ntasks_per_node", "slurm.gpus_per_node"),
    )
    count, size = draft.value(nodes, positive_or_open), draft.value(each, positive_or_open)
    if isinstance(count, int) and isinstance(size, int):
        draft.state("gpus", count * size, each, f"{count} nodes of {size} GPUs")
    elif isinstance(count, int):
        draft.state("nodes", count, nodes)


def _job(draft: Draft) -> None:
    """The job: by the recipe and its teacher, by adapters, else by the data."""
    recipe, teacher = draft.take("recipe"), draft.peek("teacher_model.pretrained_model_name_or_path")
    word = plain(recipe.value) if recipe is not None else ""
    quantised = draft.on("quantization.load_in_4bit", "model.quantization_config.load_in_4bit")
    eight = draft.on("quantization.load_in_8bit", "model.quantization_config.load_in_8bit")
    adapters = draft.peek("peft._target_", "peft.dim", "peft.target_modules")
    if teacher is not None or "distillation" in word or word.startswith("kd"):
        draft.state("job", "distill", teacher or recipe)
    elif adapters is not None:
        draft.state(
            "job", huggingface.QLORA if quantised or eight else huggingface.LORA, quantised or eight or adapters
        )
    if adapters is not None and (quantised or eight):
        huggingface.state_bits(draft, 4 if quantised else 8, quantised or eight or adapters)
    data = draft.peek("dataset._target_")
    made = draft.peek("model._target_")
    if data is not None and any(each in plain(data.value) for each in map(plain, _PRETRAINING)):
        draft.state("job", "pretrain", data)
    elif "pretrain" in word:
        draft.state("job", "pretrain", recipe)
    elif made is not None and "benchmark" in word and plain(made.value).endswith("fromconfig"):
        draft.state("job", "pretrain", made, "all weights, from the start")
    draft.state("job", huggingface.SFT, recipe or made or draft.peek("step_scheduler.local_batch_size"))


def _adapters(draft: Draft) -> None:
    if not any(name.startswith("peft.") for name in draft.keys):
        return
    every, named = draft.on("peft.match_all_linear"), draft.take("peft.target_modules")
    words = named.value if named is not None and isinstance(named.value, list) else [named.value] if named else []
    plain_words = [str(word).strip("*").rpartition(".")[2] for word in words]
    if every is not None or plain_words in ([""], ["_proj"], ["proj"]):
        draft.state("lora.targets", (huggingface.ALL_LINEAR,), every or named)
    elif named is not None and plain_words:
        draft.state("lora.targets", tuple(dict.fromkeys(filter(None, plain_words))) or None, named)
    dropout = draft.take("peft.dropout")
    draft.state("lora.dropout", dropout.value if dropout is not None else None, dropout)
    draft.default("lora.dropout", 0)
    if draft.peek("peft.dim") is None:
        draft.default("lora.rank", 8)


def _precision(draft: Draft) -> None:
    """Products are in 8 bit where that is on, else in the format of the sharding's policy."""
    eight, recipe = draft.on("fp8.enabled"), draft.take("fp8.recipe_name")
    if eight is not None:
        draft.state("precision", "fp8", eight)
        word = plain(recipe.value) if recipe is not None else ""
        draft.state("train.fp8_recipe", word if word in ("tensorwise", "rowwise", "mxfp8") else None, recipe)
    policy = draft.take("distributed.mp_policy.param_dtype")
    if policy is not None:
        draft.state("precision", draft.value(policy, DTYPE), policy)
    draft.default("precision", "bf16")


def _sharding(draft: Draft) -> None:
    strategy, manager = draft.take("distributed.strategy"), draft.take("distributed._target_")
    stage = draft.take("distributed.zero_dp_strategy", "distributed.data_parallel_sharding_strategy")
    if stage is not None and str(stage.value).isdecimal():
        draft.state("layout.zero", int(str(stage.value)), stage)
    found = strategy or manager
    word = plain(str(found.value).rpartition(".")[2]).removesuffix("manager") if found is not None else "fsdp2"
    draft.state("layout.zero", _STRATEGIES.get(word) if found is not None else None, found)
    draft.default("layout.zero", 3, "FSDP2")
    again = draft.take("distributed.activation_checkpointing", "fsdp.activation_checkpointing",
                       "parallelizer.activation_checkpointing", "model.activation_checkpointing")  # fmt: skip
    if again is not None:
        kind = "selective" if plain(again.value) == "selective" else "full" if is_on(again.value) else "none"
        draft.state("layout.recompute", kind, again)
    draft.default("layout.recompute", "none")
    offloaded = draft.on("distributed.offload_policy", "distributed.offload_policy._target_", "fsdp.cpu_offload")
    if offloaded is not None:
        draft.state("layout.offload", "params", offloaded)
    copies, ranks = (
        draft.take("distributed.dp_replicate_size", "fsdp.dp_replicate_size"),
        draft.take("distributed.dp_size"),
    )
    count, total = (_number(each) for each in (copies, ranks))
    if count is not None and count > 1 and total is not None and total % count == 0:
        draft.state("layout.zero_group", total // count * draft.size("distributed.cp_size"), copies)
    deferred = draft.take("distributed.defer_fsdp_grad_sync")
    if deferred is not None:
        draft.state("train.reduce_every_micro_batch", not is_on(deferred.value), deferred)


def _number(written: Written | None) -> int | None:
    return int(str(written.value)) if written is not None and str(written.value).isdecimal() else None


def _pipeline(draft: Draft) -> None:
    asked = draft.take("distributed.enable_async_tensor_parallel")
    state_overlap(draft, {} if asked is None else {"tensor-parallel": (asked, is_on(asked.value))})
    stages = _number(draft.peek("distributed.pp_size", "fsdp.pp_size")) or 1
    prefix = (
        "distributed.pipeline."
        if any(name.startswith("distributed.pipeline.") for name in draft.keys)
        else "autopipeline."
    )
    schedule, per_stage, micro = (draft.take(f"{prefix}{name}") for name in
                                  ("pp_schedule", "layers_per_stage", "pp_microbatch_size"))  # fmt: skip
    if stages < 2:
        return
    word = plain(schedule.value) if schedule is not None else "1f1b"
    draft.state("layout.schedule", {plain(name): ours for name, ours in _SCHEDULES.items()}.get(word), schedule)
    draft.default("layout.schedule", "1f1b")
    each = _number(per_stage)
    layers = profile_layers(draft.keys[name].value) if each and (name := _named(draft)) else None
    if each and layers:
        draft.state("layout.vpp", max(1, round(layers / (each * stages))), per_stage, f"{each} layers in each chunk")
    if micro is not None:
        draft.state("train.micro_batch", draft.value(micro, positive), micro)
        draft.count("step_scheduler.local_batch_size")


def _named(draft: Draft) -> str | None:
    known = ("model.pretrained_model_name_or_path", "model.config.pretrained_model_name_or_path")
    return next((name for name in known if name in draft.keys), None)


def _lengths(draft: Draft) -> None:
    """Longest sequences and padding."""
    packed = draft.take(
        "packed_sequence.packed_sequence_size", "packed_sequence.pack_size", "recipe_args.packed_sequence_size"
    )
    size = _number(packed)
    found = draft.take(*_LENGTHS)
    if size:
        draft.state("train.seq_len", size, packed)
        draft.state("train.padding", "packed", packed)
    elif found is not None:
        draft.state("train.seq_len", draft.value(found, positive), found)
    filled = draft.take("dataset.padding", "dataset.pad_to_max_length")
    if filled is not None and (plain(filled.value) == "maxlength" or filled.value is True):
        draft.state("train.padding", "to-seq-len", filled)
    data = draft.peek("dataset._target_")
    if data is not None and any(word in plain(data.value) for word in ("megatron", "nanogpt", "mock")):
        draft.state("train.padding", "packed", data, "all samples are of the same length")
    draft.default("train.padding", "longest-in-micro-batch")


def _kernels(draft: Draft) -> None:
    loss, widened = draft.take("loss_fn._target_", "loss_fn"), draft.take("loss_fn.fp32_upcast")
    word = plain(str(loss.value).rpartition(".")[2]) if loss is not None else ""
    kind = next((kind for start, kind in _LOSSES.items() if word.startswith(start)), None)
    if kind == "eager" and widened is not None and not is_on(widened.value):
        kind, loss = "no-upcast", widened
    draft.state("loss", kind, loss)
    liger = draft.on("model.use_liger_kernel")
    if liger is not None:
        draft.state("train.fused_kernels", ("liger",), liger)
    layers = [name for name in ("model.attn_implementation", "model.backend.attn") if name in draft.keys]
    for name in layers:
        if plain(draft.keys[name].value) in ("flex", "flexattention", "tilelang", "magi", "ffpa"):
            draft.lose(name, "runs an attention kernel that is not modelled")


def _optimizer(draft: Draft) -> None:
    found = draft.peek("optimizer._target_", "optimizer.optimizer_type", "optimizer.name")
    if found is not None:
        name = next(key for key, each in draft.keys.items() if each is found)
        state_optimizer(draft, name, Written(str(found.value).rpartition(".")[2], found.where))


def _intervals(draft: Draft) -> None:
    """Steps between checkpoints and between evaluations, where these are made."""
    saved, every = draft.take("checkpoint.enabled"), draft.take("step_scheduler.ckpt_every_steps")
    if (saved is None or is_on(saved.value)) and every is not None:
        draft.state("train.checkpoint_every", draft.value(every, interval), every)
    apart = draft.on("checkpoint.is_async")
    if apart is not None:
        draft.state("train.async_checkpoint", value=True, written=apart)
    tested = draft.take("step_scheduler.val_every_steps")
    if tested is not None and any(name.startswith("validation_dataset.") for name in draft.keys):
        draft.state("train.evaluate_every", draft.value(tested, interval), tested)


TOOL = Tool(
    name="nemo-automodel",
    aliases=("automodel",),
    title="NeMo AutoModel",
    reads="YAML recipes, and `automodel` and torchrun commands with the recipe that they name",
    recognises=_recognises,
    read=_read,
    table=TABLE,
    keys=_keys,
)
