"""Parts of an answer: what an explanation prints of a part is what computes it, in a training run and in a service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from cases import ask
from cases import job as training_job
from cases import layouts as training_layouts
from msgspec.structs import replace
from serving_cases import asked, served
from serving_cases import job as serving_job

from xe_sizer.graph.operators import Array
from xe_sizer.laws.parts import Part
from xe_sizer.serving import memory as serving_memory
from xe_sizer.serving import step_time as serving_step
from xe_sizer.serving.job import ReplicaLayouts
from xe_sizer.serving.step_time import Work
from xe_sizer.serving.summary import serve_memory
from xe_sizer.training import evaluation, memory_parts
from xe_sizer.training import memory as training_memory
from xe_sizer.training import step_time as training_step
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.search import size
from xe_sizer.training.summary import summarise

# Every parallel group has two ranks, layers are gathered and some run again, so that most of the parts are not zero.
LAYOUTS = training_layouts(
    tp=[2, 1], cp=[2, 1], ep=[2, 1], pp=[2, 1], dp=[2, 8], zero=[1, 3], grad_accum=4, recompute=1
)
REPLICAS = ReplicaLayouts.of(tp=[2, 4], pp=[2, 1], ep=[2, 1])
MIXTURE = "mixtral-8x7b"
DRAFTED: Mapping[str, Any] = {"serve__adapters": 2, "serve__speculative": "eagle3"}


def micro_batch() -> Mapping[str, Array]:
    job = training_job(MIXTURE)
    return Evaluation(job, LAYOUTS).parts_s


def training_time() -> Mapping[str, Array]:
    return training_step.timeline(training_job(MIXTURE), LAYOUTS).components


def training_bytes() -> Mapping[str, Array]:
    return training_memory.memory_ledger(training_job(MIXTURE, kind="qlora"), LAYOUTS).components


def serving_time() -> Mapping[str, Array]:
    work = Work(decodes=7, decode_past=900, prefills=2, prefill_tokens=300)
    return serving_step.step_time(serving_job(MIXTURE, server="dell-xe9680-h100"), REPLICAS, work).parts


def serving_bytes() -> Mapping[str, Array]:
    job = serving_job(MIXTURE, server="dell-xe9680-h100", **DRAFTED)
    return serving_memory.serving_memory(job, REPLICAS).fixed


def batch_bytes() -> Mapping[str, Array]:
    job = serving_job(MIXTURE, server="dell-xe9680-h100", serve__engine="hf-transformers")
    return serving_memory.static_peak(job, REPLICAS, 4, 512, 64)


@dataclass(frozen=True)
class Registry:
    """The tuple of parts that a function of a module adds up; `follows` is computed from what the others come to."""

    module: ModuleType
    name: str
    answer: Callable[[], Mapping[str, Array]]
    follows: str | None = None

    @property
    def parts(self) -> tuple[Part[Any], ...]:
        parts: tuple[Part[Any], ...] = getattr(self.module, self.name)
        return parts


REGISTRIES = [
    Registry(evaluation, "MICRO_BATCH_PARTS", micro_batch),
    Registry(training_step, "STEP_PARTS", training_time),
    Registry(training_memory, "TENSOR_PARTS", training_bytes, "allocator slack"),
    Registry(training_memory, "OVERHEAD_PARTS", training_bytes),
    Registry(serving_step, "DEVICE_PARTS", serving_time, "host"),
    Registry(serving_memory, "FIXED_PARTS", serving_bytes),
    Registry(serving_memory, "STEP_TENSORS", batch_bytes),
]
IDS = [f"{registry.module.__name__.removeprefix('xe_sizer.')}.{registry.name}" for registry in REGISTRIES]
LISTS = [
    (training_step, "STEP_PARTS"),
    (memory_parts, "MEMORY_PARTS"),
    (serving_step, "STEP_PARTS"),
    (serving_memory, "ALLOCATED_PARTS"),
    (serving_memory, "SHORT_PARTS"),
    (serving_memory, "BATCH_PARTS"),
]


@pytest.mark.parametrize("registry", REGISTRIES, ids=IDS)
def test_a_part_is_what_its_own_function_computes(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """One replaced function changes the part of its name, what follows from the sum of all parts, and nothing else."""
    before = registry.answer()
    for index, part in enumerate(registry.parts):
        other = replace(part, function=lambda inputs, part=part: part(inputs) + 1024.0, applies=lambda _: True)
        replaced = (*registry.parts[:index], other, *registry.parts[index + 1 :])
        with monkeypatch.context() as patch:
            patch.setattr(registry.module, registry.name, replaced)
            after = registry.answer()
        assert list(after) == list(before)
        np.testing.assert_allclose(*np.broadcast_arrays(after[part.name], before[part.name] + 1024.0))
        changed = {name for name in before if not np.array_equal(after[name], before[name])}
        assert part.name in changed
        assert changed <= {part.name, registry.follows}


@pytest.mark.parametrize("registry", REGISTRIES, ids=IDS)
def test_an_inserted_part_moves_no_other(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    before, parts = registry.answer(), registry.parts
    nothing = replace(parts[0], name="another", function=lambda inputs: 0.0 * parts[0](inputs))
    for index in range(len(parts) + 1):
        with monkeypatch.context() as patch:
            patch.setattr(registry.module, registry.name, (*parts[:index], nothing, *parts[index:]))
            after = dict(registry.answer())
        assert not np.any(after.pop("another"))
        assert list(after) == list(before)
        assert all(np.array_equal(after[name], before[name]) for name in before)


@pytest.mark.parametrize(("module", "name"), LISTS)
def test_every_row_says_what_it_is(module: ModuleType, name: str) -> None:
    parts: tuple[Part[Any], ...] = getattr(module, name)
    assert len({part.name for part in parts}) == len(parts)
    assert all(part.name and part.formula and part.source for part in parts)


@pytest.mark.parametrize("module", [evaluation, training_step, memory_parts, serving_step, serving_memory])
def test_no_part_stands_outside_of_the_registries(module: ModuleType) -> None:
    listed = {id(part) for lists, name in LISTS for part in getattr(lists, name)}
    listed |= {id(part) for part in evaluation.MICRO_BATCH_PARTS}
    listed |= {id(part) for parts in serving_memory.ALONE_PARTS.values() for part in parts}
    outside = [name for name, value in vars(module).items() if isinstance(value, Part) and id(value) not in listed]
    assert outside == []


@pytest.mark.parametrize("kind", ["sft", "lora", "qlora"])
def test_a_training_answer_is_explained_by_the_registries(kind: str) -> None:
    answer = summarise(size(ask({"model": "llama-2-7b", "job": kind, "gpus": 8, "train.steps": 10})))
    for components, parts in (
        (answer.time.components, training_step.STEP_PARTS),
        (answer.memory.components, memory_parts.MEMORY_PARTS),
    ):
        rows = [(part.name, part.formula, part.source) for part in parts]
        explained = [(each.name, each.formula, each.source) for each in components]
        assert [row for row in rows if row in explained] == explained


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        ({"serve__concurrency": 8, **DRAFTED}, serving_memory.ALLOCATED_PARTS),
        (
            {"model": "llama-3.1-405b", "gpus": 1, "serve__concurrency": 1, **DRAFTED},
            serving_memory.SHORT_PARTS,
        ),
        (
            {"serve__engine": "hf-transformers", "serve__batch": 4, "serve__draft_model": "llama-3.2-1b"},
            serving_memory.BATCH_PARTS,
        ),
    ],
)
def test_the_memory_of_a_service_is_explained_by_its_registry(
    flags: dict[str, Any], parts: tuple[Part[Any], ...]
) -> None:
    ledger = serve_memory(served(**flags))
    assert [(part.name, part.formula, part.source) for part in parts] == [
        (each.name, each.formula, each.source) for each in ledger.components
    ]


def test_the_pool_is_what_the_engine_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GiB that another part takes more is a GiB less of the pool, and changes no further part."""
    job, one = asked(serve__concurrency=8, **DRAFTED).job, ReplicaLayouts.of()
    before = serving_memory.serving_memory(job, one)
    for index, part in enumerate(serving_memory.FIXED_PARTS):
        larger = replace(part, function=lambda held, part=part: part(held) + 1024.0**3)
        fixed = (*serving_memory.FIXED_PARTS[:index], larger, *serving_memory.FIXED_PARTS[index + 1 :])
        with monkeypatch.context() as patch:
            patch.setattr(serving_memory, "FIXED_PARTS", fixed)
            after = serving_memory.serving_memory(job, one)
        assert after.pool_bytes[0] == pytest.approx(before.pool_bytes[0] - 1024.0**3, abs=1)
        assert [name for name in before.fixed if after.fixed[name][0] != before.fixed[name][0]] == [part.name]


def test_a_part_that_a_job_cannot_have_is_zero_where_it_is_computed_all_the_same() -> None:
    """What `applies` leaves out would come to nothing: a full fine-tune casts, gathers and dequantises nothing here."""
    made, chosen = training_job(MIXTURE, stack="megatron-lm"), training_layouts(dp=8, zero=1)
    tensors = Evaluation(made, chosen)
    left_out = [part for part in memory_parts.TENSOR_PARTS if not part.applies(tensors)]
    assert [part.name for part in left_out] == [
        "narrow copies of weights", "frozen copies", "cast weights", "gathered layers", "weights kept whole",
        "dequantised layer", "dequantised weights", "inputs held by FSDP", "image activations", "generator activations",
    ]  # fmt: skip
    assert not any(np.any(part(tensors)) for part in left_out)


def test_the_ledger_of_possible_layouts_is_that_of_all() -> None:
    made = training_job("llama-2-7b", kind="sft")
    every = training_layouts(tp=[1, 2, 4, 8] * 2, dp=[8, 4, 2, 1] * 2, zero=[0] * 4 + [1] * 4)
    found = training_memory.possible_of(Evaluation(made, every), 0.0)
    assert found is not None
    possible = found.index
    whole = training_memory.memory_ledger(made, every)
    fitting = np.flatnonzero(training_memory.fits(whole, made))
    assert 0 < possible.size < len(every)
    assert set(fitting) <= set(possible.tolist())
    np.testing.assert_array_equal(found.ledger.peak_bytes, whole.peak_bytes[possible])
