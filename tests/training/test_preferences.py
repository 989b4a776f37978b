"""Jobs on pairs of answers, on single ones, and with a teacher: what passes, what is held, what it takes."""

from __future__ import annotations

import numpy as np
import pytest
from cases import ask, job, layouts
from msgspec.structs import replace

from xe_sizer.errors import InputError
from xe_sizer.graph.weights import count_parameters
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.job import Job
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.run import Run, run_time_s
from xe_sizer.training.step_time import timeline

PARAMETERS = 6_738_415_616  # Llama 2 7B
VOCABULARY, TOKENS = 32_000, 1024


def pairs(kind: str = "dpo", stack: str = "hf-trainer", **flags: object) -> Job:
    return job(kind=kind, stack=stack, **{"train__seq_len": TOKENS, "train__padding": "to-seq-len", **flags})


def passes(made: Job) -> list[tuple[str, int, int]]:
    return [(one.words, one.copies, one.forwards) for one in made.method.frozen]


def at(made: Job, name: str, moment: int = 1) -> float:
    """A part of the memory of one GPU with one pair, at the loss [bytes]."""
    return float(np.broadcast_to(memory_ledger(made, layouts()).components[name], (2, 6, 1))[0, moment, 0])


def test_a_reference_is_a_copy_unless_adapters_can_be_off() -> None:
    assert passes(pairs()) == [("reference model", 1, 1)]
    assert passes(pairs(adapter="lora")) == [("reference model", 0, 1)]
    assert passes(pairs(adapter="lora", train__reference="copy")) == [("reference model", 1, 1)]
    assert passes(pairs(train__reference="none")) == []
    assert passes(pairs(train__reference="precomputed")) == []
    assert pairs(lora__rank=8).method.adapter is not None


def test_single_answers_pass_twice_more_and_through_the_reference_twice() -> None:
    assert passes(pairs("kto")) == [("estimate of the divergence", 0, 1), ("reference model", 1, 2)]
    assert pairs("kto").method.sequences_per_sample == 1
    plain, kto = (timeline(pairs(kind), layouts()) for kind in ("sft", "kto"))
    assert kto.flops[0] == pytest.approx(2 * plain.flops[0], rel=1e-9)


@pytest.mark.parametrize("kind", ["orpo", "simpo", "cpo"])
def test_pairs_without_a_reference(kind: str) -> None:
    made = pairs(kind)
    assert (passes(made), made.method.sequences_per_sample) == ([], 2)
    plain, compared = (timeline(pairs(each), layouts()) for each in ("sft", kind))
    assert compared.flops[0] == pytest.approx(2 * plain.flops[0], rel=1e-9)


@pytest.mark.parametrize(
    ("kind", "stack", "live"),
    [
        ("dpo", "hf-trainer", 16),
        ("dpo", "llama-factory", 16),
        ("dpo", "torchtune", 12),
        ("dpo", "hf-bf16", 10.5),
        ("kto", "hf-bf16", 8),
        ("orpo", "hf-trainer", 18),
        ("simpo", "hf-trainer", 16),
        ("simpo", "hf-bf16", 4),
        ("simpo", "nemo", 20),
    ],
)
def test_bytes_that_live_for_each_logit(kind: str, stack: str, live: float) -> None:
    sequences = 1 if kind == "kto" else 2
    found = at(pairs(kind, stack), "logits and loss")
    assert found == pytest.approx(live * sequences * TOKENS * VOCABULARY, rel=1e-9)


def test_a_copy_is_kept_as_it_is_loaded() -> None:
    """Float32 as the model of TRL's trainers is, but 16 bit in LLaMA-Factory."""
    wide = pairs(train__weights_dtype="fp32")
    assert at(wide, "frozen copies") == 4 * PARAMETERS
    assert at(pairs(stack="llama-factory"), "frozen copies") == 2 * PARAMETERS


def test_the_teacher_is_another_model() -> None:
    made = pairs("distill", "trl", train__teacher_model="llama-2-13b")
    assert [(one.words, one.model.name) for one in made.method.frozen if one.model] == [("teacher", "llama-2-13b")]
    assert at(made, "frozen copies") == 4 * 13_015_864_320
    assert at(made, "logits and loss") == pytest.approx(68 * TOKENS * VOCABULARY, rel=1e-9)


def test_a_reward_model_has_a_value_in_place_of_logits() -> None:
    """Llama 2 7B less its head of 32,000 x 4096, with one of 4096; its loss has 12 bytes a token."""
    made = pairs("reward")
    head = VOCABULARY * 4096
    assert count_parameters(made.model).total == PARAMETERS - head + 4096
    assert at(made, "logits and loss") == 12 * 2 * TOKENS
    plain, valued = (timeline(each, layouts()).flops[0] for each in (pairs("sft"), made))
    assert valued == pytest.approx(2 * (plain - 6 * TOKENS * (head - 4096)), rel=1e-9)


def test_passes_beforehand_take_what_they_would_add_to_the_steps_of_an_epoch() -> None:
    """Three epochs of 800 pairs: the steps of a job without a reference, and one epoch's passes."""
    flags = {"data__samples": 800, "train__epochs": 3, "train__global_batch": 8}
    chosen = layouts(grad_accum=8)
    every, once, never = (pairs(**flags, train__reference=each) for each in ("copy", "precomputed", "none"))
    seconds = [timeline(made, chosen).step_s[0] for made in (every, once, never)]
    assert seconds[1] == seconds[2]
    passing = replace(once, method=replace(once.method, frozen=once.method.before))
    beforehand = 100 * (timeline(passing, chosen).step_s[0] - seconds[2])
    total = run_time_s(Run(Evaluation(once, chosen), np.array([seconds[1]])))[0]
    assert total == pytest.approx(300 * seconds[2] + beforehand, rel=1e-9)
    assert total < run_time_s(Run(Evaluation(every, chosen), np.array([seconds[0]])))[0]


def test_what_a_job_cannot_have() -> None:
    with pytest.raises(InputError, match="no adapters that could be off"):
        pairs(train__reference="adapters-off")
    with pytest.raises(InputError, match="job 'distill' needs a teacher"):
        pairs("distill")


def test_a_stack_holds_logits_while_its_own_function_runs() -> None:
    """ColossalChat: of pairs 20 bytes a logit, of single answers with mismatched ones 28."""
    assert at(pairs("dpo", "colossalai"), "logits and loss") == pytest.approx(20 * 2 * TOKENS * VOCABULARY, rel=1e-9)
    assert at(pairs("kto", "colossalai"), "logits and loss") == pytest.approx(28 * TOKENS * VOCABULARY, rel=1e-9)


def test_answers_of_two_lengths() -> None:
    """Half of the sequences are of each kind; of which nobody said one has the length of the other, or the mean."""
    data = {"data__samples": 1000, "data__max_tokens": 1024, "train__padding": "longest-in-micro-batch"}
    made = pairs(data__chosen_tokens=300, data__rejected_tokens=200, **data)
    assert made.lengths.mean == pytest.approx(250, rel=1e-9)
    assert pairs(data__chosen_tokens=300, **data).lengths.mean == pytest.approx(300, rel=1e-9)
    assert pairs(data__rejected_tokens=300, data__mean_tokens=100, **data).lengths.mean == pytest.approx(200, rel=1e-9)
    chosen, rejected = (pairs(data__mean_tokens=mean, **data).lengths for mean in (300, 200))
    for tokens in (100, 250, 700):
        shares = [np.sum(one.probabilities[one.lengths <= tokens]) for one in (chosen, rejected, made.lengths)]
        assert shares[2] == pytest.approx((shares[0] + shares[1]) / 2, abs=1e-12)


def test_lengths_of_answers_are_those_of_pairs_alone() -> None:
    asked = ask({"model": "llama-2-7b", "job": "sft", "data.chosen_tokens": 300})
    assert any("--chosen-tokens" in told and "no effect" in told for told in asked.warnings)
    with pytest.raises(InputError, match="'rejected_tokens' \\(3000\\) is above 'max_tokens' \\(2048\\)"):
        pairs(data__rejected_tokens=3000, data__max_tokens=2048)


@pytest.mark.parametrize("name", ["ultrafeedback-binarized", "preference-700k"])
def test_data_sets_of_pairs(name: str) -> None:
    asked = ask({"model": "llama-2-7b", "job": "dpo", "data.profile": name, "train.epochs": 1})
    assert asked.job.method.sequences_per_sample == 2
    assert asked.job.steps == -(-asked.known_samples // asked.job.global_batch)
    assert not any("reads one of them" in told for told in asked.warnings)


def test_a_copy_in_host_memory_takes_the_place_of_the_model() -> None:
    """NeMo-Aligner: 16 bit on the host of each rank; the model goes, the copy comes, and the model comes back."""
    made, chosen = pairs(stack="nemo-aligner"), layouts(tp=2, grad_accum=4)
    none = pairs(stack="nemo-aligner", train__reference="none")
    norms = 65 * 4096
    held = 2 * ((PARAMETERS - norms) / 2 + norms)
    both = [memory_ledger(each, chosen) for each in (made, none)]
    assert np.max(both[0].components["frozen copies"]) == 0
    assert both[0].host_bytes[0] - both[1].host_bytes[0] == pytest.approx(2 * held, rel=1e-9)
    moved = "transfers to and from host memory"
    lines = [timeline(each, chosen).components[moved][0] for each in (made, none)]
    expected = 3 * held / (0.88 * made.server.pcie_bytes_per_s)
    assert (lines[0], lines[1]) == (pytest.approx(expected, rel=1e-9), 0)


def test_answers_are_packed_where_the_stack_packs_them() -> None:
    """axolotl packs samples of fine-tuning, not pairs; ms-swift both."""
    asked = {"model": "llama-2-7b", "data.mean_tokens": 100, "data.max_tokens": 2048, "data.samples": 5000}
    paddings = [
        ask({**asked, "job": kind, "stack": stack}).job.padding
        for kind, stack in (("sft", "axolotl"), ("dpo", "axolotl"), ("orpo", "megatron-lm"))
    ]
    assert paddings == ["packed", "longest-in-micro-batch", "packed"]
    told = ask({**asked, "job": "dpo", "stack": "trl", "train.padding": "packed"}).warnings
    assert any("trl does not pack the answers of DPO" in each for each in told)
    assert not any("pack the answers" in each for each in ask({**asked, "job": "dpo", "stack": "ms-swift"}).warnings)


def test_a_cross_entropy_kernel_is_none_of_its_settings() -> None:
    asked = ask({"model": "llama-2-7b", "job": "dpo", "loss": "fused"})
    assert any("--loss fused has no effect on the job dpo" in each for each in asked.warnings)
    assert ask({"model": "llama-2-7b", "job": "dpo"}).values.loss is None
    assert ask({"model": "llama-2-7b", "job": "sft"}).values.loss is not None
