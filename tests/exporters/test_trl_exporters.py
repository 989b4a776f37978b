"""TRL, and the launchers that start it: what they are told of a plan, and what they refuse."""

import json
from typing import Any

import pytest
import yaml

from xe_sizer.errors import InputError
from xe_sizer.interop.write import Plan, ToolFiles, export, exporter_named

PLAN: dict[str, Any] = {
    "model": "Qwen/Qwen2.5-7B", "job": "lora", "lora.rank": 16, "lora.targets": ["all-linear"], "precision": "bf16",
    "train.seq_len": 2048, "train.micro_batch": 2, "train.grad_accum": 4, "train.steps": 100, "layout.zero": 3,
    "layout.recompute": "full", "gpus": 16, "nodes": 2, "gpus_per_node": 8,
}  # fmt: skip


def written(tool: str, **changed: Any) -> ToolFiles:
    values = PLAN | {key.replace("__", "."): value for key, value in changed.items()}
    return export(Plan(values), exporter_named(tool)).written


def test_trl_has_one_file_and_a_command() -> None:
    found = written("trl")
    values = yaml.safe_load(found.text)
    assert (values["max_length"], values["use_peft"], values["lora_target_modules"]) == (2048, True, "all-linear")
    assert (values["fsdp"], values.get("deepspeed")) == ("full_shard auto_wrap", None)
    assert found.run == "trl sft --config FILE --num_processes 16 --num_machines 2"


def test_deepspeed_is_told_what_zero_3_gathers_ahead_and_keeps() -> None:
    asked = {"prefetch_elements": 0, "live_elements": 2e9, "reuse_elements": 3e8, "persistent_elements": 1e6}
    keys: dict[str, Any] = {f"layout__{name}": value for name, value in asked.items()}
    section = yaml.safe_load(written("trl", train__backend="deepspeed", **keys).text)["deepspeed"]["zero_optimization"]
    assert section == {
        "stage": 3, "stage3_prefetch_bucket_size": 0, "stage3_max_live_parameters": 2_000_000_000,
        "stage3_max_reuse_distance": 300_000_000, "stage3_param_persistence_threshold": 1_000_000,
    }  # fmt: skip
    sharded = yaml.safe_load(written("trl", train__backend="deepspeed", layout__zero=2, **keys).text)["deepspeed"][
        "zero_optimization"
    ]
    assert sharded == {"stage": 2}


@pytest.mark.parametrize("tool", ["trl", "llama-factory"])
def test_the_trainer_of_transformers_shards_with_fsdp_unless_deepspeed_is_asked_for(tool: str) -> None:
    kept = yaml.safe_load(written(tool, layout__zero=2).text)
    moved = yaml.safe_load(written(tool, layout__offload="params").text)
    assert (kept["fsdp"], kept["fsdp_config"]["reshard_after_forward"]) == ("shard_grad_op auto_wrap", False)
    assert (moved["fsdp"], moved["fsdp_config"]["cpu_offload"]) == ("full_shard auto_wrap offload", True)
    assert "deepspeed" not in kept | moved
    for asked in ({"train__backend": "deepspeed"}, {"layout__offload": "optimizer"}, {"layout__zero": 1}):
        values = yaml.safe_load(written(tool, **asked).text)
        assert "fsdp" not in values
        assert values["deepspeed"]["zero_optimization"]["stage"] == asked.get("layout__zero", 3)


def test_a_preference_job_starts_its_own_trainer() -> None:
    assert written("trl", job="dpo").run.startswith("trl dpo ")
    assert "trl.scripts.kto" in written("deepspeed", job="kto").text


def test_deepspeed_has_a_launch_script_and_a_configuration() -> None:
    found = written("deepspeed", layout__zero=2, layout__offload="optimizer")
    section = json.loads(found.beside["deepspeed.json"])["zero_optimization"]
    assert (section["stage"], section["offload_optimizer"]["device"]) == (2, "cpu")
    assert "deepspeed --num_nodes 2 --num_gpus 8" in found.text
    assert "--gradient_checkpointing true" in found.text


@pytest.mark.parametrize("tool", ["trl", "deepspeed", "accelerate"])
@pytest.mark.parametrize(("zero", "offload"), [(0, "optimizer"), (1, "params"), (2, "params+activations")])
def test_what_no_stage_can_keep_in_host_memory_is_refused(tool: str, zero: int, offload: str) -> None:
    with pytest.raises(InputError):
        written(tool, layout__zero=zero, layout__offload=offload)


def test_accelerate_shards_with_fsdp_within_groups() -> None:
    values = yaml.safe_load(written("accelerate", layout__zero_group=8, layout__cp=2).beside["accelerate.yaml"])
    assert (values["distributed_type"], values["num_processes"], values["num_machines"]) == ("FSDP", 16, 2)
    assert values["parallelism_config"]["parallelism_config_dp_shard_size"] == 4
    assert values["parallelism_config"]["parallelism_config_cp_size"] == 2


def test_accelerate_takes_deepspeed_for_stages_that_fsdp_lacks() -> None:
    values = yaml.safe_load(written("accelerate", layout__zero=1).beside["accelerate.yaml"])
    assert (values["distributed_type"], values["deepspeed_config"]["zero_stage"]) == ("DEEPSPEED", 1)


def test_pretraining_is_refused() -> None:
    with pytest.raises(InputError, match="job"):
        written("trl", job="pretrain")


@pytest.mark.parametrize("tool", ["trl", "axolotl", "llama-factory", "nemo"])
def test_adapters_are_named_as_the_modules_of_models(tool: str) -> None:
    text = written(tool, lora__targets=["q", "v", "mlp"]).text
    assert all(name in text for name in ("q_proj", "v_proj", "gate_proj", "up_proj", "down_proj"))


def test_torchtune_names_the_modules_of_attention_and_the_mlp_as_a_whole() -> None:
    values = yaml.safe_load(written("torchtune", model="llama-3.1-8b", lora__targets=["q", "v", "mlp"]).text)["model"]
    assert (values["lora_attn_modules"], values["apply_lora_to_mlp"]) == (["q_proj", "v_proj"], True)


@pytest.mark.parametrize(
    ("tool", "keys"),
    [
        ("trl", {"use_peft": True, "load_in_4bit": True, "lora_r": 16}),
        ("axolotl", {"adapter": "qlora", "rl": "dpo", "load_in_4bit": True, "lora_r": 16}),
        ("llama-factory", {"finetuning_type": "lora", "stage": "dpo", "quantization_bit": 4, "lora_rank": 16}),
    ],
)
def test_adapters_beside_a_preference_job_are_written(tool: str, keys: dict[str, object]) -> None:
    values = yaml.safe_load(written(tool, job="dpo", adapter="lora", train__bits=4).text)
    assert {key: values.get(key) for key in keys} == keys


def test_where_a_reference_comes_from_is_written() -> None:
    text = written("trl", job="dpo", train__reference="precomputed").text
    assert yaml.safe_load(text)["precompute_ref_log_probs"] is True
    with pytest.raises(InputError, match="has a reference"):
        written("trl", job="dpo", train__reference="none")
    plan, trl = PLAN | {"job": "dpo", "adapter": "lora"}, exporter_named("trl")
    unsaid = [dict(export(Plan(plan | {"train.reference": each}), trl).unsaid) for each in ("adapters-off", "copy")]
    assert ["train.reference" in each for each in unsaid] == [False, True]


def test_a_reward_model_has_a_trainer() -> None:
    found = written("trl", job="reward")
    assert found.run.startswith("trl reward ")
    assert yaml.safe_load(written("axolotl", job="reward", adapter="lora").text)["reward_model"] is True


@pytest.mark.parametrize("tool", ["trl", "axolotl", "llama-factory"])
def test_deepspeed_is_told_what_gradients_are_kept_and_exchanged_in(tool: str) -> None:
    """Where that is not the type of the run, which it takes unasked."""
    of_zero = {"train__backend": "deepspeed", "layout__zero": 2}
    narrow = written(tool, train__gradient_dtype="bf16", train__reduce_dtype="bf16", **of_zero)
    wide = written(tool, train__gradient_dtype="fp32", train__reduce_dtype="fp32", **of_zero)
    for found, kinds in ((narrow, ()), (wide, ("grad_accum_dtype", "communication_data_type"))):
        text = found.text + "".join(str(each) for each in found.beside.values())
        said = [word for word in ("grad_accum_dtype", "communication_data_type") if word in text]
        assert said == list(kinds)
