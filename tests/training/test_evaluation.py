"""The record of one job under some layouts: each quantity is computed once, whatever asks for it."""

from __future__ import annotations

import gc
import inspect
import sys
import weakref
from collections import Counter
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
import pytest
from cases import ask, job, layouts

import xe_sizer
from xe_sizer.graph.operators import IntArray
from xe_sizer.training import activations, gathering, layout, model_states, rank
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.layout import Layouts
from xe_sizer.training.memory import ledger_of
from xe_sizer.training.padding import Sequences
from xe_sizer.training.step_time import timeline_of

ONCE: tuple[Callable[..., Any], ...] = (
    layout.build_stages,
    rank.sequences,
    rank.rank_shapes,
    rank.graph_inputs,
    model_states.parameter_counts,
    model_states.learning_elements,
    model_states.accumulates_whole_gradients,
    model_states.keeps_fresh_gradients,
    activations.recomputed_layers_share,
    activations.activations,
    gathering.gathered_beyond,
)


def key(argument: Any) -> object:
    """An argument by its value: layouts that are cut from others are the same where their sizes are."""
    if isinstance(argument, np.ndarray):
        return argument.tobytes()
    if isinstance(argument, tuple):
        return tuple(map(key, argument))
    if isinstance(argument, Layouts):
        return tuple(np.asarray(getattr(argument, name)).tobytes() for name in argument.__struct_fields__)
    return id(argument)


class Calls:
    """How often each function was called with the same arguments."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.counts: dict[str, Counter[object]] = {}
        self.seen: list[object] = []  # keeps arguments alive, whose identities are keys
        for function in ONCE:
            counted = self.counting(function.__name__, function)
            for module in list(sys.modules.values()):
                if getattr(module, "__name__", "").startswith("xe_sizer.training"):
                    names = [name for name, value in vars(module).items() if value is function]
                    for name in names:
                        patch.setattr(module, name, counted)
        states = model_states.StateBytes
        patch.setattr(states, "of", self.counting("StateBytes.of", states.of))

    def counting(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        counts, signature = self.counts.setdefault(name, Counter()), inspect.signature(function)

        @wraps(function)
        def counted(*positional: Any, **named: Any) -> Any:
            arguments = signature.bind(*positional, **named).arguments.values()
            self.seen.extend(arguments)
            counts[tuple(map(key, arguments))] += 1
            return function(*positional, **named)

        return counted


@pytest.mark.parametrize(
    "asked",
    [
        {"model": "llama-3.1-8b", "job": "lora"},
        {"model": "llama-3.1-8b", "job": "dpo", "stack": "trl"},
        {"model": "mixtral-8x7b", "job": "sft", "gpus": 64, "layout": {"tp": 8, "pp": 2}},
        {"model": "qwen2-vl-2b", "job": "sft", "data": {"images": 2}},
        {"model": "electra-base", "job": "pretrain"},
        {"model": "llama-3.1-8b", "job": "sft", "gpus": 2, "layout": {"offload": "optimizer"}},
    ],
    ids=lambda asked: f"{asked['model']} {asked['job']}",
)
def test_an_estimate_computes_each_quantity_of_a_job_and_its_layouts_once(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch)
    xe_sizer.estimate(**{"server": "dgx-h100", "gpus": 8, **asked}, details=True)
    assert all(calls.counts.values()), [name for name, counts in calls.counts.items() if not counts]
    assert {name: max(counts.values()) for name, counts in calls.counts.items()} == dict.fromkeys(calls.counts, 1)


def test_all_layouts_of_a_record_are_the_record_and_some_are_another() -> None:
    whole = Evaluation(job(), layouts(dp=[1, 2, 4]))
    assert whole[np.arange(3)] is whole
    assert whole[1:2].layouts.dp.tolist() == [2]
    assert whole[1:2].job is whole.job


@pytest.mark.parametrize("index", [slice(1, 2), np.array([0, 2, 5])], ids=["one", "several"])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "gemma-2-9b", "mixtral-8x7b"])
def test_some_of_many_are_as_if_they_were_alone(model: str, index: slice | IntArray) -> None:
    """What is known of many layouts is handed on: the longest, critical and mean lengths of these all differ."""
    asked = ask({"model": model, "job": "sft", "stack": "hf-trainer", "data.profile": "alpaca"}).job
    chosen = layouts(dp=[1, 2, 4, 8, 2, 4], micro_batch=[1, 2, 4, 1, 8, 2], zero=[0, 2, 3, 3, 0, 2])
    whole = Evaluation(asked, chosen)
    ledger_of(whole), timeline_of(whole)
    some, alone = whole[index], Evaluation(asked, chosen[index])
    assert some.shapes.graph is whole.shapes.graph
    for found, wanted in (
        (some.held, alone.held),
        (some.stages, alone.stages),
        (some.sequences, alone.sequences),
    ):
        for name in wanted.__struct_fields__:
            assert getattr(found, name).tolist() == getattr(wanted, name).tolist()
    assert ledger_of(some).total_bytes.tolist() == ledger_of(alone).total_bytes.tolist()
    assert timeline_of(some).step_s.tolist() == timeline_of(alone).step_s.tolist()
    assert timeline_of(some).flops.tolist() == timeline_of(alone).flops.tolist()


def test_lengths_that_are_known_go_along() -> None:
    lengths = Sequences.of_length(np.array([512.0, 1024.0]))
    found = Evaluation(job(), layouts(dp=[1, 2]), lengths)
    assert found.sequences is lengths
    assert found[1:].sequences.critical_tokens.tolist() == [1024.0]
    assert found.shapes is found.critical_shapes is found.mean_shapes


def test_frozen_weights_beside_see_the_same_sequences() -> None:
    found = Evaluation(job(kind="dpo", stack="trl"), layouts())
    ((_, reference),) = found.beside
    assert reference.sequences is found.sequences
    assert not reference.job.method.learning.base
    assert found.copies_bytes.tolist() == reference.as_copy_bytes.tolist()


@pytest.mark.parametrize("model", ["llama-3.1-8b", "t5-large", "bert-base"])
def test_an_evaluation_is_gone_when_nobody_refers_to_it(model: str) -> None:
    """Commands look for no garbage, so that a cycle would keep the arrays of every chunk of a search."""
    gc.disable()
    try:
        evaluation = Evaluation(job(model), layouts(dp=[1, 2], zero=1))
        ledger_of(evaluation)
        timeline_of(evaluation)
        gone = [weakref.ref(evaluation), weakref.ref(evaluation.shapes.graph.inputs)]
        del evaluation
        assert [each() for each in gone] == [None, None]
    finally:
        gc.enable()
