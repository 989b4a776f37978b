"""Gradient accumulation in a scenario: what it makes of the global batch, of the search and of its answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cases import REGISTRY, ask

from xe_sizer.errors import InputError
from xe_sizer.profiles.catalogue import load_stack
from xe_sizer.scenario.read import Change, read_scenario
from xe_sizer.studies.plan import plan
from xe_sizer.training.advice import with_the_same_batch
from xe_sizer.training.search import size
from xe_sizer.training.search_space import legal_layouts, removed_by_rules
from xe_sizer.training.workload import default_global_batch

BASE: dict[str, object] = {"model": "llama-3.2-1b", "job": "sft", "train.seq_len": 2048, "train.micro_batch": 2}
SHARDED = {**BASE, "stack": "hf-bf16", "gpus": 8}
OPEN = {**BASE, "stack": "nemo"}


def layout_of(flags: dict[str, object]) -> dict[str, int]:
    layouts = size(ask(flags)).layouts
    return {name: int(getattr(layouts, name)[0]) for name in ("tp", "dp", "micro_batch", "grad_accum")}


@pytest.mark.parametrize(
    ("given", "batch"),
    [
        ({"train.grad_accum": 4}, 64),
        ({"train.grad_accum": 4, "gpus": 6}, 48),
        ({"train.grad_accum": 4, "layout.dp": 4, "layout.tp": 2, "stack": "nemo"}, 32),
        ({"train.grad_accum": 4, "layout.tp": 2, "layout.pp": 1, "layout.cp": 1, "stack": "nemo"}, 32),
    ],
)
def test_the_global_batch_is_micro_batch_times_accumulation_times_replicas(
    given: dict[str, object], batch: int
) -> None:
    resolved = ask({**SHARDED, **given})
    assert resolved.job.global_batch == resolved.values.train.global_batch == batch
    assert resolved.origins["train.global_batch"] == "flag"
    assert resolved.at_replicas is None


def test_the_same_batch_written_either_way_is_the_same_answer() -> None:
    accumulated, whole = (
        size(ask({**SHARDED, **given})) for given in ({"train.grad_accum": 4}, {"train.global_batch": 64})
    )
    assert (accumulated.step_s, accumulated.peak_bytes, accumulated.minimum) == (
        whole.step_s, whole.peak_bytes, whole.minimum,
    )  # fmt: skip


def test_accumulation_and_global_batch_leave_one_micro_batch() -> None:
    given = {name: value for name, value in SHARDED.items() if name != "train.micro_batch"}
    found = layout_of({**given, "train.global_batch": 96, "train.grad_accum": 3})
    assert found == {"tp": 1, "dp": 8, "micro_batch": 4, "grad_accum": 3}


def test_accumulation_and_global_batch_leave_one_number_of_replicas() -> None:
    found = layout_of({**OPEN, "gpus": 8, "train.global_batch": 32, "train.grad_accum": 4})
    assert found == {"tp": 2, "dp": 4, "micro_batch": 2, "grad_accum": 4}


@pytest.mark.parametrize("accum", [1, 3, 16])
def test_accumulation_alone_keeps_the_usual_batch_as_near_as_it_goes(accum: int) -> None:
    given = {name: value for name, value in SHARDED.items() if name != "train.micro_batch"}
    sized = size(ask({**given, "train.grad_accum": accum}))
    assert int(sized.layouts.grad_accum[0]) == accum
    assert 128 <= sized.resolved.job.global_batch < 256


def test_without_it_the_batch_is_the_usual_one() -> None:
    assert ask(SHARDED).job.global_batch == 128
    assert "grad_accum" not in ask(SHARDED).fixed


@pytest.mark.parametrize(
    ("stack", "gpus", "given", "batch"),
    [
        ("trl", 1, {}, 8),
        ("trl", 4, {}, 32),
        ("trl", 3, {}, 3 * 8),
        ("trl", None, {}, 128),
        ("trl", 5, {"train.micro_batch": 3}, 15 * 4),
        ("hf-trainer", 8, {}, 128),
        ("hf-trainer", 6, {"train.micro_batch": 2}, 6 * 32),
        ("hf-trainer", 4, {"train.micro_batch": 5, "layout.dp": 4}, 7 * 5 * 4),
        ("hf-trainer", 7, {"train.grad_accum": 3}, 3 * 7 * 8),
    ],
)
def test_a_batch_that_nobody_gives_can_be_split(
    stack: str, gpus: int | None, given: dict[str, object], batch: int
) -> None:
    """128 sequences, or TRL's 8 for each GPU (transformers: per_device_train_batch_size 8), and what it takes to split.

    Powers of two of the least that micro-batches, steps and the odd factor of the GPUs share out evenly; multiples of
    it where replicas are given.
    """
    scenario = read_scenario(None, {"model": "llama-3.2-1b", "job": "sft", **given}, {})
    assert default_global_batch(scenario, gpus, load_stack(stack)) == batch


def test_every_layout_of_an_open_search_has_its_own_batch() -> None:
    resolved = ask({**OPEN, "gpus": 8, "train.grad_accum": 4})
    layouts = legal_layouts(resolved.rules, (8,))
    assert set(layouts.grad_accum.tolist()) == {4}
    assert set(layouts.micro_batch.tolist()) == {2}
    assert set(layouts.dp.tolist()) >= {1, 2, 4, 8}
    sized = size(resolved)
    assert sized.resolved.job.global_batch == int(sized.layouts.samples[0]) == 8 * int(sized.layouts.dp[0])


def test_a_layout_is_chosen_by_what_it_trains_on_in_a_second_not_by_its_step() -> None:
    """One replica over all GPUs would have the shortest step, of an eighth of the samples."""
    resolved = ask({**OPEN, "gpus": 8, "train.grad_accum": 4})
    chosen = size(resolved)
    alone = size(ask({**OPEN, "gpus": 8, "train.grad_accum": 4, "layout.tp": 8, "layout.cp": 1, "layout.pp": 1}))
    assert alone.step_s < chosen.step_s
    assert alone.samples_per_s < chosen.samples_per_s


def test_epochs_take_fewer_steps_where_more_replicas_read() -> None:
    given = {**OPEN, "train.grad_accum": 4, "data.samples": 6400, "train.epochs": 1, "limits.max_gpus": 16}
    result = plan(read_scenario(None, {**given, "server": "dell-xe9680-h100"}, {}), REGISTRY)
    for one in result.candidates:
        batch = one.layout.micro_batch * one.layout.grad_accum * one.layout.dp
        assert one.layout.grad_accum == 4
        assert one.total_s.expected == pytest.approx(one.step_s * np.ceil(6400 / batch))
        assert f"--global-batch {batch}" in one.command
        assert "--grad-accum" not in one.command
    assert {one.gpus for one in result.candidates} == {8, 16}
    assert "the global batch of a plan is 8 x dp; --global-batch N sets one for all" in result.warnings


def test_a_plan_of_fixed_steps_says_that_they_read_different_data() -> None:
    given = {**OPEN, "train.grad_accum": 4, "train.steps": 100, "limits.max_gpus": 16, "server": "dell-xe9680-h100"}
    result = plan(read_scenario(None, given, {}), REGISTRY, explain=True)
    assert any("and so is the data that its steps read" in warning for warning in result.warnings)
    assert next(rule.removed for rule in result.search.rules if rule.name == "batch") == 0


def test_limits_on_time_are_judged_with_the_steps_of_each_layout() -> None:
    given = {**OPEN, "train.grad_accum": 4, "data.samples": 640_000, "train.epochs": 1}
    eight = size(ask({**given, "gpus": 8}))
    found = size(ask({**given, "limits.max_hours": eight.hours / 1.5}))
    assert found.gpus == 16
    assert found.ok


def test_the_rule_of_the_batch_counts_the_accumulation() -> None:
    given = {**OPEN, "gpus": 8, "train.global_batch": 32, "train.grad_accum": 8}
    removed = {rule.name: rule.removed for rule in removed_by_rules(ask(given).rules, (8,))}
    assert removed["batch"] > 0  # dp 8


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"layout.dp": 8, "train.global_batch": 128},
            "'global_batch' (128) is not 'micro_batch' x 'grad_accum' x 'dp' (64)",
        ),
        ({"train.global_batch": 100}, "'global_batch' (100) is not a multiple of 'micro_batch' x 'grad_accum' (8)"),
        ({"train.global_batch": 128}, "a global batch of 128 is not micro_batch 2 x grad_accum 4 x dp 8 (64)"),
        (
            {"train.global_batch": 80, "train.micro_batch": None},
            "a global batch of 80 is not a multiple of grad_accum 4 x dp 8 (32)",
        ),
    ],
)  # fmt: skip
def test_what_does_not_agree_is_told_with_both_places(given: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        ask({**SHARDED, "train.grad_accum": 4, **given})
    (problem,) = caught.value.problems
    assert problem.message == message
    assert str(problem.location) == "--global-batch"
    assert problem.hint is not None
    assert problem.hint.endswith("is given at --grad-accum")


def test_a_global_batch_of_the_command_line_takes_the_place_of_the_accumulation(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "model: llama-3.2-1b\ngpu: h100-sxm-80gb\ngpus: 8\nstack: hf-bf16\ntrain: {micro_batch: 2, grad_accum: 4}\n"
    )
    scenario = read_scenario(path, {"train.global_batch": 32}, {})
    assert scenario.values.train.grad_accum is None
    assert scenario.values.train.global_batch == 32


def test_no_layout_names_the_accumulation() -> None:
    with pytest.raises(InputError, match="no legal layout on 8 GPUs with vpp 20, micro batch 2, grad accum 4"):
        size(ask({**OPEN, "gpus": 8, "train.grad_accum": 4, "layout.vpp": 20}))


def test_advice_keeps_the_batch_that_the_accumulation_makes() -> None:
    sized = size(ask({**SHARDED, "train.grad_accum": 4}))
    smaller = with_the_same_batch(sized, Change("micro-batch 1 instead of 2", {"train.micro_batch": 1}, 1))
    assert smaller.values == {"train.micro_batch": 1, "train.global_batch": 64}
    recomputed = Change("full recomputation", {"layout.recompute": "full"}, 2)
    assert with_the_same_batch(sized, recomputed) is recomputed
