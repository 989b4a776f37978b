"""Training with layers for multi-token prediction: their weights, time and memory, on the stage with the head."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases import ask, job, layouts
from xe_sizer.errors import InputError
from xe_sizer.graph.drafter import mtp_parameters
from xe_sizer.training.activations import needed_flops
from xe_sizer.training.evaluation import Evaluation

HIDDEN, FFN, VOCAB, KV = 4096, 14336, 128256, 1024  # llama-3.1-8b
LAYER = 2 * HIDDEN**2 + 2 * HIDDEN * KV + 3 * HIDDEN * FFN


def of(model: str, further: int, **sizes: object) -> Evaluation:
    chosen = job(model, "pretrain", "megatron-lm", **{"train.mtp_layers": further, "train.seq_len": 4096})
    return Evaluation(chosen, layouts(**sizes))  # type: ignore[arg-type]


@pytest.mark.parametrize("model", ["llama-3.1-8b", "deepseek-v2-lite"])
def test_weights_are_on_the_last_stage_with_the_embedding_once_more(model: str) -> None:
    plain, further = (of(model, layers, pp=[1, 2], dp=1).held.base for layers in (0, 2))
    own = of(model, 0).job.model
    two, table = 2 * mtp_parameters(own), own.vocab * own.hidden
    assert (further - plain)[:, 0] == pytest.approx([two, two])  # one stage, which is the first and the last
    assert (further - plain)[:, 1] == pytest.approx([0.0, two + table])


def test_operations_are_those_of_a_layer_a_product_and_a_head() -> None:
    plain, further = (needed_flops(of("llama-3.1-8b", layers).shapes.graph.head)[0] for layers in (0, 1))
    tokens, products = 4096, 2 * HIDDEN**2 + LAYER + HIDDEN * VOCAB
    attention = 3 * 2 * 2 * tokens**2 * HIDDEN / 2  # causal: forward, and twice as much back
    assert further - plain == pytest.approx(6 * tokens * products + attention, rel=0.001)


def test_each_has_logits_and_a_loss_of_its_own() -> None:
    none, two = (of("llama-3.1-8b", layers).saved for layers in (0, 2))
    assert two.loss_kept == pytest.approx(3 * none.loss_kept)
    assert two.loss_live == pytest.approx(none.loss_live)


def test_recomputation_takes_time_and_leaves_the_inputs() -> None:
    """In full a layer keeps the state and the embedding that it reads, 2 x tokens x hidden x 2 bytes."""
    kept, again = (of("llama-3.1-8b", 1, recompute=mode) for mode in (0, 2))
    none = of("llama-3.1-8b", 0, recompute=2)
    ends = (again.saved.ends - none.saved.ends)[0]
    head = 4096 * HIDDEN * 2 * 2  # what the norm and the product before the logits keep
    assert ends == pytest.approx(2 * 4096 * HIDDEN * 2 + head, rel=0.02)
    assert ends < (kept.saved.ends - of("llama-3.1-8b", 0).saved.ends)[0] / 3
    assert np.all(again.recompute_s[0] > none.recompute_s[0] * 32.5 / 32)


def test_a_step_takes_longer_by_a_layer_and_a_head() -> None:
    plain, further = (float(np.sum(of("llama-3.1-8b", layers).kernels_s[:2], axis=0)[0][0]) for layers in (0, 1))
    assert further / plain == pytest.approx(
        1 + (LAYER + 2 * HIDDEN**2 + HIDDEN * VOCAB) / (32 * LAYER + HIDDEN * VOCAB), rel=0.02
    )


def test_encoders_predict_no_further_token() -> None:
    with pytest.raises(InputError, match="does not predict the next token"):
        ask({"model": "bert-base-uncased", "job": "pretrain", "train.mtp_layers": 1})
