"""Arguments of inference engines for a replica of a plan, by the names that their commands have."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from xe_sizer.immutable import Immutable
from xe_sizer.interop.services import SGLANG, TENSORRT_LLM, VLLM
from xe_sizer.interop.write import POOLED, SHARERS, Exporter, ToolFiles, command_text, yaml_text
from xe_sizer.software.speculation import DFLASH, DRAFT_MODEL, EAGLE, EAGLE3, MEDUSA, MTP, NGRAM, SUFFIX
from xe_sizer.units import GIB

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xe_sizer.interop.write import Plan

SAYS = (
    "model", "job", "layout.tp", "layout.pp", "layout.dp", "layout.ep", "serve.gpu_memory_utilization",
    "serve.max_sequences", "serve.max_step_tokens", "serve.max_model_len", "serve.kv_cache", "serve.state_dtype",
    "serve.kv_host_gib", "serve.dispatcher", "serve.redundant_experts", "serve.two_batch_overlap", "serve.ngram_tables",
)  # fmt: skip
# Of replicas that only decode, where others prefill, DeepEP's kernels are those of decodes; one instance has one kind.
_DISPATCHERS_OF_VLLM = {
    "all-gather": "allgather_reducescatter", "deepep": "deepep_low_latency", "deepep-normal": "deepep_high_throughput",
    "deepep-low-latency": "deepep_low_latency", "pplx": "pplx", "nvlink": "flashinfer_nvlink_one_sided", "mori": "mori",
}  # fmt: skip
_DISPATCHERS_OF_SGLANG = {
    "all-gather": ("none", None), "deepep": ("deepep", "auto"), "deepep-normal": ("deepep", "normal"),
    "deepep-low-latency": ("deepep", "low_latency"), "nvlink": ("flashinfer", None), "mori": ("mori", None),
}  # fmt: skip
SAYS_ADAPTERS = ("serve.adapters", "serve.adapter_slots", "lora.rank")
_RANKS_OF_VLLM = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # of adapters (vllm/config/lora.py)
_ALL_MODULES = ("all-linear",)
_WIDE = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def replica_note(plan: Plan) -> str:
    """How many such servers the plan starts."""
    count, part = int(plan.take("replicas", 1)), plan.take("slice")
    plan.said("gpus", "nodes", "gpus_per_node", "job", "serve.engine")
    on = f" by {part}" if plan.peek(SHARERS) else f", each on a slice of {part}" if part else ""
    return f"start {count} of these{on}, and share the requests among them" if count > 1 or part else ""


def vllm_flags(plan: Plan) -> dict[str, Any]:
    """Arguments of `vllm serve` (vLLM 0.33, engine/arg_utils.py)."""
    tp, dp = int(plan.take("layout.tp", 1)), int(plan.take("layout.dp", 1))
    whole = plan.peek("layout.ep", 1) == tp * dp and tp * dp > 1
    if whole:
        plan.said("layout.ep")
    cache = plan.take("serve.kv_cache")
    drafts, tables = _drafts(plan, _OF_VLLM), plan.take("serve.ngram_tables")
    return {
        "runner": "pooling" if plan.peek(POOLED) else None,
        "tensor-parallel-size": tp,
        "pipeline-parallel-size": plan.take("layout.pp", 1),
        "data-parallel-size": dp if dp > 1 else None,
        "enable-expert-parallel": whole,
        **_experts_of_vllm(plan),
        "gpu-memory-utilization": plan.take("serve.gpu_memory_utilization"),
        "max-model-len": plan.take("serve.max_model_len"),
        "max-num-seqs": plan.take("serve.max_sequences"),
        "max-num-batched-tokens": plan.take("serve.max_step_tokens"),
        "quantization": _quantised(plan, {"fp8": "fp8"}),
        "kv-cache-dtype": _WIDE.get(cache, cache),
        **_states_of_vllm(plan),
        "kv-offloading-size": plan.take("serve.kv_host_gib"),
        "engram-config": json.dumps({"cpu_offload": tables == "host"}) if tables else None,
        **_adapters_of_vllm(plan),
        "speculative-config": json.dumps(_speculative_config(drafts, plan.take("serve.draft_tp"))) if drafts else None,
    }


def _states_of_vllm(plan: Plan) -> dict[str, Any]:
    """The type of recurrent states; those of lightning attention have no convolution, and an option of all states."""
    space, kept = plan.shape.state_space, plan.take("serve.state_dtype")
    ours = "mamba-cache-dtype" if space and space.kind == "lightning-attention" else "mamba-ssm-cache-dtype"
    return {ours: kept}


class _Drafts(Immutable):
    """Drafts in the words of an engine: method, tokens of a step, positions, branches, and the model that drafts."""

    word: str
    tokens: int
    depth: int
    width: int
    model: str | None


_AT_ONCE = ("NGRAM", "DFLASH")
"""Algorithms of SGLang that have no positions one after the other."""
_OF_VLLM = {
    MTP: "mtp", EAGLE: "eagle", EAGLE3: "eagle3", DRAFT_MODEL: "draft_model", NGRAM: "ngram", MEDUSA: "medusa",
    DFLASH: "dflash", SUFFIX: "suffix",
}  # fmt: skip
_OF_SGLANG = {
    MTP: "NEXTN", EAGLE: "EAGLE", EAGLE3: "EAGLE3", DRAFT_MODEL: "STANDALONE", NGRAM: "NGRAM", DFLASH: "DFLASH",
}  # fmt: skip
_OF_TENSORRT_LLM = {
    MTP: "MTP", EAGLE: "Eagle", EAGLE3: "Eagle3", DRAFT_MODEL: "Draft_Target", NGRAM: "NGram", MEDUSA: "Medusa",
}  # fmt: skip


def _drafts(plan: Plan, words: Mapping[str, str], width: int = 1, depth: int | None = None) -> _Drafts | None:
    """Drafts of the plan, those of the model's own modules where nothing says what drafts; None where it has none.

    width, depth : of a tree, in an engine that has them
    """
    plan.said("serve.acceptance_rate", "serve.draft_depth")
    if width > 1:
        plan.said("serve.draft_width")
    method = plan.take("serve.speculative", MTP)
    tokens = plan.take("serve.draft_tokens")
    if not tokens or method not in words:
        return None
    model = plan.take("serve.draft_model")
    return _Drafts(
        words[method], tokens, depth or max(tokens // width, 1), width, None if model is None else str(model)
    )


def _speculative_config(drafts: _Drafts, ranks: int | None) -> dict[str, Any]:
    config = {"method": drafts.word, "model": drafts.model, "num_speculative_tokens": drafts.tokens}
    config["draft_tensor_parallel_size"] = ranks
    return {key: value for key, value in config.items() if value is not None}


def _trtllm_drafts(drafts: _Drafts) -> dict[str, Any]:
    options = {"decoding_type": drafts.word, "max_draft_len": drafts.tokens, "speculative_model": drafts.model}
    return {key: value for key, value in options.items() if value is not None}


def _experts_of_vllm(plan: Plan) -> dict[str, Any]:
    copies = plan.take("serve.redundant_experts")
    return {
        "all2all-backend": plan.word("serve.dispatcher", _DISPATCHERS_OF_VLLM),
        "enable-eplb": copies is not None,
        "eplb-config": f'{{"num_redundant_experts": {copies}}}' if copies else None,
        "enable-dbo": bool(plan.take("serve.two_batch_overlap")),
    }


def _adapters_of_vllm(plan: Plan) -> dict[str, Any]:
    """Adapters: those of a step, and all that are used, which host memory holds. vLLM reserves room for some ranks."""
    held, rank = plan.take("serve.adapters"), plan.peek("lora.rank")
    if not held:
        return {}
    plan.said("lora.rank", "lora.targets")
    return {
        "enable-lora": True,
        "max-loras": plan.take("serve.adapter_slots", held),
        "max-lora-rank": next((room for room in _RANKS_OF_VLLM if rank is not None and room >= rank), rank),
        "max-cpu-loras": held,
    }


def sglang_flags(plan: Plan) -> dict[str, Any]:
    """Arguments of `sglang.launch_server` (SGLang 0.5.23): tp counts the ranks of all attention groups."""
    tp, dp = int(plan.take("layout.tp", 1)), int(plan.take("layout.dp", 1))
    cache = plan.take("serve.kv_cache")
    drafts = _drafts(plan, _OF_SGLANG, plan.peek("serve.draft_width", 1), plan.peek("serve.draft_depth"))
    host = plan.take("serve.kv_host_gib")
    ranks = tp * dp * int(plan.peek("layout.pp", 1))
    return {
        "is-embedding": bool(plan.peek(POOLED)),
        "tp-size": tp * dp,
        "pp-size": plan.take("layout.pp", 1),
        "dp-size": dp if dp > 1 else None,
        "enable-dp-attention": dp > 1,
        "ep-size": plan.take("layout.ep", 1),
        **_experts_of_sglang(plan),
        "mem-fraction-static": plan.take("serve.gpu_memory_utilization"),
        "context-length": plan.take("serve.max_model_len"),
        "max-running-requests": _of_all(plan.take("serve.max_sequences"), dp),
        "chunked-prefill-size": _of_all(plan.take("serve.max_step_tokens"), dp),
        "quantization": _quantised(plan, {"fp8": "fp8"}),
        "kv-cache-dtype": {**_WIDE, "fp8": "fp8_e4m3"}.get(cache, cache),
        "mamba-ssm-dtype": plan.take("serve.state_dtype"),
        "scheduler-recv-interval": plan.take("serve.scheduler_recv_interval"),
        "enable-hierarchical-cache": bool(host),
        "hicache-size": round(host * GIB / 1e9 / ranks) if host else None,
        "ple-offload-embedding": plan.take("serve.ngram_tables") == "host",
        **_adapters_of_sglang(plan),
        "speculative-algorithm": drafts.word if drafts else None,
        "speculative-draft-model-path": drafts.model if drafts else None,
        "speculative-num-steps": drafts.depth if drafts and drafts.word not in _AT_ONCE else None,
        "speculative-eagle-topk": drafts.width if drafts and drafts.word not in _AT_ONCE else None,
        "speculative-num-draft-tokens": drafts.tokens + 1 if drafts else None,
    }


def _experts_of_sglang(plan: Plan) -> dict[str, Any]:
    copies = plan.take("serve.redundant_experts")
    backend, mode = plan.word("serve.dispatcher", _DISPATCHERS_OF_SGLANG) or (None, None)
    return {
        "moe-a2a-backend": backend,
        "deepep-mode": mode,
        "enable-eplb": copies is not None,
        "ep-num-redundant-experts": copies or None,
        "enable-two-batch-overlap": bool(plan.take("serve.two_batch_overlap")),
    }


def _adapters_of_sglang(plan: Plan) -> dict[str, Any]:
    held = plan.take("serve.adapters")
    if not held:
        return {}
    targets = plan.take("lora.targets", _ALL_MODULES)
    return {
        "enable-lora": True,
        "max-loras-per-batch": plan.take("serve.adapter_slots", held),
        "max-lora-rank": plan.take("lora.rank"),
        "max-loaded-loras": held,
        "lora-target-modules": "all" if tuple(targets) == _ALL_MODULES else list(targets),
    }


def tensorrt_llm_options(plan: Plan) -> dict[str, Any]:
    """Options of `trtllm-serve --config` (TensorRT-LLM 1.3, llmapi/llm_args.py): attention groups are one rank each."""
    tp, dp = int(plan.peek("layout.tp", 1)), int(plan.take("layout.dp", 1))
    if dp == 1 or tp == 1:
        plan.said("layout.tp")  # else it is refused: a group has one rank
    cache = plan.peek("serve.kv_cache")
    if cache == "fp8":
        plan.said("serve.kv_cache")
    drafts = _drafts(plan, _OF_TENSORRT_LLM)
    host = plan.take("serve.kv_host_gib")
    memory = {
        "free_gpu_memory_fraction": plan.take("serve.gpu_memory_utilization"),
        "dtype": "fp8" if cache == "fp8" else None,
        "mamba_ssm_cache_dtype": plan.take("serve.state_dtype"),
        "host_cache_size": int(host * 2**30) if host else None,
    }
    return {
        "tensor_parallel_size": tp * dp,
        "pipeline_parallel_size": plan.take("layout.pp", 1),
        "moe_expert_parallel_size": plan.take("layout.ep", 1),
        "moe_config": _experts_of_tensorrt_llm(plan),
        "enable_attention_dp": dp > 1 or None,
        "max_batch_size": plan.take("serve.max_sequences"),
        "max_num_tokens": plan.take("serve.max_step_tokens"),
        "max_seq_len": plan.take("serve.max_model_len"),
        "kv_cache_config": memory if any(value is not None for value in memory.values()) else None,
        "speculative_config": _trtllm_drafts(drafts) if drafts else None,
    }


def _experts_of_tensorrt_llm(plan: Plan) -> dict[str, Any] | None:
    """Slots of all experts and their copies. The dispatcher is chosen by the hardware: NVLink's where it reaches."""
    if plan.peek("serve.dispatcher") == "nvlink":
        plan.said("serve.dispatcher")
    copies, experts = plan.take("serve.redundant_experts"), plan.shape.experts
    if copies is None or experts is None:
        return None
    return {"load_balancer": {"num_slots": experts.count + copies, "layer_updates_per_iter": 1}}


def _quantised(plan: Plan, methods: dict[str, str]) -> str | None:
    """The method that quantises as weights are loaded; other formats need a checkpoint of their own."""
    method = methods.get(plan.peek("serve.weights"))
    if method is not None:
        plan.said("serve.weights")
    return method


def _of_all(limit: int | None, groups: int) -> int | None:
    return None if limit is None else int(limit) * groups


# Commands of vLLM, SGLang and TensorRT-LLM for one replica.

_OPTIONS = "options.yaml"


def _vllm(plan: Plan) -> ToolFiles:
    note = replica_note(plan)
    return ToolFiles(
        _noted(note) + command_text(["vllm", "serve", plan.take("model")], vllm_flags(plan)), run="sh FILE"
    )


def _sglang(plan: Plan) -> ToolFiles:
    note = replica_note(plan)
    words = ["python3", "-m", "sglang.launch_server", "--model-path", plan.take("model")]
    return ToolFiles(_noted(note) + command_text(words, sglang_flags(plan)), run="sh FILE")


def _tensorrt_llm(plan: Plan) -> ToolFiles:
    note = replica_note(plan)
    options = yaml_text(tensorrt_llm_options(plan))
    command = command_text(["trtllm-serve", plan.take("model")], {"config": _OPTIONS})
    return ToolFiles(f"{_noted(note)}cat > {_OPTIONS} <<'EOF'\n{options}EOF\n{command}", run="sh FILE")


def _noted(note: str) -> str:
    return f"# {note}\n" if note else ""


SETTINGS: Mapping[str, Callable[[Plan], dict[str, Any]]] = {
    VLLM: vllm_flags,
    SGLANG: sglang_flags,
    TENSORRT_LLM: tensorrt_llm_options,
}
"""Settings of a replica by engine: flags of its command, of TensorRT-LLM the options of its file."""
EXPORTERS = (
    Exporter("vllm", "vLLM", ".sh", _vllm, (*SAYS, *SAYS_ADAPTERS), serving=True, training=False),
    Exporter("sglang", "SGLang", ".sh", _sglang, (*SAYS, *SAYS_ADAPTERS), serving=True, training=False),
    Exporter("trtllm", "TensorRT-LLM", ".sh", _tensorrt_llm, SAYS, serving=True, training=False),
)
