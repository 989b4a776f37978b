"""Shell commands that start TRL, LLaMA-Factory and axolotl."""

from pathlib import Path

from xe_sizer.interop.read import Imported, read_foreign
from xe_sizer.interop.source import Asked

ACCELERATE = "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 4\n"


def read(folder: Path, script: str, **files: str) -> Imported:
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    path = folder / "train.sh"
    path.write_text(script)
    return read_foreign([path], Asked())


def facts(found: Imported) -> dict[str, object]:
    return {key: fact.value for key, fact in found.facts.items()}


def test_flags_of_trl_and_of_its_launcher(tmp_path: Path) -> None:
    script = "N=4\naccelerate launch --num_processes $N trl/scripts/dpo.py --model_name_or_path org/Qwen2-0.5B \\\n"
    found = read(tmp_path, script + "  --per_device_train_batch_size 2 --use_peft --bf16\n")
    said = facts(found)
    assert (found.tool.name, said["job"], said["gpus"]) == ("trl", "dpo", 4)
    assert (said["train.micro_batch"], said["lora.rank"], said["precision"]) == (2, 16, "bf16")


def test_flags_win_over_the_configuration_that_a_command_names(tmp_path: Path) -> None:
    config = "model_name_or_path: org/Qwen2-0.5B\nper_device_train_batch_size: 2\nmax_length: 512\n"
    said = facts(read(tmp_path, "trl sft --config sft.yaml --per_device_train_batch_size 4\n", sft_yaml=config))
    assert (said["job"], said["train.micro_batch"], said["train.seq_len"]) == ("sft", 4, 512)


def test_an_accelerate_file_of_the_launcher_is_read_too(tmp_path: Path) -> None:
    config = "model_name_or_path: org/Llama-8B\nstage: sft\nfinetuning_type: lora\nfp16: true\n"
    script = "CUDA_VISIBLE_DEVICES=0,1 accelerate launch --config_file acc.yaml src/train.py lf.yaml\n"
    said = facts(read(tmp_path, script, acc_yaml=ACCELERATE, lf_yaml=config))
    assert (said["gpus"], said["layout.zero"], said["precision"]) == (2, 3, "fp16")


def test_llamafactory_cli_takes_gpus_from_variables(tmp_path: Path) -> None:
    script = (
        "FORCE_TORCHRUN=1 NNODES=2 NPROC_PER_NODE=8 llamafactory-cli train --stage sft --model_name_or_path org/M\n"
    )
    found = read(tmp_path, script)
    assert (found.tool.name, facts(found)["gpus"]) == ("llama-factory", 16)


def test_axolotl_train_with_an_override(tmp_path: Path) -> None:
    config = "base_model: org/Llama-7B\nsequence_len: 1024\nmicro_batch_size: 1\ndatasets:\n  - path: x\n"
    script = "torchrun --nproc_per_node 2 -m axolotl.cli.train job.yml --micro-batch-size 4\n"
    said = facts(read(tmp_path, script, job_yml=config))
    assert (said["gpus"], said["train.micro_batch"], said["train.seq_len"]) == (2, 4, 1024)


def test_a_variable_that_nobody_knows_gets_no_default(tmp_path: Path) -> None:
    found = read(tmp_path, "trl sft --model_name_or_path org/M --per_device_train_batch_size $BATCH\n")
    assert "train.micro_batch" not in found.facts
