"""Experts of one replica on many nodes: how tokens reach them, copies of busy ones, and halves that hide exchanges."""

from __future__ import annotations

import pytest
from serving_cases import job, problems, served

from xe_sizer.api import validate
from xe_sizer.evidence.records import SHIPPED
from xe_sizer.laws.collectives import ALL_TO_ALL, collective_time_s
from xe_sizer.serving.advice import tokens_to_experts
from xe_sizer.serving.job import ReplicaLayouts, ServingJob
from xe_sizer.serving.memory import communicators, largest_step, weights
from xe_sizer.serving.search_space import legal_placements
from xe_sizer.serving.step_time import Work, expert_parallel, step_time
from xe_sizer.serving.summary import summarise

V3 = "deepseek-v3"
NODE = "nvidia-dgx-h100"
WIDE = {"server": NODE, "serve__engine": "sglang", "serve__dispatcher": "deepep", "serve__redundant_experts": 32}
EP72 = ReplicaLayouts.of(tp=1, ep=72, dp=72)


def wide(**flags: object) -> ServingJob:
    return job(V3, **WIDE | flags)


def decode_s(asked: ServingJob, batch: float, placement: ReplicaLayouts = EP72) -> float:
    """A step of so many sequences a rank."""
    work = Work(decodes=batch * placement.dp, decode_past=2050.0)
    return float(step_time(asked, placement, work).total_s[0])


@pytest.mark.parametrize(
    ("ranks", "there_us", "back_us"), [(8, 77, 114), (16, 118, 195), (32, 155, 273), (64, 173, 314), (128, 192, 369)]
)
def test_tokens_take_as_long_to_their_experts_as_deepep_measured(ranks: int, there_us: float, back_us: float) -> None:
    """DeepEP's README, low-latency kernels on H800: 128 tokens of 7,168 elements to 8 experts, fp8 there, bf16 back."""
    asked = job(V3, gpu="h800-sxm-80gb", serve__engine="sglang", serve__dispatcher="deepep")
    start_s = asked.dispatcher.decodes.start_s
    for element_bytes, published_us in ((1.0 + 4 / 128, there_us), (2.0, back_us)):
        message = 128 * 8 * 7168 * element_bytes
        took_s = collective_time_s(ALL_TO_ALL, message, ranks, 8, asked.network, start_s=start_s)
        assert float(took_s) * 1e6 == pytest.approx(published_us, rel=0.15)


@pytest.mark.parametrize(("ranks", "tokens", "there_us", "back_us"), [
    (8, 1, 18.9, 31.0), (8, 256, 50.8, 53.0), (8, 2048, 311.8, 322.6), (64, 256, 65.3, 62.9), (64, 2048, 399.2, 372.1),
])  # fmt: skip
def test_tokens_take_as_long_over_nvlink_as_measured(
    ranks: int, tokens: float, there_us: float, back_us: float
) -> None:
    """TensorRT-LLM blog 18, GB200 NVL72: bf16 of 7,168 elements once to each of 8 ranks; there and back together.

    Mid-sized messages are up to a third faster than NCCL's, whose rate the law has.
    """
    asked = job(
        V3, server="nvidia-gb200-nvl72", serve__engine="tensorrt-llm", serve__dispatcher="nvlink",
        serve__weights="nvfp4",
    )  # fmt: skip
    message = tokens * 8 * 7168 * 2.0
    took_s = collective_time_s(
        ALL_TO_ALL, message, ranks, ranks, asked.network, start_s=asked.dispatcher.decodes.start_s
    )
    assert 2e6 * float(took_s) == pytest.approx(there_us + back_us, rel=0.37)


def test_a_step_is_sent_by_the_kernels_of_its_kind() -> None:
    """Prompts go once to each of up to 4 nodes that their groups of experts are on, decodes to each of 8 experts."""
    asked = wide()
    placed = ReplicaLayouts.of(tp=1, ep=32, dp=32)
    tokens = 4096.0
    seconds = {
        kind: float(step_time(asked, placed, work).parts[expert_parallel.name][0])
        for kind, work in {
            "prompts": Work(prefills=32.0, prefill_tokens=tokens),
            "decodes": Work(decodes=32.0 * tokens, decode_past=1.0),
        }.items()
    }
    assert seconds["decodes"] > 1.5 * seconds["prompts"]
    sent_by_all = wide(serve__dispatcher="deepep-low-latency")
    both = step_time(sent_by_all, placed, Work(prefills=32.0, prefill_tokens=tokens)).parts[expert_parallel.name]
    assert float(both[0]) == pytest.approx(seconds["decodes"], rel=1e-6)


def test_halves_hide_exchanges_of_many_tokens_and_cost_more_for_few() -> None:
    """SGLang on 72 H100: 25.5 % more of 256 sequences a rank, fewer tokens/s of 32 (large-scale EP, May 2025)."""
    alone, halves = wide(), wide(serve__two_batch_overlap=True)
    assert 1.15 < decode_s(alone, 256.0) / decode_s(halves, 256.0) < 1.8
    assert decode_s(alone, 16.0) < decode_s(halves, 16.0)
    hidden = step_time(halves, EP72, Work(decodes=256.0 * 72, decode_past=2050.0)).parts[expert_parallel.name]
    assert float(hidden[0]) == 0.0


def test_vllm_splits_no_step_below_its_threshold() -> None:
    """Decode steps of 32 tokens a rank, and no fewer (dbo_decode_token_threshold)."""
    flags = {"server": NODE, "serve__engine": "vllm", "serve__dispatcher": "deepep-low-latency"}
    placed = ReplicaLayouts.of(tp=1, ep=64, dp=64)
    alone, halves = job(V3, **flags), job(V3, **flags, serve__two_batch_overlap=True)
    assert decode_s(alone, 31.0, placed) == pytest.approx(decode_s(halves, 31.0, placed), rel=1e-12)
    assert decode_s(alone, 32.0, placed) != pytest.approx(decode_s(halves, 32.0, placed), rel=1e-3)


def test_copies_of_experts_take_their_share_of_memory_and_level_the_load() -> None:
    """32 more experts of 3 matrices of 7,168 x 2,048 in each of 58 layers, in fp8 with its scales, on 32 ranks."""
    placed = ReplicaLayouts.of(tp=1, ep=32, dp=32)
    plain, copied = wide(serve__redundant_experts=None), wide()
    held = [float(weights(largest_step(one, placed, None))[0]) for one in (plain, copied)]
    assert held[1] - held[0] == pytest.approx(32 * 3 * 7168 * 2048 * 58 * (1 + 4 / 128**2) / 32, rel=1e-6)
    assert decode_s(copied, 256.0, placed) < 0.9 * decode_s(plain, 256.0, placed)
    balanced = wide(serve__expert_skew=1)
    assert decode_s(balanced, 256.0, placed) < decode_s(copied, 256.0, placed)


def test_low_latency_kernels_keep_rows_for_every_rank_with_each_expert() -> None:
    """8 bytes x 288 experts x 128 tokens x 7,168 elements beside the buffers of NCCL."""
    rows = communicators(largest_step(wide(), EP72, None)) - communicators(
        largest_step(wide(serve__dispatcher="all-gather"), EP72, None)
    )
    assert float(rows[0]) == pytest.approx(8 * 288 * 128 * 7168)


def test_groups_of_many_nodes_are_looked_for_where_tokens_go_to_their_experts_alone() -> None:
    placements = legal_placements(wide(), {}, 72)
    widest = max(zip(placements.ep.tolist(), placements.dp.tolist(), strict=True))
    assert widest == (72, 72)
    gathered = legal_placements(wide(serve__dispatcher="all-gather"), {}, 72)
    assert gathered.dp.max() == 8


@pytest.mark.parametrize(("flags", "said"), [
    ({"layout__ep": 48}, "does not divide the 256 experts of deepseek-v3"),
    ({"layout__ep": 64, "serve__redundant_experts": 32}, "experts of deepseek-v3 and their 32 copies"),
    ({"serve__dispatcher": "mori"}, "vllm has no dispatcher mori"),
    ({"serve__dispatcher": "deepep"}, "vllm sends prompts and decodes alike, dispatcher deepep does not"),
    ({"serve__two_batch_overlap": True}, "nothing is computed while dispatcher all-gather sends"),
    ({"serve__engine": "tensorrt-llm", "serve__two_batch_overlap": True}, "does not compute a batch in two halves"),
    ({"serve__engine": "lmdeploy", "serve__redundant_experts": 8}, "does not place experts by their load"),
    ({"model": "llama-3.1-8b", "serve__expert_skew": 2.0}, "has no experts"),
])  # fmt: skip
def test_what_cannot_be_is_said(flags: dict[str, object], said: str) -> None:
    found = problems(**{"model": V3, "server": NODE, "serve__engine": "vllm"} | flags)
    assert len(found) == 1
    assert said in found[0]


def test_a_service_of_many_nodes_answers() -> None:
    found = served(V3, gpus=72, layout__ep=72, layout__dp=72, serve__batch=18432, serve__input_tokens=2000,
                   serve__output_tokens=100, serve__two_batch_overlap=True, **WIDE)  # fmt: skip
    assert found.fits
    assert int(found.placement.gpus[0]) == 72
    experts = summarise(found).experts
    assert experts is not None
    assert (experts.dispatcher, experts.per_gpu, experts.redundant, experts.waited_s) == ("deepep", 4.0, 32, 0.0)
    assert 1.3 < experts.busiest_load < 1.6
    assert 0.02 < experts.exchange_s < 0.2


def test_published_services_of_many_nodes_are_as_fast_as_predicted() -> None:
    """SGLang, DeepSeek's profile and Kimi K2 on 32 to 128 GPUs; to real traffic the drift of loads is fitted.

    The tenth waits for all of its exchanges, which are predicted too slow.
    """
    found = validate([str(SHIPPED / "wide.jsonl")])
    ratios = [record.ratio for record in found.records if record.ratio is not None]
    assert len(ratios) == 10
    *nearest, last = sorted(max(ratio, 1.0 / ratio) for ratio in ratios)
    assert nearest[-1] < 1.1
    assert last < 1.4


def test_experts_on_many_nodes_are_advised_where_they_serve_more() -> None:
    """Changes of a service on 8 nodes whose experts stay inside one; none where it has one node, or a dispatcher."""
    found = served(V3, server=NODE, gpus=64, serve__engine="vllm", serve__input_tokens=2000, serve__output_tokens=500)
    changes = list(tokens_to_experts(found))
    assert {change.values["serve.dispatcher"] for change in changes} == {"deepep-normal", "deepep-low-latency", "pplx"}
    best = max(served(V3, server=NODE, gpus=64, serve__engine="vllm", serve__input_tokens=2000,
                      serve__output_tokens=500, **{key.replace(".", "__"): value for key, value in one.values.items()}
                      ).requests_per_s for one in changes[:1])  # fmt: skip
    assert best > 1.1 * found.requests_per_s
    assert not list(tokens_to_experts(served(V3, gpu="h200-sxm-141gb", gpus=8, serve__batch=8)))
