"""A latent cache (MLA) is the same on every tensor rank: each keeps all of it, of all requests, in its own pool."""

from __future__ import annotations

import pytest
from serving_cases import job, served

from xe_sizer.errors import InputError
from xe_sizer.graph.operators import Attention
from xe_sizer.serving.job import ReplicaLayouts
from xe_sizer.serving.memory import max_sequences, request_bytes
from xe_sizer.serving.step_time import Work, step_time
from xe_sizer.units import GIB

TOKEN_BYTES = 61 * (512 + 64) * 2  # 61 layers, a latent of 512 and 64 rotary elements, 16 bit


@pytest.mark.parametrize("tp", [1, 4, 8])
def test_tensor_ranks_do_not_share_a_latent_cache(tp: int) -> None:
    found = served("deepseek-r1", gpu="b200", serve__concurrency=16)
    one = request_bytes(found.resolved.job, ReplicaLayouts.of(tp=tp), 1280.0)
    assert one[0] == pytest.approx(1280 * TOKEN_BYTES)


def test_what_the_weights_of_a_large_model_leave_serves_its_load() -> None:
    """DeepSeek-R1 in fp8 on 4 B200: 157 of 178 GiB are weights; 95 % of the card leave 9 GiB, a hundred requests."""
    found = served(
        "deepseek-r1", gpu="b200", gpus=4, layout__tp=4, serve__concurrency=16, serve__gpu_memory_utilization=0.95
    )
    memory, job = found.memory, found.resolved.job
    weights = float(memory.fixed["weights"][0])
    assert weights == pytest.approx(671e9 / 4, rel=0.02)
    taken = sum(float(size[0]) for name, size in memory.fixed.items() if name != "CUDA graphs")
    pool = 0.95 * memory.usable_bytes - taken
    assert memory.pool_bytes[0] == pytest.approx(pool)
    assert 8 * GIB < pool < 10 * GIB
    held = max_sequences(job, found.placement, memory, 1280.0)
    assert held[0] == pytest.approx(pool / (1280 * TOKEN_BYTES))
    assert held[0] > 16
    assert found.fits
    assert found.point.ttft_s < 1.0


def test_attention_groups_keep_requests_of_their_own() -> None:
    """Eight pools hold eight times as many requests as one that all ranks keep alike."""
    keys = {"gpu": "b200", "serve__concurrency": 16, "serve__gpu_memory_utilization": 0.95}
    found = served("deepseek-r1", gpus=8, layout__tp=8, **keys)
    job, memory = found.resolved.job, found.memory
    together = max_sequences(job, ReplicaLayouts.of(tp=8), memory, 1280.0)
    apart = max_sequences(job, ReplicaLayouts.of(tp=1, dp=8, ep=8), memory, 1280.0)
    assert apart[0] == pytest.approx(8 * together[0])


# Attention whose queries pick their keys from a cache: over the latent, with as many heads as the kernel takes.

TOP_K, HEADS, LATENT, ROTARY = 2048, 128, 512, 64  # DeepSeek-V3.2
PROMPT, DECODE = Work(prefills=1, prefill_tokens=8192), Work(decodes=4, decode_past=8192)


def kernel(work: Work, tp: int, model: str = "deepseek-v3.2", **keys: str) -> Attention:
    made = job(model, **{"server": "nvidia-dgx-h200", "serve__engine": "vllm", **keys})
    layers = step_time(made, ReplicaLayouts.of(tp=tp), work).step.layers
    return next(op for op in layers if isinstance(op, Attention) and op.name == "attention")


@pytest.mark.parametrize(("tp", "heads"), [(1, HEADS), (2, 64), (4, 64), (8, 64)])
def test_prompts_attend_over_the_latent_with_heads_that_the_kernel_takes(tp: int, heads: int) -> None:
    found = kernel(PROMPT, tp)
    assert (found.qk_head_dim, found.v_head_dim) == (LATENT + ROTARY, LATENT)
    assert found.heads[0] == heads
    assert found.pairs[0] == 8192 * TOP_K  # for the first tokens too, which see fewer


def test_decodes_read_the_cache_once_and_dense_attention_has_its_own_heads() -> None:
    assert kernel(DECODE, 8).heads[0] == 64
    assert kernel(DECODE, 8).loaded_keys == pytest.approx(TOP_K)
    dense = kernel(PROMPT, 8, "deepseek-v3")
    assert (dense.heads[0], dense.qk_head_dim, dense.v_head_dim) == (HEADS / 8, 192, 128)


def test_eight_ranks_attend_no_faster_than_two() -> None:
    """Each pads its heads to 64."""

    def seconds(tp: int) -> float:
        made = job("deepseek-v3.2", server="nvidia-dgx-h200")
        return float(step_time(made, ReplicaLayouts.of(tp=tp), PROMPT).parts["attention"][0])

    assert seconds(8) == pytest.approx(seconds(2), rel=0.02)
    assert seconds(2) < 0.6 * seconds(1)


@pytest.mark.parametrize("keys", [{"server": "dell-xe9680l-b200"}, {"serve__engine": "llama.cpp"}])
def test_other_kernels_take_the_heads_of_a_rank(keys: dict[str, str]) -> None:
    """Those of Blackwell do not pad; llama.cpp attends to all tokens, and scores none."""
    found = kernel(DECODE, 8, **keys)
    assert found.heads[0] == HEADS / 8
    assert found.loaded_keys == (None if "serve__engine" in keys else pytest.approx(TOP_K))


# Measured: one layer of GLM-5 in fp8 with its cache in fp8 on an H200, projections and all (aiconfigurator, vLLM 0.24,
# dsa_generation_module, 64 heads), and how much longer it takes behind 131,072 tokens than behind 8,192.
@pytest.mark.parametrize(("sequences", "longer_us"), [(16, 75), (64, 305), (256, 1223)])
def test_scores_of_a_long_context_take_as_long_as_measured(sequences: int, longer_us: float) -> None:
    made = job("glm-5", server="nvidia-dgx-h200", serve__weights="fp8-block", serve__kv_cache="fp8")
    near, far = (
        float(step_time(made, ReplicaLayouts.of(), Work(decodes=sequences, decode_past=past)).total_s[0])
        for past in (8192, 131072)
    )
    assert 1e6 * (far - near) / made.model.layers == pytest.approx(longer_us, rel=0.2)


@pytest.mark.parametrize(
    ("engine", "gpu", "told"),
    [
        ("vllm", "a100-sxm-80gb", "vllm has no sparse attention on a100-sxm-80gb, which deepseek-v3.2 needs"),
        ("vllm@0.10", "h200-sxm-141gb", "vllm 0.10 has no sparse attention, which deepseek-v3.2 needs"),
        ("lmdeploy", "h200-sxm-141gb", "lmdeploy has no sparse attention, which deepseek-v3.2 needs"),
    ],
)
def test_engines_without_sparse_attention_refuse_models_that_need_it(engine: str, gpu: str, told: str) -> None:
    with pytest.raises(InputError) as error:
        job("deepseek-v3.2", gpu=gpu, serve__engine=engine)
    assert [problem.message for problem in error.value.problems] == [told]
    assert "llama.cpp attends to all tokens" in str(error.value.problems[0].hint)


def test_the_refusal_names_generations_as_people_do_and_who_has_it_there() -> None:
    with pytest.raises(InputError) as error:
        job("deepseek-v4.1-flash", gpu="rtx-pro-6000-blackwell")
    (problem,) = error.value.problems
    assert "it has it on Hopper, data-centre Blackwell (such as B200), Rubin" in str(problem.hint)
    assert "sglang has it on rtx-pro-6000-blackwell" in str(problem.hint)
