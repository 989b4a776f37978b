"""The same suite for every optimizer that ships, and what sets some of them apart."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from cases import job, layouts

from xe_sizer.cli.main import main
from xe_sizer.profiles.finder import KINDS
from xe_sizer.software.optimizer import load_optimizer, optimizer_names
from xe_sizer.software.stack import load_stack, stack_names
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.step import Timeline, timeline

# Llama 2 7B: tables of 32,000 x 4,096 for embedding and head, two norms a layer and one at the end.
PARAMETERS = 6_738_415_616
TABLES, VECTORS = 2 * 32_000 * 4096, 65 * 4096


def step(optimizer: str, stack: str = "generic", **sizes: object) -> Timeline:
    return timeline(job(stack=stack, optimizer=optimizer), layouts(**sizes))


def state_bytes(optimizer: str, stack: str = "generic", **sizes: object) -> float:
    ledger = memory_ledger(job(stack=stack, optimizer=optimizer), layouts(**sizes))
    return float(np.max(ledger.components["optimizer states"]))


def test_the_shipped_files_are_the_known_names() -> None:
    assert {path.stem for path in KINDS["optimizer"].shipped.glob("*.yaml")} == set(optimizer_names())


@pytest.mark.parametrize("name", optimizer_names())
def test_an_optimizer_says_what_it_is_and_some_stack_has_it(name: str) -> None:
    optimizer = load_optimizer(name)
    assert optimizer.name == name
    assert len(optimizer.describes) > 20
    assert len(optimizer.source) > 10
    assert any(name in load_stack(stack).supports.optimizers for stack in stack_names())
    if optimizer.smaller:
        both = {name, optimizer.smaller}
        stack = next(stack for stack in stack_names() if both <= set(load_stack(stack).supports.optimizers))
        assert state_bytes(optimizer.smaller, stack) < state_bytes(name, stack)


@pytest.mark.parametrize("stack", stack_names())
def test_every_optimizer_of_a_stack_is_estimated(stack: str) -> None:
    """On the card, sharded and not, and on the host, which is slower."""
    chosen = layouts(dp=[1, 8], zero=[0, 1], offload=[0, 0], grad_accum=4)
    for name in load_stack(stack).supports.optimizers:
        made = job(stack=stack, optimizer=name)
        ledger, line = memory_ledger(made, chosen), timeline(made, chosen)
        assert np.all(np.isfinite(ledger.total_bytes))
        assert np.all(line.components["optimizer"] > 0)
        hosted = timeline(made, layouts(offload=1)).components
        assert hosted["offload"][0] > line.components["optimizer"][0]


def answer(capsys: pytest.CaptureFixture[str], optimizer: str, stack: str) -> tuple[int, Any]:
    arguments = ("estimate", "--model", "llama-2-7b", "--gpu", "b200", "--gpus", 8, "--stack", stack)
    code = main([str(argument) for argument in (*arguments, "--optimizer", optimizer, "--format", "json")])
    out, err = capsys.readouterr()
    return code, json.loads(out) if code in (0, 1) else err


@pytest.mark.parametrize("name", optimizer_names())
def test_an_optimizer_is_a_choice_of_the_command_line(capsys: pytest.CaptureFixture[str], name: str) -> None:
    stack = next(stack for stack in stack_names() if name in load_stack(stack).supports.optimizers)
    _, result = answer(capsys, name, stack)
    assert result["scenario"]["optimizer"] == name


def test_only_stacks_that_list_muon_have_it(capsys: pytest.CaptureFixture[str]) -> None:
    having = {name for name in stack_names() if "muon" in load_stack(name).supports.optimizers}
    assert {"generic", "megatron-lm", "nemo", "torchtitan"} <= having
    assert not having & {"deepspeed", "hf-trainer", "nemo-2025"}
    code, said = answer(capsys, "muon", "deepspeed")
    assert code == 2
    assert "deepspeed has no optimizer 'muon'" in said


def test_a_misspelt_optimizer_is_answered_with_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = answer(capsys, "adamv", "generic")
    assert code == 2
    assert "generic has no optimizer 'adamv'" in said
    assert "did you mean 'adamw'?" in said


@pytest.mark.parametrize(("stack", "moment"), [("generic", 4), ("hf-bf16", 2)])
def test_moments_have_the_type_that_the_stack_keeps_them_in(stack: str, moment: int) -> None:
    master = load_stack(stack).states.master_bytes
    assert state_bytes("adamw", stack) == PARAMETERS * (master + 2 * moment)
    assert state_bytes("sgd", stack) == PARAMETERS * (master + moment)
    assert state_bytes("adamw-8bit", stack) == pytest.approx(PARAMETERS * (master + 2.03), rel=1e-12)


def test_muon_keeps_one_moment_of_matrices_and_two_of_the_rest() -> None:
    expected = 8 * PARAMETERS + 4 * (TABLES + VECTORS)
    assert state_bytes("muon") == expected < state_bytes("adamw")
    assert state_bytes("muon", dp=8, zero=1) == expected / 8


def test_muon_works_on_one_matrix_at_a_time() -> None:
    """The largest: 4,096 by 11,008, its next iterate and two products of 4,096 by 4,096, all in 16 bit."""
    ledger = memory_ledger(job(optimizer="muon"), layouts())
    assert np.max(ledger.components["optimizer workspace"]) == 2 * 2 * (4096 * 11008 + 4096**2)


def test_muon_is_slower_than_adamw_by_its_products() -> None:
    """On one H100: five iterations of 4 m^2 n + 2 m^3 FLOP for each matrix, at no more than the peak of 989 TFLOP/s."""
    square, wide = 6 * 4096**3, 4 * 4096**2 * 11008 + 2 * 4096**3
    least_s = 32 * 5 * (4 * square + 3 * wide) / 989.4e12
    muon, adamw = step("muon"), step("adamw")
    assert least_s < muon.components["orthogonalisation"][0] < 2 * least_s
    assert adamw.components["orthogonalisation"][0] == 0
    assert muon.components["optimizer"][0] < adamw.components["optimizer"][0]
    assert muon.step_s[0] > adamw.step_s[0]


def test_ranks_that_share_the_states_share_the_products_and_gather_whole_matrices() -> None:
    alone, shared, repeated = (step("muon", dp=8, zero=zero).components["orthogonalisation"][0] for zero in (0, 1, 3))
    assert alone / 8 < shared < alone / 4
    assert repeated == shared
    split = step("muon", tp=8).components["orthogonalisation"][0]
    assert split > alone == step("muon").components["orthogonalisation"][0]


def test_adapters_are_orthogonalised_too_where_they_are_what_learns() -> None:
    made = job(kind="lora", optimizer="muon")
    seconds = timeline(made, layouts()).components["orthogonalisation"][0]
    assert 0 < seconds < step("muon").components["orthogonalisation"][0] / 10


@pytest.mark.parametrize(("name", "fewer_bytes"), [("sgd", 8), ("adafactor", 12), ("adamw-8bit", 0)])
def test_the_host_moves_what_the_optimizer_keeps(name: str, fewer_bytes: float) -> None:
    """At 100 GB/s a node; copies are alike. AdamW moves 28 bytes an element: SGD has a moment less, 4 in and 4 out."""
    adamw, other = (step(chosen, offload=1).components["offload"][0] for chosen in ("adamw", name))
    assert adamw - other == pytest.approx(PARAMETERS * fewer_bytes / 100e9, abs=1e-9)
