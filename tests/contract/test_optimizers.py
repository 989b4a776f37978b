"""The same suite for every optimizer that ships, and what sets some of them apart."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest
from cases import job, layouts

from xe_sizer.cli.main import main
from xe_sizer.profiles.catalogue import load_optimizer, load_stack, optimizers_of
from xe_sizer.profiles.finder import BUILT_IN, KINDS
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.step_time import Timeline, timeline

# Llama 2 7B: tables of 32,000 x 4,096 for embedding and head, two norms a layer and one at the end.
PARAMETERS = 6_738_415_616
MATRIX_WORK = "matrix work of the optimizer"
TABLES, VECTORS = 2 * 32_000 * 4096, 65 * 4096


def step(optimizer: str, stack: str = "generic", **sizes: object) -> Timeline:
    return timeline(job(stack=stack, optimizer=optimizer), layouts(**sizes))


def state_bytes(optimizer: str, stack: str = "generic", **sizes: object) -> float:
    ledger = memory_ledger(job(stack=stack, optimizer=optimizer), layouts(**sizes))
    return float(np.max(ledger.components["optimizer states"]))


@cache
def having(stack: str) -> tuple[str, ...]:
    return optimizers_of(load_stack(stack))


def test_the_shipped_files_are_the_known_names() -> None:
    assert {path.stem for path in KINDS["optimizer"].shipped.glob("*.yaml")} == set(BUILT_IN.names("optimizer"))


@pytest.mark.parametrize("name", BUILT_IN.names("optimizer"))
def test_an_optimizer_says_what_it_is_and_some_stack_has_it(name: str) -> None:
    optimizer = load_optimizer(name)
    assert optimizer.name == name
    assert len(optimizer.describes) > 20
    assert len(optimizer.source) > 10
    assert any(name in having(stack) for stack in BUILT_IN.names("stack") if load_stack(stack).parent)
    assert all(stack in BUILT_IN.names("stack") for stack in optimizer.stacks)
    if optimizer.smaller:
        stack = next(stack for stack in BUILT_IN.names("stack") if {name, optimizer.smaller} <= set(having(stack)))
        smaller = load_optimizer(optimizer.smaller)
        assert smaller.in_backward or state_bytes(smaller.name, stack) < state_bytes(name, stack)


@pytest.mark.parametrize("stack", BUILT_IN.names("stack"))
def test_every_optimizer_of_a_stack_is_estimated(stack: str) -> None:
    """On the card, sharded and not, and on the host, which is slower."""
    chosen = layouts(dp=[1, 8], zero=[0, 1], offload=[0, 0], grad_accum=4)
    own = load_stack(stack)
    for name in having(stack) if own.name == "hf-trainer" or own.parent is None else own.supports.optimizers:
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


def test_only_stacks_that_list_muon_have_it(capsys: pytest.CaptureFixture[str]) -> None:
    stacks = {name for name in BUILT_IN.names("stack") if "muon" in having(name)}
    assert {"generic", "megatron-lm", "nemo", "torchtitan"} <= stacks
    assert not stacks & {"deepspeed", "hf-trainer", "nemo-2025"}
    code, said = answer(capsys, "muon", "deepspeed")
    assert code == 2
    assert "deepspeed has no optimizer 'muon'" in said


def test_a_misspelt_optimizer_is_answered_with_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = answer(capsys, "adamv", "generic")
    assert code == 2
    assert "generic has no optimizer 'adamv'" in said
    assert "or 'adamw'" in said


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
    assert least_s < muon.components[MATRIX_WORK][0] < 2 * least_s
    assert adamw.components[MATRIX_WORK][0] == 0
    assert muon.components["optimizer"][0] < adamw.components["optimizer"][0]
    assert muon.step_s[0] > adamw.step_s[0]


def test_ranks_that_share_the_states_share_the_products_and_gather_whole_matrices() -> None:
    alone, shared, repeated = (step("muon", dp=8, zero=zero).components[MATRIX_WORK][0] for zero in (0, 1, 3))
    assert alone / 8 < shared < alone / 4
    assert repeated == shared
    split = step("muon", tp=8).components[MATRIX_WORK][0]
    assert split > alone == step("muon").components[MATRIX_WORK][0]


def test_adapters_are_orthogonalised_too_where_they_are_what_learns() -> None:
    made = job(kind="lora", optimizer="muon")
    seconds = timeline(made, layouts()).components[MATRIX_WORK][0]
    assert 0 < seconds < step("muon").components[MATRIX_WORK][0] / 10


@pytest.mark.parametrize(("name", "fewer_bytes"), [("sgd", 8), ("adafactor", 12), ("adamw-8bit", 0)])
def test_the_host_moves_what_the_optimizer_keeps(name: str, fewer_bytes: float) -> None:
    """At 100 GB/s a node; copies are alike. AdamW moves 28 bytes an element: SGD has a moment less, 4 in and 4 out."""
    adamw, other = (step(chosen, offload=1).components["offload"][0] for chosen in ("adamw", name))
    assert adamw - other == pytest.approx(PARAMETERS * fewer_bytes / 100e9, abs=1e-9)


# --- states by the shape of a matrix

SQUARE, WIDE = 4096 * 4096, 4096 * 11008  # four and three of them in each of 32 layers
MATRICES = 32 * (4 * SQUARE + 3 * WIDE)


@pytest.mark.parametrize(
    ("name", "of_matrix", "of_table", "of_vector"),
    [
        ("lion", 4, 4, 4),
        ("lion-8bit", 1.0156, 1.0156, 1.0156),
        ("ademamix", 12, 12, 12),
        ("ademamix-8bit", 3.047, 3.047, 3.047),
        ("lamb", 8, 8, 8),
        ("adam-mini", 4.001, 4.001, 4.001),
        ("adamw-4bit", 1.0625, 1.0625, 8),
        ("adamw-bf16-moments", 4, 4, 4),
        ("plain-sgd", 0, 0, 0),
        ("lomo", -4, -4, -4),  # no master copies
        ("schedule-free-adamw", 8, 8, 8),
        ("prodigy", 16, 16, 16),
    ],
)
def test_states_of_elements(name: str, of_matrix: float, of_table: float, of_vector: float) -> None:
    """Beside a master copy of four bytes, with moments of four."""
    expected = 4 * PARAMETERS + of_matrix * MATRICES + of_table * TABLES + of_vector * VECTORS
    assert state_bytes(name) == pytest.approx(expected, rel=1e-9)


def test_adafactor_keeps_a_row_and_a_column_of_each_matrix() -> None:
    lines = 32 * (4 * 2 * 4096 + 3 * (4096 + 11008)) + 2 * (32_000 + 4096)
    assert state_bytes("adafactor") == pytest.approx(4 * PARAMETERS + 4 * (lines + VECTORS), rel=1e-9)


@pytest.mark.parametrize(("name", "rank", "moment"), [("galore-adamw", 128, 4), ("apollo-mini", 1, 4)])
def test_moments_of_a_low_rank(name: str, rank: int, moment: float) -> None:
    """r x n of two moments and m x r of a projection matrix for each m x n of the layers; the rest has AdamW's."""
    projected = rank * 32 * (4 * 4096 + 3 * 11008) * moment + rank * 32 * 7 * 4096 * moment / 2
    expected = projected + moment * (TABLES + VECTORS)
    assert state_bytes(name, "hf-bf16") == pytest.approx(expected, rel=1e-9)
    assert state_bytes(name, "hf-bf16", dp=8, zero=1) == pytest.approx(expected / 8, rel=1e-9)


def test_a_projection_in_float32_keeps_the_whole_factor() -> None:
    """A slice of it holds its storage: 4 bytes of 4,096 x 4,096 for each of seven matrices of 32 layers."""
    narrow, wide = (
        {name: state_bytes(name, stack) for name in ("galore-adamw", "apollo")} for stack in ("hf-bf16", "generic")
    )
    assert narrow["galore-adamw"] == narrow["apollo"]
    assert wide["galore-adamw"] - wide["apollo"] == pytest.approx(32 * 7 * 4 * (SQUARE - 128 * 4096), rel=1e-9)


def test_preconditioners_are_squares_of_sides() -> None:
    """SOAP: two of each side up to 10,000, so that 11,008 and 32,000 have none; Shampoo cuts sides into blocks."""
    squares = (32 * (4 * 2 + 3) + 2) * SQUARE
    assert state_bytes("soap") == pytest.approx(12 * PARAMETERS + 2 * 4 * squares, rel=1e-9)
    # 11,008 = 10 x 1,024 + 768 and 32,000 = 31 x 1,024 + 256; 4,096 = 4 x 1,024.
    block = 1024**2
    wide = 4 * (10 * 2 * block + block + 768**2)
    table = 4 * (31 * 2 * block + block + 256**2)
    blocks = 32 * (4 * 16 * 2 * block + 3 * wide) + 2 * table
    assert state_bytes("shampoo") == pytest.approx(12 * PARAMETERS + 2 * 4 * blocks, rel=1e-9)


def test_an_optimizer_of_the_backward_keeps_no_gradients() -> None:
    """Not with accumulation either, nor on several GPUs: at most the head's own gradient is there."""
    for sizes in ({}, {"grad_accum": 4}, {"dp": 8, "zero": 3}):
        ledgers = {
            name: memory_ledger(job(stack="hf-bf16", optimizer=name), layouts(**sizes))
            for name in ("galore-adamw", "galore-adamw-layerwise")
        }
        gradients = {name: float(np.max(ledger.components["gradients"])) for name, ledger in ledgers.items()}
        assert gradients["galore-adamw-layerwise"] <= 32_001 * 4096 * 2  # with the norm before it
        assert gradients["galore-adamw"] >= 2 * PARAMETERS / (8 if "dp" in sizes else 1)


def test_decompositions_are_shared_by_the_steps_between_two() -> None:
    """Ten minutes of singular value decompositions for a 7B model (APOLLO, arXiv:2412.05270), every 200 steps."""
    work = {name: step(name).components[MATRIX_WORK][0] for name in ("galore-adamw", "apollo", "adamw")}
    assert 540 < 200 * (work["galore-adamw"] - 2 * work["apollo"]) < 660
    assert 0 == work["adamw"] < work["apollo"] < 0.02


def test_temporaries_of_an_eager_update_are_those_of_the_largest_tensor() -> None:
    """Adafactor: the embedding of 32,000 x 4,096, gradient and weight cast to float32, squares and their sum."""
    ledger = memory_ledger(job(stack="hf-bf16", optimizer="adafactor"), layouts())
    assert np.max(ledger.components["optimizer workspace"]) == pytest.approx(32_000 * 4096 * 16, rel=1e-4)


def test_children_of_a_stack_have_what_names_it() -> None:
    assert "galore-adamw" in having("axolotl")
    assert "galore-adamw" not in having("megatron-lm")
    assert "adamw-bf16-moments" in having("megatron-lm")


def test_every_optimizer_of_transformers_has_a_file() -> None:
    names = (
        "adamw_torch adamw_torch_fused adamw_torch_xla adamw_torch_npu_fused adafactor adamw_anyprecision "
        "adamw_torch_4bit adamw_torch_8bit ademamix sgd adagrad adamw_bnb_8bit adamw_8bit ademamix_8bit lion_8bit "
        "lion_32bit paged_adamw_32bit paged_adamw_8bit paged_ademamix_32bit paged_ademamix_8bit paged_lion_32bit "
        "paged_lion_8bit rmsprop rmsprop_bnb rmsprop_bnb_8bit rmsprop_bnb_32bit galore_adamw galore_adamw_8bit "
        "galore_adafactor galore_adamw_layerwise galore_adamw_8bit_layerwise galore_adafactor_layerwise lomo adalomo "
        "grokadamw schedule_free_radam schedule_free_adamw schedule_free_sgd apollo_adamw apollo_adamw_layerwise "
        "stable_adamw"
    )  # OptimizerNames of transformers 5
    known = set(BUILT_IN.names("optimizer"))
    assert [name for name in names.split() if BUILT_IN.called("optimizer", name) not in known] == []
