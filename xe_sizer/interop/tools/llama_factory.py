"""LLaMA-Factory: YAML and JSON configurations of its first interface, and those of its second (v1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xe_sizer.interop import huggingface
from xe_sizer.interop.draft import Table
from xe_sizer.interop.huggingface import (
    ACTIVATIONS,
    ADAMW,
    ADAPTERS_OFF,
    ADDED,
    COPY,
    KERNELS,
    MUON,
    OPTIMIZERS,
    PARAMS,
    QLORA,
    adapted_modules,
    named_adapter,
    read_deepspeed,
    saved_and_evaluated,
    state_scored_answers,
    trainer_sharding,
)
from xe_sizer.interop.source import Tool
from xe_sizer.interop.values import (
    interval,
    inverse,
    is_on,
    listed,
    number,
    plain,
    positive,
    positive_or_open,
    switch,
    text,
)
from xe_sizer.interop.write import LEARNING_RATE, Exporter, ToolFiles, yaml_text
from xe_sizer.profiles.finder import BUILT_IN
from xe_sizer.software.stack import DEEPSPEED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xe_sizer.interop.draft import Draft
    from xe_sizer.interop.source import Certainty, Source
    from xe_sizer.interop.values import Keys, Written
    from xe_sizer.interop.write import Plan

# LLaMA-Factory configurations. Keys: LLaMA-Factory src/llamafactory/hparams (read in August 2026).

_PRETRAIN, _DPO, _INFERENCE = "pretrain", "dpo", "inference"
_STAGES = {"pt": _PRETRAIN, "rm": "reward", "ppo": "ppo", "dpo": _DPO, "kto": "kto"}
_PREFERENCES = ("orpo", "simpo")  # losses of the stage `dpo` that are jobs of their own
_STAGE_OF_JOB = inverse(_STAGES) | dict.fromkeys(_PREFERENCES, "dpo")
_JOBS = ("sft", "lora", "qlora", *_STAGE_OF_JOB)
_SWITCHES = {
    "muon": ("muon", None), "adam-mini": ("adam_mini", None), "apollo": ("apollo", None),
    "galore-adamw": ("galore", None), "galore-adamw-8bit": ("galore", "adamw_8bit"),
    "galore-adafactor": ("galore", "adafactor"),
}  # fmt: skip
_ATTENTION = {"fa2": "flash", "fa3": "flash", "sdpa": "sdpa", "disabled": "eager", "auto": None}


def _write(plan: Plan) -> ToolFiles:
    values: dict[str, Any] = {
        "model_name_or_path": plan.take("model"),
        **_write_job(plan),
        "do_train": True,
        "dataset": "DATASET",
        "template": "default",
        "cutoff_len": plan.take("train.seq_len"),
        **_write_padding(plan),
        "per_device_train_batch_size": plan.take("train.micro_batch"),
        "gradient_accumulation_steps": plan.take("train.grad_accum"),
        "learning_rate": LEARNING_RATE,
        "max_steps": plan.take("train.steps"),
        "num_train_epochs": None if plan.peek("train.steps") else plan.take("train.epochs"),
        **_write_precision(plan),
        **_write_recompute(plan),
        **_write_optimizer(plan),
        "flash_attn": plan.word("attention", inverse(_ATTENTION)),
        **_write_kernels(plan),
        **saved_and_evaluated(plan),
        **trainer_sharding(plan),
        "output_dir": "saves",
    }
    return ToolFiles(yaml_text(values), run=_run(plan))


def _write_job(plan: Plan) -> dict[str, Any]:
    """Stage and method; a job without adapters trains all weights."""
    job = plan.peek("job")
    if job in _JOBS:
        plan.said("job")
    values: dict[str, Any] = {"stage": _STAGE_OF_JOB.get(job, "sft"), "finetuning_type": "full"}
    if job in _PREFERENCES:
        values["pref_loss"] = job
    adapter = named_adapter(plan)
    if adapter:
        targets = adapted_modules(plan)
        values |= {
            "finetuning_type": "lora",
            "lora_rank": plan.take("lora.rank"),
            "lora_target": "all" if targets == ["all-linear"] else ",".join(targets) or None,
            "lora_alpha": plan.take("lora.alpha"),
            "lora_dropout": plan.take("lora.dropout", 0),
            "use_dora": plan.take("lora.dora") or None,
            "additional_target": ",".join(plan.take("lora.modules_to_save") or ()) or None,
        }
    if adapter == QLORA:
        values["quantization_bit"] = plan.take("train.bits", 4)
        plan.said("train.quantiser")
    return values


def _write_padding(plan: Plan) -> dict[str, Any]:
    word = plan.peek("train.padding")
    if word in ("packed", "longest-in-micro-batch", "grouped-by-length"):
        plan.said("train.padding")
    return {"packing": word == "packed", "group_by_length": word == "grouped-by-length" or None}


def _write_precision(plan: Plan) -> dict[str, Any]:
    """Precision; what learns is kept in float32 unless the run is one in pure bfloat16, what is frozen in its type."""
    word = plan.peek("precision")
    if word in ("bf16", "fp16", "fp8"):
        plan.said("precision")
    pure = word == "bf16" and plan.peek("train.weights_dtype") == "bf16" and not named_adapter(plan)
    frozen = word if word in ("bf16", "fp16") else "bf16"
    kept = "bf16" if pure else frozen if named_adapter(plan) else "fp32"
    if plan.peek("train.weights_dtype") == kept or plan.peek("job") == QLORA:
        plan.said("train.weights_dtype")
    return {
        "pure_bf16": pure or None,
        "bf16": (word in ("bf16", "fp8") and not pure) or None,
        "fp16": word == "fp16" or None,
        "fp8": word == "fp8" or None,
    }


def _write_optimizer(plan: Plan) -> dict[str, Any]:
    """The optimizer: a switch of its own where LLaMA-Factory brings it along."""
    name = plan.peek("optimizer", "")
    switch = _SWITCHES.get(str(name).removesuffix("-layerwise"))
    if switch is None:
        return {"optim": plan.word("optimizer", OPTIMIZERS) or None}
    kind, optim = switch
    plan.said("optimizer")
    return {
        f"use_{kind}": True,
        f"{kind}_layerwise": True if name.endswith("-layerwise") else None,
        f"{kind}_rank": plan.take("train.optimizer_rank"),
        "optim": optim,
    }


def _write_kernels(plan: Plan) -> dict[str, Any]:
    """Liger's kernels, with which the loss is fused where the stage needs no logits."""
    if set(plan.peek("train.fused_kernels") or ()) != KERNELS:
        return {}
    plan.said("train.fused_kernels")
    if plan.peek("loss") == "fused" and plan.peek("job") in ("pretrain", "sft", "lora", "qlora"):
        plan.said("loss")
    return {"enable_liger_kernel": True}


def _write_recompute(plan: Plan) -> dict[str, Any]:
    """All of the activations or none; with full recomputation the kept inputs may go to host memory."""
    word = plan.peek("layout.recompute")
    if word in ("full", "none"):
        plan.said("layout.recompute")
    moved = word == "full" and plan.peek("layout.offload") == "activations"
    if moved:
        plan.said("layout.offload")
    return {"disable_gradient_checkpointing": word == "none", "use_unsloth_gc": moved or None}


def _run(plan: Plan) -> str:
    nodes, per_node = plan.take("nodes", 1), plan.take("gpus_per_node", 1)
    plan.said("gpus")
    return f"FORCE_TORCHRUN=1 NNODES={nodes} NPROC_PER_NODE={per_node} llamafactory-cli train FILE"


EXPORTERS = (
    Exporter(
        name="llama-factory",
        title="LLaMA-Factory",
        ending=".yaml",
        write=_write,
        says=(
            "model",
            "job",
            "precision",
            "attention",
            "train.seq_len",
            "train.micro_batch",
            "train.grad_accum",
            "train.steps",
            "train.epochs",
            "layout.zero",
            "layout.offload",
            "layout.recompute",
            "lora.rank",
            "lora.targets",
            "lora.dropout",
            "lora.dora",
            "lora.alpha",
            "lora.modules_to_save",
            "optimizer",
            "train.padding",
            "train.checkpoint_every",
            "train.evaluate_every",
            "train.fused_kernels",
        ),
        added=ADDED,
    ),
)


# LLaMA-Factory's second interface (v1): a model, a training section without stages, and plugins by name.
#
# Keys and defaults: LLaMA-Factory src/llamafactory/v1/config and src/llamafactory/v1/plugins (read in August 2026).

_V1_OWN = frozenset(
    {
        "train_dataset", "model_class", "kernel_config", "dist_config", "peft_config", "quant_config", "init_config",
        "batching_strategy", "enable_activation_checkpointing", "sample_backend", "optim_config",
    }
)  # fmt: skip
_FEW = 2
_PADDING = {
    "normal": "longest-in-micro-batch", "paddingfree": "none", "dynamicbatching": "longest-in-micro-batch",
    "dynamicpaddingfree": "none",
}  # fmt: skip
_V1_RANK = 8
_EPOCHS = 3


def recognises(keys: Keys) -> bool:
    """Whether keys are of the second interface."""
    tops = {name.partition(".")[0] for name in keys}
    return "model" in keys and len(_V1_OWN & tops) >= _FEW and "base_model" not in keys


def read(draft: Draft, source: Source) -> None:
    """State what a configuration of the second interface says."""
    _v1_job(draft)
    _sharding(draft, source)
    _batches(draft)
    mixed = draft.take("bf16")
    if mixed is not None:
        draft.state("precision", "bf16" if is_on(mixed.value) else "fp32", mixed)
    draft.default("precision", "bf16")
    found = draft.take("enable_activation_checkpointing")
    if found is not None:
        draft.state("layout.recompute", "full" if is_on(found.value) else "none", found)
    draft.default("layout.recompute", "full")
    _v1_optimizer(draft)
    huggingface.state_attention(draft, "flash_attn")
    kernels = draft.take("kernel_config.name")
    if kernels is not None and "liger" in plain(kernels.value):
        draft.state("train.fused_kernels", huggingface.LIGER_KERNELS, kernels)
        draft.state("loss", "fused", kernels)
    elif kernels is not None and plain(kernels.value) != "auto":
        draft.lose("kernel_config.name", "fuses kernels")
    saved = draft.take("save_steps")
    if saved is not None:
        draft.state("train.checkpoint_every", draft.value(saved, interval), saved)


def _v1_job(draft: Draft) -> None:
    method, loss = draft.take("peft_config.name"), draft.take("pref_loss")
    bits, quantised = draft.take("quant_config.quantization_bit"), draft.on("quant_config.name")
    data = draft.peek("train_dataset")
    word = plain(method.value) if method is not None else "full"
    if loss is not None:
        word = plain(loss.value)
        draft.state("job", word if word in _PREFERENCES else _DPO, loss)
    elif data is not None and "dpo" in plain(data.value):
        draft.assume("job", "dpo", "from the name of the data set", data.where)
    elif word == huggingface.LORA:
        draft.state("job", huggingface.QLORA if quantised or bits else huggingface.LORA, quantised or method)
    elif method is not None:
        draft.state("job", huggingface.SFT, method)
    draft.default("job", huggingface.SFT, "no peft_config: all weights are trained")
    if word == "freeze" and method is not None:
        draft.lose("peft_config.name", "trains some of the layers only; all are counted")
    if word == huggingface.LORA:
        _v1_adapters(draft)
    if bits is not None:
        draft.state("train.bits", draft.value(bits, positive), bits)
        draft.default("train.quantiser", huggingface.BITSANDBYTES)


def _v1_adapters(draft: Draft) -> None:
    huggingface.state_targets(draft, draft.take("peft_config.target_modules"), (huggingface.ALL_LINEAR,))
    for key, name, read_as, default in (
        ("lora.rank", "peft_config.r", positive, _V1_RANK),
        ("lora.dropout", "peft_config.lora_dropout", number, 0.05),
    ):
        found = draft.take(name)
        draft.state(key, draft.value(found, read_as), found) if found else draft.default(key, default)


def _sharding(draft: Draft, source: Source) -> None:
    name, reshard = draft.take("dist_config.name"), draft.take("dist_config.reshard_after_forward")
    file, offload = draft.take("dist_config.config_file"), draft.on("dist_config.offload_params")
    if name is not None and plain(name.value) == DEEPSPEED:
        draft.state("train.backend", DEEPSPEED, name)
        if file is not None:
            read_deepspeed(draft, file, source)
    elif name is not None:
        kept = reshard is not None and not is_on(reshard.value)
        draft.state("layout.zero", 2 if kept else 3, reshard if kept else name)
    if offload is not None:
        draft.state("layout.offload", PARAMS, offload)
    draft.default("layout.zero", 0, "no dist_config")


def _batches(draft: Draft) -> None:
    strategy, total = draft.take("batching_strategy"), draft.peek("global_batch_size")
    if strategy is not None:
        draft.state("train.padding", _PADDING.get(plain(strategy.value)), strategy)
        if "dynamic" in plain(strategy.value):
            draft.lose("batching_strategy", "fills micro-batches up to a number of tokens")
    draft.default("train.padding", "longest-in-micro-batch")
    if draft.peek("micro_batch_size") is None:
        draft.default("train.micro_batch", 1)
    if total is None:
        draft.default("train.grad_accum", 1, "no global_batch_size")
    draft.default("train.epochs", _EPOCHS) if draft.peek("num_train_epochs") is None else None


def _v1_optimizer(draft: Draft) -> None:
    found = draft.take("optim_config.name")
    if found is not None and plain(found.value) == MUON:
        draft.state("optimizer", MUON, found)
    draft.default("optimizer", ADAMW)


# LLaMA-Factory's keys: what each says and what is lost with it.
#
# Keys and defaults: LLaMA-Factory src/llamafactory/hparams and src/llamafactory/v1/config (read in August 2026).

TABLE = Table(file="llama_factory", further=(huggingface.TRAINER,))


_OWN = frozenset(
    {
        "stage", "finetuning_type", "cutoff_len", "lora_target", "template", "dataset_dir", "quantization_bit",
        "infer_backend", "export_dir", "flash_attn", "pure_bf16", "use_unsloth", "enable_liger_kernel",
    }
)  # fmt: skip
_SURE = 2  # of its own keys from which on a file is surely its
_LOW_RANK = ("galore", "apollo")
_OPTIMIZER_RANK = 16  # galore_rank and apollo_rank unasked
_GALORE = {"adafactor": "galore-adafactor", **dict.fromkeys(("adamw-8bit", "paged-adamw-8bit"), "galore-adamw-8bit")}
_MEGATRON = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size")
_ENGINES = {"vllm": "vllm", "sglang": "sglang", "huggingface": "hf-transformers", "hf": "hf-transformers"}
_RANK, _ANSWER = 8, 1024
_TRAINED_BY = "megatron-lm"  # the stack of runs with Megatron's arguments


def _starts(words: Sequence[str]) -> bool:
    """Whether a command trains: `llamafactory-cli train`, or the script of the repository."""
    names = [word.rpartition("/")[2] for word in words[:2]]
    if names[:1] and names[0] in ("llamafactory-cli", "lmf"):
        return names[1:] == ["train"]
    return any(word.endswith("src/train.py") or word == "llamafactory.launcher" for word in words[:1])


def _keys(source: Source) -> Keys:
    return huggingface.keys_started(source, _starts)


def _recognises(source: Source) -> Certainty:
    if huggingface.find_launch(source, _starts) is not None:
        return 95
    keys = source.keys
    if recognises(keys):
        return 90
    own = _OWN & keys.keys()
    if "model_name_or_path" not in keys or not own:
        return 0
    return 90 if len(own) >= _SURE else 60


def _read(draft: Draft, source: Source) -> None:
    _configuration(draft, source)
    huggingface.state_launch(draft, source, _starts)


def _configuration(draft: Draft, source: Source) -> None:
    first = draft.peek("model_name_or_path", "model")
    if recognises(draft.keys):
        draft.state("stack", TOOL.name, first)
        read(draft, source)
        return
    unsloth = draft.on("use_unsloth")
    trained_by = "unsloth" if unsloth else _TRAINED_BY if _is_megatron(draft) else TOOL.name
    draft.state("stack", trained_by, unsloth or first)
    trains = any(name in draft.keys for name in ("do_train", "per_device_train_batch_size", "dataset"))
    if not trains and any(name in draft.keys for name in ("infer_backend", "export_dir", "do_predict")):
        _serving(draft)
        return
    _job(draft)
    _reference(draft)
    if draft.fact("job") == "ppo":
        _answers(draft)
    _precision(draft)
    _padding(draft)
    _recompute(draft)
    huggingface.state_sharding(draft, source)
    _optimizer(draft)
    _attention(draft)
    _kernels(draft)
    huggingface.state_checkpoints(draft)
    huggingface.state_evaluations(draft)


def _serving(draft: Draft) -> None:
    found = draft.take("infer_backend")
    where = found or draft.peek("do_predict", "export_dir", "model_name_or_path")
    draft.drop("stack")
    draft.state("job", _INFERENCE, where)
    draft.state("serve.engine", _ENGINES.get(plain(found.value)) if found else None, found)
    draft.default("serve.engine", _ENGINES["hf"])
    for key, name, read in (
        ("serve.max_model_len", "vllm_maxlen", positive),
        ("serve.gpu_memory_utilization", "vllm_gpu_util", number),
        ("serve.max_model_len", "sglang_maxlen", positive),
        ("serve.gpu_memory_utilization", "sglang_mem_fraction", number),
        ("layout.tp", "sglang_tp_size", positive_or_open),
    ):
        written = draft.take(name)
        draft.state(key, draft.value(written, read), written) if written else None
    for key in [key for key in ("finetuning_type", "stage", "lora_target") if key in draft.keys]:
        draft.lose(key, "nothing is trained", "none")


def _job(draft: Draft) -> None:
    stage, kind, loss = draft.take("stage"), draft.take("finetuning_type"), draft.take("pref_loss")
    word = plain(stage.value) if stage is not None else "sft"
    method = plain(kind.value) if kind is not None else huggingface.LORA
    bits = draft.take("quantization_bit")
    if word == _DPO and loss is not None and plain(loss.value) in _PREFERENCES:
        draft.state("job", plain(loss.value), loss)
    elif word in _STAGES and (word != "pt" or method == "full"):
        draft.state("job", _STAGES[word], stage)
    elif method in (huggingface.LORA, "oft"):
        _adapter_job(draft, kind, bits)
    else:
        draft.state("job", huggingface.SFT, kind)
    if method == "oft" and kind is not None:
        draft.lose("finetuning_type", "OFT turns weights instead of adding to them; it is priced as LoRA")
    if method == "freeze" and kind is not None:
        draft.lose("finetuning_type", "trains some of the layers only; all are counted")
    if method in (huggingface.LORA, "oft"):
        _adapters(draft, bits)


def _reference(draft: Draft) -> None:
    """A reference by name is a copy beside adapters too (`create_ref_model` of train/trainer_utils.py)."""
    named = draft.take("ref_model")
    if named is not None and draft.fact("job") in (_DPO, "kto", "ppo"):
        draft.state("train.reference", COPY, named)


def _answers(draft: Draft) -> None:
    """How PPO writes and rates answers: train/ppo/trainer.py, with one head of a value on the model that learns."""
    buffers = draft.value(draft.take("ppo_buffer_size"), positive)
    state_scored_answers(draft, _ANSWER, buffers if isinstance(buffers, int) else 1)
    draft.default("train.reference", ADAPTERS_OFF if draft.fact("lora.targets") is not None else COPY)
    rated, kind = draft.take("reward_model"), draft.take("reward_model_type")
    word = plain(kind.value) if kind is not None else huggingface.LORA
    if rated is not None and word == "full":
        draft.state("train.reward_model", draft.value(rated, text), rated)
    elif word == "api":
        draft.state("train.reward_model", "none", kind, "a service rates answers")
    elif rated is not None:
        draft.lose("reward_model", "rates answers with adapters on the model itself; a model beside it is counted")


def _adapter_job(draft: Draft, kind: Written | None, bits: Written | None) -> None:
    model = draft.peek("model_name_or_path")
    if bits is not None:
        draft.state("job", huggingface.QLORA, bits)
    elif model is not None and huggingface.quantised_as(model.value) is not None:
        draft.state("job", huggingface.QLORA, model, "the name says that the weights are quantised")
    elif kind is not None:
        draft.state("job", huggingface.LORA, kind)
    draft.default("job", huggingface.LORA, "finetuning_type: lora")


def _adapters(draft: Draft, bits: Written | None) -> None:
    target = draft.take("lora_target")
    huggingface.state_targets(draft, target, (huggingface.ALL_LINEAR,), "lora_target: all")
    saved, method = draft.take("additional_target"), draft.take("quantization_method")
    if saved is not None:
        draft.state("lora.modules_to_save", draft.value(saved, listed), saved)
    draft.default("lora.rank", _RANK) if draft.peek("lora_rank") is None else None
    draft.default("lora.dropout", 0) if draft.peek("lora_dropout") is None else None
    model = draft.peek("model_name_or_path")
    if bits is not None:
        if method is not None:
            draft.state("train.quantiser", huggingface.quantiser_called(method.value), method)
        draft.state("train.bits", draft.value(bits, positive), bits)
        draft.default("train.quantiser", huggingface.BITSANDBYTES)
    elif model is not None:
        huggingface.state_name(draft, model)


def _precision(draft: Draft) -> None:
    """What learns is upcast to float32 unless the run is one in pure bfloat16; frozen weights stay in 16 bit."""
    pure, badam, fp8 = draft.on("pure_bf16"), draft.peek("use_badam"), draft.on("fp8")
    if fp8 is not None:
        draft.state("precision", "fp8", fp8)
    bfloat, half = draft.on("bf16"), draft.on("fp16")
    adapters = "lora.rank" in draft.facts or draft.peek("lora_rank") is not None
    if pure is not None:
        draft.state("precision", "bf16", pure)
        draft.state("train.weights_dtype", "bf16", pure)
    elif bfloat is not None:
        draft.state("precision", "bf16", bfloat)
    elif half is not None:
        draft.state("precision", "fp16", half)
    low = adapters or (badam is not None and is_on(badam.value))
    draft.default("precision", "bf16" if low else "fp32", "neither bf16 nor fp16")
    if _is_megatron(draft):
        draft.default("train.weights_dtype", draft.fact("precision"), "the optimizer keeps those in float32")
    if draft.fact("job") != huggingface.QLORA:
        kept = str(draft.fact("precision")) if low and draft.fact("precision") in ("bf16", "fp16") else None
        note = "frozen weights have the type of the run" if adapters else "what learns is kept in float32"
        draft.default("train.weights_dtype", kept or ("bf16" if low else "fp32"), note)


def _padding(draft: Draft) -> None:
    packed, neat = draft.take("packing"), draft.on("neat_packing")
    if neat is not None:
        draft.state("train.padding", "packed", neat)
    if packed is not None and draft.value(packed, switch):
        draft.state("train.padding", "packed", packed)
    stage = draft.peek("stage")
    if packed is None and stage is not None and plain(stage.value) == "pt":
        draft.default("train.padding", "packed", "pre-training packs")
    huggingface.state_grouping(draft)
    if _is_megatron(draft):
        draft.default("train.padding", "to-seq-len", "Megatron's batches are of one length")
    draft.default("train.padding", "longest-in-micro-batch")


def _recompute(draft: Draft) -> None:
    off, offloaded = draft.on("disable_gradient_checkpointing"), draft.on("use_unsloth_gc")
    granularity = draft.take("recompute_granularity")
    layers = draft.take("recompute_num_layers")
    if granularity is not None and plain(granularity.value) in ("full", "selective"):
        draft.state("layout.recompute", plain(granularity.value), granularity)
    if layers is not None and draft.fact("layout.recompute") == "full":
        draft.state("layout.recompute_layers", draft.value(layers, positive_or_open), layers)
    if off is not None:
        draft.state("layout.recompute", "none", off)
    if offloaded is not None:
        draft.state("layout.recompute", "full", offloaded)
        draft.state("layout.offload", ACTIVATIONS, offloaded)
    if _is_megatron(draft):
        sharded = draft.take("use_distributed_optimizer")
        if sharded is not None:
            draft.state("layout.zero", 1 if is_on(sharded.value) else 0, sharded)
        draft.default("layout.recompute", "none", "Megatron recomputes only where it is told to")
    draft.take("gradient_checkpointing")
    draft.default("layout.recompute", "full")


def _is_megatron(draft: Draft) -> bool:
    """Whether Megatron trains, which LLaMA-Factory is told by a variable of the shell."""
    return any(name in draft.keys for name in _MEGATRON)


def _optimizer(draft: Draft) -> None:
    muon = draft.on("use_muon")
    if muon is not None:
        draft.state("optimizer", MUON, muon)
    mini = draft.on("use_adam_mini")
    if mini is not None:
        draft.state("optimizer", "adam-mini", mini)
    for kind in _LOW_RANK:
        found = draft.on(f"use_{kind}")
        if found is not None:
            _low_rank(draft, kind, found)
    huggingface.state_optim(draft)


def _low_rank(draft: Draft, kind: str, found: Written) -> None:
    """GaLore and APOLLO, of which the first follows what `optim` names (train/trainer_utils.py)."""
    optim = draft.peek("optim")
    named = BUILT_IN.called("optimizer", str(optim.value).lower()) if optim is not None else ADAMW
    name = "apollo" if kind == "apollo" else _GALORE.get(named, "galore-adamw")
    layerwise = draft.on(f"{kind}_layerwise") is not None
    draft.state("optimizer", f"{name}-layerwise" if layerwise else name, found)
    draft.take("optim")
    rank = draft.take(f"{kind}_rank")
    if rank is not None:
        draft.state("train.optimizer_rank", draft.value(rank, positive), rank)
    draft.default("train.optimizer_rank", _OPTIMIZER_RANK)


def _attention(draft: Draft) -> None:
    found = draft.take("flash_attn")
    word = plain(found.value) if found is not None else "auto"
    if found is not None and word in _ATTENTION:
        draft.state("attention", _ATTENTION[word], found)
    elif found is not None and is_on(found.value):
        draft.state("attention", "flash", found)
    huggingface.state_attention(draft)


def _kernels(draft: Draft) -> None:
    """Liger's kernels; its loss is taken where the stage needs no logits."""
    found = draft.on("enable_liger_kernel")
    if found is not None:
        draft.state("train.fused_kernels", huggingface.LIGER_KERNELS, found)
        stage = draft.peek("stage")
        if stage is None or plain(stage.value) in ("pt", "sft"):
            draft.state("loss", "fused", found)


TOOL = Tool(
    name="llama-factory",
    aliases=("llamafactory",),
    title="LLaMA-Factory",
    reads="`llamafactory-cli train` in scripts, YAML and JSON configurations of both of its interfaces, with the "
    "DeepSpeed files that they name",
    recognises=_recognises,
    read=_read,
    table=TABLE,
    keys=_keys,
)
