"""`import` and `export`, and files of other tools where a scenario is expected: exit codes, streams and files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xe_sizer.cli.main import main
from xe_sizer.profiles.source import load_yaml

AXOLOTL = """\
base_model: meta-llama/Llama-3.1-8B
adapter: lora
lora_r: 16
lora_target_linear: true
sequence_len: 4096
sample_packing: true
micro_batch_size: 2
gradient_accumulation_steps: 4
max_steps: 100
gradient_checkpointing: true
val_set_size: 0.05
# num_epochs: 7
unheard_of: 3
"""
GPU = ["--gpu", "h100-sxm-80gb"]


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "axolotl.yml"
    file.write_text(AXOLOTL)
    return str(file)


def test_a_scenario_is_written_with_the_place_of_every_value(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.yaml"
    assert main(["import", config, "--gpus", "8", "-o", str(job)]) == 0
    text = job.read_text()
    value = load_yaml(job).value
    assert isinstance(value, dict)
    assert value["train"]["seq_len"] == 4096
    assert value["train"]["global_batch"] == 64
    assert "epochs" not in value["train"]
    assert any("seq_len: 4096" in line and "line 5" in line for line in text.splitlines())
    assert "assumed" in next(line for line in text.splitlines() if line.startswith("server:"))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "val_set_size" in shown.err
    assert "unheard_of" in shown.err


def test_the_scenario_that_is_written_can_be_answered(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.yaml"
    assert main(["import", config, "--gpus", "8", *GPU, "-o", str(job)]) == 0
    answers = []
    for file in (str(job), config):
        capsys.readouterr()
        assert main(["estimate", file, "--gpus", "8", *GPU, "--format", "json"]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0]["time"]["step_s"] == answers[1]["time"]["step_s"]
    assert answers[1]["scenario"]["origin"]["train.seq_len"] == "file"
    assert answers[1]["scenario"]["origin"]["layout.zero"] == "stack"


def test_what_is_missing_is_bad_input_and_writes_no_file(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.yaml"
    assert main(["import", config, "-o", str(job)]) == 2
    assert not job.exists()
    assert "--gpus N" in capsys.readouterr().err
    assert main(["import", config, "--format", "json"]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert [each["key"] for each in answer["missing"]] == ["gpus"]


def test_json_tells_origins_and_what_is_ignored(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", config, "--gpus", "8", "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema_version"] == 1
    assert answer["tool"] == "axolotl"
    assert answer["scenario"]["train.seq_len"] == {"value": 4096, "origin": "read", "where": f"{config}:5:15"}
    assert answer["scenario"]["gpus"]["origin"] == "flag"
    assert answer["scenario"]["layout.zero"]["origin"] == "tool-default"
    effects = {each["key"]: each["effect"] for each in answer["ignored"]}
    assert effects["val_set_size"] == "memory or time"
    assert effects["unheard_of"] == "unknown"
    assert "num_epochs" not in effects


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["import"], "a file is missing"),
        (["import", "FILE", "--from", "axolotle"], "did you mean 'axolotl'"),
        (["import", "FILE", "--set", "NNODES"], "sets no variable"),
        (["import", "FILE", "--gpus", "many"], "gpus"),
        (["import", "FILE", "--format", "xml"], "xml"),
        (["import", "nowhere.yml"], "no such file"),
        (["export", "FILE"], "a tool is missing"),
        (["export", "FILE", "--to", "axolotle"], "did you mean 'axolotl'"),
        (["export", "--to", "axolotl"], "a scenario file is missing"),
        (["export", "FILE", "--to", "vllm", "--gpus", "8"], "for services alone"),
    ],
)
def test_mistakes_are_named(arguments: list[str], said: str, config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([config if word == "FILE" else word for word in arguments]) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.out == ""


def test_no_default_takes_the_place_of_a_value_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "axolotl.yml"
    file.write_text(AXOLOTL.replace("sequence_len: 4096", "sequence_len: many"))
    assert main(["import", str(file), "--gpus", "8", "--format", "json"]) == 0
    shown = capsys.readouterr()
    answer = json.loads(shown.out)
    assert "train.seq_len" not in answer["scenario"]
    assert f"{file}:5:15: sequence_len: not read: 'many' is not a number" in shown.err


def test_several_files_say_one_job(config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launch = tmp_path / "zero3.json"
    launch.write_text('{"zero_optimization": {"stage": 3}}')
    assert main(["import", config, str(launch), "--gpus", "8", "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["scenario"]["layout.zero"]["value"] == 3


def test_a_plan_leaves_the_number_of_gpus_open(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", config, *GPU, "--max-gpus", "8", "--brief"]) in (0, 1)
    assert "pass --gpus N" in capsys.readouterr().err


def test_check_looks_through_mixed_folders(config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "serve.sh").write_text("vllm serve meta-llama/Llama-3.1-8B --tensor-parallel-size 1\n")
    (tmp_path / "zero3.json").write_text('{"zero_optimization": {"stage": 3}}')
    (tmp_path / "setup.py").write_text("print('no job')\n")
    (tmp_path / "build.sh").write_text("make all\n")
    (tmp_path / "dpo.yml").write_text(AXOLOTL + "rl: dpo\n")
    assert main(["check", str(tmp_path), "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert sorted(Path(each["file"]).name for each in answer["scenarios"]) == ["axolotl.yml", "dpo.yml", "serve.sh"]
    assert answer["skipped"] == []


@pytest.mark.parametrize(("rl", "said"), [("dpo", "DPO"), ("orpo", "ORPO"), ("kto", "KTO"), ("simpo", "SimPO")])
def test_a_preference_job_is_imported_and_estimated(
    rl: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "preferences.yml"
    file.write_text(AXOLOTL + f"rl: {rl}\n")
    assert main(["import", str(file), "--gpus", "8"]) == 0
    assert f"job: {rl}" in capsys.readouterr().out
    assert main(["estimate", str(file), "--gpus", "8"]) == 0
    assert f"FITS  {said}" in capsys.readouterr().out


def test_an_export_is_read_back(config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "again.yml"
    assert main(["export", config, "--to", "axolotl", "--gpus", "8", *GPU, "-o", str(out)]) == 0
    assert "axolotl train" in capsys.readouterr().err
    assert main(["import", str(out), "--gpus", "8", "--format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)["scenario"]
    assert facts["train.seq_len"]["value"] == 4096
    assert facts["lora.rank"]["value"] == 16
    assert facts["model"]["value"] == "meta-llama/Llama-3.1-8B"


def test_what_does_not_fit_is_not_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("model: llama-3.1-70b\ngpu: rtx-4090\ngpus: 1\njob: sft\n")
    out = tmp_path / "out.yml"
    assert main(["export", str(job), "--to", "axolotl", "-o", str(out)]) == 1
    assert not out.exists()
    assert "nothing is written" in capsys.readouterr().err


def test_ends_that_count_as_layers_are_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """94 layers, the embedding and the loss on 32 stages of 3 chunks: the outermost chunks hold the ends alone."""
    script, job = tmp_path / "qwen3.sh", tmp_path / "job.yaml"
    script.write_text(
        "torchrun --nproc_per_node 8 --nnodes 32 pretrain_gpt.py --num-layers 94 --hidden-size 4096 --train-iters 10 "
        "--num-attention-heads 64 --seq-length 4096 --micro-batch-size 1 --global-batch-size 512 --bf16 "
        "--pipeline-model-parallel-size 32 --num-virtual-stages-per-pipeline-rank 3 --recompute-granularity full "
        "--recompute-method uniform --recompute-num-layers 1 --vocab-size 151936 --max-position-embeddings 4096 "
        "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split --use-distributed-optimizer\n"
    )
    assert main(["import", str(script), "--gpu", "h100-sxm-80gb", "-o", str(job)]) == 0
    assert "account_for_loss: true" in job.read_text()
    capsys.readouterr()
    assert main(["estimate", str(job)]) == 0, capsys.readouterr().err
    assert "pp 32 x 3 chunks" in capsys.readouterr().out


def test_ends_that_count_as_layers_are_exported(tmp_path: Path) -> None:
    job, script = tmp_path / "job.yaml", tmp_path / "job.sh"
    job.write_text(
        "{model: llama-2-7b, gpu: h100-sxm-80gb, gpus: 34, job: pretrain, stack: megatron-lm, "
        "train: {steps: 10, seq_len: 2048, global_batch: 34, micro_batch: 1}, "
        "layout: {tp: 1, pp: 17, vpp: 2, account_for_embedding: true, account_for_loss: true}}"
    )
    assert main(["export", str(job), "--to", "megatron-lm", "-o", str(script)]) == 0
    written = script.read_text()
    assert "--account-for-embedding-in-pipeline-split" in written
    assert "--account-for-loss-in-pipeline-split" in written
