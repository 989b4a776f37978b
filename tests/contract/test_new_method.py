"""A training method is one file: a DPO-like one is dropped beside the others and estimated through the command line.

Direct preference optimisation (Rafailov et al. 2023, arXiv:2305.18290) trains on pairs of a chosen and a rejected
answer, and runs each through a frozen copy of the model too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from xe_sizer.cli.main import main
from xe_sizer.training import methods

FILE = '''
from xe_sizer.training.methods.method import Frozen, Method, register


@register("dpo-like", label="DPO", evidence="sft")
def dpo_like(kind, model, options):
    """Pairs of answers, and a frozen reference model."""
    return Method(kind, options.trained, sequences_per_sample=2, frozen=(Frozen("reference model"),))
'''
# Llama 2 7B: 32 layers of 4096, 32 heads of 128, an MLP of 11008 with a gate, 32,000 tokens.
PARAMETERS = 6_738_415_616
TOKENS = 1024
LINEAR = 32 * (4 * 4096**2 + 3 * 4096 * 11008) + 32_000 * 4096
PAIRS = TOKENS * (TOKENS + 1) / 2  # of a query with a key, under a causal mask
LINEAR_FLOPS, ATTENTION_FLOPS = 2 * TOKENS * LINEAR, 32 * 2 * 32 * PAIRS * (128 + 128)
FORWARD_FLOPS = LINEAR_FLOPS + ATTENTION_FLOPS
PEAK = 2.25e15  # B200, 16 bit, dense
JOB = (
    "--model", "llama-2-7b", "--job", "dpo-like", "--seq-len", TOKENS, "--padding", "to-seq-len",
    "--steps", 10, "--global-batch", 16, "--format", "json",
)  # fmt: skip


@pytest.fixture(autouse=True)
def dpo_like(tmp_path: Path) -> Iterator[None]:
    (tmp_path / "dpo_like_method.py").write_text(FILE, encoding="utf-8")
    methods.__path__.append(str(tmp_path))
    methods.discover()
    yield
    methods.__path__.remove(str(tmp_path))
    del methods.METHODS["dpo-like"], sys.modules["xe_sizer.training.methods.dpo_like_method"]


def answer(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    """What a command answers in JSON; it must have said yes."""
    assert main([str(argument) for argument in arguments]) == 0, capsys.readouterr()
    return json.loads(capsys.readouterr().out)


def seconds(result: Any, name: str) -> float:
    return next(float(part["seconds"]) for part in result["time"]["components"] if part["name"] == name)


def size(result: Any, name: str) -> float:
    return next(float(part["bytes"]) for part in result["memory"]["components"] if part["name"] == name)


def test_tokens_and_time_count_both_answers_and_the_reference(capsys: pytest.CaptureFixture[str]) -> None:
    """At half of the peak and nothing beside: 16 pairs are 32 sequences, each forwards twice and backwards once.

    The backward of the fused attention has five products for the forward's two; FLOPs that are needed are twice.
    """
    one_gpu = ("--gpu", "b200", "--gpus", 1, "--micro-batch", 2, "--recompute", "none", "--flops-efficiency", 0.5)
    result = answer(capsys, "estimate", *JOB, *one_gpu)
    forward_s = 32 * FORWARD_FLOPS / (0.5 * PEAK)
    assert seconds(result, "forward") == pytest.approx(forward_s, rel=1e-9)
    assert seconds(result, "frozen forward") == pytest.approx(forward_s, rel=1e-9)
    backward_s = 32 * (2 * LINEAR_FLOPS + 2.5 * ATTENTION_FLOPS) / (0.5 * PEAK)
    assert seconds(result, "backward") == pytest.approx(backward_s, rel=1e-9)
    step_s = result["time"]["step_s"]["expected"]
    assert step_s == pytest.approx(2 * forward_s + backward_s, rel=1e-9)
    assert result["time"]["mfu"] == pytest.approx(32 * 4 * FORWARD_FLOPS / (step_s * PEAK), rel=1e-9)
    assert result["data"]["processed_tokens"] == 10 * 32 * TOKENS
    assert result["time"]["tokens_per_s_per_gpu"] == pytest.approx(32 * TOKENS / step_s, rel=1e-9)
    assert result["time"]["samples_per_s"] == pytest.approx(16 / step_s, rel=1e-9)


@pytest.mark.parametrize(("zero", "ranks"), [(0, 1), (3, 8)])
def test_the_reference_copy_is_kept_in_16_bit_and_sharded_as_the_model(
    capsys: pytest.CaptureFixture[str], zero: int, ranks: int
) -> None:
    layout = ("--gpu", "b200", "--gpus", 8, "--dp", 8, "--zero", zero, "--micro-batch", 1)
    result = answer(capsys, "estimate", *JOB, *layout)
    assert size(result, "frozen copies") == pytest.approx(2 * PARAMETERS / ranks, rel=1e-12)


def test_activations_are_those_of_twice_the_sequences(capsys: pytest.CaptureFixture[str]) -> None:
    """A micro-batch of one pair is one of two samples of full fine-tuning, but for what the reference adds."""
    layout = ("--gpu", "b200", "--gpus", 1, "--recompute", "none", "--micro-batch")
    pairs = answer(capsys, "estimate", *JOB, *layout, 1)
    plain = answer(capsys, "estimate", *JOB, *layout, 2, "--job", "sft")
    assert size(pairs, "activations") == size(plain, "activations")
    assert {part["name"] for part in plain["memory"]["components"]}.isdisjoint({"frozen copies"})
    peak = plain["memory"]["peak_bytes"] + 2 * PARAMETERS * 1.06  # with 6 % of allocator slack
    assert pairs["memory"]["peak_bytes"] == pytest.approx(peak, rel=1e-12)


def test_it_is_planned_and_checked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    hardware = ("--gpu", "b200", "--max-gpus", 8)
    plan = answer(capsys, "plan", *JOB, *hardware)
    best = plan["candidates"][0]
    assert best["tokens_per_s"] == pytest.approx(32 * TOKENS / best["step_s"], rel=1e-9)
    scenario = tmp_path / "pairs.yaml"
    scenario.write_text("{model: llama-2-7b, job: dpo-like, gpu: b200, gpus: 8}", encoding="utf-8")
    assert main(["check", str(scenario)]) == 0
    assert main(["estimate", str(scenario)]) == 0
    assert "FITS  DPO of llama-2-7b on 8 x b200" in capsys.readouterr().out


def test_a_misspelt_name_is_answered_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(argument) for argument in (*("estimate", *JOB, "--gpu", "b200"), "--job", "dpo-lik")]) == 2
    assert "did you mean 'dpo-like'" in capsys.readouterr().err
