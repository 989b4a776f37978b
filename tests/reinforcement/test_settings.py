"""Settings of an iteration, the two wings that it asks, and what contradicts them."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from reinforcement_cases import resolved

from xe_sizer.errors import InputError
from xe_sizer.graph.model import VALUES
from xe_sizer.profiles.catalogue import load_stack
from xe_sizer.reinforcement.resolve import EAGER_LAUNCH_US, beside_a_trainer
from xe_sizer.reinforcement.resolved import Settings
from xe_sizer.software.stack import Objective


def settings(**flags: object) -> Settings:
    return resolved(**flags).settings


def told(**flags: object) -> list[str]:
    with pytest.raises(InputError) as caught:
        resolved(**flags)
    return [one.message for one in caught.value.problems]


OPEN = {"rollout__prompts": None, "rollout__group": None, "rollout__output_tokens": None,
        "rollout__max_output_tokens": None}  # fmt: skip


def test_what_nobody_says_is_that_of_published_recipes() -> None:
    """128 prompts of 256 tokens, answers of 1,024 that are cut at four times their mean."""
    found = settings(**OPEN)
    assert (found.asked.prompts, found.asked.inputs, found.asked.ahead, found.kept) == (128, 256, 1, 1)
    assert found.answers.mean == pytest.approx(1024)
    assert found.max_output_tokens == 4096
    assert settings(**{**OPEN, "rollout__output_tokens": 300}).max_output_tokens == 1200
    assert (found.updates, found.verifier_s, found.staleness, found.workers) == (1, 0, 0, None)
    assert (found.workers_on(3), replace(found, workers=7).workers_on(3)) == (24, 7)


@pytest.mark.parametrize(
    ("flags", "inputs", "mean", "most"),
    [
        # Half of the limit, at most the usual 1,024.
        ({"rollout__max_output_tokens": 600}, 256, 300, 600),
        ({"rollout__max_output_tokens": 8192}, 256, 1024, 8192),
        # Of a sequence a quarter is the prompt, at most the usual 256, and the rest the longest answer.
        ({"train__seq_len": 800}, 200, 300, 600),
        ({"train__seq_len": 4096}, 256, 1024, 3840),
        # A prompt has no more than the longest answer leaves of it.
        ({"train__seq_len": 800, "rollout__max_output_tokens": 700}, 100, 350, 700),
        ({"train__seq_len": 2000, "rollout__max_output_tokens": 1999}, 1, 999.5, 1999),
    ],
)
def test_a_sequence_holds_a_prompt_with_its_longest_answer(
    flags: dict[str, object], inputs: float, mean: float, most: float
) -> None:
    found = settings(**{**OPEN, **flags})
    assert (found.asked.inputs, found.max_output_tokens) == (inputs, most)
    assert found.answers.mean == pytest.approx(mean)


def test_more_is_asked_for_than_is_learnt_from() -> None:
    """Twice the prompts are written, half of the answers are learnt from."""
    found = settings(rollout__oversampling=2.0)
    assert (found.asked.count, found.kept, found.trained) == (2 * 512, 0.5, 512)
    assert settings(rollout__updates=3).steps(512) == 3


def test_pools_are_apart_where_one_has_gpus_or_works_at_the_same_time() -> None:
    assert settings().colocated is None
    assert settings(gpus=16, rollout__gpus=8).colocated is False
    assert settings(gpus=16, rollout__asynchronous=True).colocated is False
    assert settings(rollout__colocated=True).colocated is True
    found = settings(gpus=16, rollout__asynchronous=True)
    assert (found.staleness, found.asked.ahead) == (1, 1)
    older = settings(gpus=16, rollout__asynchronous=True, rollout__max_staleness=4)
    assert (older.staleness, older.asked.ahead) == (4, 4)
    assert settings(rollout__partial=True).asked.carried


def test_ways_to_share_the_gpus() -> None:
    """The stack's usual way, and the other where it has one."""
    assert resolved().ways == (True, False)
    assert resolved(rollout__colocated=True).ways == (True,)
    assert resolved(gpus=16, rollout__gpus=8).ways == (False,)
    ways = {"trl": (True, False), "deepspeed-chat": (True,), "openrlhf": (False, True)}
    for stack, expected in ways.items():
        assert resolved(stack=stack, rollout__tp=None, rollout__pp=None).ways == expected
    usual = load_stack("openrlhf").rollout
    assert (usual.colocated, load_stack("deepspeed-chat").rollout.apart) == (False, False)


def test_what_waits_in_host_memory() -> None:
    assert settings(rollout__offload="none").offloads == ()
    assert settings(rollout__offload="optimizer").offloads == ("optimizer",)
    assert settings(rollout__offload="params").offloads == ("params", "optimizer")
    assert settings().offloads == load_stack("generic").rollout.offloads
    assert settings(rollout__max_sequences=17).max_sequences == 17
    assert settings(stack="verl").max_sequences == load_stack("verl").rollout.max_sequences


# What both wings are asked.


def test_optimizer_steps_read_prompts_with_their_answers() -> None:
    """100 iterations of 512 answers of 600 tokens behind 256, in batches of 128."""
    one = resolved(train__global_batch=128)
    job = one.actor
    assert job.lengths.mean == pytest.approx(856, rel=1e-3)
    assert job.lengths.longest == 256 + 2048
    assert (one.steps, one.iterations, job.steps) == (4, 100, 400)
    assert (one.actor.global_batch, resolved().actor.global_batch) == (128, 512)


@pytest.mark.parametrize(
    ("flags", "iterations"),
    [
        ({"train__steps": 7}, 7),
        ({"train__steps": None, "data__samples": 1000}, 15),
        ({"train__steps": None, "data__samples": 1000, "train__epochs": 3}, 45),
        ({"train__steps": None, "data__samples": 1000, "rollout__oversampling": 2.0}, 15),
        ({"train__steps": None, "data__samples": 5}, 1),
        ({"train__steps": None}, 1000),
    ],
)
def test_iterations_of_a_run(flags: dict[str, object], iterations: int) -> None:
    """Passes over the prompts, 64 in an iteration, whose last are dropped; a thousand where nobody says."""
    assert resolved(**flags).iterations == iterations


def test_a_length_of_the_run_that_nobody_says_is_said_to_be_assumed() -> None:
    def assumed(**flags: object) -> list[str]:
        return [one for one in resolved(**flags).trainer.warnings if "iterations assumed" in one]

    (words,) = assumed(train__steps=None)
    assert words == "neither the iterations nor the number of prompts is given: 1,000 iterations assumed"
    assert assumed() == assumed(train__steps=None, data__samples=1000) == []
    (told,) = (one for one in resolved(data__mean_tokens=800).trainer.warnings if "without effect" in one)
    assert "mean-tokens" in told


def test_replicas_have_the_sizes_that_were_asked_for() -> None:
    """Ranks of experts beyond the tensor ranks serve sequences of their own."""
    sizes = resolved(model="mixtral-8x7b", gpus=32, rollout__tp=2, rollout__ep=8, rollout__pp=1, layout__tp=None)
    assert sizes.replica_sizes == {"tp": 2, "pp": 1, "ep": 8, "dp": 4}
    assert resolved().replica_sizes == {"tp": 1, "pp": 1, "dp": 1}
    assert resolved(rollout__tp=None, rollout__pp=None).replica_sizes == {}


def test_an_engine_beside_a_trainer_starts_each_kernel_from_python_without_graphs() -> None:
    job = resolved().writer
    host = job.engine.host

    bare = msgspec.structs.replace(load_stack("generic").rollout, graphs=False, step_ms=4.0, sequence_us=50.0)
    slower = beside_a_trainer(job, bare).engine.host
    assert (slower.step_ms, slower.sequence_us) == (host.step_ms + 4, host.sequence_us + 50)
    assert slower.launch_us == max(host.launch_us, EAGER_LAUNCH_US)
    kept = beside_a_trainer(job, msgspec.structs.replace(bare, graphs=True)).engine
    assert (kept.host.graphs, kept.host.launch_us, kept.memory) == (host.graphs, host.launch_us, job.engine.memory)


# Models beside the actor.


def test_a_reference_is_what_method_stack_and_adapters_make_it() -> None:
    """Methods with a critic always have one; recipes since DAPO have none."""
    assert resolved(job="ppo", rollout__group=1, train__reference=None).reference is not None
    plain = resolved().reference
    assert plain is not None
    assert plain.copies == 1
    off = resolved(adapter="lora").reference
    assert off is not None
    assert off.copies == 0
    assert resolved(train__reference="none").reference is None
    # TRL's GRPO has none unless somebody asks for it; its PPO has one all the same.
    assert resolved(stack="trl").reference is None
    asked, always = resolved(stack="trl", train__reference="copy").reference, resolved(stack="trl", job="ppo").reference
    assert asked is not None
    assert always is not None
    assert (asked.copies, always.copies) == (1, 1)
    assert "there are no adapters to be off: the reference cannot be 'adapters-off'" in told(
        train__reference="adapters-off"
    )


def test_a_reward_model_has_a_value_for_a_head() -> None:
    ppo = {"job": "ppo", "rollout__group": 1}
    own = resolved(**ppo).reward
    assert own is not None
    assert own.model is not None
    assert (own.model.head, own.model.layers, own.reads) == (VALUES, 16, Objective.NEXT_TOKEN)
    named = resolved(train__reward_model="llama-3.2-3b").reward
    assert named is not None
    assert named.model is not None
    assert (named.model.head, named.model.layers) == (VALUES, 28)
    assert resolved().reward is None
    assert resolved(**ppo, train__reward_model="none").reward is None
    assert resolved(**ppo, rollout__verifier_s=1.0).reward is None
    assert [one.words for one in resolved(**ppo).passes] == ["reference model", "reward model"]
    critic = resolved(**ppo).critic
    assert critic is not None
    assert critic.model.head == VALUES
    assert resolved().critic is None


def test_copies_are_on_the_card_but_where_they_wait_in_host_memory() -> None:
    ppo = {"job": "ppo", "rollout__group": 1}
    for flags, copies in ((ppo, 1), ({**ppo, "rollout__offload": "params"}, 0)):
        frozen = resolved(**flags).actor.method.frozen
        assert [(one.copies, one.forwards) for one in frozen] == [(copies, 0)] * 2


# Contradictions.


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"gpus": 16, "rollout__gpus": 6, "rollout__tp": 4}, "6 GPUs hold no whole replicas of tp 4"),
        ({"gpus": 16, "rollout__gpus": 6, "rollout__pp": 4}, "6 GPUs hold no whole replicas of pp 4"),
        ({"stack": "trl@0.15", "rollout__asynchronous": True},
         "the stack trl does not generate responses while it trains"),
        ({"gpus": 16, "stack": "deepspeed-chat", "rollout__gpus": 8},
         "the stack deepspeed-chat generates responses on the GPUs that train"),
        ({"stack": "deepspeed-chat", "rollout__colocated": False},
         "the stack deepspeed-chat generates responses on the GPUs that train"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_told(flags: dict[str, object], message: str) -> None:
    assert message in told(**flags)


def test_what_is_just_allowed_is_not_told() -> None:
    """As many tokens, answers and GPUs as there are."""
    assert resolved(rollout__output_tokens=2048).settings.answers.mean == 2048
    assert resolved(train__global_batch=512).steps == 1
    assert resolved(train__seq_len=256 + 2048).actor.lengths.longest == 2304
    assert resolved(gpus=9, rollout__gpus=8, layout__tp=None).settings.gpus == 8
    assert "'gpus' of the rollout (8) leave none of the 8 to train" in told(rollout__gpus=8)
    assert resolved(rollout__verifier_workers=4, rollout__verifier_s=0.5).settings.workers == 4
    assert resolved(rollout__group=2).settings.asked.group == 2
    assert np.isfinite(resolved(gpus=16, rollout__gpus=8, rollout__tp=4, rollout__pp=2).settings.kept)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"model": "deepseek-v3.2", "gpu": "a100-sxm-80gb"}, "vllm has no sparse attention on a100-sxm-80gb"),
        ({"gpu": "mi355x", "rollout__weights": "nvfp4"}, "vllm-rocm has no kernels for nvfp4 on mi355x"),
        ({"model": "bge-m3", "gpu": "h200"}, "bge-m3 is an encoder and writes no answers"),
    ],
)
def test_an_engine_writes_only_what_it_has_kernels_for(flags: dict[str, object], says: str) -> None:
    assert any(says in message for message in told(**{"server": None, **flags}))
