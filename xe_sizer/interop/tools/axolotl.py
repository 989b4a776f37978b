"""Axolotl: YAML configurations. Keys and defaults: axolotl src/axolotl/utils/schemas (read at 0.18)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xe_sizer.interop import huggingface
from xe_sizer.interop.draft import Table
from xe_sizer.interop.huggingface import (
    ALL_LINEAR,
    BITS,
    FSDP_VERSION,
    LORA,
    OPTIMIZERS,
    QLORA,
    QLORA_BITS,
    adapted_modules,
    deepspeed_settings,
    fsdp_settings,
    named_adapter,
    quantiser_called,
    read_deepspeed,
    state_bits,
    state_deepspeed,
    state_group_answers,
    state_optimizer,
    state_rollout,
    state_targets,
)
from xe_sizer.interop.source import Tool
from xe_sizer.interop.values import (
    above_zero,
    inverse,
    is_on,
    listed,
    number,
    plain,
    positive,
    switch,
)
from xe_sizer.interop.write import LEARNING_RATE, Added, Exporter, ToolFiles, yaml_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xe_sizer.interop.draft import Draft
    from xe_sizer.interop.huggingface import Stated
    from xe_sizer.interop.source import Certainty, Source
    from xe_sizer.interop.values import Keys
    from xe_sizer.interop.write import Plan

# Axolotl configurations. Keys: axolotl src/axolotl/utils/schemas (read at 0.18).

_RL_JOBS = ("dpo", "kto", "orpo", "simpo", "grpo")
_PREFERENCES = {"ipo": "dpo", "gdpo": "grpo"}  # priced alike: the same models, passes and data
_OPTIMIZERS = OPTIMIZERS | {"adopt": "adopt_adamw", "came": "came_pytorch", "muon": "muon"}
_WEIGHTS = {"bf16": "bf16", "fp16": "fp16", "fp8": "bf16", "fp32": "fp32"}  # by the precision of the run
_PRECISIONS = {"bf16": ("bf16", "bfloat16"), "fp16": ("fp16", "float16"), "fp8": ("fp8",), "fp32": ("float32",)}
_LIGER = {
    "liger_rope": "rotary", "liger_rms_norm": "norm", "liger_layer_norm": "norm", "liger_glu_activation": "activation",
    "liger_swiglu": "activation",
}  # fmt: skip
_LIGER_PLUGIN = "axolotl.integrations.liger.LigerPlugin"
_CUT_PLUGIN = "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"
ATTENTION = {
    "flash_attention_2": "flash", "flash_attention_3": "flash", "flash": "flash",
    "kernels-community/flash-attn2": "flash", "kernels-community/flash-attn3": "flash", "sdpa": "sdpa",
    "eager": "eager",
}  # fmt: skip


def _write(plan: Plan) -> ToolFiles:
    values: dict[str, Any] = {
        "base_model": plan.take("model"),
        **_write_job(plan),
        **_write_precision(plan),
        "sequence_len": plan.take("train.seq_len"),
        **_write_padding(plan),
        "micro_batch_size": plan.take("train.micro_batch"),
        "gradient_accumulation_steps": plan.take("train.grad_accum"),
        "learning_rate": LEARNING_RATE,
        "max_steps": plan.take("train.steps"),
        "num_epochs": None if plan.peek("train.steps") else plan.take("train.epochs"),
        "optimizer": plan.word("optimizer", _OPTIMIZERS) or None,
        "gradient_checkpointing": _write_recompute(plan),
        "attn_implementation": plan.word("attention", inverse(ATTENTION)),
        **_write_kernels(plan),
        "tensor_parallel_size": _above_one(plan.take("layout.tp")),
        "context_parallel_size": _above_one(plan.take("layout.cp")),
        "dp_shard_size": plan.take("layout.zero_group") or None,
        "save_steps": plan.take("train.checkpoint_every"),
        "eval_steps": plan.take("train.evaluate_every"),
        **_write_sharding(plan),
    }
    return ToolFiles(yaml_text(values), run=_run(plan))


def _write_job(plan: Plan) -> dict[str, Any]:
    job = plan.take("job")
    adapter = named_adapter(plan)
    values: dict[str, Any] = {"adapter": adapter, "rl": job if job in _RL_JOBS else None}
    if plan.peek("train.reference") == "precomputed":
        plan.said("train.reference")
        values["precompute_ref_log_probs"] = True
    if job == "reward":
        values["reward_model"] = True
    if adapter:
        values |= _write_adapters(plan)
    bits = plan.peek("train.bits", QLORA_BITS if adapter == QLORA else None)
    if adapter and bits in BITS:
        plan.said("train.bits")
        values |= {"adapter": QLORA if bits == QLORA_BITS else LORA, BITS[bits]: True}
    if job == "pretrain":
        values["pretraining_dataset"] = [{"path": "PATH"}]
    else:
        values["datasets"] = [{"path": "PATH", "type": "chat_template"}]
    return values


def _write_adapters(plan: Plan) -> dict[str, Any]:
    targets = adapted_modules(plan)
    return {
        "lora_r": plan.take("lora.rank"),
        "lora_alpha": plan.take("lora.alpha"),
        "lora_dropout": plan.take("lora.dropout", 0),
        "lora_target_linear": targets == ["all-linear"] or None,
        "lora_target_modules": None if targets == ["all-linear"] else targets,
        "peft_use_dora": plan.take("lora.dora") or None,
        "lora_modules_to_save": list(plan.take("lora.modules_to_save") or ()) or None,
    }


def _write_precision(plan: Plan) -> dict[str, Any]:
    """Precision, and with it the type of the weights."""
    word = plan.peek("precision")
    if word in _WEIGHTS:
        plan.said("precision")
    if plan.peek("train.weights_dtype") == _WEIGHTS.get(word):
        plan.said("train.weights_dtype")
    return {
        "bf16": word == "bf16",
        **{_PRECISIONS[each][0]: word == each or None for each in ("fp16", "fp8", "fp32")},
    }


def _write_kernels(plan: Plan) -> dict[str, Any]:
    """Liger's kernels and loss, or the cut cross-entropy where it is the loss alone that is fused."""
    kernels = plan.peek("train.fused_kernels") or ()
    fused = plan.peek("loss") == "fused"
    if fused:
        plan.said("loss")
    switches = inverse(_LIGER)
    if kernels and all(kind in switches for kind in kernels):
        plan.said("train.fused_kernels")
        chosen = {switches[kind]: True for kind in kernels}
        return {"plugins": [_LIGER_PLUGIN], **chosen, "liger_fused_linear_cross_entropy": fused or None}
    return {"plugins": [_CUT_PLUGIN], "cut_cross_entropy": True} if fused else {}


def _write_padding(plan: Plan) -> dict[str, Any]:
    word = plan.peek("train.padding")
    known = ("packed", "to-seq-len", "longest-in-micro-batch", "grouped-by-length", "none")
    if word in known:
        plan.said("train.padding")
    return {
        "sample_packing": word == "packed",
        "pad_to_sequence_len": word in ("packed", "to-seq-len"),
        "group_by_length": word == "grouped-by-length" or None,
        "batch_flattening": word == "none" or None,
    }


def _write_recompute(plan: Plan) -> bool | str:
    """All of the activations or none; with full recomputation the kept inputs may go to host memory."""
    full = bool(plan.peek("layout.recompute") == "full")
    if plan.peek("layout.recompute") in ("full", "none"):
        plan.said("layout.recompute")
    if full and plan.peek("layout.offload") == "activations":
        plan.said("layout.offload")
        return "offload"
    return full


def _write_sharding(plan: Plan) -> dict[str, Any]:
    fsdp = fsdp_settings(plan)
    if fsdp is None:
        return {"deepspeed": deepspeed_settings(plan)}
    return {"fsdp_version": FSDP_VERSION, "fsdp_config": fsdp}


def _above_one(ranks: int | None) -> int | None:
    return ranks if ranks and ranks > 1 else None


def _run(plan: Plan) -> str:
    nodes, per_node = plan.take("nodes", 1), plan.take("gpus_per_node", 1)
    plan.said("gpus")
    machines = f"--num-machines {nodes} " if nodes > 1 else ""
    return (
        f"axolotl train FILE --launcher accelerate -- {machines}--num-processes {plan.peek('gpus', nodes * per_node)}"
    )


SAYS = (
    "model", "job", "precision", "optimizer", "attention", "train.seq_len", "train.padding", "train.micro_batch",
    "train.grad_accum", "train.steps", "train.epochs", "train.checkpoint_every", "layout.tp", "layout.cp",
    "layout.zero", "layout.offload", "layout.recompute", "lora.rank", "lora.targets", "lora.alpha", "lora.dropout",
    "lora.dora", "lora.modules_to_save", "train.fused_kernels", "loss", "train.evaluate_every",
)  # fmt: skip
EXPORTERS = (
    Exporter(
        name="axolotl",
        title="axolotl",
        ending=".yml",
        write=_write,
        says=SAYS,
        added=Added("learning_rate, lr_scheduler, warmup_ratio", "max_steps or num_epochs", "lora_alpha"),
    ),
)


_OWN = frozenset(
    {"base_model", "micro_batch_size", "sequence_len", "datasets", "num_epochs", "sample_packing", "adapter"}
)
_BATCHED = 3  # keys of axolotl's own from which on a file is surely its
_SWITCHES = (("flash_attention", "flash"), ("sdp_attention", "sdpa"), ("eager_attention", "eager"))
_SERVER: Mapping[str, Stated] = {
    "tp": (("vllm.tensor_parallel_size",), positive, None),
    "gpu_memory_utilization": (("vllm.gpu_memory_utilization",), above_zero, None),
}
TABLE = Table(file="axolotl", beside=(huggingface.FSDP,))


def _starts(words: Sequence[str]) -> bool:
    """Whether a command trains: `axolotl train FILE`, or the module of older releases."""
    name = words[0].rpartition("/")[2] if words else ""
    return name.startswith("axolotl.cli.train") or (name == "axolotl" and words[1:2] == ["train"])


def _keys(source: Source) -> Keys:
    return huggingface.keys_started(source, _starts)


def _recognises(source: Source) -> Certainty:
    if huggingface.find_launch(source, _starts) is not None:
        return 95
    own = _OWN & source.keys.keys() | {name.partition(".")[0] for name in source.keys} & _OWN
    return 90 if "base_model" in own and len(own) >= _BATCHED else 40 if "base_model" in own else 0


def _read(draft: Draft, source: Source) -> None:
    draft.state("stack", TOOL.name, draft.peek("base_model"))
    _job(draft)
    if draft.fact("job") == "grpo":
        _answers(draft)
    _precision(draft)
    _padding(draft)
    _recompute(draft)
    _sharding(draft, source)
    state_optimizer(draft, "optimizer", draft.peek("optimizer"))
    draft.default("optimizer", "adamw")
    _attention(draft)
    _adapters(draft)
    _kernels(draft)
    _accumulation(draft)
    huggingface.state_launch(draft, source, _starts)


def _job(draft: Draft) -> None:
    rl, adapter, pretraining = draft.take("rl"), draft.take("adapter"), draft.take("pretraining_dataset")
    reward = draft.on("reward_model") or draft.on("process_reward_model")
    quantised, eight, stored = draft.on("load_in_4bit"), draft.on("load_in_8bit"), draft.on("gptq")
    if rl is not None:
        word = plain(rl.value)
        draft.state("job", _PREFERENCES.get(word, word), rl)
    elif reward is not None:
        draft.state("job", "reward", reward)
    elif adapter is not None and plain(adapter.value) in ("lora", "qlora"):
        draft.state(
            "job", "qlora" if quantised or eight or stored or plain(adapter.value) == "qlora" else "lora", adapter
        )
    elif adapter is not None:
        draft.lose("adapter", f"{adapter.value} is priced as LoRA")
        draft.assume("job", "lora", f"in place of {adapter.value}", adapter.where)
    elif pretraining is not None or any(name.startswith("pretraining_dataset.") for name in draft.keys):
        draft.state("job", "pretrain", pretraining or draft.peek("pretraining_dataset.0.path"))
    else:
        draft.default("job", "sft", "no adapter: all weights are trained")
    if stored is not None and adapter is not None:
        state_bits(draft, 4, stored, str(quantiser_called("gptq")))
    elif quantised is not None and adapter is not None:
        state_bits(draft, 4, quantised)
    elif eight is not None and adapter is not None:
        state_bits(draft, 8, eight)


def _answers(draft: Draft) -> None:
    """How answers are written: the section of TRL's settings, and that of the server which writes them."""
    length, answer = draft.peek("sequence_len"), draft.peek("trl.max_completion_length")
    sizes = draft.value(length, positive), draft.value(answer, positive)
    if isinstance(sizes[0], int) and isinstance(sizes[1], int) and sizes[0] <= sizes[1]:
        draft.state("train.seq_len", sizes[0] + sizes[1], length, f"{sizes[0]} of the prompt, {sizes[1]} of the answer")
    state_group_answers(draft, "trl.")
    state_rollout(draft, _SERVER)
    served = draft.peek("vllm.tensor_parallel_size", "vllm.data_parallel_size")
    if served is not None and draft.fact("rollout.colocated") is not True and draft.on("trl.use_vllm") is not None:
        replicas, size = draft.value(draft.take("vllm.data_parallel_size"), positive), draft.fact("rollout.tp")
        draft.state("rollout.colocated", False, served, "a server writes them")
        each = size if isinstance(size, int) else 1
        draft.state("rollout.gpus", each * (replicas if isinstance(replicas, int) else 1), served)


def _precision(draft: Draft) -> None:
    for word in ("bf16", "fp16", "fp8"):
        found = draft.on(*_PRECISIONS[word])
        if found is not None:
            if plain(found.value) == "auto":
                draft.default("precision", word, f"{word}: auto")
            draft.state("precision", word, found)
            draft.default("train.weights_dtype", "fp16" if word == "fp16" else "bf16", "loaded in the type of the run")
            return
    full = draft.on(*_PRECISIONS["fp32"])
    draft.state("precision", "fp32", full) if full else draft.default("precision", "bf16", "bf16: auto")


def _padding(draft: Draft) -> None:
    packed, to_length, grouped = (
        draft.on("sample_packing"),
        draft.take("pad_to_sequence_len"),
        draft.on("group_by_length"),
    )
    if packed is not None:
        draft.state("train.padding", "packed", packed)
    elif to_length is not None and switch(to_length.value):
        draft.state("train.padding", "to-seq-len", to_length)
    elif grouped is not None:
        draft.state("train.padding", "grouped-by-length", grouped)
    elif draft.on("batch_flattening") is not None:
        draft.state("train.padding", "none", draft.keys["batch_flattening"])
    else:
        draft.default("train.padding", "longest-in-micro-batch")


def _recompute(draft: Draft) -> None:
    found = draft.take("gradient_checkpointing")
    if found is None or not is_on(found.value):
        fsdp_on = draft.peek("fsdp_config.activation_checkpointing", "fsdp_config.fsdp_activation_checkpointing")
        if found is not None and not (fsdp_on and is_on(fsdp_on.value)):
            draft.state("layout.recompute", "none", found)
        return
    draft.state("layout.recompute", "full", found)
    if "offload" in plain(found.value):
        draft.state("layout.offload", "activations", found)


def _sharding(draft: Draft, source: Source) -> None:
    named = draft.on("deepspeed")
    inside = any(name.startswith("deepspeed.") for name in draft.keys)
    options = draft.take("fsdp")
    configured = any(name.startswith("fsdp_config.") for name in draft.keys)
    if named is not None:
        read_deepspeed(draft, named, source)
    elif inside:
        state_deepspeed(draft, draft.keys, "deepspeed.")
    elif (options is not None and is_on(options.value)) or configured:
        huggingface.state_fsdp(draft, options, "fsdp_config.")
    draft.default("layout.zero", 0, "neither DeepSpeed nor FSDP")
    draft.default("layout.recompute", "none")


def _attention(draft: Draft) -> None:
    for name, kernel in _SWITCHES:
        found = draft.on(name)
        if found is not None:
            draft.state("attention", kernel, found)
    for name in ("xformers_attention", "flex_attention", "sage_attention", "s2_attention"):
        if draft.on(name) is not None:
            draft.lose(name, "runs an attention kernel that is not modelled")
    if draft.peek("attn_implementation") is None:
        draft.default("attention", "sdpa", "the choice of transformers")


def _adapters(draft: Draft) -> None:
    if draft.fact("job") not in ("lora", "qlora") and draft.peek("adapter") is None:
        return
    targets, linear = draft.take("lora_target_modules"), draft.on("lora_target_linear")
    if linear is not None:
        draft.state("lora.targets", (ALL_LINEAR,), linear)
    else:
        state_targets(draft, targets, None)
    saved = draft.take("lora_modules_to_save")
    if saved is not None:
        draft.state("lora.modules_to_save", listed(saved.value), saved)
    dropout = draft.take("lora_dropout")
    if dropout is not None:
        draft.state("lora.dropout", draft.value(dropout, number), dropout)
    draft.default("lora.dropout", 0)


def _accumulation(draft: Draft) -> None:
    """Accumulation steps, where they are said by the samples of a step on each GPU (`batch_size`)."""
    samples, micro = draft.peek("batch_size"), draft.peek("micro_batch_size")
    if samples is None or draft.peek("gradient_accumulation_steps") is not None:
        return
    total, each = draft.value(samples, positive), draft.value(micro, positive) or 1
    if isinstance(total, int) and isinstance(each, int) and total >= each:
        draft.state("train.grad_accum", total // each, samples, f"batch of {total} in micro-batches of {each}")


def _kernels(draft: Draft) -> None:
    """Fused kernels of the plugins."""
    listed_plugins = draft.take("plugins")
    plugins = " ".join(listed(listed_plugins.value) or ()).lower() if listed_plugins else ""
    liger = [name for name in draft.keys if name.startswith("liger_") and is_on(draft.keys[name].value)]
    if "liger" in plugins and liger:
        found = dict.fromkeys(_LIGER[name] for name in liger if name in _LIGER)
        draft.state("train.fused_kernels", tuple(found) or None, listed_plugins)
        loss = draft.on("liger_fused_linear_cross_entropy")
        draft.state("loss", "fused", loss) if loss else None
    if "cut_cross_entropy" in plugins or draft.on("cut_cross_entropy") is not None:
        draft.state("loss", "fused", listed_plugins or draft.peek("cut_cross_entropy"))
    chunked = draft.on("chunked_cross_entropy")
    if chunked is not None:
        draft.state("loss", "fused", chunked, "in chunks of tokens")


TOOL = Tool(
    name="axolotl",
    title="axolotl",
    reads="`axolotl train` in scripts, YAML configurations, with the DeepSpeed files that they name",
    recognises=_recognises,
    read=_read,
    table=TABLE,
    keys=_keys,
)
