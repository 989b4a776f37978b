"""Configurations of LLaMA-Factory's two interfaces as scenarios."""

import json
from pathlib import Path

import pytest

from xe_sizer.errors import InputError
from xe_sizer.interop.read import Imported, read_foreign
from xe_sizer.interop.source import Asked

BASE = "model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\ntemplate: qwen3\n"
SECOND = "model: Qwen/Qwen3-4B\nmodel_class: llm\ntrain_dataset: data/sft.yaml\n"


def read(folder: Path, text: str, name: str = "job.yaml") -> Imported:
    path = folder / name
    path.write_text(text)
    return read_foreign([path], Asked(hardware={"gpus": 4}))


def facts(found: Imported) -> dict[str, object]:
    return {key: fact.value for key, fact in found.facts.items()}


def test_defaults_are_those_of_llama_factory(tmp_path: Path) -> None:
    found = read(tmp_path, BASE)
    said = facts(found)
    assert said["job"] == "lora"
    assert said["train.seq_len"] == 2048
    assert said["train.micro_batch"] == 8
    assert said["lora.rank"] == 8
    assert said["lora.targets"] == ("all-linear",)
    assert said["layout.recompute"] == "full"
    assert said["layout.zero"] == 0
    assert found.facts["layout.recompute"].origin == "tool-default"


@pytest.mark.parametrize(
    ("text", "job"),
    [
        ("finetuning_type: full\n", "sft"),
        ("finetuning_type: lora\nquantization_bit: 4\n", "qlora"),
        ("finetuning_type: full\nstage: pt\n", "pretrain"),
        ("stage: rm\n", "reward"),
        ("stage: dpo\npref_loss: sigmoid\n", "dpo"),
        ("stage: dpo\npref_loss: simpo\n", "simpo"),
        ("stage: kto\n", "kto"),
        ("stage: ppo\nreward_model: saves/rm\n", "ppo"),
    ],
)
def test_stage_and_method_make_the_job(tmp_path: Path, text: str, job: str) -> None:
    assert facts(read(tmp_path, "model_name_or_path: Qwen/Qwen3-4B\ncutoff_len: 1024\n" + text))["job"] == job


def test_what_learns_is_kept_in_float32_unless_the_run_is_pure(tmp_path: Path) -> None:
    full = "finetuning_type: full\n"
    assert facts(read(tmp_path, BASE + full + "bf16: true\n"))["train.weights_dtype"] == "fp32"
    pure = facts(read(tmp_path, BASE + full + "pure_bf16: true\n"))
    assert (pure["train.weights_dtype"], pure["precision"]) == ("bf16", "bf16")


def test_recomputation_is_on_unless_it_is_disabled(tmp_path: Path) -> None:
    assert facts(read(tmp_path, BASE + "disable_gradient_checkpointing: true\n"))["layout.recompute"] == "none"
    moved = facts(read(tmp_path, BASE + "use_unsloth_gc: true\n"))
    assert (moved["layout.recompute"], moved["layout.offload"]) == ("full", "activations")


def test_a_checkpoint_says_in_its_name_how_it_is_quantised(tmp_path: Path) -> None:
    said = facts(read(tmp_path, "model_name_or_path: org/Model-7B-GPTQ\nfinetuning_type: lora\ntemplate: x\n"))
    assert (said["job"], said["train.quantiser"], said["train.bits"]) == ("qlora", "auto-gptq", 4)


def test_double_quantisation_is_told_where_it_is_off(tmp_path: Path) -> None:
    text = BASE + "finetuning_type: lora\nquantization_bit: 4\ndouble_quantization: "
    assert "double_quantization" in {each.key for each in read(tmp_path, text + "false\n").lost}
    assert "double_quantization" not in {each.key for each in read(tmp_path, text + "true\n").lost}


def test_a_deepspeed_file_beside_says_how_states_are_sharded(tmp_path: Path) -> None:
    settings = {"zero_optimization": {"stage": 3, "sub_group_size": 1e9, "offload_param": {"device": "cpu"}}}
    (tmp_path / "ds.json").write_text(json.dumps(settings))
    found = read(tmp_path, BASE + "deepspeed: ds.json\n")
    said = facts(found)
    assert (said["layout.zero"], said["layout.offload"]) == (3, "params")
    assert "zero_optimization.sub_group_size" not in {each.key for each in found.lost}


def test_megatron_keys_set_the_layout(tmp_path: Path) -> None:
    text = "finetuning_type: full\ntensor_model_parallel_size: 2\npipeline_model_parallel_size: 2\nbf16: true\n"
    said = facts(read(tmp_path, BASE + text + "use_distributed_optimizer: true\nper_device_train_batch_size: 1\n"))
    assert (said["layout.tp"], said["layout.pp"], said["layout.zero"]) == (2, 2, 1)
    assert said["layout.recompute"] == "none"
    assert said["train.global_batch"] == 1


@pytest.mark.parametrize(
    ("text", "optimizer", "rank"),
    [
        ("use_galore: true\ngalore_rank: 128\n", "galore-adamw", 128),
        ("use_galore: true\ngalore_layerwise: true\noptim: adamw_8bit\n", "galore-adamw-8bit-layerwise", 16),
        ("use_galore: true\noptim: adafactor\n", "galore-adafactor", 16),
        ("use_apollo: true\napollo_layerwise: true\n", "apollo-layerwise", 16),
        ("use_adam_mini: true\n", "adam-mini", None),
    ],
)
def test_optimizers_of_a_low_rank(tmp_path: Path, text: str, optimizer: str, rank: int | None) -> None:
    found = read(tmp_path, BASE + "finetuning_type: full\n" + text)
    assert (facts(found)["optimizer"], facts(found).get("train.optimizer_rank")) == (optimizer, rank)
    assert not [each.key for each in found.lost if "galore" in each.key or "apollo" in each.key or "mini" in each.key]


def test_ray_workers_are_gpus(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(BASE + "ray_num_workers: 4\n")
    assert read_foreign([path], Asked()).facts["gpus"].value == 4


def test_generating_is_a_job_of_its_own(tmp_path: Path) -> None:
    said = facts(read(tmp_path, "model_name_or_path: Qwen/Qwen3-4B\ntemplate: qwen3\ninfer_backend: vllm\n"))
    assert (said["job"], said["serve.engine"]) == ("inference", "vllm")
    assert "stack" not in said


def test_the_second_interface_has_defaults_of_its_own(tmp_path: Path) -> None:
    said = facts(read(tmp_path, SECOND + "dist_config:\n  name: fsdp2\n"))
    assert (said["job"], said["layout.zero"], said["train.micro_batch"]) == ("sft", 3, 1)
    assert (said["precision"], said["layout.recompute"], said["train.seq_len"]) == ("bf16", "full", 2048)


def test_plugins_of_the_second_interface(tmp_path: Path) -> None:
    text = "peft_config:\n  name: lora\n  r: 16\n  target_modules: all\n"
    text += "quant_config:\n  name: bnb\n  quantization_bit: 8\n"
    said = facts(read(tmp_path, SECOND + text + "kernel_config:\n  name: liger_kernel\n"))
    assert (said["job"], said["train.bits"], said["lora.rank"]) == ("qlora", 8, 16)
    assert said["loss"] == "fused"


@pytest.mark.parametrize("key", ["cutoff_len", "quantization_bit", "lora_rank", "packing", "recompute_num_layers"])
@pytest.mark.parametrize("value", ["[1]", "{a: 1}", "abc", "-1", "0.3", ".inf", "1e99"])
def test_odd_values_are_read_or_refused_at_their_place(tmp_path: Path, key: str, value: str) -> None:
    text = BASE + f"recompute_granularity: full\n{key}: {value}\n"
    try:
        assert facts(read(tmp_path, text))["model"] == "Qwen/Qwen3-4B"
    except InputError as refused:
        (problem,) = refused.problems
    else:
        return
    assert str(problem).startswith(f"{problem.location}: {key}: ")
    assert str(problem.location).endswith(f":{len(text.splitlines())}:{len(key) + 3}")
