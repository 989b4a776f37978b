"""4-bit floats: which engines multiply them on which accelerators, with what, and what stays in 16 bit."""

from __future__ import annotations

import pytest
from serving_cases import job

from xe_sizer.errors import InputError
from xe_sizer.serving.job import ReplicaLayouts
from xe_sizer.serving.memory import layer_token_bytes, rank_weight_bytes, weight_bytes

DENSE, MIXTURE = "llama-3.3-70b", "gpt-oss-120b"


@pytest.mark.parametrize(
    ("engine", "gpu", "model", "weights", "activations", "compute"),
    [
        ("vllm", "b200", DENSE, "nvfp4", "nvfp4", "fp4"),
        ("vllm", "h100-sxm-80gb", DENSE, "nvfp4", "bf16", "bf16"),  # Marlin
        ("sglang", "mi300x", DENSE, "nvfp4", "bf16", "bf16"),  # petit
        ("tensorrt-llm", "b200", MIXTURE, "mxfp4", "mxfp8", "fp8"),
        ("tensorrt-llm", "h200-sxm-141gb", MIXTURE, "mxfp4", "bf16", "bf16"),
        ("vllm", "b200", MIXTURE, "mxfp4", "bf16", "bf16"),
        ("vllm", "mi355x", MIXTURE, "mxfp4", "mxfp4", "fp4"),
        ("llama.cpp", "rtx-5090", MIXTURE, "mxfp4", "mxfp4", "fp4"),
    ],
)
def test_what_weights_are_multiplied_with(
    engine: str, gpu: str, model: str, weights: str, activations: str, compute: str
) -> None:
    scheme = job(model, gpu=gpu, serve__engine=engine, serve__weights=weights).scheme
    assert (scheme.weights.name, scheme.activations.name, scheme.compute) == (weights, activations, compute)
    assert scheme.widens == (compute == "bf16")


@pytest.mark.parametrize(
    ("engine", "gpu", "keys", "told"),
    [
        ("vllm", "mi355x", {"serve__weights": "nvfp4"}, "vllm-rocm has no kernels for nvfp4 on mi355x"),
        ("lmdeploy", "b200", {"serve__weights": "nvfp4"}, "lmdeploy has no kernels for nvfp4 on b200"),
        (
            "sglang@0.5.8", "h100-sxm-80gb", {"serve__weights": "nvfp4"},
            "sglang 0.5.8 has no kernels for nvfp4 on h100-sxm-80gb",
        ),
        (
            "vllm", "a100-sxm-80gb", {"serve__weights": "nvfp4", "serve__activations": "nvfp4"},
            "vllm multiplies nvfp4 with bf16 on a100-sxm-80gb, not with nvfp4",
        ),
        ("vllm", "b200", {"serve__kv_cache": "nvfp4"}, "vllm keeps no cache in nvfp4 on b200"),
    ],
)  # fmt: skip
def test_what_has_no_kernels_is_refused(engine: str, gpu: str, keys: dict[str, str], told: str) -> None:
    with pytest.raises(InputError) as error:
        job(DENSE, gpu=gpu, serve__engine=engine, **keys)
    (problem,) = error.value.problems
    assert problem.message == told
    assert problem.hint


def test_a_cache_in_nvfp4_takes_nine_sixteenths_of_fp8() -> None:
    """80 layers, 8 heads of 128 for keys and for values; half a byte and a scale per 16."""
    made = job(DENSE, gpu="b200", serve__engine="tensorrt-llm", serve__weights="nvfp4", serve__kv_cache="nvfp4")
    assert layer_token_bytes(made.model, made.scheme.cache) == 2 * 8 * 128 * 9 / 16


@pytest.mark.parametrize(
    ("engine", "cache"),
    [
        ("vllm", "fp8"), ("vllm@0.14", "fp8"), ("vllm@0.13", "bf16"),
        ("sglang", "fp8"), ("sglang@0.5.3", "fp8"), ("sglang@0.5.2", "bf16"),
        ("tensorrt-llm", "fp8"), ("generic-engine", "bf16"),
    ],
)  # fmt: skip
def test_checkpoints_in_nvfp4_ask_for_a_cache_in_fp8_which_engines_heed(engine: str, cache: str) -> None:
    """kv_cache_quant_algo of ModelOpt: vLLM pull request 30785, SGLang 0.5.3; a cache that is asked for stays."""
    made = job(DENSE, gpu="b200", serve__engine=engine, serve__weights="nvfp4")
    assert made.scheme.cache.name == cache
    assert job(DENSE, gpu="b200", serve__engine=engine, serve__weights="fp8").scheme.cache.name == (
        "fp8" if engine == "tensorrt-llm" else "bf16"
    )
    wide = job(DENSE, gpu="b200", serve__engine=engine, serve__weights="nvfp4", serve__kv_cache="bf16")
    assert wide.scheme.cache.name == "bf16"


def test_attention_of_a_mixture_stays_in_16_bit() -> None:
    """DeepSeek-R1-NVFP4 leaves self_attn out: of 61 layers 187.1 M weights each, with the tables and 58 routers."""
    made = job("deepseek-r1", gpu="b200", gpus=8, serve__weights="nvfp4", layout__tp=8)
    attention = 61 * (7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168)
    wide = attention + 2 * 129280 * 7168 + 58 * 256 * 7168
    narrow = 671_026_404_352 - wide
    assert weight_bytes(made.model, made.scheme) == pytest.approx(2 * wide + narrow * 9 / 16, rel=1e-4)
    dense = job(DENSE, gpu="b200", serve__weights="nvfp4")
    whole = float(rank_weight_bytes(dense.model, dense.scheme, ReplicaLayouts.of())[0])
    assert whole == pytest.approx(2 * 2 * 128256 * 8192 + (70.55e9 - 2 * 128256 * 8192) * 9 / 16, rel=1e-3)
