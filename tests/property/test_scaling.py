"""How memory and time must move with the layout, the data and the model; docstrings say where physics limits it."""

from __future__ import annotations

import numpy as np
import pytest
from cases import GPT, ask, job, layouts
from msgspec.structs import replace
from numpy.typing import NDArray

from xe_sizer.graph.weights import count_parameters
from xe_sizer.training.job import Job
from xe_sizer.training.layout import Layouts
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.memory_parts import MOMENTS
from xe_sizer.training.step_time import timeline

MODELS = (
    "llama-2-7b", "llama-2-70b", "mixtral-8x7b", "deepseek-v2-lite", "gemma-2-9b", "gpt2", "falcon-7b", "bloom-560m",
    "qwen2.5-0.5b", "gpt-oss-20b",
)  # fmt: skip
STACKS = ("generic", "hf-trainer", "deepspeed", "megatron-lm")
KINDS = ("pretrain", "lora", "qlora", "p-tuning")
# Every method of every model, and every stack of every method.
EVERY_JOB = [
    (model, kind, STACKS[(number + place) % len(STACKS)])
    for number, model in enumerate(MODELS)
    for place, kind in enumerate(KINDS)
]
Array = NDArray[np.float64]


@pytest.fixture(scope="module", params=EVERY_JOB, ids="-".join)
def made(request: pytest.FixtureRequest) -> Job:
    return job(*request.param, train__seq_len=1024)


def falls(values: Array) -> bool:
    """Up to rounding."""
    return bool(np.all(np.diff(values, axis=0) <= 1e-12 * values[:-1]))


def rises(values: Array) -> bool:
    return falls(values[::-1])


def tensors(made: Job, chosen: Layouts) -> Array:
    return memory_ledger(made, chosen).tensor_peak_bytes


def dividing(total: int) -> list[int]:
    return [size for size in (1, 2, 4, 8) if total % size == 0]


def test_tensors_never_grow_with_tensor_parallelism(made: Job) -> None:
    """Live tensors; the whole process also pays the buffers of one more communicator."""
    for mode in (0, 1, 2):
        for parallel in (0, 1):
            sizes = dividing(made.model.heads)
            split = [parallel * (tp > 1) for tp in sizes]
            assert falls(tensors(made, layouts(tp=sizes, grad_accum=8, recompute=mode, sequence_parallel=split)))


def test_more_tensor_ranks_at_equal_communicators_need_less_memory(made: Job) -> None:
    sizes = dividing(made.model.heads)[1:]
    if len(sizes) > 1:
        assert falls(memory_ledger(made, layouts(tp=sizes, grad_accum=8)).peak_bytes)


def test_tensors_never_grow_with_pipeline_stages(made: Job) -> None:
    """1F1B, stages of equal layers, at least as many micro-batches as stages.

    The first stage then holds as many activations as without a pipeline and fewer states.
    """
    for mode in (0, 1, 2):
        assert falls(tensors(made, layouts(pp=dividing(made.model.layers), grad_accum=16, recompute=mode)))


def test_memory_never_grows_with_the_zero_stage(made: Job) -> None:
    """For these models. Of two layers, or where the table is half of all, what ZeRO-3 gathers is all there is."""
    table = made.model.vocab * made.model.hidden / count_parameters(made.model).total
    chosen = layouts(dp=8, zero=[0, 1, 2, 3] if table < 0.4 else [0, 1, 2], grad_accum=8)
    assert falls(tensors(made, chosen))
    assert falls(memory_ledger(made, chosen).peak_bytes)


def test_more_sharding_ranks_need_less_memory(made: Job) -> None:
    for zero in (1, 2, 3):
        assert falls(memory_ledger(made, layouts(dp=[2, 4, 8, 64], zero=zero, grad_accum=8)).peak_bytes)


def test_memory_grows_with_the_micro_batch(made: Job) -> None:
    """At the same number of micro-batches: a single one lets some stacks free gradients before the next step."""
    chosen = layouts(micro_batch=[1, 2, 4, 8], grad_accum=4)
    kept = np.broadcast_to(memory_ledger(made, chosen).components["activations"], (2, len(MOMENTS), 4)).max(axis=(0, 1))
    assert np.all(np.diff(kept) > 0)
    assert rises(tensors(made, chosen))


def test_recomputation_trades_memory_for_time(made: Job) -> None:
    chosen = layouts(recompute=[0, 1, 2], grad_accum=4)
    kept = np.broadcast_to(memory_ledger(made, chosen).components["activations"], (2, len(MOMENTS), 3)).max(axis=(0, 1))
    assert falls(kept)
    assert kept[2] < kept[0]
    assert falls(tensors(made, chosen))
    assert rises(timeline(made, chosen).step_s)


def test_longer_sequences_need_more_memory_and_time(made: Job) -> None:
    """The peak may stand at the optimizer step, which knows no sequences, and launches may outlast short kernels."""
    chosen = layouts(tp=[1, 2], grad_accum=4)
    lengths = (256, 1024, 4096)
    ledgers = [memory_ledger(made, chosen, np.full(2, float(length))) for length in lengths]
    assert rises(np.array([ledger.peak_bytes for ledger in ledgers]))
    assert np.all(np.diff([ledger.total_bytes[:, 0].max(axis=0) for ledger in ledgers], axis=0) > 0)
    fixed = [replace(made, seq_len=length, padding="to-seq-len") for length in lengths]
    times = np.array([timeline(each, chosen).step_s for each in fixed])
    assert rises(times)
    assert np.all(times[2] > times[0])


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_more_replicas_are_never_slower(made: Job, zero: int) -> None:
    """At a fixed global batch of 64 micro-batches, from two replicas on, up to four nodes.

    One replica exchanges nothing, and with ZeRO-3 the gathers of large experts that see few tokens cost more than
    half of the compute.
    """
    replicas = np.array([2, 4, 8, 16, 32])
    assert falls(timeline(made, layouts(dp=replicas, zero=zero, grad_accum=64 // replicas)).step_s)


def test_more_micro_batches_take_longer(made: Job) -> None:
    for sizes in ({"dp": 8, "zero": 1}, {"dp": 8, "zero": 3}, {"pp": dividing(made.model.layers)[-1]}):
        assert np.all(np.diff(timeline(made, layouts(grad_accum=[1, 2, 4, 8], **sizes)).step_s) > 0)


def test_interleaving_shrinks_the_bubble_and_holds_more(made: Job) -> None:
    pp = max(size for size in dividing(made.model.layers) if size <= 2)
    if pp == 1 or made.model.layers % (4 * pp):
        pytest.skip("layers that do not divide")
    chosen = layouts(pp=pp, vpp=[1, 2, 4], grad_accum=4 * pp)
    assert np.all(np.diff(timeline(made, chosen).components["pipeline bubble"]) < 0)
    # The first stage holds most with two chunks; the last one the more the finer it is cut.
    last = np.broadcast_to(memory_ledger(made, chosen).components["activations"], (2, len(MOMENTS), 3))[1, 0]
    assert rises(last)


def totals(flags: dict[str, object]) -> tuple[int, float]:
    resolved = ask({"model": "gpt2", "job": "sft", "data.samples": 1280, "data.mean_tokens": 200, **flags})
    step_s = float(timeline(resolved.job, layouts(dp=8, zero=1, grad_accum=16)).step_s[0])
    return resolved.job.steps, step_s * resolved.job.steps


def test_twice_the_epochs_or_steps_is_twice_the_time() -> None:
    once, twice = totals({"train.epochs": 3}), totals({"train.epochs": 6})
    assert (once[0], twice[0]) == (30, 60)
    assert twice[1] == pytest.approx(2 * once[1], rel=1e-12)
    assert totals({"train.steps": 400})[1] == pytest.approx(2 * totals({"train.steps": 200})[1], rel=1e-12)


def test_more_samples_take_more_time() -> None:
    times = [totals({"train.epochs": 1, "data.samples": samples})[1] for samples in (1280, 2560, 12800)]
    assert np.all(np.diff(times) > 0)


@pytest.mark.parametrize("kind", ["pretrain", "lora"])
def test_a_layer_more_adds_one_layer(kind: str) -> None:
    """Parameters exactly; weights, activations and kernels by the same amount for each."""
    three = [replace(job(kind=kind, train__seq_len=512), model=replace(GPT, layers=layers)) for layers in (4, 5, 6)]
    assert {count_parameters(one.model).layer_dense for one in three} == {12 * 1024**2 + 13 * 1024}
    totals = [count_parameters(one.model).total for one in three]
    assert np.diff(totals).tolist() == [12 * 1024**2 + 13 * 1024] * 2
    ledgers = [memory_ledger(one, layouts(grad_accum=4)) for one in three]
    for name in ("weights", "activations"):
        sizes = [float(np.max(made.components[name])) for made in ledgers]
        assert sizes[2] - sizes[1] == pytest.approx(sizes[1] - sizes[0], rel=1e-9)
        assert sizes[1] > sizes[0]
    assert np.all(np.diff([made.peak_bytes[0] for made in ledgers]) > 0)
    forward = [timeline(one, layouts(grad_accum=4)).components["forward"][0] for one in three]
    assert forward[2] - forward[1] == pytest.approx(forward[1] - forward[0], rel=1e-9)
    assert forward[1] > forward[0]


def test_zero_3_of_a_two_layer_model_gathers_all_of_it() -> None:
    """The limit of the rule above: with two layers ZeRO-3 holds the whole model while it computes."""
    small = replace(job("gpt2", "pretrain", "deepspeed", train__seq_len=128), model=replace(GPT, layers=2))
    made = memory_ledger(small, layouts(dp=8, zero=3, grad_accum=2))
    gathered = float(np.max(made.components["gathered layers"]))
    assert gathered >= 2.0 * count_parameters(small.model).total
