"""What DeepSpeed's settings of ZeRO-3 do to memory and time, as its coordinator has it; against arithmetic."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from xe_sizer.profiles.catalogue import Registry
from xe_sizer.scenario.read import read_scenario
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.job import OWN, Gathering, Job
from xe_sizer.training.layout import Layouts
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.memory_parts import MOMENTS
from xe_sizer.training.resolve import resolve
from xe_sizer.training.step_time import timeline

# Of llama-2-7b: the largest matrix of a layer, one of attention, a norm.
LARGEST, SQUARE, NORM, HIDDEN = 11008 * 4096, 4096**2, 4096, 4096
SIXTEEN_BIT = 2
AHEAD = ("end of forward", "loss", "backward of the last layer", "backward of the first layer")


def job(**further: Any) -> Job:
    flags = {
        "model": "llama-2-7b", "gpu": "a100-sxm-80gb", "gpus": 8, "stack": "hf-trainer", "train.backend": "deepspeed",
        "job": "sft", "train.seq_len": 1024, "train.global_batch": 32, "layout.zero": 3,
    }  # fmt: skip
    return resolve(read_scenario(None, flags | further, {}), Registry()).job


def told(made: Job, **settings: float) -> Job:
    return replace(made, gathering=replace(OWN, **settings))


def sharded(**sizes: Any) -> Layouts:
    none = {"offload": 0, "sequence_parallel": 0, "schedule": 0, "zero_group": 0, "recompute": 0}
    layout = {"dp": 8, "zero": 3, "grad_accum": 4}
    return Layouts.of(**dict.fromkeys(Layouts.__struct_fields__, 1) | none | layout | sizes)


def part(made: Job, layouts: Layouts, name: str) -> dict[str, float]:
    """Bytes of a part of memory at each moment."""
    held = np.broadcast_to(memory_ledger(made, layouts).components[name], (2, len(MOMENTS), len(layouts)))
    return dict(zip(MOMENTS, held[0, :, 0].tolist(), strict=True))


def differs(made: Job, other: Job, layouts: Layouts, name: str = "gathered layers") -> dict[str, float]:
    more, less = part(made, layouts, name), part(other, layouts, name)
    return {moment: more[moment] - less[moment] for moment in MOMENTS}


def exposed_s(made: Job, layouts: Layouts) -> float:
    return float(timeline(made, layouts).components["data-parallel communication"][0])


def test_deepspeed_s_own_values_change_nothing() -> None:
    """Written out or not, to the last bit."""
    asked = {
        "layout.prefetch_elements": 5e7, "layout.live_elements": 1e9, "layout.reuse_elements": 1e9,
        "layout.persistent_elements": 1e5,
    }  # fmt: skip
    unasked, written = job(), job(**asked)
    assert written.gathering == OWN
    every = sharded(micro_batch=2)
    assert memory_ledger(unasked, every).peak_bytes.tolist() == memory_ledger(written, every).peak_bytes.tolist()
    assert timeline(unasked, every).step_s.tolist() == timeline(written, every).step_s.tolist()
    assert "weights kept whole" not in memory_ledger(written, every).at_peak()


def test_a_scenario_says_them() -> None:
    asked = {
        "layout.prefetch_elements": 0, "layout.live_elements": 2e9, "layout.reuse_elements": 3e8,
        "layout.persistent_elements": 1e6,
    }  # fmt: skip
    assert job(**asked).gathering == Gathering(0.0, 2e9, 3e8, 1e6)


@pytest.mark.parametrize(
    ("settings", "elements"),
    [
        ({"ahead": 3e8}, 2.5e8),
        ({"ahead": 0.0}, -5e7),
        ({"live": 0.0}, -5e7),
        ({"live": LARGEST + 2e7}, -3e7),
        ({"live": 9e9}, 0.0),
        ({"ahead": 3e8, "live": LARGEST + 1e8}, 5e7),
    ],
)
def test_the_prefetch_is_as_large_as_both_limits_let_it(settings: dict[str, float], elements: float) -> None:
    """min(prefetch bucket, max live - the module that runs): fetch_sub_module. It is there as long as layers run."""
    made, layouts = job(), sharded()
    more = differs(told(made, **settings), made, layouts)
    assert [more[moment] for moment in AHEAD] == pytest.approx([SIXTEEN_BIT * elements] * 4)
    assert more["end of backward"] == more["optimizer step"] == 0.0


@pytest.mark.parametrize(("recompute", "passes"), [(0, 2.0), (2, 3.0)])
def test_what_is_soon_used_again_stays_between_the_passes(recompute: int, passes: float) -> None:
    """d elements before the end of the forward are needed again after 2 d, or 3 d where layers run once more."""
    made, layouts = job(), sharded(recompute=recompute)
    more = differs(told(made, reuse=4e9), made, layouts)
    assert more["loss"] == pytest.approx(SIXTEEN_BIT * (4e9 - 1e9) / passes)
    assert more["end of forward"] == more["backward of the last layer"] == more["loss"]
    assert more["backward of the first layer"] == 0.0
    less = differs(told(made, reuse=0.0), made, layouts)
    assert less["loss"] < 0.0


def test_no_more_is_gathered_than_there_is_and_no_less_than_runs() -> None:
    made, layouts = job(), sharded()
    everything = Evaluation(made, layouts).held.base[0, 0]
    most = part(told(made, reuse=1e12, ahead=1e12, live=1e13), layouts, "gathered layers")
    assert most["loss"] == SIXTEEN_BIT * everything
    least = part(told(made, reuse=0.0, ahead=0.0), layouts, "gathered layers")
    assert least["loss"] == SIXTEEN_BIT * (2 * 32000 * HIDDEN + HIDDEN + LARGEST)


def test_tensors_up_to_the_threshold_are_whole_on_every_rank() -> None:
    """Of the layers' matrices those of attention have 16.8 M elements, those of the MLP 45 M."""
    made, layouts = job(), sharded()
    whole = part(told(made, whole=2e7), layouts, "weights kept whole")
    assert whole["loss"] == SIXTEEN_BIT * 32 * 4 * SQUARE
    assert whole["end of backward"] == whole["loss"]
    assert whole["optimizer step"] == 0.0  # an update begins with everything sharded
    assert part(told(made, whole=SQUARE - 1), layouts, "weights kept whole")["loss"] == 0.0
    assert part(told(made, whole=0.0), layouts, "weights kept whole")["loss"] == 0.0


def test_a_rank_s_part_of_a_tensor_is_what_counts() -> None:
    made, layouts = job(), sharded(tp=2, dp=4)
    assert part(told(made, whole=SQUARE / 2), layouts, "weights kept whole")["loss"] == SIXTEEN_BIT * 32 * 2 * SQUARE


def test_adapters_above_deepspeed_s_own_threshold_are_whole_too() -> None:
    """A and B of rank 64 on a square matrix have 262,144 elements each."""
    made, layouts = job(job="lora", **{"lora.rank": 64, "lora.targets": ["q", "v"]}), sharded()
    each = made.stack.states.adapter_weight_bytes
    assert part(told(made, whole=262_144), layouts, "weights kept whole")["loss"] == each * 32 * 2 * 2 * 64 * HIDDEN
    assert part(told(made, whole=262_143), layouts, "weights kept whole")["loss"] == 0.0


def test_gathers_hide_only_where_something_is_gathered_ahead() -> None:
    made, layouts = job(), sharded(micro_batch=2)
    usual = exposed_s(made, layouts)
    assert exposed_s(told(made, ahead=1e9), layouts) == usual
    without = exposed_s(told(made, ahead=0.0), layouts)
    assert without > usual
    assert exposed_s(told(made, live=0.0), layouts) == without


def test_what_stays_or_is_whole_is_not_gathered_again() -> None:
    made, layouts = job(), sharded(micro_batch=2)
    bare = replace(made, stack=_without_overlap(made))
    usual = exposed_s(bare, layouts)
    kept = exposed_s(told(bare, reuse=1e12), layouts)
    whole = exposed_s(told(bare, whole=2e7), layouts)
    assert 0.6 * usual < kept < 0.75 * usual  # of a gather in each pass and a reduction the second
    assert whole < usual
    once, often = sharded(micro_batch=2, grad_accum=1), sharded(micro_batch=2, grad_accum=8)
    saved = [1.0 - exposed_s(told(bare, whole=2e7), each) / exposed_s(bare, each) for each in (once, often)]
    assert saved[0] < saved[1]  # it is gathered once a step, not in every micro-batch


def _without_overlap(made: Job) -> Any:
    overlap = msgspec.structs.replace(made.stack.overlap, sharding=0.0)
    return msgspec.structs.replace(made.stack, overlap=overlap)


@pytest.mark.parametrize("zero", [0, 1, 2])
def test_they_mean_nothing_below_zero_3(zero: int) -> None:
    made, layouts = job(), sharded(zero=zero)
    other = told(made, ahead=0.0, reuse=0.0, whole=1e9)
    assert memory_ledger(other, layouts).peak_bytes[0] == memory_ledger(made, layouts).peak_bytes[0]
    assert timeline(other, layouts).step_s[0] == timeline(made, layouts).step_s[0]


def test_an_array_of_layouts_is_each_of_them() -> None:
    made = told(job(), ahead=2e8, reuse=3e9, whole=2e7)
    every = sharded(micro_batch=np.array([1, 2, 4]))
    together = Evaluation(made, every).gathered
    for index in range(3):
        one = every[index : index + 1]
        alone = Evaluation(made, one).gathered
        assert together.kept[:, index].tolist() == alone.kept[:, 0].tolist()
        assert together.whole[:, index].tolist() == alone.whole[:, 0].tolist()
    steps = timeline(made, every).step_s
    assert steps.tolist() == [timeline(made, every[i : i + 1]).step_s[0] for i in range(3)]
