"""Files of accelerate and DeepSpeed, alone and beside the configuration of a trainer."""

import json
from pathlib import Path

import pytest

from xe_sizer.errors import InputError
from xe_sizer.interop.read import Imported, read_foreign
from xe_sizer.interop.source import Asked

TRAINER = "model_name_or_path: Qwen/Qwen2.5-0.5B\npacking: true\nper_device_train_batch_size: 2\n"
COMMON = "compute_environment: LOCAL_MACHINE\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 4\n"
SHARDED = COMMON + "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: true\n"


def read(folder: Path, **files: str) -> Imported:
    paths = []
    for name, text in files.items():
        path = folder / name.replace("_", ".")
        path.write_text(text)
        paths.append(path)
    return read_foreign(paths, Asked())


def facts(found: Imported) -> dict[str, object]:
    return {key: fact.value for key, fact in found.facts.items()}


def test_alone_the_model_is_missing(tmp_path: Path) -> None:
    found = read(tmp_path, fsdp_yaml=SHARDED)
    said = facts(found)
    assert (said["gpus"], said["layout.zero"], said["precision"]) == (4, 3, "bf16")
    assert [each.key for each in found.missing] == ["model"]
    assert not found.unknown


def test_beside_a_trainer_what_is_read_takes_the_place_of_its_defaults(tmp_path: Path) -> None:
    found = read(tmp_path, job_yaml=TRAINER, fsdp_yaml=SHARDED)
    said = facts(found)
    assert (found.tool.name, said["gpus"], said["layout.zero"], said["train.global_batch"]) == ("trl", 4, 3, 8)
    assert not found.missing


def test_what_the_trainer_states_stays(tmp_path: Path) -> None:
    found = read(tmp_path, job_yaml=TRAINER + "fp16: true\n", fsdp_yaml=SHARDED)
    assert facts(found)["precision"] == "fp16"


def test_deepspeed_settings_of_accelerate(tmp_path: Path) -> None:
    text = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n  offload_optimizer_device: cpu\n"
    said = facts(read(tmp_path, zero_yaml=COMMON + text))
    assert (said["layout.zero"], said["layout.offload"]) == (3, "optimizer")


def test_no_distribution_is_one_gpu(tmp_path: Path) -> None:
    text = "compute_environment: LOCAL_MACHINE\nmixed_precision: 'no'\ndistributed_type: 'NO'\n"
    found = read(tmp_path, one_yaml=text)
    assert facts(found)["gpus"] == 1
    assert found.facts["gpus"].origin == "tool-default"


def test_context_parallelism(tmp_path: Path) -> None:
    text = SHARDED + "parallelism_config:\n  parallelism_config_cp_size: 2\n  parallelism_config_tp_size: 1\n"
    assert facts(read(tmp_path, cp_yaml=text))["layout.cp"] == 2


def test_a_deepspeed_file_leaves_to_the_trainer_what_is_auto(tmp_path: Path) -> None:
    settings = {
        "zero_optimization": {"stage": 2, "reduce_bucket_size": 2e8, "overlap_comm": True},
        "train_micro_batch_size_per_gpu": "auto",
        "bf16": {"enabled": "auto"},
    }
    found = read(tmp_path, job_yaml=TRAINER, ds_json=json.dumps(settings))
    said = facts(found)
    assert (said["layout.zero"], said["train.micro_batch"], said["precision"]) == (2, 2, "bf16")
    assert said["train.backend"] == "deepspeed"
    assert said["layout.bucket_gib"] == round(2 * 2e8 * 2 / 2**30, 4)  # overlap_comm takes two of them, of 16 bit
    assert said["train.overlap"] == ("data-parallel",)
    assert not found.lost
    assert not found.unknown


def test_a_deepspeed_file_says_what_its_engine_does(tmp_path: Path) -> None:
    """Its optimizer takes the trainer's place; a bucket left to the trainer is the square of the hidden size."""
    settings = {
        "fp16": {"enabled": True},
        "optimizer": {"type": "Lion", "params": {"lr": "auto"}},
        "zero_optimization": {
            "stage": 3,
            "reduce_bucket_size": "auto",
            "offload_optimizer": {"device": "nvme", "nvme_path": "/fast"},
            "zero_hpz_partition_size": 1,
            "zero_quantized_gradients": False,
        },
    }
    (tmp_path / "ds.json").write_text(json.dumps(settings))
    found = read(tmp_path, job_yaml=TRAINER + "deepspeed: ds.json\n")
    said = facts(found)
    keys = ("train.backend", "layout.zero", "layout.offload", "precision", "optimizer")
    assert [said[key] for key in keys] == ["deepspeed", 3, "optimizer", "fp16", "lion"]
    assert said["layout.bucket_gib"] == round(896**2 * 2 / 2**30, 4)
    told = {each.key: each.why for each in found.lost}
    assert told["zero_optimization.offload_optimizer.device"] == "keeps them on nvme; counted in host memory"


def test_what_zero_3_gathers_ahead_and_keeps_is_read(tmp_path: Path) -> None:
    """Other values than DeepSpeed's own; those, and what is left to the trainer, say nothing."""
    names = ("stage3_prefetch_bucket_size", "stage3_max_live_parameters", "stage3_max_reuse_distance")
    told = dict(zip((*names, "stage3_param_persistence_threshold"), (0, 2e9, "3e8", 1e6), strict=True))
    own = dict(zip((*names, "stage3_param_persistence_threshold"), ("auto", 1e9, 1e9, 1e5), strict=True))
    keys = ("prefetch_elements", "live_elements", "reuse_elements", "persistent_elements")
    for settings, values in ((told, [0, 2e9, 3e8, 1e6]), (own, [None] * 4)):
        (tmp_path / "ds.json").write_text(json.dumps({"zero_optimization": {"stage": 3, **settings}}))
        found = read(tmp_path, job_yaml=TRAINER + "deepspeed: ds.json\n")
        said = facts(found)
        assert [said.get(f"layout.{key}") for key in keys] == values
        assert not [each.key for each in found.lost if "stage3" in each.key]
        assert not found.unknown


def test_zero_plus_plus_is_refused_by_name(tmp_path: Path) -> None:
    shards = {"stage": 3, "zero_hpz_partition_size": 8, "zero_quantized_weights": True}
    (tmp_path / "ds.json").write_text(json.dumps({"zero_optimization": shards}))
    with pytest.raises(InputError) as caught:
        read(tmp_path, job_yaml=TRAINER + "deepspeed: ds.json\n")
    told = [one.message for one in caught.value.problems]
    assert [one.partition(":")[0] for one in told] == [
        "zero_optimization.zero_hpz_partition_size", "zero_optimization.zero_quantized_weights",
    ]  # fmt: skip
    assert all("ZeRO++, which is not modelled" in one for one in told)
    assert all(one.location is not None and one.location.name.endswith("ds.json") for one in caught.value.problems)


@pytest.mark.parametrize(("peft", "written"), [("", "none"), ("use_peft: true\n", "params")])
def test_weights_alone_in_host_memory(tmp_path: Path, peft: str, written: str) -> None:
    """Scenarios move the optimizer along, which is most of it where all weights learn, and little beside adapters."""
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}')
    fact = read(tmp_path, job_yaml=TRAINER + peft + "deepspeed: ds.json\n").facts["layout.offload"]
    assert (fact.value, fact.written) == ("params", written)


def test_alone_it_is_trained_by_deepspeed(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 1}}')
    found = read_foreign([tmp_path / "ds.json"], Asked(hardware={"model": "gpt2", "gpus": 4}))
    assert facts(found)["stack"] == "deepspeed"
    assert not found.missing


@pytest.mark.parametrize(("size", "group"), [(8, 8), (-1, None)])
def test_groups_of_deepspeed_share_states(size: int, group: int | None, tmp_path: Path) -> None:
    """MiCS shards within groups of ranks; -1 is what DeepSpeed has unasked."""
    settings = {"zero_optimization": {"stage": 3, "mics_shard_size": size}}
    found = read(tmp_path, job_yaml=TRAINER, ds_json=json.dumps(settings))
    assert facts(found).get("layout.zero_group") == group
    assert "zero_optimization.mics_shard_size" not in {each.key for each in found.lost}


def test_strategies_of_fsdp_1_stand_where_fsdp_2_has_a_switch(tmp_path: Path) -> None:
    """TRL's accelerate_configs/fsdp1.yaml."""
    text = COMMON + "distributed_type: FSDP\nfsdp_config: {fsdp_version: 1, fsdp_reshard_after_forward: WORD}\n"
    for word, zero in (("FULL_SHARD", 3), ("SHARD_GRAD_OP", 2), ("true", 3), ("false", 2)):
        assert facts(read(tmp_path, fsdp_yaml=text.replace("WORD", word)))["layout.zero"] == zero


def test_a_deepspeed_file_says_what_gradients_are_kept_and_exchanged_in(tmp_path: Path) -> None:
    text = '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}, "communication_data_type": "fp32",'
    text += ' "data_types": {"grad_accum_dtype": "fp32"}}'
    found = read(tmp_path, **{"ds.json": text})
    said = facts(found)
    assert (said["train.gradient_dtype"], said["train.reduce_dtype"]) == ("fp32", "fp32")
    assert not found.ignored
