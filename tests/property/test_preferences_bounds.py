"""What holds of preference jobs whatever the layout: never less than fine-tuning on the same sequences."""

from __future__ import annotations

import numpy as np
import pytest
from cases import job, layouts
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.job import Job
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.run import Run, run_time_s
from xe_sizer.training.step_time import timeline

FLAGS = {"train__seq_len": 1024, "train__padding": "to-seq-len", "data__samples": 4000, "train__global_batch": 32}
POWER = st.sampled_from([1, 2, 4])
LAYOUT = st.fixed_dictionaries({
    "tp": POWER, "pp": POWER, "dp": st.sampled_from([1, 2, 8]), "zero": st.sampled_from([0, 1, 2, 3]),
    "micro_batch": st.integers(1, 4), "grad_accum": st.integers(1, 9), "recompute": st.sampled_from([0, 2]),
    "offload": st.sampled_from([0, 1, 2]),
})  # fmt: skip
STACKS = ("generic", "hf-trainer", "trl", "llama-factory", "nemo", "deepspeed")
ADAPTERS = st.sampled_from([{}, {"adapter": "lora"}, {"adapter": "qlora"}])


def made(kind: str, stack: str, flags: dict[str, object]) -> Job:
    return job("llama-2-7b", kind, stack, **FLAGS, **flags)


@settings(max_examples=25, deadline=None)
@given(sizes=LAYOUT, stack=st.sampled_from(STACKS), adapter=ADAPTERS)
def test_pairs_are_never_below_fine_tuning_on_the_same_sequences(
    sizes: dict[str, int], stack: str, adapter: dict[str, object]
) -> None:
    """Twice the samples of a micro-batch are its pairs; the loss of pairs has more bytes than any full one."""
    dpo, sft = made("dpo", stack, adapter), made("sft", stack, adapter)
    same = {**sizes, "micro_batch": 2 * sizes["micro_batch"]}
    assert timeline(dpo, layouts(**sizes)).step_s[0] >= timeline(sft, layouts(**same)).step_s[0]
    peaks = [memory_ledger(one, layouts(**each)).peak_bytes[0] for one, each in ((dpo, sizes), (sft, same))]
    assert peaks[0] >= peaks[1]


@settings(max_examples=25, deadline=None)
@given(sizes=LAYOUT, stack=st.sampled_from(STACKS), adapter=ADAPTERS, copies=st.integers(1, 3))
def test_more_reference_models_never_take_less(
    sizes: dict[str, int], stack: str, adapter: dict[str, object], copies: int
) -> None:
    one = made("dpo", stack, {**adapter, "train.reference": "copy"})
    (reference,) = one.method.frozen
    more = replace(one, method=replace(one.method, frozen=(replace(reference, copies=copies), reference)))
    chosen = layouts(**sizes)
    fewer, several = (memory_ledger(each, chosen) for each in (one, more))
    assert several.peak_bytes[0] >= fewer.peak_bytes[0]
    assert several.host_bytes[0] >= fewer.host_bytes[0]
    assert timeline(more, chosen).step_s[0] >= timeline(one, chosen).step_s[0]


@settings(max_examples=25, deadline=None)
@given(
    sizes=LAYOUT, stack=st.sampled_from(STACKS), kind=st.sampled_from(["dpo", "kto"]),
    epochs=st.sampled_from([0.5, 1, 3]),
)  # fmt: skip
def test_log_probabilities_beforehand_are_never_slower(
    sizes: dict[str, int], stack: str, kind: str, epochs: float
) -> None:
    every, once = (
        made(kind, stack, {"train.reference": where, "train.epochs": epochs}) for where in ("copy", "precomputed")
    )
    chosen = layouts(**sizes)
    times = [run_time_s(Run(Evaluation(each, chosen), timeline(each, chosen).step_s))[0] for each in (every, once)]
    assert times[1] <= times[0] * (1 + 1e-12)
    assert memory_ledger(once, chosen).peak_bytes[0] <= memory_ledger(every, chosen).peak_bytes[0]


@pytest.mark.parametrize("kind", ["dpo", "orpo", "simpo", "reward"])
def test_layouts_together_are_as_each_alone(kind: str) -> None:
    """As many layouts at once as one by one: a search prices them together."""
    chosen = layouts(micro_batch=np.arange(1, 5))
    together = memory_ledger(made(kind, "trl", {}), chosen).peak_bytes
    alone = [memory_ledger(made(kind, "trl", {}), layouts(micro_batch=size)).peak_bytes[0] for size in range(1, 5)]
    assert together.tolist() == pytest.approx(alone, rel=1e-12)
