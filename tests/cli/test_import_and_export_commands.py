"""`import` and `export`, and files of other tools where a scenario is expected: exit codes, streams and files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xe_sizer.cli.main import main
from xe_sizer.profiles.yaml_reader import load_yaml

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
ADAPTERS = """\
base_model: meta-llama/Llama-3.1-8B
adapter: lora
lora_r: 16
lora_alpha: 32
lora_dropout: 0.05
lora_target_linear: true
sequence_len: 4096
sample_packing: true
micro_batch_size: 2
num_epochs: 2
learning_rate: 2e-4
plugins: [axolotl.integrations.liger.LigerPlugin]
liger_rope: true
liger_rms_norm: true
liger_glu_activation: true
liger_fused_linear_cross_entropy: true
"""
SCENARIO = """\
model: meta-llama/Llama-3.1-8B
gpu: a100-sxm-80gb
gpus: 8
job: pretrain
stack: STACK
layout: {tp: 2}
train: {global_batch: 32, seq_len: 2048, micro_batch: 1, padding: packed, LENGTH}
"""


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
    file.write_text(AXOLOTL.replace("sequence_len: 4096", "sequence_len: ${LENGTH}"))
    assert main(["import", str(file), "--gpus", "8", "--format", "json"]) == 0
    shown = capsys.readouterr()
    answer = json.loads(shown.out)
    assert "train.seq_len" not in answer["scenario"]
    assert f"{file}:5:15: sequence_len: not read: '${{LENGTH}}' is filled in elsewhere" in shown.err


@pytest.mark.parametrize("command", [["import"], ["estimate"], ["plan"], ["export", "--to", "axolotl"]])
def test_values_that_no_tool_can_run_with_are_bad_input(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "axolotl.yml"
    text = AXOLOTL.replace("sequence_len: 4096", "sequence_len: -5").replace("lora_r: 16", "lora_r: sixteen")
    file.write_text(text + "lora_dropout: 5\n")
    assert main([*command, str(file), "--gpus", "8"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"{file}:3:9: lora_r: 'sixteen' is not a number" in shown.err
    assert f"{file}:5:15: sequence_len: -5 is not a whole number above zero" in shown.err
    assert shown.err.count("hint: correct it, or leave it out") == 1  # of both


def test_values_that_a_scenario_cannot_have_are_bad_input_for_import_as_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "axolotl.yml"
    file.write_text(AXOLOTL + "lora_dropout: 5\n")
    for command in ("import", "estimate"):
        assert main([command, str(file), "--gpus", "8"]) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert f"{file}:14:15: 'dropout'" in shown.err


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


def written_for(tool: str, text: str, folder: Path, *more: str) -> str:
    """What `export` writes for a tool of a file that is imported first."""
    source, job = folder / "source.yml", folder / "job.yaml"
    source.write_text(text)
    assert main(["import", str(source), "--gpus", "8", *GPU, "-o", str(job)]) == 0
    out = folder / f"out-{tool}"
    assert main(["export", str(job), "--to", tool, "-o", str(out), *more]) == 0
    return out.read_text()


def test_epochs_dropout_alpha_and_kernels_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = written_for("axolotl", ADAPTERS, tmp_path)
    lines = text.splitlines()
    for line in ("num_epochs: 2", "lora_dropout: 0.05", "lora_alpha: 32", "liger_glu_activation: true",
                 "liger_fused_linear_cross_entropy: true", "- axolotl.integrations.liger.LigerPlugin"):  # fmt: skip
        assert line in lines
    assert "max_steps" not in text
    shown = capsys.readouterr().err
    assert "has no setting" not in shown
    for said in (shown, text):
        assert "yours to add: the learning rate and its schedule (learning_rate, lr_scheduler, warmup_ratio)" in said


@pytest.mark.parametrize(
    ("tool", "lines"),
    [
        ("llama-factory", ("num_train_epochs: 2", "lora_alpha: 32", "lora_dropout: 0.05", "enable_liger_kernel: true")),
        ("trl", ("num_train_epochs: 2", "lora_alpha: 32", "lora_dropout: 0.05", "use_liger_kernel: true")),
        ("deepspeed", ("  --num_train_epochs 2 \\", "  --lora_alpha 32 \\", "  --use_liger_kernel true \\")),
        ("torchtune", ("epochs: 2", "  lora_alpha: 32", "  lora_dropout: 0.05")),
        ("nemo", ("  num_epochs: 2", "  alpha: 32", "  dropout: 0.05")),
    ],
)
def test_other_tools_keep_them_too(
    tool: str, lines: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = written_for(tool, ADAPTERS, tmp_path, "--zero", "3")
    assert set(lines) <= set(text.splitlines())
    assert "steps" not in [line.strip(" -").partition(":")[0].partition(" ")[0] for line in text.splitlines()]
    assert "1000" not in text
    assert "yours to add: the learning rate" in capsys.readouterr().err


def test_a_tool_that_counts_steps_alone_is_told_none_that_are_assumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(SCENARIO.replace("STACK", "megatron-lm").replace("LENGTH", "epochs: 2"))
    assert main(["export", str(job), "--to", "megatron-lm"]) == 2
    assert "counts steps, and the scenario does not" in capsys.readouterr().err
    assert main(["export", str(job), "--to", "megatron-lm", "--samples", "3200"]) == 0
    assert "--train-iters 200 " in capsys.readouterr().out


def test_options_of_an_estimate_change_what_is_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(SCENARIO.replace("STACK", "nemo").replace("LENGTH", "steps: 100"))
    changed = ["--stack", "megatron-lm", "--gpus", "16", "--steps", "50", "--recompute", "full"]
    assert main(["export", str(job), "--to", "megatron-lm", *changed]) == 0
    text = capsys.readouterr().out
    for flag in ("--nnodes 2 --nproc_per_node 8", "--train-iters 50 ", "--recompute-granularity full "):
        assert flag in text


def test_a_job_without_a_file_is_exported(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--model", "llama-3.1-8b", "--job", "lora", "--gpus", "1", *GPU, "--epochs", "3"]
    assert main(["export", *options, "--to", "trl"]) == 0
    shown = capsys.readouterr()
    assert "num_train_epochs: 3" in shown.out.splitlines()
    assert "yours to add: the scale of the adapters (lora_alpha)" in shown.err
    assert "written as assumed: train.seq_len" in shown.err or "train.global_batch" in shown.err


def test_megatron_is_told_the_wavelengths_of_rotary_positions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(SCENARIO.replace("STACK", "megatron-lm").replace("LENGTH", "steps: 100"))
    assert main(["export", str(job), "--to", "megatron-lm"]) == 0
    text = capsys.readouterr().out
    assert "--rotary-base 500000 " in text
    assert "--use-rope-scaling " in text
    assert main(["export", str(job), "--to", "megatron-lm", "--model", "llama-2-7b"]) == 0
    text = capsys.readouterr().out
    assert "--rotary-base 10000 " in text
    assert "--use-rope-scaling" not in text
    assert main(["export", str(job), "--to", "megatron-lm", "--model", "yi-6b"]) == 0
    assert "yours to add: the wavelengths of the rotary positions (--rotary-base" in capsys.readouterr().err


def test_another_stack_is_told_with_both_estimates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(SCENARIO.replace("STACK", "nemo").replace("LENGTH", "steps: 100"))
    for tool in ("megatron-lm", "slurm"):
        assert main(["export", str(job), "--to", tool]) == 0
        told = next(line for line in capsys.readouterr().err.splitlines() if "estimated" in line)
        assert told.startswith("note: the exported job is estimated at ")
        assert "with the stack megatron-lm instead of nemo, the scenario at " in told
    job.write_text(job.read_text().replace("nemo", "megatron-lm"))
    assert main(["export", str(job), "--to", "megatron-lm"]) == 0
    assert "estimated" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tool", "wrong", "right"),
    [
        ("deepspeed", "x.json", "x.sh"), ("megatron-lm", "x.yaml", "x.sh"), ("slurm", "x.yaml", "x.sbatch"),
        ("axolotl", "x.json", "x.yml"), ("torchtitan", "x.yaml", "x.toml"), ("trl", "x.sh", "x.yaml"),
    ],
)  # fmt: skip
def test_a_file_with_the_ending_of_another_kind_is_refused(
    tool: str, wrong: str, right: str, config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", config, "--to", tool, "--gpus", "8", "-o", str(tmp_path / wrong)]) == 2
    assert f"name it {right}" in capsys.readouterr().err
    assert not (tmp_path / wrong).exists()


def test_either_ending_of_yaml_is_taken(config: str, tmp_path: Path) -> None:
    out = tmp_path / "out.yaml"
    assert main(["export", config, "--to", "axolotl", "--gpus", "8", *GPU, "-o", str(out)]) == 0
    assert out.exists()


SHAPE = """\
model: {layers: 24, hidden: 2048, heads: 16, ffn: 5504, vocab: 50000, max_positions: 4096, tied_embeddings: false,
        norm: rmsnorm, activation: swiglu, position: rope, rotary_base: 20000}
gpu: h100-sxm-80gb
gpus: 8
job: pretrain
train: {steps: 100, seq_len: 2048, global_batch: 64}
"""


def test_a_plan_that_does_not_fit_as_the_tool_runs_it_is_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It fits as verl shards it, and TRL keeps more; a plan for TRL fits."""
    file = tmp_path / "grpo.yaml"
    options = ["--model", "qwen3-8b", *GPU, "--gpus", "16", "--job", "grpo", "--to", "trl", "-o", str(file)]
    assert main(["export", *options, "--stack", "verl"]) == 1
    shown = capsys.readouterr()
    assert not file.exists()
    assert "nothing is written: the plan does not fit as TRL would run it: needs " in shown.err
    assert "with the stack trl instead of verl" in shown.err
    assert "hint: --stack trl makes the plan for TRL" in shown.err
    assert main(["export", *options, "--stack", "trl"]) == 0
    assert file.exists()


def test_a_service_is_written_with_the_length_that_it_starts_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cache does not hold one sequence of all the model's 1,048,576 positions; serve says what vLLM starts with."""
    load = ["--model", "minimax-m3", "--gpu", "h200", "--gpus", "8", "--concurrency", "16"]
    main(["serve", *load, "--format", "json"])
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    start = next(each for each in warnings if "refuses to start" in each).rpartition("Start it with ")[2]
    file = tmp_path / "serve.sh"
    options = ["export", *load, "--job", "inference", "--to", "vllm", "-o", str(file)]
    assert main(options) == 0
    assert f"  {start} \\\n" in file.read_text()
    shown = capsys.readouterr().err
    assert "in what was written: the KV cache of a replica does not hold one sequence of 1,048,576 tokens" in shown
    assert "is estimated at" not in shown
    file.unlink()
    assert main([*options, "--max-model-len", "1048576"]) == 1
    assert "nothing is written: needs " in capsys.readouterr().err
    assert not file.exists()


def test_what_comes_back_otherwise_is_told_with_both_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(SHAPE)
    assert main(["export", str(job), "--to", "megatron-lm"]) == 0
    shown = capsys.readouterr()
    assert "note: model.vocab: 50000 is 50048 in what was written" in shown.err
    assert shown.err.count("in what was written") == 1
    assert "--rotary-base 20000 " in shown.out


def test_a_shape_is_refused_for_tools_that_load_models_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(SHAPE)
    assert main(["export", str(job), "--to", "axolotl"]) == 2
    shown = capsys.readouterr()
    assert "axolotl has no setting for model: custom (24 layers, hidden 2048)" in shown.err
    assert shown.out == ""


def test_adapters_beside_preferences_come_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [
        "--model",
        "llama-3.1-8b",
        "--gpus",
        "8",
        *GPU,
        "--job",
        "dpo",
        "--adapter",
        "lora",
        "--stack",
        "axolotl",
    ]
    assert main(["export", *options, "--epochs", "1", "--to", "axolotl"]) == 0
    shown = capsys.readouterr()
    assert "adapter: lora" in shown.out.splitlines()
    assert "in what was written" not in shown.err


def test_what_no_file_of_a_tool_says_is_the_same_for_both_estimates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(SCENARIO.replace("STACK", "torchtitan").replace("LENGTH", "epochs: 1"))
    data = ["--samples", "6400", "--mean-tokens", "900", "--max-tokens", "2000", "--host-memory-gib", "900"]
    assert (
        main(["export", str(job), "--to", "megatron-lm", *data, "--max-hours", "9", "--flops-efficiency", "0.5"]) == 0
    )
    shown = capsys.readouterr()
    assert "with the stack megatron-lm instead of torchtitan" in shown.err
    assert "--train-iters " in shown.out


def test_a_file_beside_the_output_is_replaced_only_where_an_earlier_output_named_it(
    tmp_path: Path, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    script, beside = tmp_path / "run.sh", tmp_path / "deepspeed.json"
    asked = ["export", config, "--to", "deepspeed", "--gpus", "8", *GPU, "-o", str(script), "--zero"]
    beside.write_text("mine")
    assert main([*asked, "3"]) == 2
    shown = capsys.readouterr().err
    assert f"{beside}: deepspeed.json, which run.sh is to name, is there and holds something else" in shown
    assert "hint: move it away, or export into another folder" in shown
    assert (beside.read_text(), script.exists()) == ("mine", False)
    beside.unlink()
    assert main([*asked, "3"]) == 0
    assert main([*asked, "3"]) == 0  # to the same text
    assert "is replaced" not in capsys.readouterr().err
    assert main([*asked, "2"]) == 0
    assert f"note: {beside}, which an earlier run.sh named, is replaced" in capsys.readouterr().err
    assert json.loads(beside.read_text())["zero_optimization"]["stage"] == 2


def test_a_job_that_its_tool_cannot_run_is_not_passed_over_in_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --vocab-size 32000 --ffn-hidden-size 11008"
    script = tmp_path / "pretrain.sh"
    script.write_text(f"torchrun --nproc_per_node 8 pretrain_gpt.py {shape} --micro-batch-size 1 --seq-length -5\n")
    assert main(["check", str(tmp_path)]) == 2
    shown = capsys.readouterr()
    assert "seq_length: '-5' is not a whole number above zero" in shown.out + shown.err


@pytest.mark.parametrize(
    ("tool", "stack", "more"),
    [
        ("nemo-rl", "nemo-rl-megatron", ["--tp", "2", "--recompute", "full"]),
        ("openrlhf", "openrlhf", ["--zero", "3"]),
        ("trl", "trl", ["--zero", "3", "--rollout-engine", "vllm"]),
        ("ms-swift", "ms-swift", ["--zero", "2", "--backend", "deepspeed"]),
    ],
)
def test_answers_are_estimated_alike_when_they_are_read_back(
    tool: str, stack: str, more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(
        f"{{model: qwen2.5-3b, server: dell-xe9680-h100, gpus: 8, job: grpo, stack: {stack}, train: {{steps: 100}}, "
        "rollout: {prompts: 32, group: 8, input_tokens: 256, output_tokens: 500, max_output_tokens: 2048}}\n"
    )
    assert main(["export", str(job), "--to", tool, *more]) == 0
    shown = capsys.readouterr()
    assert "estimated" not in shown.err
    assert "LEARNING_RATE" in shown.out
