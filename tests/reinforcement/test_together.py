"""Answers that start together, engines in the process of a trainer, and weights that are handed on one by one."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from cases import REGISTRY
from msgspec.structs import replace
from serving_cases import job

from xe_sizer.graph.weights import count_tensors
from xe_sizer.profiles.catalogue import load_stack
from xe_sizer.reinforcement.answers import Answers, Asked, constant_answers, cut_answers
from xe_sizer.reinforcement.iteration import hand_over_s
from xe_sizer.reinforcement.resolve import beside_a_trainer, resolve
from xe_sizer.reinforcement.rollout import places, written_continuously
from xe_sizer.reinforcement.search import size
from xe_sizer.scenario.read import read_scenario
from xe_sizer.serving.job import ReplicaLayouts
from xe_sizer.serving.memory import serving_memory

ONE = ReplicaLayouts.of()


def test_answers_that_start_together_hold_the_most_when_the_first_end() -> None:
    assert constant_answers(200.0).most_held(50.0) == 250.0
    two = Answers(np.array([100.0, 300.0]), np.array([0.5, 0.5]), 0.0)
    assert two.most_held(10.0) == 155.0  # half of them at 310 tokens, against all at 110
    assert two.most_held(200.0) == 300.0


def test_fewer_answers_are_written_at_once_where_all_start_together() -> None:
    made = job(serve__engine="vllm")
    made = replace(made, engine=msgspec.structs.replace(
        made.engine, batching=msgspec.structs.replace(made.engine.batching, max_sequences=10_000)))  # fmt: skip
    memory = serving_memory(made, ONE)

    def held(prompts: float, **more: object) -> float:
        asked = replace(Asked(prompts, 1, 0.0, constant_answers(8000.0)), **more)  # type: ignore[arg-type]
        return float(places(made, ONE, memory, asked, 1)[0])

    whole, half = held(2.0), held(1e9)
    assert half == pytest.approx(2.0 * whole, rel=0.01)  # one after the other they have half of their length
    assert held(1e9, carried=True) == held(2.0, carried=True) == pytest.approx(half)
    # x = S / whole, n = 10 whole, half = 2 whole: 0.05 x^2 + 0.5 x = 1
    assert held(10.0 * whole) / whole == pytest.approx((np.sqrt(0.45) - 0.5) / 0.1, rel=0.02)


def test_answers_of_further_batches_fill_the_places_where_they_are_carried() -> None:
    made = job(serve__engine="vllm")
    asked = Asked(8, 1, 128.0, cut_answers(600.0, 0.6, 2400.0), carried=True)
    one, eight = (written_continuously(made, ONE, 1, np.array([512.0]), replace(asked, ahead=n)) for n in (1, 8))
    assert (one.running[0], eight.running[0]) == (8.0, 64.0)
    assert eight.total_s[0] < one.total_s[0] / 4.0


def test_tensors_of_checkpoints_are_counted() -> None:
    # Llama: 7 matrices and 2 norms in each of 32 layers, with embedding, last norm and head.
    assert count_tensors(REGISTRY.model("llama-3.1-8b")) == 32 * 9 + 3
    # Qwen3-30B-A3B: 4 matrices, 4 norms, a router and 3 matrices of each of 128 experts in 48 layers.
    assert count_tensors(REGISTRY.model("qwen3-30b-a3b")) == 48 * (9 + 3 * 128) + 3


def test_weights_are_handed_on_tensor_by_tensor() -> None:
    flags = {
        "model": "qwen3-30b-a3b", "gpu": "h100-sxm-80gb", "job": "grpo", "stack": "generic", "gpus": 16,
        "rollout.prompts": 64, "rollout.output_tokens": 600, "layout.ep": 8,
    }  # fmt: skip
    found = size(resolve(read_scenario(None, flags, {}), REGISTRY)).iteration
    handed_s = 18867 * load_stack("generic").rollout.tensor_ms * 1e-3
    assert hand_over_s(found.resolved.actor) == pytest.approx(handed_s)
    assert found.phase_s["weight synchronisation"] >= handed_s


def test_an_engine_in_the_process_of_a_trainer_has_a_slower_host() -> None:
    made, defaults = job(serve__engine="vllm"), load_stack("nemo-rl").rollout
    host, slower = made.engine.host, beside_a_trainer(made, defaults).engine.host
    assert slower.step_ms == host.step_ms + 3
    assert slower.sequence_us == host.sequence_us + 70
    assert slower.graphs
    eager = beside_a_trainer(made, load_stack("verl@0.4").rollout).engine
    assert not eager.host.graphs
    assert eager.host.launch_us > host.launch_us
    assert not eager.memory.graphs_gib
    own = job(serve__engine="hf-transformers")
    assert beside_a_trainer(own, defaults) is own


@pytest.mark.parametrize(
    ("engine", "served", "beside"), [("vllm", True, False), ("sglang", True, True), ("vllm@0.13", False, False)]
)
def test_steps_overlap_beside_a_trainer_where_the_executor_lets_them(engine: str, served: bool, beside: bool) -> None:
    """vLLM's do in a service since 0.14, but not where Ray calls its ranks; SGLang's scheduler is a process anyway."""
    made = job(serve__engine=engine)
    assert made.engine.batching.overlaps == served
    assert beside_a_trainer(made, load_stack("verl").rollout).engine.batching.overlaps == beside
