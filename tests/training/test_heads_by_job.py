"""What jobs read from an encoder, and sequences of a decoder beside it, against arithmetic by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from xe_sizer.errors import InputError
from xe_sizer.graph.operators import Attention, Matmul
from xe_sizer.graph.transformer import head_operators, layer_operators, logits_per_rank
from xe_sizer.graph.weights import count_parameters
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.scenario.read import read_scenario
from xe_sizer.training.job import Job
from xe_sizer.training.layout import Layouts
from xe_sizer.training.rank import graph_inputs
from xe_sizer.training.resolve import resolve


def job(model: str, **further: Any) -> Job:
    flags = {"model": model, "gpu": "a100-sxm-80gb", "gpus": 1, "train.seq_len": 512, "train.global_batch": 8}
    return resolve(read_scenario(None, flags | further, {}), Registry()).job


def one(**sizes: int) -> Layouts:
    none = {"zero": 0, "offload": 0, "sequence_parallel": 0, "schedule": 0, "zero_group": 0, "recompute": 0}
    return Layouts.of(**dict.fromkeys(Layouts.__struct_fields__, 1) | none | sizes)


@pytest.mark.parametrize(("asked", "total"), [("pretrain", 109_514_298), ("sft", 109_483_778)])
def test_pre_training_predicts_tokens_and_fine_tuning_classes(asked: str, total: int) -> None:
    """BertForMaskedLM, and BertForSequenceClassification of two labels."""
    assert count_parameters(job("bert-base-uncased", job=asked).model).total == total


@pytest.mark.parametrize(
    ("task", "logits", "total"),
    [
        (None, 512 * 128256, 8_030_261_248),
        ("causal-lm", 512 * 128256, 8_030_261_248),
        ("seq-cls", 512, 8_030_261_248 - 128256 * 4096 + 4096),
        ("regression", 512, 8_030_261_248 - 128256 * 4096 + 4096),
        ("reranker", 512, 8_030_261_248 - 128256 * 4096 + 4096),
        ("generative-reranker", 2 * 512, 8_030_261_248),
    ],
)
def test_the_task_says_what_is_read_from_a_decoder(task: str | None, logits: int, total: int) -> None:
    """LlamaForSequenceClassification scores every token; two rows of the head are "yes" and "no" (ms-swift)."""
    for kind in ("sft", "lora", "qlora"):
        made = job("llama-3-8b", job=kind, **{"train.task": task})
        assert count_parameters(made.model).total == total
        assert logits_per_rank(graph_inputs(made, one(), np.array([512.0])))[0] == logits


def test_a_tied_head_of_two_words_is_no_second_matrix() -> None:
    tied = job("llama-3.2-1b", **{"train.task": "generative-reranker"}).model
    assert count_parameters(tied).total == count_parameters(Registry().model("llama-3.2-1b")).total


def test_heads_on_masked_tokens_alone_do_0_15_of_the_work() -> None:
    """2 x 0.15 x 512 x 768 x 30,522 FLOPs of the head in TensorFlow, all tokens elsewhere."""
    for stack, share in (("tensorflow", 0.15), ("hf-trainer", 1.0)):
        inputs = graph_inputs(job("bert-base-uncased", job="pretrain", stack=stack), one(), np.array([512.0]))
        head = next(op for op in head_operators(inputs) if op.name == "head")
        assert isinstance(head, Matmul)
        assert head.forward_flops[0] == pytest.approx(2 * share * 512 * 768 * 30522, rel=1e-12)
        assert logits_per_rank(inputs)[0] == pytest.approx(share * 512 * 30522, rel=1e-12)


def test_the_halves_see_sequences_of_their_own() -> None:
    """T5-base reads 512 tokens and answers 64: every token sees all of its half, the decoder what came before."""
    inputs = graph_inputs(job("t5-base", **{"train.target_len": 64}), one(), np.array([512.0]))
    pairs = {(op.name, float(op.pairs[0]), op.layers) for op in layer_operators(inputs) if isinstance(op, Attention)}
    assert pairs == {
        ("attention", 512.0 * 512, 12.0), ("attention", 64 * 65 / 2, 12.0), ("cross attention", 64.0 * 512, 12.0),
    }  # fmt: skip
    assert logits_per_rank(inputs)[0] == 64 * 32128


@pytest.mark.parametrize(
    ("model", "asked", "tokens"),
    [("t5-base", "pretrain", 114), ("bart-base", "pretrain", 512), ("mbart-large-50", "pretrain", 512),
     ("t5-base", "sft", 128), ("bart-base", "sft", 128)],
)  # fmt: skip
def test_a_decoder_answers_what_its_family_pre_trains_on(model: str, asked: str, tokens: int) -> None:
    """Of 512 that it reads: T5 114 (arXiv:1910.10683), BART all (arXiv:1910.13461); tuned, a quarter is assumed."""
    made = job(model, job=asked)
    assert logits_per_rank(graph_inputs(made, one(), np.array([512.0])))[0] == pytest.approx(tokens * made.model.vocab)


def test_products_of_the_halves_by_hand() -> None:
    """Of T5-base: 4 x 768^2 + 2 x 768 x 3072 a token and layer; the decoder's 64 tokens also q and o, 512 k and v."""
    inputs = graph_inputs(job("t5-base", **{"train.target_len": 64}), one(), np.array([512.0]))
    found = sum(op.layers * float(op.forward_flops[0]) for op in layer_operators(inputs) if isinstance(op, Matmul))
    layer, square = 4 * 768**2 + 2 * 768 * 3072, 768**2
    assert found == pytest.approx(2 * 12 * (512 * layer + 64 * layer + 64 * 2 * square + 512 * 2 * square), rel=1e-12)


def test_targets_are_a_quarter_unless_said() -> None:
    assert job("t5-base").target_share == 0.25
    assert job("bert-base-uncased").target_share == 1.0


@pytest.mark.parametrize(
    ("model", "asked", "words"),
    [
        ("t5-base", {"layout.pp": 2, "gpus": 2}, "pipelines of an encoder and a decoder"),
        ("t5-base", {"layout.cp": 2, "gpus": 2}, "context parallelism of an encoder and a decoder"),
        ("llama-2-7b", {"train.target_len": 64}, "no decoder apart from an encoder"),
    ],
)
def test_what_has_no_equation(model: str, asked: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        job(model, **asked)


def test_adapters_of_attention_are_also_on_that_to_the_encoder() -> None:
    """Rank 8 on q, v of T5-base: 8 x (768 + 768) x 2 in 12 layers of the encoder, twice that in 12 of the decoder."""
    made = job("t5-base", adapter="lora", **{"lora.rank": 8, "lora.targets": ["q", "v"]})
    assert made.method.trainable_parameters(made.model) == 8 * 1536 * 2 * (12 + 24)
