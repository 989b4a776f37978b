"""Stacks as data: inheritance, units, and what a user's own file gets wrong."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from xe_sizer.errors import InputError, Location
from xe_sizer.profiles.catalogue import load_stack
from xe_sizer.profiles.finder import BUILT_IN, Finder

TEXT = """
name: mine
parent: hf-trainer
describes: A fork with a fused norm.
source: its repository
kernels:
  norm: fused
supports:
  optimizers: [adamw, muon]
"""


def write(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_users_stack_overrides_what_it_names(tmp_path: Path) -> None:
    mine, parent = load_stack(write(tmp_path, TEXT)), load_stack("hf-trainer")
    assert (mine.kernels.norm, parent.kernels.norm) == ("fused", "eager")
    assert mine.kernels.rotary == parent.kernels.rotary == "eager"
    assert mine.supports.optimizers == ("adamw", "muon")
    assert mine.supports.zero == parent.supports.zero
    assert mine.overlap == parent.overlap


def test_human_units_become_seconds_and_bytes() -> None:
    stack = load_stack("hf-trainer")
    assert stack.forward_launch_s == pytest.approx(stack.host.forward_launch_us / 1e6)
    assert stack.backward_launch_s == pytest.approx(stack.host.backward_launch_us / 1e6)
    assert stack.step_overhead_s == pytest.approx(stack.host.step_overhead_ms / 1e3)
    assert stack.micro_batch_overhead_s == pytest.approx(stack.host.micro_batch_overhead_ms / 1e3)
    assert stack.memory.context_gib.typical < stack.memory.context_gib.cautious


def test_a_grandchild_inherits_through_its_parent() -> None:
    nemo, megatron, generic = (load_stack(name) for name in ("nemo", "megatron-lm", "generic"))
    assert nemo.parent == "megatron-lm"
    assert nemo.host.forward_launch_us == megatron.host.forward_launch_us != generic.host.forward_launch_us
    assert nemo.boundaries == generic.boundaries


def test_the_graph_sees_the_jobs_attention() -> None:
    kernels = load_stack("hf-trainer").graph_kernels("eager")
    assert (kernels.attention, kernels.norm, kernels.fused_qkv, kernels.repeats_kv) == ("eager", "eager", False, False)
    assert kernels.expert_imbalance == load_stack("hf-trainer").expert_imbalance


def test_an_unknown_name_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(InputError) as caught:
        load_stack("megatorn", Location("--stack"))
    (problem,) = caught.value.problems
    assert "megatorn" in problem.message
    assert "megatron-lm" in (problem.hint or "")
    assert str(problem.location) == "--stack"
    with pytest.raises(InputError) as caught:
        load_stack("zzz")
    assert all(name in (caught.value.problems[0].hint or "") for name in BUILT_IN.names("stack"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TEXT.replace("norm: fused", "norm: quick"), "norm"),
        (TEXT + "uncertainty: 0\n", "uncertainty"),
        (TEXT.replace("muon", "moun"), "did you mean 'muon'"),
        (TEXT.replace("[adamw, muon]", "[muon]"), "the default optimizer 'adamw'"),
        (TEXT + "overlap: {tensor_parallel: 1.5}\n", "tensor_parallel"),
        (TEXT + "speed: 3\n", "speed"),
        (TEXT + "backend: deepspeeed\n", "no backend 'deepspeeed'"),
        (TEXT + "backends: {mine: {stats: {}}}\n", "'mine' changes no 'stats'"),
        (TEXT + "gradients: {half: {stats: {}}}\n", "'half' changes no 'stats'"),
        (TEXT + "reductions: {full: {states: {reduce_byte: 4}}}\n", "reduce_byte"),
        (TEXT + "backends: {mine: {gradients: {full: 3}}}\n", "'full' must be a group of keys"),
        (TEXT + "backends: {mine: {loads: {bf16: 3}}}\n", "'bf16' must be a group of keys"),
        (TEXT + "backends: {mine: {gradients: {half: {states: 3}}}}\n", "'states' must be a group of keys"),
        (TEXT + "backends: {mine: {states: {autocast: 3}}}\n", "autocast"),
        (TEXT.replace("  norm: fused", "  norms: fused"), "norms"),
    ],
)
def test_mistakes_in_a_stack_are_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        load_stack(write(tmp_path, text))
    assert any(said in str(problem) for problem in caught.value.problems)
    assert all(problem.location and problem.location.name.endswith("mine.yaml") for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("written", "stack", "release"),
    [
        ("NeMo 24.07", "nemo", "24.07"),
        ("transformers==4.36", "hf-trainer", "4.36"),
        ("PyTorch FSDP", "pytorch-fsdp", None),
    ],
)
def test_stacks_and_releases_as_people_write_them(written: str, stack: str, release: str | None) -> None:
    found = load_stack(written)
    assert (found.name, found.release) == (stack, release)


def test_what_is_no_release_is_said() -> None:
    with pytest.raises(InputError) as caught:
        load_stack("generic@new", Location("--stack"))
    (problem,) = caught.value.problems
    assert problem.message == "'new' is no release of a stack"
    assert problem.hint == "write a number or a month: generic@4.36, generic@24.07"


RELEASED = """releases:
  - {before: "1.2", dated: "25.03", differs: {kernels: {norm: eager}}, source: its changelog}
  - {before: "2.0", dated: "26.01", differs: {kernels: {rotary: fused}}, source: its changelog}
"""


def test_a_users_stack_has_releases(tmp_path: Path) -> None:
    write(tmp_path, TEXT + RELEASED)
    finder = Finder([tmp_path])
    found = [load_stack(f"mine{release}", None, finder).kernels for release in ("", "@1.9", "@1.1", "@2025.02")]
    assert [(each.norm, each.rotary) for each in found] == [
        ("fused", "eager"), ("fused", "fused"), ("eager", "fused"), ("eager", "fused")
    ]  # fmt: skip


def test_mistakes_in_what_a_release_did_are_named_where_they_stand(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_stack(write(tmp_path, TEXT + RELEASED.replace("norm: eager", "norm: egaer")))
    problem = caught.value.problems[0]
    assert "norm" in problem.message
    assert problem.location is not None
    assert problem.location.line == (TEXT + RELEASED).splitlines().index(RELEASED.splitlines()[1]) + 1


def test_recipes_of_automodel_recompute_on_several_gpus_and_adapt_all_projections() -> None:
    defaults = load_stack("nemo-automodel").defaults
    assert defaults.recompute_of(quantised=False, sharded=True) == "full"
    assert defaults.recompute_of(quantised=False, sharded=False) is None
    assert (defaults.lora_rank, defaults.lora_targets) == (8, ("all-linear",))


def test_deepspeed_shares_out_what_any_trainer_around_it_trains() -> None:
    """The states of the stack deepspeed, and all else as the trainer has it."""
    engine = load_stack("deepspeed")
    for name in ("hf-trainer", "trl", "axolotl", "llama-factory", "ms-swift"):
        alone = load_stack(name)
        shared = alone.on_backend("deepspeed")
        assert (shared.states, shared.memory, shared.overlap) == (
            msgspec.structs.replace(engine.states, copies_as_loaded=alone.states.copies_as_loaded),
            engine.memory,
            engine.overlap,
        )
        assert (shared.kernels, shared.defaults.padding, shared.defaults.recompute) == (
            alone.kernels,
            alone.defaults.padding,
            alone.defaults.recompute,
        )
        assert shared.defaults.reduces_every_micro_batch
        assert shared.on_backend("deepspeed") == shared


@pytest.mark.parametrize("name", ["deepspeed", "openrlhf", "unsloth", "verl", "torchtune", "nemo"])
def test_stacks_that_run_on_one_backend_alone(name: str) -> None:
    assert len(load_stack(name).runs_on) <= 1


def test_a_lazy_graph_takes_the_host_longer_for_an_operator_than_eager_pytorch_does() -> None:
    """Habana, HPU Graphs for Training: without them every iteration accumulates its operators from Python."""
    lazy, parent = load_stack("optimum-habana"), load_stack("hf-trainer@4.55")
    assert lazy.host.forward_launch_us > 2 * parent.host.forward_launch_us
    assert lazy.host.backward_launch_us > 2 * parent.host.backward_launch_us
