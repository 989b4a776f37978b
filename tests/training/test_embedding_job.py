"""Embedding models: sequences of a sample, similarities, what is gathered, against arithmetic by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from xe_sizer.errors import InputError
from xe_sizer.graph.operators import Collective, Matmul
from xe_sizer.graph.transformer import head_operators
from xe_sizer.graph.weights import count_parameters
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.scenario.read import read_scenario
from xe_sizer.training.job import Job
from xe_sizer.training.layout import Layouts
from xe_sizer.training.rank import graph_inputs
from xe_sizer.training.resolve import resolve
from xe_sizer.training.step_time import timeline

BERT_BASE_WITHOUT_HEAD = 108_891_648  # 109,482,240 of BertModel less its pooler, 768 x 768 + 768


def job(**further: Any) -> Job:
    flags = {
        "model": "bert-base-uncased", "gpu": "a100-sxm-80gb", "gpus": 8, "job": "embedding", "train.seq_len": 128,
        "train.global_batch": 512, "stack": "sentence-transformers",
    }  # fmt: skip
    return resolve(read_scenario(None, flags | further, {}), Registry()).job


def layouts(**sizes: int) -> Layouts:
    none = {"zero": 0, "offload": 0, "sequence_parallel": 0, "schedule": 0, "zero_group": 0, "recompute": 0}
    return Layouts.of(**dict.fromkeys(Layouts.__struct_fields__, 1) | none | sizes)


def similarities(made: Job, layout: Layouts) -> Matmul:
    found = [op for op in head_operators(graph_inputs(made, layout, np.array([128.0]))) if op.name == "similarities"]
    assert isinstance(found[0], Matmul)
    return found[0]


def test_no_head_learns() -> None:
    made = job()
    assert count_parameters(made.model).total == BERT_BASE_WITHOUT_HEAD
    assert made.method.trainable_parameters(made.model) == BERT_BASE_WITHOUT_HEAD


@pytest.mark.parametrize(("negatives", "sequences"), [(0, 2), (7, 9)])
def test_a_sample_is_a_query_and_its_passages(negatives: int, sequences: int) -> None:
    made = job(**{"embedding.hard_negatives": negatives})
    rank = graph_inputs(made, layouts(micro_batch=16), np.array([128.0])).rank
    assert float(rank.batch[0]) == 16 * sequences


def test_similarities_of_a_batch() -> None:
    """16 queries against 16 positives and 16 x 3 negatives, 768 wide; across 8 GPUs against 8 times as many."""
    own = similarities(job(**{"embedding.hard_negatives": 3}), layouts(micro_batch=16, dp=8))
    assert (own.m[0], own.n[0], own.k[0]) == (16, 64, 768)
    all_of_them = {"embedding.hard_negatives": 3, "embedding.across_gpus": True}
    assert similarities(job(**all_of_them), layouts(micro_batch=16, dp=8)).n[0] == 8 * 64


def test_cached_gradients_compare_all_micro_batches_for_a_pass_more() -> None:
    plain, cached = job(), job(**{"embedding.cached": True})
    layout = layouts(micro_batch=16, dp=8, grad_accum=4)
    assert similarities(cached, layout).n[0] == 4 * similarities(plain, layout).n[0] == 64
    first, second = timeline(plain, layout), timeline(cached, layout)
    assert second.components["forward"] == pytest.approx(first.components["forward"], rel=0.02)
    assert second.components["frozen forward"][0] > 0.9 * first.components["forward"][0]


def test_states_are_gathered_across_gpus_alone() -> None:
    layout = layouts(micro_batch=64, dp=8)
    assert timeline(job(), layout).components["gathered states"][0] == 0.0
    across = job(**{"embedding.across_gpus": True})
    assert 0.0 < timeline(across, layout).components["gathered states"][0] < 0.01
    inside = head_operators(graph_inputs(across, layout, np.array([128.0])))
    assert not [op for op in inside if isinstance(op, Collective)]


def test_a_decoder_embeds_too_and_a_pair_of_halves_does_not() -> None:
    assert job(model="qwen3-embedding-0.6b").model.head == "none"
    with pytest.raises(InputError, match="has a decoder"):
        job(model="t5-base")


def test_settings_of_a_comparison_have_no_effect_elsewhere() -> None:
    flags = {"model": "bert-base-uncased", "gpu": "a100-sxm-80gb", "gpus": 1, "embedding.hard_negatives": 2}
    warnings = resolve(read_scenario(None, flags, {}), Registry()).warnings
    assert any("no effect on the job sft" in warning for warning in warnings)


def test_an_open_layout_keeps_the_passages_that_a_query_meets() -> None:
    flags = {
        "model": "bert-base-uncased", "gpu": "a100-sxm-80gb", "gpus": 8, "job": "embedding", "train.micro_batch": 64,
        "train.global_batch": 512,
    }  # fmt: skip
    resolved = resolve(read_scenario(None, flags, {}), Registry())
    assert resolved.without_layout().fixed == {"micro_batch": 64}
