"""LLaMA-Factory: YAML and JSON configurations of its first interface, and those of its second (v1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.importers.parts import hf_arguments, hf_scripts, llama_factory_v1, peft
from xe_sizer.importers.parts.group_answers import ADAPTERS_OFF, COPY, state_scored_answers
from xe_sizer.importers.parts.llama_factory_keys import TABLE
from xe_sizer.importers.parts.offload import ACTIVATIONS
from xe_sizer.importers.parts.optimizers import ADAMW, MUON
from xe_sizer.importers.tool import Tool
from xe_sizer.importers.values import is_on, listed, number, plain, positive, positive_or_open, switch, text
from xe_sizer.profiles.finder import BUILT_IN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.source import Source
    from xe_sizer.importers.tool import Certainty
    from xe_sizer.importers.written import Keys, Written

_OWN = frozenset(
    {
        "stage", "finetuning_type", "cutoff_len", "lora_target", "template", "dataset_dir", "quantization_bit",
        "infer_backend", "export_dir", "flash_attn", "pure_bf16", "use_unsloth", "enable_liger_kernel",
    }
)  # fmt: skip
_SURE = 2  # of its own keys from which on a file is surely its
_PRETRAIN, _DPO, _INFERENCE = "pretrain", "dpo", "inference"
_STAGES = {"pt": _PRETRAIN, "rm": "reward", "ppo": "ppo", "dpo": _DPO, "kto": "kto"}
_PREFERENCES = {"orpo": "orpo", "simpo": "simpo"}
_ATTENTION = {"fa2": "flash", "fa3": "flash", "sdpa": "sdpa", "disabled": "eager", "auto": None}
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
    return hf_scripts.keys_started(source, _starts)


def _recognises(source: Source) -> Certainty:
    if hf_scripts.command_of(source, _starts) is not None:
        return 95
    keys = source.keys
    if llama_factory_v1.recognises(keys):
        return 90
    own = _OWN & keys.keys()
    if "model_name_or_path" not in keys or not own:
        return 0
    return 90 if len(own) >= _SURE else 60


def _read(draft: Draft, source: Source) -> None:
    _configuration(draft, source)
    hf_scripts.state_launch(draft, source, _starts)


def _configuration(draft: Draft, source: Source) -> None:
    first = draft.peek("model_name_or_path", "model")
    if llama_factory_v1.recognises(draft.keys):
        draft.state("stack", TOOL.name, first)
        llama_factory_v1.read(draft, source)
        return
    unsloth = draft.on("use_unsloth")
    trained_by = "unsloth" if unsloth else _TRAINED_BY if _is_megatron(draft) else TOOL.name
    draft.state("stack", trained_by, unsloth or first)
    if not _trains(draft):
        _serving(draft)
        return
    _job(draft)
    _reference(draft)
    if draft.fact("job") == "ppo":
        _answers(draft)
    _precision(draft)
    _padding(draft)
    _recompute(draft)
    hf_arguments.state_sharding(draft, source)
    _optimizer(draft)
    _attention(draft)
    _kernels(draft)
    hf_arguments.state_checkpoints(draft)
    hf_arguments.state_evaluations(draft)


def _trains(draft: Draft) -> bool:
    """Whether the file is of a training run: others generate, predict or export."""
    if any(name in draft.keys for name in ("do_train", "per_device_train_batch_size", "dataset")):
        return True
    return not any(name in draft.keys for name in ("infer_backend", "export_dir", "do_predict"))


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
    method = plain(kind.value) if kind is not None else peft.LORA
    bits = draft.take("quantization_bit")
    if word == _DPO and loss is not None and plain(loss.value) in _PREFERENCES:
        draft.state("job", _PREFERENCES[plain(loss.value)], loss)
    elif word in _STAGES and (word != "pt" or method == "full"):
        draft.state("job", _STAGES[word], stage)
    elif method in (peft.LORA, "oft"):
        _adapter_job(draft, kind, bits)
    else:
        draft.state("job", peft.SFT, kind)
    if method == "oft" and kind is not None:
        draft.lose("finetuning_type", "OFT turns weights instead of adding to them; it is priced as LoRA")
    if method == "freeze" and kind is not None:
        draft.lose("finetuning_type", "trains some of the layers only; all are counted")
    if method in (peft.LORA, "oft"):
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
    word = plain(kind.value) if kind is not None else peft.LORA
    if rated is not None and word == "full":
        draft.state("train.reward_model", draft.value(rated, text), rated)
    elif word == "api":
        draft.state("train.reward_model", "none", kind, "a service rates answers")
    elif rated is not None:
        draft.lose("reward_model", "rates answers with adapters on the model itself; a model beside it is counted")


def _adapter_job(draft: Draft, kind: Written | None, bits: Written | None) -> None:
    model = draft.peek("model_name_or_path")
    if bits is not None:
        draft.state("job", peft.QLORA, bits)
    elif model is not None and peft.quantised_as(model.value) is not None:
        draft.state("job", peft.QLORA, model, "the name says that the weights are quantised")
    elif kind is not None:
        draft.state("job", peft.LORA, kind)
    draft.default("job", peft.LORA, "finetuning_type: lora")


def _adapters(draft: Draft, bits: Written | None) -> None:
    target = draft.take("lora_target")
    peft.state_targets(draft, target, (peft.ALL_LINEAR,), "lora_target: all")
    saved, method = draft.take("additional_target"), draft.take("quantization_method")
    if saved is not None:
        draft.state("lora.modules_to_save", draft.value(saved, listed), saved)
    draft.default("lora.rank", _RANK) if draft.peek("lora_rank") is None else None
    draft.default("lora.dropout", 0) if draft.peek("lora_dropout") is None else None
    model = draft.peek("model_name_or_path")
    if bits is not None:
        if method is not None:
            draft.state("train.quantiser", peft.quantiser_called(method.value), method)
        draft.state("train.bits", draft.value(bits, positive), bits)
        draft.default("train.quantiser", peft.BITSANDBYTES)
    elif model is not None:
        peft.state_name(draft, model)


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
    if draft.fact("job") != peft.QLORA:
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
    hf_arguments.state_grouping(draft)
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
    hf_arguments.state_optim(draft)


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
    hf_arguments.state_attention(draft)


def _kernels(draft: Draft) -> None:
    """Liger's kernels; its loss is taken where the stage needs no logits."""
    found = draft.on("enable_liger_kernel")
    if found is not None:
        draft.state("train.fused_kernels", hf_arguments.LIGER_KERNELS, found)
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
