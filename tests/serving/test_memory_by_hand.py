"""Memory of a serving GPU against sums made by hand: steps, pools, shares, and batches whose cache grows."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from serving_cases import asked, job, served

from xe_sizer.serving.job import ReplicaLayouts, ServingJob, Traffic
from xe_sizer.serving.memory import (
    held_tokens,
    max_sequences,
    rank_weight_bytes,
    request_bytes,
    serving_memory,
    static_peak,
)
from xe_sizer.serving.queueing import capacity
from xe_sizer.serving.summary import serve_memory, shortage

ONE = ReplicaLayouts.of()
GIB = 2.0**30
H100S = "dell-xe9680-h100"
TOKEN = 2 * 32 * 8 * 128 * 2  # bytes of a token of Llama 3.1 8B
STEP = {"max_step_tokens": 1000, "max_sequences": 64}
PARTS = {
    "utilization": 0.5, "utilization_of": "total", "context_gib": 1.0, "communicator_gib": 0.25, "graphs_gib": 2.0,
    "workspace_gib": 0.5, "block_tokens": 16,
}  # fmt: skip


def with_engine(made: ServingJob, **sections: dict[str, object]) -> ServingJob:
    """The job with some settings of its engine changed, by section."""
    engine = made.engine
    changed = {name: msgspec.structs.replace(getattr(engine, name), **values) for name, values in sections.items()}
    return replace(made, engine=msgspec.structs.replace(engine, **changed))


def plain(model: str = "llama-3.1-8b", memory: dict[str, object] | None = None, **batching: object) -> ServingJob:
    made = job(model, server=H100S)
    return with_engine(made, batching={**STEP, **batching}, memory={**PARTS, **(memory or {})})


def beside(made: ServingJob, tokens: float, gpus: int = 1) -> float:
    """Weights, activations, logits and what software takes of Llama 3.1 8B on one rank [bytes]."""
    step = (3 * 4096 + 3 * 14336) * tokens * 2 + min(64, tokens) * 128256 * (2 + 4)
    return 16_060_522_496 + step + (1.0 + 0.5 + (0.25 if gpus > 1 else 0.0)) * GIB


# What an engine finds as it starts


def test_the_parts_of_a_dense_model() -> None:
    """8.03e9 parameters of 2 bytes; gate, up and product beside three tensors of the hidden size; 64 rows of logits."""
    fixed = serving_memory(plain(), ONE).fixed
    assert fixed["weights"][0] == 2 * 8_030_261_248
    assert fixed["activations"][0] == (3 * 4096 + 3 * 14336) * 1000 * 2
    assert fixed["logits"][0] == 64 * 128256 * 6
    assert fixed["CUDA graphs"][0] == 2.0 * GIB
    assert fixed["CUDA context"][0] == 1.0 * GIB
    assert fixed["communicators"][0] == 0.0
    assert fixed["workspaces"][0] == 0.5 * GIB


def test_ranks_share_the_wide_tensors_and_keep_the_hidden_ones() -> None:
    several = serving_memory(plain(), ReplicaLayouts.of(tp=[2, 8, 1], pp=[1, 1, 2])).fixed
    wide = [(3 * 4096 + 3 * 14336 / tp) * 1000 * 2 for tp in (2, 8, 1)]
    assert several["activations"].tolist() == wide
    assert several["communicators"].tolist() == [0.25 * GIB] * 3
    assert several["logits"].tolist() == [64 * 128256 * 6] * 3


def test_attention_is_the_widest_where_heads_are_wide() -> None:
    """Gemma 2 9B, a thousand tokens: queries, outputs, keys and values 256 wide are fewer than 3 x 14,336."""
    made = plain("gemma-2-9b")
    wide = max(3 * 14336, (2 * 16 + 2 * 8) * 256)
    assert serving_memory(made, ONE).fixed["activations"][0] == (3 * 3584 + wide) * 1000 * 2
    narrow = replace(made, model=replace(made.model, ffn=1000))
    assert serving_memory(narrow, ONE).fixed["activations"][0] == (3 * 3584 + 48 * 256) * 1000 * 2
    ungated = replace(made, model=replace(made.model, activation="gelu"))
    assert serving_memory(ungated, ONE).fixed["activations"][0] == (3 * 3584 + 2 * 14336) * 1000 * 2


def test_rows_of_experts_are_the_widest_of_a_mixture() -> None:
    """Two of eight experts: each row as gate, up and product of 14,336, and 4,096 to come back."""
    made = plain("mixtral-8x7b")
    rows = 2 * (3 * 14336 + 4096)
    assert serving_memory(made, ONE).fixed["activations"][0] == (3 * 4096 + rows) * 1000 * 2
    halved = serving_memory(made, ReplicaLayouts.of(tp=2)).fixed["activations"][0]
    assert halved == (3 * 4096 + 2 * (3 * 14336 / 2 + 4096)) * 1000 * 2


@pytest.mark.parametrize(
    ("prompt", "chunked", "tokens"),
    [(None, True, 1000), (700.0, True, 1000), (1700.0, True, 1000), (1700.0, False, 1700), (700.0, False, 1000)],
)
def test_steps_grow_with_prompts_that_are_not_cut(prompt: float | None, chunked: bool, tokens: float) -> None:
    made = plain(chunked_prefill=chunked)
    fixed = serving_memory(made, ONE, prompt).fixed
    assert fixed["activations"][0] == (3 * 4096 + 3 * 14336) * tokens * 2


@pytest.mark.parametrize(("prompt", "tokens"), [(None, 1000), (40.0, 40), (1700.0, 1000)])
def test_steps_of_a_growing_cache_are_its_prompts(prompt: float | None, tokens: float) -> None:
    made = with_engine(job(serve__engine="hf-transformers-4.44", server=H100S), batching=STEP, memory=PARTS)
    fixed = serving_memory(made, ONE, prompt).fixed
    assert fixed["activations"][0] == (3 * 4096 + 3 * 14336) * tokens * 2
    assert fixed["logits"][0] in (tokens * 128256 * 6, min(64, tokens) * 128256 * 6)


def test_no_more_than_256_sequences_get_logits_at_first() -> None:
    assert serving_memory(plain(max_sequences=1000), ONE).fixed["logits"][0] == 256 * 128256 * 6
    assert serving_memory(plain(max_sequences=1000, max_step_tokens=100), ONE).fixed["logits"][0] == 100 * 128256 * 6


# The pool


def test_a_share_of_the_card_less_all_parts() -> None:
    made = plain()
    memory, card = serving_memory(made, ONE), made.server.accelerator.memory_bytes
    assert memory.usable_bytes == card
    assert memory.pool_bytes[0] == pytest.approx(0.5 * card - beside(made, 1000), rel=1e-12)
    assert memory.beside_tensors[0] == 1.5 * GIB


def test_a_share_of_what_is_free() -> None:
    made = plain(memory={"utilization_of": "free"})
    card = made.server.accelerator.memory_bytes
    expected = 0.5 * (card - beside(made, 1000))
    assert serving_memory(made, ONE).pool_bytes[0] == pytest.approx(expected, rel=1e-12)


def test_a_static_share_leaves_the_steps_outside() -> None:
    made = plain(memory={"utilization_of": "static"})
    card, two = made.server.accelerator.memory_bytes, ReplicaLayouts.of(tp=2)
    assert serving_memory(made, ONE).pool_bytes[0] == pytest.approx(
        0.5 * (card - 1.0 * GIB) - 16_060_522_496, rel=1e-12
    )
    weights = rank_weight_bytes(made.model, made.scheme, two)[0]
    assert serving_memory(made, two).pool_bytes[0] == pytest.approx(0.5 * (card - 1.25 * GIB) - weights, rel=1e-12)


def test_graphs_come_out_of_the_rest_and_of_the_pool_where_there_is_none() -> None:
    made = plain(memory={"utilization": 1.0})
    card = made.server.accelerator.memory_bytes
    assert serving_memory(made, ONE).pool_bytes[0] == pytest.approx(card - beside(made, 1000) - 2.0 * GIB, rel=1e-12)
    assert serving_memory(plain(memory={"utilization": 0.1}), ONE).pool_bytes[0] == 0.0


# Requests in the pool


@pytest.mark.parametrize(("reserves", "tokens"), [("whole", 1300.0), ("used", 1150.0)])
def test_running_requests_hold_their_prompt_and_half_of_their_answer(reserves: str, tokens: float) -> None:
    assert held_tokens(plain(reserves=reserves), 1000.0, 300.0) == tokens


def test_requests_of_a_pool_by_hand() -> None:
    """1,001 tokens are 63 blocks of 16; a pool of ten such requests and a half holds ten and a half."""
    made = plain()
    each = 63 * 16 * TOKEN
    assert request_bytes(made, ONE, 1001.0)[0] == each
    memory = replace(serving_memory(made, ONE), pool_bytes=np.array([10.5 * each]))
    assert max_sequences(made, ONE, memory, 1001.0)[0] == pytest.approx(10.5, rel=1e-12)


def test_attention_ranks_have_a_pool_each() -> None:
    """Four of them with room for 2.5 requests hold ten; with room for 0.5 they hold none between them."""
    made, four = plain("deepseek-v2-lite"), ReplicaLayouts.of(dp=4, ep=4)
    each = request_bytes(made, four, 100.0)[0]
    memory = serving_memory(made, four)
    for share, held in ((2.5, 10.0), (1.0, 4.0), (0.5, 0.5)):
        assert max_sequences(made, four, replace(memory, pool_bytes=np.array([share * each])), 100.0)[0] == held


def test_every_rank_keeps_the_whole_latent_of_every_request() -> None:
    """DeepSeek-R1 in fp8 on 4 GPUs: its pools hold the same requests four times, not four times the requests."""
    made = plain("deepseek-r1", memory={"block_tokens": 1})
    four = ReplicaLayouts.of(tp=4)
    each = 61 * (512 + 64) * 2 * 1000
    assert request_bytes(made, four, 1000.0)[0] == each
    memory = replace(serving_memory(made, four), pool_bytes=np.array([16.0 * each]))
    assert max_sequences(made, four, memory, 1000.0)[0] == 16.0


def test_a_replica_takes_no_more_than_its_engine() -> None:
    """A limit for each group of sequences: 64 x 2 attention ranks, or stages that work at the same time."""
    made, traffic = plain("deepseek-v2-lite"), Traffic(10.0, 10.0)
    many = ReplicaLayouts.of(tp=[1, 1, 1], pp=[1, 2, 1], ep=[1, 1, 2], dp=[1, 1, 2])
    memory = serving_memory(made, many)
    memory = replace(memory, pool_bytes=np.full(3, 1e15))
    assert capacity(made, many, memory, traffic).tolist() == [64, 128, 128]


def test_a_replica_holds_answers_half_done() -> None:
    """Answers of spread 1 that are underway are twice as long in the mean: 1000 + 2 x 600 / 2 tokens."""
    made = plain(reserves="used")
    memory = replace(serving_memory(made, ONE), pool_bytes=np.array([5.0 * 1600 * TOKEN]))
    assert capacity(made, ONE, memory, Traffic(1000.0, 600.0, 0.0, 1.0))[0] == pytest.approx(5.0)


# Batches whose cache grows


def growing(copies: float) -> ServingJob:
    made = job(serve__engine="hf-transformers", server=H100S)
    return with_engine(made, memory={**PARTS, "cache_copies": copies, "block_tokens": 1})


def test_a_long_prompt_has_its_peak_in_the_prefill() -> None:
    made = growing(1.0)
    rows = 3000 if made.engine.kernels.all_logits else 3
    found = static_peak(made, ONE, 3.0, 1000.0, 1.0)
    assert found["weights"][0] == 16_060_522_496
    assert found["KV cache"][0] == 3 * 1000 * TOKEN
    assert found["activations"][0] == (3 * 4096 + 3 * 14336) * 3000 * 2
    assert found["logits"][0] == rows * 128256 * 6


def test_a_long_answer_has_its_peak_in_the_last_step() -> None:
    """Two copies of the whole cache and tensors of one token a sequence."""
    found = static_peak(growing(2.0), ONE, 3.0, 100.0, 5000.0)
    assert found["KV cache"][0] == 2 * 3 * 5100 * TOKEN
    assert found["activations"][0] == (3 * 4096 + 3 * 14336) * 3 * 2
    assert found["logits"][0] == 3 * 128256 * 6
    once = static_peak(growing(1.0), ONE, 3.0, 100.0, 5000.0)
    assert once["KV cache"][0] == 3 * 5100 * TOKEN


def test_attention_ranks_share_a_growing_batch() -> None:
    made = with_engine(
        job("deepseek-v2-lite", serve__engine="hf-transformers", server=H100S),
        memory={**PARTS, "cache_copies": 1.0, "block_tokens": 1},
    )
    found = static_peak(made, ReplicaLayouts.of(dp=2, ep=2), 6.0, 100.0, 5000.0)
    assert found["KV cache"][0] == 3 * 5100 * 27 * (512 + 64) * 2


# The ledger


def test_the_ledger_of_a_pool_fills_the_share_of_the_engine() -> None:
    found = served(serve__batch=4)
    memory = serve_memory(found)
    names = [part.name for part in memory.components]
    assert names[:2] == ["weights", "KV cache"]
    assert memory.peak_bytes == sum(part.bytes for part in memory.components)
    engine = found.resolved.job.engine.memory
    share = engine.utilization * found.usable_bytes + engine.graphs_gib * GIB
    assert memory.peak_bytes == pytest.approx(share, abs=len(names))
    assert memory.headroom_bytes == memory.usable_bytes - memory.peak_bytes
    assert (memory.phase, memory.gpu) == ("as allocated", "all alike")
    staged = serve_memory(served("llama-3.1-70b", server=H100S, gpus=4, layout__tp=2, layout__pp=2, serve__batch=1))
    assert staged.gpu == "fullest pipeline stage"


def test_the_ledger_of_a_growing_batch_names_its_requests() -> None:
    found = served(serve__engine="hf-transformers", serve__batch=4, serve__input_tokens=100)
    memory = serve_memory(found)
    assert memory.phase == "4 requests at their peak"
    assert [part.name for part in memory.components][-1] != "CUDA graphs"
    assert serve_memory(served(serve__engine="hf-transformers", serve__batch=1)).phase == "one request at their peak"


# Parts that are no sums of products: the widest of several tensors, and the rest of a card.
UNEXPLAINED = {"activations", "left free by the engine"}


def test_every_part_is_a_sum_of_what_it_is_made_of() -> None:
    """The products shown beside a part come to the part, which is what they are shown for."""
    for flags in (
        {"serve__batch": 4},
        {"serve__weights": "int4", "serve__concurrency": 4},
        {
            "serve__engine": "hf-transformers",
            "serve__batch": 4,
            "serve__input_tokens": 10,
            "serve__output_tokens": 3000,
        },
        {"serve__engine": "hf-transformers", "serve__batch": 4, "serve__input_tokens": 3000},
        {"model": "llama-3.1-70b", "gpus": 1, "serve__batch": 1},
        {"model": "llama-3.1-70b", "server": H100S, "gpus": 8, "layout__tp": 4, "serve__batch": 1},
    ):
        found = served(**flags)
        told = {part.name: part.terms for part in serve_memory(found).components}
        assert {name for name, terms in told.items() if found.memory_parts[name] and not terms} <= UNEXPLAINED
        for name, terms in told.items():
            products = [float(np.prod([factor.value for factor in term])) for term in terms]
            assert not products or sum(products) == pytest.approx(found.memory_parts[name], rel=1e-12), (flags, name)


def test_narrow_weights_are_told_from_those_of_16_bit() -> None:
    """Llama 3.1 8B in int4: its 6.98e9 weights of products, and embedding, head and norms."""
    found = served(serve__weights="int4", serve__concurrency=4)
    narrow, wide = serve_memory(found).components[0].terms
    products = 32 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    assert (narrow[0].value, wide[0].value) == (products, 8_030_261_248 - products)
    assert (narrow[1].value, wide[1].value) == (found.resolved.job.scheme.weights.element_bytes, 2.0)


def test_a_shortage_adds_up() -> None:
    """141 GB of weights and one request against 80 GB; the engine leaves a tenth of the card."""
    found = served("llama-3.1-70b", gpus=1, serve__batch=1)
    words = shortage(found).message
    parts = found.memory_parts
    free = 0.1 * found.usable_bytes - found.resolved.job.engine.memory.graphs_gib * GIB
    assert parts["left free by the engine"] == pytest.approx(max(free, 0.0), rel=1e-9)
    rest = found.peak_bytes - parts["weights"] - parts["KV cache"] - parts["left free by the engine"]
    assert f"needs {found.peak_bytes / GIB:.0f} GiB per GPU" in words
    assert f"{(found.peak_bytes - found.usable_bytes) / GIB:.1f} GiB missing" in words
    assert f"weights {parts['weights'] / GIB:.0f}" in words
    assert f"the rest {rest / GIB:.2f} GiB" in words
    assert "KV cache of one request" in words


def test_a_long_sequence_is_named_in_a_shortage() -> None:
    found = served(gpus=1, serve__max_model_len=131072, gpu="l4", serve__concurrency=1)
    if not found.fits:
        assert "one sequence of 131,072 tokens" in shortage(found).message
        assert asked(serve__max_model_len=131072, gpu="l4").must_hold == 131072
