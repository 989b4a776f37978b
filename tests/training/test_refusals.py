"""What a scenario asks that cannot be: refused just beyond the limit, with what to write instead, and not at it."""

from __future__ import annotations

import pytest
from cases import ask

from xe_sizer.errors import InputError
from xe_sizer.graph.inputs import BLOCK_SCALED, LowRank
from xe_sizer.profiles.catalogue import load_stack, stacks_with
from xe_sizer.profiles.finder import BUILT_IN
from xe_sizer.software.number_formats import recipes_of
from xe_sizer.training.methods import METHODS
from xe_sizer.training.uncertainty import memory_suffices

LLAMA: dict[str, object] = {"model": "llama-2-7b", "job": "sft", "stack": "megatron-lm"}
BOTH_COUNT: dict[str, object] = {"layout__account_for_embedding": True, "layout__account_for_loss": True}
GIB = 2.0**30


def told(**flags: object) -> list[str]:
    """Problems of a scenario, each in a line; none where it can be."""
    try:
        ask({**LLAMA, **{key.replace("__", "."): value for key, value in flags.items()}})
    except InputError as error:
        return [f"{one.message} | {one.hint}" for one in error.problems]
    return []


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        # nodes and GPUs
        ({"gpus": 16, "nodes": 2}, None),
        ({"gpus": 9, "nodes": 2}, "9 GPUs are asked for, but 2 nodes of 8 have 16 | give only one of the two"),
        ({"gpus": 9, "nodes": 1}, "9 GPUs are asked for, but a node of 8 has 8 | give only one of the two"),
        # what compute hides
        ({"train__overlap": ("on",)}, None),
        ({"train__overlap": ("data-parallel", "expert-parallel")}, None),
        ({"train__overlap": ("off", "pipeline")},
         "on and off stand alone, for all exchanges | name the exchanges that compute hides"),
        ({"train__overlap": ("expert-parallel",), "stack": "hf-trainer"},
         ("hf-trainer hides no exchange of expert-parallel behind compute | "
          "it can hide context-parallel, data-parallel, updated-weights, sharding")),
        # what splits sequences
        ({"layout__sequence_parallel": True, "layout__tp": 1},
         "sequence_parallel needs tp above 1 | it splits norms over tp"),
        ({"layout__sequence_parallel": True, "layout__tp": 2}, None),
        ({"layout__sequence_parallel": True}, None),
        ({"layout__cp": 2, "train__seq_len": 4098},
         "cp 2 does not divide sequences of 4098 tokens | each GPU gets two chunks: give a multiple of 4 tokens"),
        ({"layout__cp": 2, "train__seq_len": 4100}, None),
        ({"layout__cp": 4, "train__seq_len": 4100},
         "cp 4 does not divide sequences of 4100 tokens | each GPU gets two chunks: give a multiple of 8 tokens"),
        ({"layout__cp": 1, "train__seq_len": 4099}, None),
        # stages
        ({"layout__pp": 32}, None),
        ({"layout__pp": 3}, ("pp 3 does not divide the 32 layers of llama-2-7b | "
         "--uneven-stages (layout.uneven_stages: true) lets stages differ by a layer")),
        ({"layout__pp": 3, "layout__uneven_stages": True}, None),
        ({"layout__pp": 3, "layout__first_stage_layers": 10}, None),
        ({"layout__pp": 3, "layout__last_stage_layers": 10}, None),
        ({"layout__pp": 3, "stack": "torchtitan"}, None),
        ({"layout__pp": 4, "layout__vpp": 8}, None),
        ({"layout__pp": 4, "layout__vpp": 3}, ("pp x vpp = 12 does not divide the 32 layers of llama-2-7b | "
         "--uneven-stages (layout.uneven_stages: true) lets stages differ by a layer")),
        ({"layout__vpp": 3}, None),
        # ends that take a layer's place
        ({"layout__pp": 17}, ("pp 17 does not divide the 32 layers of llama-2-7b | "
         "--account-for-embedding --account-for-loss gives embedding and loss a layer's place each, which makes 34; "
         "--uneven-stages (layout.uneven_stages: true) lets stages differ by a layer")),
        ({"layout__pp": 17, "layout__vpp": 2, **BOTH_COUNT}, None),
        ({"layout__pp": 11, "layout__vpp": 3, "layout__account_for_loss": True}, None),
        ({"layout__pp": 11, **BOTH_COUNT},
         ("pp 11 does not divide the 32 layers of llama-2-7b, with embedding and loss 34 | "
          "--uneven-stages (layout.uneven_stages: true) lets stages differ by a layer")),
        ({"layout__pp": 5, "layout__vpp": 7, **BOTH_COUNT, "layout__uneven_stages": True},
         "pp x vpp = 35 is more than the 32 layers of llama-2-7b, with embedding and loss 34 | None"),
        ({"layout__pp": 2, "layout__stages": [16, 16], "layout__account_for_loss": True},
         "stages is given, and account_for_loss spreads the layers | give one of them"),
        ({**BOTH_COUNT, "stack": "hf-trainer"}, ("hf-trainer does not support pipelines | "
         f"stacks that support it: {', '.join(stacks_with('pipeline_parallel'))}")),
        # experts that are split
        ({"layout__expert_tp": 2}, "llama-2-7b has no experts to split | leave expert_tp out"),
        ({"layout__expert_tp": 2, "layout__tp": 4, "model": "mixtral-8x7b"}, None),
        ({"layout__expert_tp": 8, "layout__tp": 4, "model": "mixtral-8x7b"},
         "expert_tp 8 does not divide tp 4 | use a divisor of tp 4; 1 leaves experts whole"),
        # layers of every stage
        ({"layout__stages": [7, 9, 9, 7]}, None),
        ({"layout__stages": [7, 9, 9, 8]}, "the stages hold 33 layers, more than the 32 of llama-2-7b | None"),
        ({"layout__stages": [7, 9, 9, 7], "layout__pp": 2},
         "4 stages are given, and pp is 2 | give only one of the two"),
        ({"layout__stages": [7, 9, 9, 7], "layout__last_stage_layers": 7},
         "last_stage_layers is given, and the layers of every stage too | give one of them"),
        # modules that run again
        ({"layout__recompute_modules": ["mlp", "core_attn"]}, None),
        ({"layout__recompute_modules": ["moe"]}, "llama-2-7b has no moe | it has core_attn, mlp"),
        ({"layout__recompute_modules": ["mlp"], "layout__recompute": "full"},
         ("recompute_modules is selective recomputation, not full | leave one of them out, or write "
          "--recompute selective")),
        ({"layout__recompute_modules": ["mlp"], "stack": "nanotron"}, None),
        # ends of a pipeline that are given
        ({"layout__pp": 1, "layout__first_stage_layers": 10},
         "first_stage_layers needs pp of at least 2 | one stage holds all layers"),
        ({"layout__pp": 2, "layout__first_stage_layers": 31}, None),
        ({"layout__pp": 2, "layout__first_stage_layers": 32},
         "first_stage_layers leave 0 of 32 layers to 1 stages | each of the others needs at least one"),
        ({"layout__pp": 4, "layout__first_stage_layers": 29}, None),
        ({"layout__pp": 4, "layout__first_stage_layers": 30},
         "first_stage_layers leave 2 of 32 layers to 3 stages | each of the others needs at least one"),
        ({"layout__pp": 2, "layout__first_stage_layers": 20, "layout__last_stage_layers": 12}, None),
        ({"layout__pp": 2, "layout__first_stage_layers": 20, "layout__last_stage_layers": 11},
         ("first_stage_layers and last_stage_layers leave 1 of 32 layers to 0 stages | "
         "each of the others needs at least one")),
        ({"layout__first_stage_layers": 20, "layout__last_stage_layers": 11}, None),
        ({"layout__first_stage_layers": 32},
         "first_stage_layers leave 0 of 32 layers to 1 stages | each of the others needs at least one"),
        # batches
        ({"gpus": 8, "layout__tp": 2, "layout__pp": 2, "train__micro_batch": 2, "train__global_batch": 6},
         "a global batch of 6 cannot be split over dp 2 x micro-batch 2 | give a multiple of 4"),
        ({"gpus": 8, "layout__tp": 2, "layout__pp": 2, "train__micro_batch": 2, "train__global_batch": 12}, None),
        ({"gpus": 8, "layout__tp": 2, "layout__pp": 2, "layout__cp": 2, "layout__dp": 1, "train__global_batch": 3,
          "train__seq_len": 8192}, None),
        ({"gpus": 8, "layout__tp": 2, "layout__pp": 2, "train__global_batch": 3},
         "a global batch of 3 cannot be split over dp 2 | give a multiple of 2"),
        ({"gpus": 8, "layout__tp": 2, "layout__pp": 2, "layout__cp": 2, "train__global_batch": 3,
          "train__seq_len": 8192}, None),
        ({"gpus": 8, "layout__tp": 2, "train__global_batch": 3}, None),
        ({"layout__tp": 1, "layout__pp": 1, "train__global_batch": 3}, None),
        # recomputation and schedules
        ({"layout__recompute_layers": 4},
         ("recompute_layers needs recompute full | it counts layers that are recomputed as a whole: "
         "add --recompute full")),
        ({"layout__recompute_layers": 4, "layout__recompute": "full"}, None),
        # ZeRO and pipelines
        ({"layout__zero": 2, "layout__pp": 2},
         "ZeRO stage 2 cannot be combined with pipeline stages by megatron-lm | use zero 1, or pp 1"),
        ({"layout__zero": 1, "layout__pp": 2}, None),
        ({"layout__zero": 2, "layout__pp": 1}, None),
        ({"layout__zero": 3, "layout__pp": 2, "stack": "torchtitan"}, None),
        ({"layout__expert_tp": 3, "layout__tp": 4, "model": "mixtral-8x7b"},
         "expert_tp 3 does not divide tp 4 | use a divisor of tp 4; 1 leaves experts whole"),
        ({"layout__expert_tp": 3, "model": "mixtral-8x7b"},
         "expert_tp 3 does not divide the 14336 columns of an expert | None"),
        # how context ranks share sequences
        ({"layout__cp_kind": "ring", "stack": "hf-trainer"},
         ("hf-trainer does not split sequences over GPUs, ring or otherwise | "
          f"stacks that do: {', '.join(stacks_with('context_parallel'))}")),
        ({"layout__cp_kind": "hybrid", "stack": "torchtitan"},
         "torchtitan has no context parallelism of the kind hybrid | it has all-gather, ring"),
        ({"layout__cp_kind": "ulysses", "layout__cp": 3, "train__seq_len": 6144},
         ("cp 3 does not divide the 32 heads of llama-2-7b | "
          "each GPU gets whole heads; all-gather and ring and hybrid split sequences alone")),
        ({"layout__cp_kind": "ulysses", "layout__cp": 4, "layout__tp": 8, "train__seq_len": 8192}, None),
        ({"layout__cp_kind": "ulysses", "layout__cp": 2, "layout__tp": 32, "train__seq_len": 8192},
         ("tp x cp = 64 does not divide the 32 heads of llama-2-7b | "
          "each GPU gets whole heads; all-gather and ring and hybrid split sequences alone")),
        ({"layout__recompute_modules": ["mlp"], "stack": "hf-trainer"},
         ("hf-trainer does not recompute by module | "
          f"stacks that can: {', '.join(stacks_with('recompute_modules'))}")),
        ({"layout__stages": [7, 9, 9, 6]}, "the stages hold 31 layers, fewer than the 32 of llama-2-7b | None"),
        ({"layout__stages": [16, 16], "layout__pp": 2}, None),
        ({"layout__stages": [16, 16], "stack": "hf-trainer"},
         ("hf-trainer does not support pipelines | "
          f"stacks that support it: {', '.join(stacks_with('pipeline_parallel'))}")),
        # batches that grow, and that micro-batches make
        ({"train__batch_ramp_up": [8, 4, 1000]},
         "batch_ramp_up needs the global batch in the end | add --global-batch 12"),
        ({"train__batch_ramp_up": [8, 4, 1000], "train__global_batch": 8},
         "batch_ramp_up starts with 8, and the global batch is 8 | None"),
        ({"train__batch_ramp_up": [8, 4, 1000], "train__global_batch": 18},
         "steps of 4 do not lead from 8 to 18 | use a divisor of 10"),
        ({"train__batch_ramp_up": [8, 4, 1000], "train__global_batch": 16}, None),
        ({"gpus": 8, "train__global_batch": 24, "train__micro_batch": 2, "train__grad_accum": 3}, None),
        ({"gpus": 8, "train__global_batch": 30, "train__micro_batch": 2, "train__grad_accum": 5},
         ("a global batch of 30 is not micro_batch 2 x grad_accum 5 x dp for any dp on 8 GPUs | "
          "leave one of the two out; grad_accum is given at --grad-accum")),
        ({"gpus": 8, "layout__tp": 1, "layout__pp": 1, "train__global_batch": 96, "train__micro_batch": 2,
          "train__grad_accum": 3, "stack": "deepspeed", "layout__cp": 1},
         ("a global batch of 96 is not micro_batch 2 x grad_accum 3 x dp 8 (48) | "
          "leave one of the two out; grad_accum is given at --grad-accum")),
        ({"gpus": 8, "layout__tp": 1, "layout__pp": 1, "train__global_batch": 48, "train__micro_batch": 2,
          "train__grad_accum": 3, "stack": "deepspeed", "layout__cp": 1}, None),
        ({"gpus": 8, "layout__tp": 1, "layout__pp": 1, "train__global_batch": 72, "train__grad_accum": 3,
          "stack": "deepspeed", "layout__cp": 1}, None),
        # experts, what shares states out, and fused kernels
        ({"train__experts_per_token": 4}, "llama-2-7b has no experts | leave experts_per_token out"),
        ({"train__experts_per_token": 9, "model": "mixtral-8x7b"},
         "mixtral-8x7b has 8 experts, not 9 for a token | left out, a token goes through 2"),
        ({"train__experts_per_token": 8, "model": "mixtral-8x7b"}, None),
        ({"train__expert_skew": 1.3}, "llama-2-7b has no experts | leave expert_skew out"),
        ({"train__pad_to_capacity": True, "model": "mixtral-8x7b"},
         "the tokens of experts are padded to a capacity, and none is given | give capacity_factor too, e.g. 1.25"),
        ({"train__capacity_factor": 1.25, "train__pad_to_capacity": True, "model": "mixtral-8x7b"}, None),
        ({"train__backend": "deepspeed", "stack": "hf-trainer"}, None),
        ({"train__backend": "fsdp", "stack": "megatron-lm"},
         "the stack megatron-lm has no backend 'fsdp' | what shares its states out is part of it"),
        ({"stack": "deepspeed zero3"}, "unknown stack 'deepspeed zero3' | write --stack deepspeed --zero 3"),
        ({"job": "lora", "adapter": "none"}, "the job lora trains adapters | --job sft trains all weights"),
        # host memory
        ({"layout__offload": "none", "stack": "unsloth", "job": "lora"}, None),
        ({"layout__offload": "optimizer", "layout__zero": 0, "stack": "deepspeed"},
         "deepspeed offloads from ZeRO stage 1 on | leave the stage out, and it is chosen"),
        ({"layout__offload": "optimizer", "layout__zero": 1, "stack": "deepspeed"}, None),
        ({"layout__offload": "activations", "layout__zero": 0, "stack": "deepspeed"}, None),
    ],
)  # fmt: skip
def test_refused_beyond_the_limit_and_not_at_it(flags: dict[str, object], expected: str | None) -> None:
    assert told(**flags) == ([] if expected is None else [expected])


def test_a_stack_on_one_gpu_names_one_on_several() -> None:
    on_one: dict[str, object] = {"stack": "unsloth", "job": "lora"}
    assert told(**on_one) == told(**on_one, gpus=1) == told(**on_one, gpus=2, layout__zero=0) == []
    (problem,) = told(**on_one, gpus=2)
    assert problem.startswith("unsloth trains on one GPU | for several use --stack ")
    assert problem.endswith("; --zero 0 stands for a whole copy on each")
    assert told(**on_one, layout__dp=2)
    assert told(**on_one, nodes=1)


def test_what_a_stack_lacks_is_refused_by_name() -> None:
    supported = load_stack("megatron-lm").supports
    (optimizer,) = told(optimizer="adamw-4bit")
    assert optimizer.startswith("megatron-lm has no optimizer 'adamw-4bit' | ")
    assert all(told(optimizer=name) == [] for name in supported.optimizers)
    (cut,) = told(layout__cp=2, stack="nanotron", train__seq_len=8192)
    assert cut.startswith("nanotron does not support cp | stacks that support it: ")
    assert told(layout__cp=1, stack="nanotron") == []
    (schedule,) = told(layout__schedule="gpipe", layout__pp=2)
    assert schedule.startswith("megatron-lm has no schedule gpipe | stacks that have it: ")
    assert "nanotron" in schedule
    assert told(layout__schedule="gpipe", layout__pp=2, stack="nanotron") == []
    (stage,) = told(layout__zero=3, stack="megatron-deepspeed")
    zeros = ", ".join(map(str, load_stack("megatron-deepspeed").supports.zero))
    assert stage == f"megatron-deepspeed does not support ZeRO stage 3 | it supports {zeros}"
    (offload,) = told(layout__offload="params")
    assert offload == f"megatron-lm cannot offload params | it supports {', '.join(supported.offload)}"


def test_weights_are_loaded_in_what_a_stack_has() -> None:
    """Float32 masters of the trainer; a stack without a choice says so."""
    known = load_stack("hf-trainer").weights_dtypes
    assert {"bf16", "fp32"} <= set(known)
    wide, narrow = (
        ask({**LLAMA, "stack": "hf-trainer", "train.weights_dtype": dtype}).job.stack.states.trained_weight_bytes
        for dtype in ("fp32", "bf16")
    )
    assert (wide, narrow) == (4.0, 2.0)
    assert told(stack="megatron-lm", train__weights_dtype="fp32") == [
        "the stack megatron-lm cannot load weights in fp32 | what it keeps weights in is part of the stack"
    ]
    odd = [name for name in ("fp16", "bf16", "fp32") if name not in load_stack("nemo").weights_dtypes]
    for name in odd:
        (problem,) = told(stack="nemo", train__weights_dtype=name)
        has = ", ".join(load_stack("nemo").weights_dtypes)
        assert problem == f"the stack nemo cannot load weights in {name} | it has {has}"


def test_kernels_of_other_settings_follow_the_user() -> None:
    plain = ask({**LLAMA, "stack": "deepspeed"}).job.stack
    assert ask({**LLAMA, "stack": "deepspeed", "train.dropout": 0.1}).job.stack.kernels.dropout is True
    assert ask({**LLAMA, "stack": "deepspeed", "train.dropout": 0.0}).job.stack.kernels.dropout is False
    assert ask({**LLAMA, "stack": "deepspeed", "loss": "fused"}).job.stack.kernels.loss == "fused"
    for chosen in (True, False):
        asked = ask({**LLAMA, "stack": "deepspeed", "train.reduce_every_micro_batch": chosen}).job.stack
        assert asked.defaults.reduces_every_micro_batch is chosen
    assert plain.defaults == ask({**LLAMA, "stack": "deepspeed", "train.dropout": 0.1}).job.stack.defaults


def test_what_has_no_effect_is_told() -> None:
    def effects(**flags: object) -> list[str]:
        asked = ask({**LLAMA, **{key.replace("__", "."): value for key, value in flags.items()}})
        return [text for text in asked.warnings if "no effect" in text]

    assert effects() == []
    assert effects(lora__rank=8) == ["lora settings have no effect on the job sft"]
    assert effects(job="lora", lora__rank=8) == []
    assert effects(job="lora", p_tuning__virtual_tokens=8) == ["p_tuning settings have no effect on the job lora"]
    assert effects(serve__concurrency=8) == ["serve settings have no effect on the job sft"]


def test_sequences_beyond_the_positions_of_a_model_are_told() -> None:
    def positions(seq_len: int) -> list[str]:
        return [text for text in ask({**LLAMA, "train.seq_len": seq_len}).warnings if "positions" in text]

    assert positions(4096) == positions(1024) == []
    assert positions(4097) == ["seq_len 4,097 is above the 4,096 positions that llama-2-7b was trained for"]


def test_room_that_is_asked_for_is_left_on_the_card() -> None:
    """4 GiB; and with a confidence, what memory as sure as that takes of the card: never less than what is asked."""
    assert ask(LLAMA).min_headroom_bytes == 0.0
    assert ask({**LLAMA, "limits.min_headroom_gib": 4}).min_headroom_bytes == 4 * GIB
    sure = ask({**LLAMA, "limits.min_headroom_gib": 4, "limits.confidence": 0.95})
    card = sure.job.server.accelerator.memory_bytes
    factor = max(float(memory_suffices(True).quantile(0.95)), 1.0)
    assert sure.min_headroom_bytes == pytest.approx(card - (card - 4 * GIB) / factor)
    unsure = ask({**LLAMA, "limits.min_headroom_gib": 4, "limits.confidence": 0.5})
    half = max(float(memory_suffices(True).quantile(0.5)), 1.0)
    assert unsure.min_headroom_bytes == pytest.approx(card - (card - 4 * GIB) / half)
    known = ask({**LLAMA, "train.seq_len": 2048, "limits.min_headroom_gib": 4, "limits.confidence": 0.95})
    factor = max(float(memory_suffices(False).quantile(0.95)), 1.0)
    assert known.min_headroom_bytes == pytest.approx(card - (card - 4 * GIB) / factor)
    assert 4 * GIB <= unsure.min_headroom_bytes * (1 + 1e-12) <= sure.min_headroom_bytes


@pytest.mark.parametrize(
    ("flags", "batch"),
    [
        ({}, 128),
        ({"gpus": 8}, 128),
        ({"gpus": 3}, 192),  # 3 x 64
        ({"gpus": 12}, 192),
        ({"gpus": 40}, 160),
        ({"gpus": 24, "train.micro_batch": 2}, 192),  # lcm(2, 3) x 32
        ({"gpus": 24, "train.micro_batch": 3}, 129),  # which holds the odd factor: 43 x 3
        ({"gpus": 12, "layout.dp": 4, "train.micro_batch": 1}, 192),
        ({"gpus": 12, "layout.dp": 6, "train.micro_batch": 1}, 132),
        ({"train.micro_batch": 128}, 128),
        ({"train.micro_batch": 200}, 200),
        ({"gpus": 200, "train.micro_batch": 2}, 200),  # 25 x 2 x 4
    ],
)
def test_the_usual_batch_is_the_next_that_can_be_split(flags: dict[str, object], batch: int) -> None:
    assert ask({**LLAMA, **flags}).job.global_batch == batch


# --- methods


def test_places_of_adapters_that_a_model_does_not_have() -> None:
    def where(**flags: object) -> str:
        with pytest.raises(InputError) as caught:
            ask({**LLAMA, "job": "lora", **{key.replace("__", "."): value for key, value in flags.items()}})
        (problem,) = caught.value.problems
        assert problem.location is not None
        return problem.location.name

    assert where(lora__targets=["wibble"]) == "--lora-targets"
    assert where(lora__modules_to_save=["wibble"]) == "--modules-to-save"
    assert where(lora__targets=["pooler"]) == "--lora-targets"


def test_only_frozen_weights_are_quantised() -> None:
    assert told(job="lora", stack="hf-bf16", train__bits=8) == [
        "the job lora does not quantise frozen weights | --job qlora does"
    ]
    (first, second) = told(job="sft", train__bits=4, train__quantiser="bitsandbytes-nf4")
    assert first.startswith("the job sft does not quantise frozen weights")
    assert second.startswith("the job sft does not quantise frozen weights")
    made = ask({**LLAMA, "job": "qlora", "stack": "hf-bf16"}).job.method
    assert made.quantised
    assert not ask({**LLAMA, "job": "lora", "stack": "hf-bf16"}).job.method.quantised
    (bits,) = told(job="qlora", stack="hf-bf16", train__bits=3)
    assert "has no weights of 3 bits | it has " in bits


def test_adapters_of_a_job_follow_its_settings() -> None:
    """Rank and targets for adapters alone; virtual tokens of prompts."""
    lora = ask({**LLAMA, "job": "lora", "stack": "hf-bf16", "lora.rank": 4, "lora.targets": ["q"]}).job
    assert lora.method.learning.adapters == {"q": LowRank(4)}
    assert lora.method.trainable_parameters(lora.model) == 32 * 4 * (4096 + 4096)
    full = ask(LLAMA).job
    assert full.method.learning.adapters == {}
    assert full.method.trainable_parameters(full.model) == 6_738_415_616


@pytest.mark.parametrize(
    ("flags", "assumed"),
    [
        ({}, True),
        ({"train.seq_len": 4096}, False),
        ({"data.profile": "alpaca"}, False),
        ({"data.mean_tokens": 100}, False),
        ({"data.max_tokens": 100, "data.mean_tokens": 50}, False),
        ({"data.samples": 100}, True),
    ],
)
def test_lengths_are_a_guess_where_nothing_says_them(flags: dict[str, object], assumed: bool) -> None:
    assert ask({**LLAMA, **flags}).job.lengths_assumed is assumed


def test_recipes_in_8_bit_are_of_stacks_and_accelerators() -> None:
    stack = load_stack("megatron-lm")
    plain = [name for name in recipes_of(stack) if name not in BLOCK_SCALED]
    scaled = [name for name in recipes_of(stack) if name in BLOCK_SCALED]
    assert plain
    assert scaled
    eight = {"precision": "fp8"}
    assert all(told(**eight, train__fp8_recipe=name) == [] for name in plain)
    (bits,) = told(precision="bf16", train__fp8_recipe=plain[0])
    assert bits == f"the recipe {plain[0]} is of products in fp8, not bf16 | add --precision fp8"
    (units,) = told(**eight, train__fp8_recipe=scaled[0])
    assert units.startswith(
        f"h100-sxm-80gb does not scale blocks in its matrix units, as {scaled[0]} needs | use one of "
    )
    assert units.endswith(", ".join(plain))
    assert told(**eight, train__fp8_recipe=scaled[0], server="nvidia-dgx-b200") == []
    (lacks,) = told(**eight, stack="hf-bf16", train__fp8_recipe="wibble")
    assert "wibble" in lacks


def test_weights_that_are_quantised_are_loaded_as_their_stack_has_it() -> None:
    """Where a stack loads them otherwise than those that learn, and nobody says in what."""
    for name in BUILT_IN.names("stack"):
        stack = load_stack(name)
        dtype = stack.defaults.quantised_weights_dtype
        if dtype and "qlora" in METHODS and stack.supports.several_gpus:
            asked = {**LLAMA, "stack": name, "lora.targets": ["attention"]}
            assert ask({**asked, "job": "qlora"}).job.stack.states == stack.loaded_in(dtype).states
            assert ask({**asked, "job": "lora"}).job.stack.states == stack.states


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"layout__zero_group": 4, "layout__dp": 8}, None),
        ({"layout__zero_group": 3, "layout__dp": 8}, "zero_group 3 does not divide dp 8 | use a divisor"),
        ({"layout__zero_group": 8, "layout__dp": 8, "layout__cp": 2}, None),
        ({"layout__zero_group": 4, "layout__zero": 0},
         "without ZeRO there are no states to share | use zero 1, 2 or 3, or leave zero_group out"),
        ({"layout__zero_group": 4, "layout__dp": 8, "stack": "nanotron"},
         ("nanotron shares states over all replicas alone | "
          "leave --zero-group out, or choose another stack")),
        ({"layout__zero_group": 8, "layout__dp": 8, "stack": "nanotron"}, None),
    ],
)  # fmt: skip
def test_groups_that_share_states(flags: dict[str, object], expected: str | None) -> None:
    assert told(**flags) == ([] if expected is None else [expected])
