"""A layout's figures never depend on its company: on the layouts beside it in an array, or on who chose it.

A few jobs drawn at random are tried each time. Thousands of others: `pytest tests/property/test_company.py
--random-jobs 2000`, from another seed with `--first-seed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest
from cases import REGISTRY, ask, figures_of
from msgspec.structs import replace

from xe_sizer.errors import InputError
from xe_sizer.graph.recompute import RECOMPUTE_MODULES
from xe_sizer.reinforcement.resolve import resolve as resolve_reinforcement
from xe_sizer.reinforcement.resolved import ResolvedReinforcement
from xe_sizer.reinforcement.search import size as size_reinforcement
from xe_sizer.scenario.read import read_scenario
from xe_sizer.serving.job import ReplicaLayouts, ServingJob
from xe_sizer.serving.memory import request_bytes, serving_memory, static_peak
from xe_sizer.serving.resolve import PLACEMENT_KEYS
from xe_sizer.serving.resolve import resolve as resolve_serving
from xe_sizer.serving.resolved import ResolvedService
from xe_sizer.serving.search import size as size_service
from xe_sizer.serving.search_space import legal_placements
from xe_sizer.serving.step_time import Work, step_time
from xe_sizer.studies.plan import layout_flags
from xe_sizer.training.adapters import ADAPTERS
from xe_sizer.training.estimate import TrainingEstimate
from xe_sizer.training.job import Job
from xe_sizer.training.layout import Layouts
from xe_sizer.training.methods import METHODS
from xe_sizer.training.resolved import ResolvedTraining
from xe_sizer.training.search import size
from xe_sizer.training.search_space import legal_layouts

SAMPLE = 15  # jobs of each kind that the usual run tries
EXACT = 1e-9
SLOW_HOST = 1000.0  # launches that take so many times as long show wherever they differ
GPUS = ("h100-sxm-80gb", "a100-sxm-80gb", "l4", "b200", "mi300x", "h20-sxm-96gb", "rtx-4090")
TRAINING = {
    "train.padding": ("packed", "to-seq-len", "longest-in-micro-batch"),
    "optimizer": REGISTRY.names("optimizer"),
    "precision": ("bf16", "fp16", "fp32", "fp8"),
    "attention": ("flash", "sdpa", "eager"),
    "layout.recompute_modules": tuple([name] for name in RECOMPUTE_MODULES),
    "layout.recompute": ("none", "selective", "full"),
    "layout.cp_kind": ("all-gather", "ring", "ulysses", "hybrid"),
    "layout.offload": ("optimizer", "params", "activations"),
    "layout.uneven_stages": (True,),
    "layout.sequence_parallel": (True,),
    "layout.recompute_layers": (1, 3),
    "train.trainable_layers": (1, 2),
    "train.dropout": (0.1,),
    "train.quantiser": REGISTRY.names("quantiser"),
    "lora.targets": (["all-linear"], ["attention"]),
    "lora.dropout": (0.1,),
    "adapter": tuple(ADAPTERS),
    "data.images": (1,),
    "loss": ("vocabulary-parallel", "liger", "eager"),
}  # fmt: skip
# Sizes beyond those of legal layouts, which no equation may take for others.
SIZES = {
    "tp": (1, 2, 4, 8), "pp": (1, 2, 4), "cp": (1, 2, 4), "ep": (1, 2, 8), "dp": (1, 2, 3, 8, 24), "zero": (0, 1, 2, 3),
    "micro_batch": (1, 2, 3, 8), "grad_accum": (1, 2, 16), "recompute": (0, 1, 2), "offload": (0, 1, 2, 3, 4, 5),
    "sequence_parallel": (0, 1), "zero_group": (0, 2), "expert_tp": (0, 1),
}  # fmt: skip


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        first, jobs = (metafunc.config.getoption(name) for name in ("--first-seed", "--random-jobs"))
        metafunc.parametrize("seed", range(first, first + (jobs or SAMPLE)))


def drawn(draw: np.random.Generator, choices: dict[str, Any], share: float) -> dict[str, Any]:
    """Some of the keys, each with one of its values."""
    return {key: of[int(draw.integers(len(of)))] for key, of in choices.items() if draw.random() < share}


def random_training(draw: np.random.Generator) -> tuple[dict[str, Any], ResolvedTraining]:
    """A training job that nothing is wrong with."""
    every = {
        "model": REGISTRY.names("model"),
        "stack": REGISTRY.names("stack"),
        "job": [name for name, kind in METHODS.items() if not kind.rollout],
        "gpu": GPUS,
        "gpus": (1, 2, 4, 8, 16, 24, 64),
        "train.seq_len": (512, 2048, 4096, 8192, 16384),
        "train.global_batch": (1, 8, 32, 96),
    }
    while True:
        flags = {**drawn(draw, every, 1.0), **drawn(draw, TRAINING, 0.12), "train.steps": 10}
        try:
            resolved = ask(flags)
            if len(legal_layouts(resolved.rules, (resolved.gpus or 1,))):
                return flags, resolved
        except InputError:
            continue


def contradictions(together: dict[str, np.ndarray], alone: dict[str, np.ndarray], index: int) -> Iterator[str]:
    """Figures of one layout that are others where it stands among several."""
    for name in together.keys() | alone.keys():
        if name not in together or name not in alone:
            known = together[name][..., index] if name in together else alone[name][..., 0]
            if np.any(known):
                yield f"{name}: of one of both alone"
            continue
        found = np.broadcast_to(together[name], (*together[name].shape[:-1], max(together[name].shape[-1], index + 1)))
        one, other = found[..., index], alone[name][..., 0]
        off = np.abs(one - other) / np.maximum(np.abs(other), 1e-30)
        if not np.all(off <= EXACT):  # nor is there any that is no number
            yield f"{name}: {one} and {other}"


def neighbours(draw: np.random.Generator, resolved: ResolvedTraining) -> Layouts:
    """A legal layout, and some that differ from it in one key."""
    rules = replace(resolved.rules, every_way=True, host_known=True, fixed={})
    legal = legal_layouts(rules, (resolved.gpus or 1,))
    if not len(legal):
        legal = legal_layouts(resolved.rules, (resolved.gpus or 1,))
    index = int(draw.integers(len(legal)))
    row = {field: int(getattr(legal, field)[index]) for field in Layouts.__struct_fields__}
    keys = draw.choice(list(SIZES), size=3, replace=False).tolist()
    rows = [row, *({**row, key: int(draw.choice(SIZES[key]))} for key in keys)]
    return Layouts.of(**{name: [row[name] for row in rows] for name in rows[0]})


def with_a_slow_host(made: Job) -> Job:
    """The job on a host whose launches nothing hides, so that each of them shows."""
    host = made.stack.host
    slow = {name: SLOW_HOST * getattr(host, name) for name in ("forward_launch_us", "backward_launch_us")}
    return replace(made, stack=msgspec.structs.replace(made.stack, host=msgspec.structs.replace(host, **slow)))


def wrong_in(figures: Callable[[Any], dict[str, np.ndarray]], chosen: Any) -> list[str]:
    """What contradicts itself in an array of layouts, against each of them alone."""
    together = figures(chosen)
    return [
        f"{index}: {problem}"
        for index in range(len(chosen))
        for problem in contradictions(together, figures(chosen[index : index + 1]), index)
    ]


def test_layouts_beside_others_have_the_figures_that_they_have_alone(seed: int) -> None:
    draw = np.random.default_rng(seed)
    flags, resolved = random_training(draw)
    made = with_a_slow_host(resolved.job) if seed % 2 else resolved.job
    chosen = neighbours(draw, resolved)
    assert not wrong_in(partial(figures_of, made), chosen), (flags, chosen)


def answer_of(sized: TrainingEstimate) -> dict[str, Any]:
    """What reports say of one layout."""
    answer = {f"time {name}": seconds for name, seconds in sized.component_s.items()}
    answer |= {f"memory {name}": held for name, held in sized.ledger.at_peak().items()}
    return answer | {"step": sized.step_s, "run": sized.total_s, "peak": sized.peak_bytes, "fits": sized.fits}


def test_the_layout_that_is_chosen_is_the_same_written_down(seed: int) -> None:
    """Whether it was left open or asked for, a layout takes the same time and memory, and fits or does not."""
    flags, resolved = random_training(np.random.default_rng(seed))
    open_layout = size(resolved)
    written = flags | layout_flags(open_layout)
    assert answer_of(size(ask(written))) == pytest.approx(answer_of(open_layout), rel=EXACT), written


def random_service(draw: np.random.Generator) -> tuple[dict[str, Any], ResolvedService]:
    """A service that nothing is wrong with."""
    every = {
        "model": REGISTRY.names("model"),
        "gpu": GPUS,
        "serve.engine": REGISTRY.names("engine"),
        "serve.input_tokens": (128, 2000, 16_000),
        "serve.output_tokens": (64, 1000),
    }
    some = {
        "serve.weights": ("fp8", "int4", "awq"),
        "serve.kv_cache": ("fp8",),
        "serve.draft_tokens": (3,),
        "serve.adapters": (4,),
        "serve.images": (1,),
        "layout.expert_tp": (1,),
    }
    while True:
        flags = {**drawn(draw, every, 1.0), **drawn(draw, some, 0.15), "serve.concurrency": 16, "job": "inference"}
        try:
            return flags, resolve_serving(read_scenario(None, flags, {}), REGISTRY)
        except InputError:
            continue


def served_figures(job: ServingJob, works: Sequence[Work], placements: ReplicaLayouts) -> dict[str, np.ndarray]:
    """Steps of each kind of work, and what the placement holds."""
    figures = {}
    for place, work in enumerate(works):
        timed = step_time(job, placements, work)
        figures |= {f"time {place} {name}": value for name, value in timed.parts.items()}
    memory = serving_memory(job, placements, 2000.0)
    figures |= {f"memory {name}": np.broadcast_to(value, len(placements)) for name, value in memory.fixed.items()}
    held = sum(static_peak(job, placements, 4.0, 2000.0, 500.0).values())
    return figures | {"pool": memory.pool_bytes, "request": request_bytes(job, placements, 2500.0), "static": held}


def test_replicas_beside_others_have_the_figures_that_they_have_alone(seed: int) -> None:
    draw = np.random.default_rng(seed)
    flags, resolved = random_service(draw)
    job = resolved.job
    if seed % 2:
        host = msgspec.structs.replace(job.engine.host, launch_us=SLOW_HOST, graphs=())
        job = replace(job, engine=msgspec.structs.replace(job.engine, host=host))
    legal = legal_placements(job, {}, 64)
    rows = [legal[index : index + 1] for index in draw.integers(len(legal), size=3).tolist()]
    sizes = {field: [int(getattr(row, field)[0]) for row in rows] for field in ReplicaLayouts.__struct_fields__}
    for name in ("tp", "pp", "dp", "ep"):  # one that differs from the first in one size alone
        for key, values in sizes.items():
            values.append(values[0] if key != name else int(draw.choice((1, 2, 4, 8))))
    placements = ReplicaLayouts.of(**sizes)
    works = (Work(8.0, 1000.0), Work(3.0, 500.0, 1.0, 700.0, 100.0), Work(prefills=2.0, prefill_tokens=2000.0))
    assert not wrong_in(partial(served_figures, job, works), placements), (flags, placements)


def test_steps_beside_others_take_the_time_that_they_take_alone(seed: int) -> None:
    """Decode steps do not pay for the prompts of other steps in the array."""
    flags, resolved = random_service(np.random.default_rng(seed))
    host = msgspec.structs.replace(resolved.job.engine.host, launch_us=SLOW_HOST, graphs=())
    job = replace(resolved.job, engine=msgspec.structs.replace(resolved.job.engine, host=host))
    placement = legal_placements(job, {}, 64)[:1]
    columns = np.array([[8, 1000, 0, 1, 0], [3, 500, 1, 700, 0], [0, 0, 2, 2000, 0], [0, 0, 1, 900, 4000]], float).T
    together = step_time(job, placement, Work(*columns)).parts
    for index in range(columns.shape[1]):
        alone = step_time(job, placement, Work(*columns[:, index : index + 1])).parts
        assert not list(contradictions(together, alone, index)), (flags, index)


def test_the_placement_that_is_chosen_is_the_same_written_down(seed: int) -> None:
    flags, resolved = random_service(np.random.default_rng(seed))
    open_layout = size_service(resolved)
    sizes = {f"layout.{each}": int(getattr(open_layout.placement, each)[0]) for each in PLACEMENT_KEYS}
    again = size_service(resolve_serving(read_scenario(None, flags | sizes, {}), REGISTRY))
    answers = [
        (one.gpus, one.point.running, one.point.requests_per_s, one.point.ttft_s, one.point.tpot_s, one.point.request_s)
        for one in (open_layout, again)
    ]
    assert answers[1] == pytest.approx(answers[0], rel=EXACT), flags | sizes


def random_iteration(draw: np.random.Generator) -> tuple[dict[str, Any], ResolvedReinforcement]:
    """A job whose model writes what it learns from, that nothing is wrong with."""
    every = {
        "model": [name for name in REGISTRY.names("model") if REGISTRY.model(name).layers <= 48],
        "stack": ("trl", "verl", "verl-megatron", "openrlhf", "nemo-rl", "nemo-rl-megatron", "nemo-aligner"),
        "job": [name for name, kind in METHODS.items() if kind.rollout],
        "gpu": ("h100-sxm-80gb", "b200", "l40s"),
        "gpus": (2, 8, 16, 24),
        "rollout.prompts": (16, 64),
        "rollout.group": (2, 8),
        "rollout.output_tokens": (200, 1500),
    }
    while True:
        flags = {**drawn(draw, every, 1.0), "train.steps": 10, "rollout.max_output_tokens": 4096}
        try:
            resolved = resolve_reinforcement(read_scenario(None, flags, {}), REGISTRY)
            size_reinforcement(resolved)
            return flags, resolved
        except InputError:
            continue


def test_an_iteration_that_is_chosen_is_the_same_written_down(seed: int) -> None:
    flags, resolved = random_iteration(np.random.default_rng(seed))
    open_layout = size_reinforcement(resolved)
    written = flags | layout_flags(open_layout)
    again = size_reinforcement(resolve_reinforcement(read_scenario(None, written, {}), REGISTRY))
    assert answer_of(again) == pytest.approx(answer_of(open_layout), rel=EXACT), written
    assert again.iteration.peaks == pytest.approx(open_layout.iteration.peaks, rel=EXACT), written
