"""Settings of one engine in a file of its own: `--config` of vLLM and of SGLang, options of TensorRT-LLM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.importers.parts.nodes import plain_keys
from xe_sizer.importers.parts.service import SGLANG, TENSORRT_LLM, VLLM, Service
from xe_sizer.importers.parts.service_commands import opened, role_of
from xe_sizer.importers.parts.services import NO_SERVICES, Services

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.importers.parts.nodes import Node
    from xe_sizer.importers.written import Written

_OWN: Mapping[str, frozenset[str]] = {
    TENSORRT_LLM: frozenset(
        [
            "kv_cache_config",
            "moe_config",
            "cuda_graph_config",
            "enable_attention_dp",
            "max_num_tokens",
            "attention_dp_config",
            "free_gpu_memory_fraction",
            "enable_chunked_prefill",
            "cache_transceiver_config",
            "nvfp4_gemm_config",
            "print_iter_log",
            "moe_expert_parallel_size",
            "num_postprocess_workers",
            "enable_iter_perf_stats",
            "torch_compile_config",
            "stream_interval",
            "disable_overlap_scheduler",
            "pytorch_backend_config",
            "context_servers",
            "generation_servers",
        ]
    ),
    SGLANG: frozenset(
        [
            "mem_fraction_static",
            "chunked_prefill_size",
            "disable_radix_cache",
            "model_path",
            "tp_size",
            "dp_size",
            "ep_size",
            "max_running_requests",
            "context_length",
            "enable_dp_attention",
            "cuda_graph_max_bs",
            "attention_backend",
            "tp",
        ]
    ),
    VLLM: frozenset(
        [
            "gpu_memory_utilization",
            "max_num_batched_tokens",
            "max_num_seqs",
            "max_model_len",
            "kv_cache_dtype",
            "enable_prefix_caching",
            "no_enable_prefix_caching",
            "enable_expert_parallel",
            "tensor_parallel_size",
            "async_scheduling",
            "enforce_eager",
            "compilation_config",
            "max_cudagraph_capture_size",
            "served_model_name",
            "data_parallel_size",
            "trust_remote_code",
            "block_size",
        ]
    ),
}
_ENOUGH = 2
_FOREIGN = frozenset(
    [
        "base_model",
        "datasets",
        "stage",
        "finetuning_type",
        "trainer",
        "training",
        "train",
        "data_path",
        "micro_batch_size",
    ]
)


def read(node: Node, given: Mapping[str, str]) -> Services:
    """The engine whose settings a file holds, where two of them are its own."""
    keys: dict[str, Written] = {}
    for name, written in plain_keys(node).items():
        keys |= opened(name, written)
    top = {name.partition(".")[0] for name in keys}
    found = {engine: len(top & own) for engine, own in _OWN.items()}
    engine = max(found, key=lambda each: found[each])
    if found[engine] < _ENOUGH or top & _FOREIGN:
        return NO_SERVICES
    return Services((Service(engine, keys, node.where, role=role_of(keys)),))
