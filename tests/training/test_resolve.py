"""From a scenario to a resolved question: origins, defaults, contradictions with model, hardware and stack."""

from __future__ import annotations

from operator import attrgetter

import pytest
from cases import REGISTRY, ask, job

from xe_sizer.errors import InputError
from xe_sizer.graph.inputs import LowRank
from xe_sizer.profiles.catalogue import load_stack
from xe_sizer.profiles.finder import BUILT_IN
from xe_sizer.scenario.read import read_scenario
from xe_sizer.scenario.scenario import Scenario
from xe_sizer.training.layout import OFFLOAD, RECOMPUTE
from xe_sizer.training.resolve import rearranged, resolve

BASE: dict[str, object] = {"model": "llama-2-7b"}


def problems(flags: dict[str, object]) -> list[str]:
    with pytest.raises(InputError) as caught:
        ask({**BASE, **flags})
    return [str(problem) for problem in caught.value.problems]


def test_defaults_come_from_the_stack_and_say_so() -> None:
    resolved = ask({**BASE, "job": "lora", "stack": "nemo"})
    for key, value in (("lora.rank", 32), ("train.padding", "longest-in-global-batch"), ("precision", "bf16")):
        assert (attrgetter(key)(resolved.values), resolved.origins[key]) == (value, "stack")
    assert (resolved.values.train.global_batch, resolved.origins["train.global_batch"]) == (128, "default")


def test_what_the_user_said_wins_and_says_where() -> None:
    flags = {"model": "llama-2-7b", "server": "dell-xe9680-h100", "lora.rank": 8, "job": "lora"}
    resolved = resolve(read_scenario(None, flags, {"XE_SIZER_STACK": "nemo"}), REGISTRY)
    assert (resolved.origins["lora.rank"], resolved.origins["stack"]) == ("flag", "env")
    assert resolved.job.method.learning.adapters == {"qkv": LowRank(8)}


def test_pretraining_packs_and_fine_tuning_follows_the_stack() -> None:
    assert ask({**BASE, "job": "pretrain", "stack": "hf-trainer"}).job.padding == "packed"
    assert ask({**BASE, "job": "sft", "stack": "hf-trainer"}).job.padding == "longest-in-micro-batch"


def test_a_sequence_is_no_longer_than_the_models_positions() -> None:
    assert ask({"model": "gpt2"}).job.seq_len == 1024
    assert ask(BASE).job.seq_len == 4096
    warned = ask({"model": "gpt2", "train.seq_len": 2048})
    assert any("1,024" in warning for warning in warned.warnings)


@pytest.mark.parametrize(
    ("given", "batch"), [({}, 128), ({"train.micro_batch": 3}, 129), ({"train.micro_batch": 3, "layout.dp": 16}, 144)]
)
def test_the_default_batch_can_be_split(given: dict[str, object], batch: int) -> None:
    assert ask({**BASE, **given}).job.global_batch == batch


def test_layout_keys_are_coded_as_layouts_code_them() -> None:
    given = {
        "layout.tp": 2,
        "layout.recompute": "full",
        "layout.offload": "optimizer",
        "layout.sequence_parallel": False,
    }
    fixed = ask({**BASE, **given, "train.micro_batch": 4}).fixed
    assert fixed == {
        "tp": 2, "micro_batch": 4, "recompute": RECOMPUTE.index("full"), "offload": OFFLOAD.index("optimizer"),
        "sequence_parallel": 0,
    }  # fmt: skip


def test_nodes_are_whole_servers() -> None:
    assert ask({**BASE, "nodes": 3}).gpus == 24
    assert ask({**BASE, "gpus": 3}).gpus == 3
    assert ask(BASE).gpus is None


def test_an_accelerator_without_bf16_computes_in_fp16() -> None:
    assert ask({**BASE, "gpu": "v100-sxm-32gb"}).job.precision == "fp16"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"precision": "fp8", "gpu": "a100-sxm-80gb"}, "a100-sxm-80gb has no fp8"),
        ({"layout.tp": 3}, "tp 3 does not divide the 32 heads"),
        ({"layout.pp": 5}, "pp 5 does not divide the 32 layers"),
        ({"layout.pp": 4, "layout.vpp": 3}, "pp x vpp = 12 does not divide the 32 layers"),
        ({"layout.ep": 2}, "no experts"),
        ({"layout.tp": 2, "stack": "hf-trainer"}, "hf-trainer does not support tp"),
        ({"layout.zero": 3, "stack": "megatron-deepspeed"}, "does not support ZeRO stage 3"),
        ({"layout.zero": 3, "layout.pp": 2}, "cannot be combined with pipeline stages"),
        ({"layout.offload": "params", "stack": "megatron-lm"}, "cannot offload params"),
        ({"job": "lora", "lora.targets": ["wibble"]}, "'wibble' is not a projection"),
        ({"gpus": 4, "layout.tp": 8}, "4"),
        ({"gpus": 8, "layout.dp": 8, "train.global_batch": 12}, "12"),
    ],
)
def test_contradictions_with_model_hardware_and_stack(flags: dict[str, object], said: str) -> None:
    assert any(said in problem for problem in problems(flags))


def test_all_problems_come_at_once() -> None:
    found = problems({"layout.tp": 3, "layout.pp": 5, "layout.ep": 2, "data.profile": "nothing-like-it"})
    assert len(found) == 4
    unknown = problems({"model": "lama-2-7b", "server": "dell-xe9680-h101", "stack": "nemmo"})
    assert len(unknown) == 3
    assert all("did you mean" in problem for problem in unknown)


def test_ways_that_a_stack_lacks_name_those_that_have_them() -> None:
    with pytest.raises(InputError) as caught:
        ask({**BASE, "stack": "hf-trainer", "layout.pp": 2})
    (problem,) = caught.value.problems
    named = (problem.hint or "").removeprefix("stacks that support it: ").split(", ")
    assert set(named) == {name for name in BUILT_IN.names("stack") if load_stack(name).supports.pipeline_parallel}


def test_nodes_that_a_layout_or_a_limit_does_not_allow() -> None:
    found = problems({"nodes": 3, "layout.tp": 2, "layout.dp": 8, "limits.max_gpus": 16})
    assert [problem.split("\n")[0] for problem in found] == [
        "--nodes: 24 GPUs cannot hold a layout of tp x pp x cp x dp = 16",
        "--max-gpus: 24 GPUs are asked for, but at most 16 allowed",
    ]


def test_no_hardware_is_an_error_with_a_hint() -> None:
    with pytest.raises(InputError) as caught:
        resolve(read_scenario(None, BASE, {}), REGISTRY)
    assert "--gpu" in (caught.value.problems[0].hint or "")


def test_settings_without_effect_are_told() -> None:
    resolved = ask({**BASE, "job": "sft", "lora.rank": 8})
    assert any("no effect" in warning for warning in resolved.warnings)
    assert not any("no effect" in warning for warning in ask({**BASE, "job": "lora", "lora.rank": 8}).warnings)


def test_fixed_fractions_leave_the_host_out() -> None:
    resolved = ask({**BASE, "efficiency.flops": 0.5, "efficiency.memory": 0.25, "stack": "hf-trainer"})
    device = resolved.job.device
    assert (device.matmul.effective_flops_efficiency, device.memory_bound_efficiency) == (0.5, 0.25)
    assert resolved.job.stack.step_overhead_s == resolved.job.stack.forward_launch_s == 0.0
    ideal = ask({**BASE, "efficiency.ideal": True}).job.device
    assert (ideal.matmul.effective_flops_efficiency, ideal.memory_bound_efficiency) == (1.0, 1.0)


def test_the_price_of_a_gpu_is_the_users_or_its_share_of_the_node() -> None:
    assert ask({**BASE, "cost.price_per_gpu_hour": 2.5}).tariff.per_gpu_hour == 2.5
    priced = [name for name in REGISTRY.names("server") if REGISTRY.server(name).price_per_hour]
    server = REGISTRY.server(priced[0])
    share = ask({**BASE, "server": priced[0]}).tariff.per_gpu_hour
    assert share == pytest.approx((server.price_per_hour or 0) / server.accelerators)


def test_an_open_layout_forgets_all_but_the_offload() -> None:
    given = {"layout.tp": 2, "layout.offload": "optimizer", "train.micro_batch": 2}
    assert ask({**BASE, **given}).without_layout().fixed == {"offload": OFFLOAD.index("optimizer")}


@pytest.mark.parametrize(
    ("stack", "kind", "flags", "frozen_bytes"),
    [
        ("nemo", "lora", {"precision": "fp8"}, 1),
        ("nemo", "lora", {"precision": "bf16"}, 2),
        ("nemo", "lora", {"precision": "fp8", "train__weights_dtype": "bf16"}, 2),
        ("megatron-lm", "lora", {"precision": "fp8"}, 2),  # fp8_param_gather is off there
    ],
)
def test_frozen_weights_are_kept_as_products_read_them(
    stack: str, kind: str, flags: dict[str, object], frozen_bytes: float
) -> None:
    """bf16_with_fp8_mixed of NeMo sets fp8_params, so that no 16-bit weights stand beside the narrow ones."""
    assert job("llama-2-7b", kind, stack, **flags).stack.states.frozen_bytes == frozen_bytes


@pytest.mark.parametrize(
    ("stack", "flags", "precision", "loaded", "autocast", "upcast"),
    [
        ("hf-trainer", {}, "bf16", "bf16", True, True),
        ("hf-trainer", {"train__mixed_precision": "none"}, "bf16", "bf16", False, False),
        ("fms-hf-tuning", {"train__mixed_precision": "bf16"}, "bf16", "bf16", True, True),
        ("hf-trainer@4.40", {"train__mixed_precision": "bf16"}, "bf16", "fp32", True, False),
        ("hf-trainer@4.40", {"train__mixed_precision": "none"}, "fp32", "fp32", False, False),
        ("hf-trainer@4.40", {"train__mixed_precision": "none", "precision": "bf16"}, "bf16", "bf16", False, False),
    ],
)
def test_mixed_precision_is_not_what_is_loaded(
    stack: str, flags: dict[str, object], precision: str, loaded: str, autocast: bool, upcast: bool
) -> None:
    """accelerate enters autocast and upcasts FSDP's shards where it is on (from 0.30 on), whatever was loaded."""
    made = job("llama-2-7b", "sft", stack, **flags)
    assert (made.precision, made.stack.defaults.weights_dtype) == (precision, loaded)
    assert (made.stack.states.autocast, made.stack.states.sharded_upcast) == (autocast, upcast)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"stack": "megatron-lm"}, "no choice of megatron-lm"),
        ({"stack": "hf-trainer", "train.backend": "deepspeed"}, "no choice of deepspeed"),
        ({"stack": "hf-trainer", "train.weights_dtype": "fp32", "precision": "bf16"}, "loaded in, fp32, not in bf16"),
    ],
)
def test_mixed_precision_that_cannot_be(flags: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        ask({"model": "llama-2-7b", "job": "sft", "train.mixed_precision": "none", **flags})


@pytest.mark.parametrize(
    ("kind", "gpus", "flags", "optimizer"),
    [
        ("sft", 1, {}, "paged-adamw-8bit"),
        ("sft", 1, {"optimizer": "adamw"}, "adamw"),
        ("sft", 2, {}, "adamw"),
        ("lora", 1, {}, "adamw"),
    ],
)
def test_torchtune_s_recipe_for_one_gpu_pages_its_optimizer(
    kind: str, gpus: int, flags: dict[str, object], optimizer: str
) -> None:
    """full_finetune_single_device has PagedAdamW8bit; recipes of several GPUs and of adapters have AdamW."""
    assert job("llama-2-7b", kind, "torchtune", gpus=gpus, **flags).optimizer.name == optimizer


def test_a_second_gpu_makes_another_job_of_one_whose_optimizer_goes_by_the_gpus() -> None:
    """Advice on more GPUs must not keep the optimizer of one."""
    asked = {"model": "llama-2-7b", "job": "sft", "gpu": "a100-sxm-80gb", "train.global_batch": 8, "train.steps": 10}

    def scenario(stack: str, gpus: int) -> Scenario:
        return read_scenario(None, {**asked, "stack": stack, "gpus": gpus}, {})

    for stack, kept in (("torchtune", False), ("litgpt", True)):
        one = resolve(scenario(stack, 1), REGISTRY)
        assert (rearranged(one, scenario(stack, 2), REGISTRY) is not None) is kept
