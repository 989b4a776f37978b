"""Experts on GPUs of their own: what each pool holds, and how long each waits for the other."""

from __future__ import annotations

import numpy as np
import pytest
from cases import REGISTRY
from serving_cases import asked, job, problems, served

from xe_sizer.graph.operators import Collective
from xe_sizer.report.document import Options
from xe_sizer.report.registry import render
from xe_sizer.serving.job import ReplicaLayouts, ServingJob
from xe_sizer.serving.memory import max_sequences, serving_memory, weight_bytes, weights
from xe_sizer.serving.step_time import PoolTimes, Work, step_time, waiting_for_experts
from xe_sizer.serving.summary import summarise, with_operators

V3, QWEN, NODE = "deepseek-v3", "qwen3-235b-a22b", "nvidia-dgx-h200"
# Step-3 (arXiv:2507.19427): its attention has queries of rank 2,048 and one head of keys and values of 256
# elements each, here a latent of as many bytes.
STEP_3 = {
    "name": "step-3", "family": "deepseek-v3", "layers": 61, "hidden": 7168, "heads": 64, "ffn": 18432,
    "vocab": 128815, "max_positions": 65536, "tied_embeddings": False, "norm": "rmsnorm", "norms_per_layer": 2,
    "activation": "swiglu", "position": "rope",
    "latent_attention": {
        "query_rank": 2048, "kv_rank": 448, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256
    },
    "experts": {"count": 48, "per_token": 3, "ffn": 5120, "shared_ffn": 5120, "first_dense_layers": 5},
}  # fmt: skip


def apart(model: object = QWEN, gpus: int = 8, **flags: object) -> ServingJob:
    return job(model, **{"server": NODE, "serve__engine": "vllm", "serve__expert_gpus": gpus} | flags)


def placed(groups: int, gpus: int, tp: int = 1) -> ReplicaLayouts:
    return ReplicaLayouts.of(tp=tp, dp=groups, ep=gpus, expert_gpus=gpus)


@pytest.mark.parametrize("gpus", [4, 8, 16])
def test_experts_gpus_hold_what_those_of_attention_do_not(gpus: int) -> None:
    """One GPU of attention and all of experts hold the model once, whose experts are all routed."""
    own = apart(gpus=gpus)
    memory = serving_memory(own, placed(1, gpus), 1000.0)
    of_attention, of_experts = (float(one[weights.name][0]) for one in (memory.fixed, memory.of_experts))
    assert of_attention + gpus * of_experts == pytest.approx(weight_bytes(own.model, own.scheme))
    assert of_experts * gpus > 10 * of_attention


def test_attention_has_the_room_that_experts_leave() -> None:
    """The cache of a GPU grows by the weights and buffers that went."""
    together = serving_memory(job(QWEN, server=NODE, serve__engine="vllm"), ReplicaLayouts.of(ep=8, dp=8), 1000.0)
    found = serving_memory(apart(), placed(8, 8), 1000.0)
    freed = sum(float(together.fixed[name][0] - found.fixed[name][0]) for name in found.fixed if name != "CUDA graphs")
    assert float(found.pool_bytes[0] - together.pool_bytes[0]) == pytest.approx(freed, rel=1e-6)
    assert freed > 20 * 2**30


@pytest.mark.parametrize(("parts", "micro_batches", "expected"), [
    ((6.0, 4.0, 0.0, 0.0), 2.0, 6.0),  # links that take no time: the slower pool
    ((4.0, 6.0, 1.0, 1.0), 2.0, 6.0),
    ((4.0, 4.0, 2.0, 2.0), 2.0, 6.0),  # two are too few to hide the way
    ((4.0, 4.0, 2.0, 2.0), 3.0, 4.0),
    ((4.0, 3.0, 2.0, 1.0), 1.0, 10.0),  # one after the other
    ((1.0, 1.0, 9.0, 1.0), 4.0, 9.0),  # the links
])  # fmt: skip
def test_a_step_takes_as_long_as_whatever_is_busiest(
    parts: tuple[float, ...], micro_batches: float, expected: float
) -> None:
    attention, experts, there, back = (np.array([one]) for one in parts)
    pools = PoolTimes(attention, experts, there, back, np.array([micro_batches]))
    assert pools.total_s.tolist() == [expected]


MIXTURES = [name for name in REGISTRY.names("model") if REGISTRY.model(name).experts is not None]


@pytest.mark.parametrize("model", MIXTURES)
def test_layers_of_every_kind_send_their_tokens(model: str) -> None:
    """Layers with and without a state, of a window or a latent: tokens go there and back once in each with experts."""
    own = apart(model, gpus=1, server="dell-xe9680l-b200")
    step = step_time(own, placed(1, 1), Work(decodes=64.0, decode_past=2000.0)).step
    assert step.experts is not None
    assert step.pools is not None
    sparse = sum(count for kind, count in own.model.layer_kinds if kind.mlp == "experts")
    for name, seconds in (("expert dispatch", step.pools.there), ("expert combine", step.pools.back)):
        ops = [op for op in step.experts.layers if isinstance(op, Collective) and op.name == name]
        assert sum(float(np.max(op.layers)) for op in ops) == sparse
        assert float(seconds[0]) == pytest.approx(sum(float(step.sent_s(op)[0]) for op in ops))


@pytest.mark.parametrize("ideal", [False, True])
def test_steps_are_paced_by_both_pools(ideal: bool) -> None:
    """One micro-batch waits for all of its way; without exchanges two or more wait for the slower pool alone."""
    work = Work(decodes=1024.0, decode_past=2000.0)
    flags = {"efficiency__ideal": True} if ideal else {}
    for count in (1, 3):
        time = step_time(apart(serve__micro_batches=count, **flags), placed(8, 8), work)
        pools = time.step.pools
        assert pools is not None
        waited = float(time.parts[waiting_for_experts.name][0])
        way = float((pools.experts + pools.there + pools.back)[0])
        if count == 1:
            assert waited == pytest.approx(way)
        elif ideal:
            slower = max(float(pools.experts[0] - pools.attention[0]), 0.0)
            assert waited == pytest.approx(slower)
            assert float(pools.there[0]) == 0.0
        assert sum(float(one[0]) for one in time.parts.values()) == pytest.approx(float(time.total_s[0]))


def test_the_best_number_of_micro_batches_is_chosen() -> None:
    """Few sequences go in one, as each micro-batch reads the weights again; many in two or more."""
    found = {}
    for batch in (8.0, 16384.0):
        work = Work(decodes=batch, decode_past=2000.0)
        every = [step_time(apart(serve__micro_batches=count), placed(8, 8), work) for count in (1, 2, 3, 4)]
        chosen = step_time(apart(), placed(8, 8), work)
        found[batch] = float(chosen.step.halves[0])
        assert float(chosen.total_s[0]) == pytest.approx(min(float(one.total_s[0]) for one in every), rel=1e-3)
    assert found[8.0] == 1.0
    assert found[16384.0] >= 2.0


def test_more_gpus_of_experts_shorten_their_part_alone() -> None:
    work = Work(decodes=4096.0, decode_past=2000.0)
    few, many = (
        step_time(apart(gpus=gpus, serve__micro_batches=2, serve__expert_skew=1.0), placed(8, gpus), work).step.pools
        for gpus in (8, 32)
    )
    assert few is not None
    assert many is not None
    assert float(many.experts[0]) < 0.5 * float(few.experts[0])
    assert float(many.attention[0]) == pytest.approx(float(few.attention[0]))


def test_step_3_decodes_at_seven_tenths_of_the_published_rate() -> None:
    """4,039 tokens/s a GPU within 50 ms on 16 + 16 H800 in 3 stages, fp8, 4k context (arXiv:2507.19427)."""
    own = job(
        STEP_3, gpu="h800-sxm-80gb", serve__engine="vllm", serve__weights="fp8", serve__kv_cache="fp8",
        serve__expert_gpus=16, serve__micro_batches=3, serve__expert_skew=1.0,
    )  # fmt: skip
    batch = 4039 * 32 * 0.05
    memory = serving_memory(own, placed(16, 16), 4000.0)
    assert float(max_sequences(own, placed(16, 16), memory, 4096.0)[0]) > batch
    step_s = float(step_time(own, placed(16, 16), Work(decodes=batch, decode_past=4096.0)).total_s[0])
    assert 0.65 < batch / step_s / 32 / 4039 < 0.80


def per_gpu(model: str, placement: ReplicaLayouts, gpus: int = 0) -> float:
    """Decoded tokens per second of a GPU within 150 ms a token: prompts of 571 tokens, answers of 159, A100."""
    flags = {"serve__expert_gpus": gpus} if gpus else {}
    own = asked(model, gpu="a100-sxm-80gb", serve__engine="vllm", serve__expert_skew=1.0, **flags).job
    most = float(max_sequences(own, placement, serving_memory(own, placement, 571.0), 730.0)[0])
    batch = np.geomspace(64.0, most, 60)
    time = step_time(own, placement[np.zeros(60, dtype=int)], Work(decodes=batch, decode_past=650.0))
    rate = batch / time.total_s / float(placement.gpus[0])
    return float(rate[time.total_s <= 0.15].max())


@pytest.mark.parametrize(("model", "groups", "gpus"), [("mixtral-8x22b", 4, 8), ("dbrx", 8, 16)])
def test_mixtures_of_few_experts_gain_as_megascale_says(model: str, groups: int, gpus: int) -> None:
    """Up to 1.90 times the throughput of a GPU, over what the same engine does with tp 8 (arXiv:2504.02263)."""
    gain = per_gpu(model, placed(groups, gpus), gpus) / per_gpu(model, ReplicaLayouts.of(tp=8))
    assert 1.05 < gain < 1.9


@pytest.mark.parametrize(("flags", "said"), [
    ({"model": "llama-3.1-8b"}, "llama-3.1-8b has no experts (expert_gpus 8)"),
    ({"serve__expert_gpus": 10}, "deepseek-v3 has 256 experts, which 10 GPUs do not divide"),
    ({"serve__engine": "sglang"}, "sglang does not compute experts on GPUs of their own"),
    ({"layout__pp": 2}, "'pp' 2 and 'expert_gpus' do not go together"),
    ({"layout__ep": 4}, "'ep' 4 is not 'expert_gpus' (8)"),
    ({"layout__tp": 3}, "tp"),
    ({"serve__dispatcher": "pplx"}, "'dispatcher' and 'expert_gpus' do not go together"),
    ({"serve__speculative": "mtp"}, "'speculative' and 'expert_gpus' do not go together"),
    ({"gpus": 8}, "8 GPUs are fewer than tp x pp x dp + expert_gpus (9)"),
    ({"serve__expert_gpus": None, "serve__micro_batches": 2}, "'micro_batches' needs 'expert_gpus'"),
])  # fmt: skip
def test_what_cannot_be_is_said(flags: dict[str, object], said: str) -> None:
    given = {"model": V3, "server": NODE, "serve__engine": "vllm", "serve__expert_gpus": 8} | flags
    found = problems(**{name: value for name, value in given.items() if value is not None})
    assert len(found) == 1
    assert said in found[0]


def test_a_service_shows_both_pools() -> None:
    found = served(
        QWEN, server=NODE, gpus=12, serve__engine="vllm", serve__expert_gpus=8, layout__dp=4, serve__concurrency=512
    )
    answer = summarise(found)
    assert answer.experts is not None
    pools = answer.experts.apart
    assert pools is not None
    assert (pools.gpus, pools.attention_gpus, found.gpus) == (8, 4, 12)
    assert sum(part.bytes for part in pools.memory.components) == pools.memory.peak_bytes < pools.memory.usable_bytes
    step_s = answer.phases.decode.seconds
    assert pools.attention_s + pools.attention_wait_s == pytest.approx(step_s)
    assert pools.experts_s + pools.experts_wait_s == pytest.approx(step_s)
    assert min(pools.attention_wait_s, pools.experts_wait_s, pools.dispatch_s, pools.combine_s) > 0
    shown = render(answer, "table", Options(width=120, explain=("memory",)))
    assert "Attention and experts on GPUs of their own" in shown
    assert "1 replica of 12" in shown
    assert "How the memory of a GPU of experts adds up" in shown


def test_operators_of_both_pools_are_listed() -> None:
    found = served(
        QWEN, server=NODE, gpus=12, serve__engine="vllm", serve__expert_gpus=8, layout__dp=4, serve__concurrency=512
    )
    answer = with_operators(summarise(found), found)
    assert answer.experts is not None
    pools = answer.experts.apart
    assert pools is not None
    of_experts = {one.bound == "network": 0.0 for one in answer.phases.decode.expert_operators}
    for one in answer.phases.decode.expert_operators:
        of_experts[one.bound == "network"] += one.seconds
    assert of_experts[False] == pytest.approx(pools.experts_s)
    assert of_experts[True] == pytest.approx(pools.dispatch_s + pools.combine_s)
    assert "expert down" not in {one.name for one in answer.phases.decode.operators}
    shown = render(answer, "table", Options(width=120, explain=("operators",)))
    assert "Operators of a decode step on a GPU of experts" in shown
    both = served(QWEN, server=NODE, gpus=8, serve__engine="vllm", serve__concurrency=64)
    assert with_operators(summarise(both), both).phases.decode.expert_operators == ()


def test_experts_that_do_not_fit_say_so() -> None:
    """Eight GPUs of 80 GB are too small for the experts, whatever attention has."""
    found = served(V3, server="nvidia-dgx-h100", serve__engine="vllm", serve__expert_gpus=8, serve__concurrency=4)
    assert not found.fits
    assert found.headroom_bytes < 0
    answer = summarise(found)
    assert "per GPU of experts" in answer.verdict.reasons[0].message
    assert answer.memory.gpu == "those of experts alike"


def test_prompts_may_be_read_by_replicas_that_have_both() -> None:
    found = served(
        V3, server=NODE, serve__engine="vllm", serve__expert_gpus="auto", serve__prefill_replicas=2,
        serve__input_tokens=4000, serve__request_rate=8,
    )  # fmt: skip
    assert found.fits
    assert found.choice.prefills is not None
    assert not found.choice.prefills.placement.apart
    assert found.placement.apart
    assert int(found.placement.ep[0]) == int(found.placement.expert_gpus[0])
    assert found.gpus == found.choice.prefills.gpus + int(found.placement.gpus[0]) * found.replicas
