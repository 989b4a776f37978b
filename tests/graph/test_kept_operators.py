"""Operators of whole models: sizes, bytes and launches of each, kept to ten digits."""

from __future__ import annotations

import pytest
from cases import ask, layouts
from figures import cases, check, row

from xe_sizer.graph.operators import Operator, launches
from xe_sizer.graph.vision import vision_parameters
from xe_sizer.graph.weights import count_parameters
from xe_sizer.training.activations import operator_groups
from xe_sizer.training.evaluation import Evaluation

SEQ = {"train.seq_len": 1000, "train.padding": "to-seq-len"}
CASES: dict[str, tuple[dict[str, object], dict[str, int]]] = {
    "llama lora": ({"model": "llama-3.2-1b", "job": "lora", "stack": "hf-trainer"}, {"micro_batch": 3}),
    "llama sharded": (
        {"model": "llama-3.1-8b", "job": "sft", "stack": "megatron-lm"},
        {"tp": 2, "cp": 2, "sequence_parallel": 1},
    ),
    "gpt2": ({"model": "gpt2-xl", "job": "sft", "stack": "hf-trainer", "attention": "eager"}, {"micro_batch": 2}),
    "gemma qlora": ({"model": "gemma-2-9b", "job": "qlora", "stack": "hf-trainer"}, {"micro_batch": 2}),
    "mixtral": ({"model": "mixtral-8x7b", "job": "sft", "stack": "megatron-lm"}, {"tp": 2, "ep": 4, "dp": 4}),
    "mixtral loop": ({"model": "mixtral-8x7b", "job": "lora", "stack": "hf-trainer"}, {"micro_batch": 2}),
    "deepseek": ({"model": "deepseek-v3", "job": "pretrain", "stack": "megatron-lm"}, {"ep": 8, "dp": 8}),
    "qwen3 experts": ({"model": "qwen3-30b-a3b", "job": "lora", "stack": "hf-trainer"}, {"micro_batch": 2}),
    "mamba": ({"model": "jamba-v0.1", "job": "sft", "stack": "megatron-lm"}, {"tp": 2, "ep": 2, "dp": 2}),
    "t5": ({"model": "t5-base", "job": "sft", "stack": "hf-trainer", "train.target_len": 200}, {"micro_batch": 2}),
    "bert": ({"model": "bert-base-uncased", "job": "pretrain", "stack": "hf-trainer"}, {"micro_batch": 4}),
    "modernbert": ({"model": "modernbert-base", "job": "pretrain", "stack": "hf-trainer"}, {"micro_batch": 4}),
    "deberta": ({"model": "deberta-v3-base", "job": "sft", "stack": "hf-trainer"}, {"micro_batch": 4}),
    "unsloth": ({"model": "llama-3.2-1b", "job": "qlora", "stack": "unsloth"}, {"micro_batch": 2}),
}
SEEING = {
    "qwen2-vl": {"model": "qwen2-vl-2b", "stack": "hf-trainer", "data.images": 2},
    "resampler": {"model": "minicpm-v-2.6", "stack": "hf-trainer", "data.images": 1},
    "queries": {"model": "qwen-vl", "stack": "hf-trainer", "data.images": 1, "data.image_size": "448x448"},
}


def rows_of(operators: tuple[Operator, ...]) -> dict[str, str]:
    """Numbers of each operator by its place and name."""
    found = {}
    for place, operator in enumerate(operators):
        flops = (getattr(operator, name, 0.0) for name in ("forward_flops", "backward_flops"))
        found[f"{place} {operator.name}"] = row(operator, *flops, *launches(operator))
    return found


@pytest.mark.parametrize("case", CASES)
def test_operators_of_a_model(case: str) -> None:
    asked, sizes = CASES[case]
    one = ask({**SEQ, **asked, "gpus": 1}).job if sizes.get("ep", 1) == 1 else ask({**SEQ, **asked, "gpus": 8}).job
    graph = Evaluation(one, layouts(**sizes)).shapes.graph
    found = {"parameters": row(count_parameters(one.model).total)}
    check("graph", case, found | rows_of((*graph.embedding, *graph.layers, *graph.head)))


@pytest.mark.parametrize("case", SEEING)
def test_operators_of_an_encoder(case: str) -> None:
    one = ask({**SEEING[case], "job": "sft"}).job
    part = Evaluation(one, layouts(micro_batch=2)).encoder
    assert part is not None
    assert one.model.vision is not None
    first, layers, last = operator_groups(part.job, part.critical_shapes)
    found = {"parameters": row(vision_parameters(one.model.vision))}
    check("graph", case, found | rows_of((*first, *layers, *last)))


def test_no_figures_are_kept_of_what_nobody_asks() -> None:
    assert cases("graph") == {*CASES, *SEEING}
