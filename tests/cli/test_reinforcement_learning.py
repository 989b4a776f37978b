"""Reinforcement learning through the command line: every command, every format, exit codes, bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from xe_sizer.cli.main import main
from xe_sizer.report.registry import format_names

EXAMPLES = Path(__file__).parents[2] / "examples" / "reinforcement-learning"
SCENARIO = """\
model: llama-3.1-8b
gpu: h100-sxm-80gb
gpus: 8
job: grpo
stack: generic
train: {steps: 10}
rollout: {prompts: 64, group: 8, output_tokens: 400, max_output_tokens: 1024}
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(SCENARIO, encoding="utf-8")

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(list(arguments))
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def test_an_estimate_says_the_phases_in_json(run: Callable[..., Any]) -> None:
    code, out, _ = run("estimate", "job.yaml", "--format", "json")
    answer = json.loads(out)
    assert code == 0
    assert [one["name"] for one in answer["phases"]] == [
        "rollout", "log-probabilities", "training", "weight synchronisation",
    ]  # fmt: skip
    assert answer["iteration"]["count"] == 10
    assert answer["pools"][0]["name"] == "trainer and rollout"
    assert answer["scenario"]["rollout"]["prompts"] == 64
    assert answer["scenario"]["origin"]["rollout.prompts"] == "file"
    assert "data.histogram" not in answer["scenario"]["origin"]


@pytest.mark.parametrize("name", format_names())
def test_every_format_takes_it(run: Callable[..., Any], name: str) -> None:
    code, out, _ = run("estimate", "job.yaml", "--format", name)
    assert code == 0
    assert out or name == "github"


def test_a_plan_offers_pools_and_its_command_comes_to_the_same(run: Callable[..., Any]) -> None:
    code, out, _ = run("plan", "job.yaml", "--gpus", "16", "--format", "json")
    assert code == 0
    found = json.loads(out)["candidates"]
    assert {one["colocated"] for one in found} == {True, False}
    for one in found:
        assert sum(pool["gpus"] for pool in one["pools"]) == 16
        again = json.loads(run(*one["command"].split()[1:], "--format", "json")[1])
        assert again["time"]["step_s"]["expected"] == pytest.approx(one["step_s"])
        assert again["memory"]["peak_bytes"] == pytest.approx(one["peak_bytes"])


def test_a_missed_limit_is_a_no_with_a_way_to_a_yes(run: Callable[..., Any]) -> None:
    hours = json.loads(run("estimate", "job.yaml", "--format", "json")[1])["time"]["total_s"]["expected"] / 3600
    code, out, _ = run("estimate", "job.yaml", "--max-hours", str(hours * 0.6), "--format", "json")
    answer = json.loads(out)
    assert code == 1
    assert not answer["verdict"]["meets_limits"]
    first = answer["advice"][0]
    assert run(*first["command"].split()[1:])[0] == 0


def test_a_gate_and_what_factors_are_worth(run: Callable[..., Any]) -> None:
    assert run("check", "job.yaml", "--format", "junit")[0] == 0
    code, out, _ = run("sensitivity", "job.yaml", "--format", "json")
    assert code == 0
    assert {"answer length", "sharing of the GPUs"} <= {one["name"] for one in json.loads(out)["factors"]}
    Path("apart.yaml").write_text(SCENARIO.replace("group: 8", "group: 8, gpus: 4"), encoding="utf-8")
    code, out, _ = run("compare", "job.yaml", "apart.yaml", "--format", "json")
    assert code == 0
    assert [len(one["result"]["pools"]) for one in json.loads(out)["alternatives"]] == [1, 2]


def test_settings_of_the_rollout_do_nothing_for_other_jobs(run: Callable[..., Any]) -> None:
    code, out, _ = run("estimate", "job.yaml", "--job", "sft", "--format", "json")
    assert code == 0
    assert "rollout settings have no effect on the job sft" in json.loads(out)["warnings"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("group: 8", "group: 1", "job.yaml:7:31: grpo compares the responses to a prompt, and there is 1"),
        ("prompts: 64", "promts: 64", "job.yaml:7:11: unknown key 'promts' in 'rollout'"),
        ("output_tokens: 400", "output_tokens: 4000", "job.yaml:7:49: 'output_tokens' (4,000) is above"),
        ("group: 8", "group: 8, engine: vlm", "job.yaml:7:"),
        ("group: 8", "group: 8, gpus: 8", "job.yaml:7:40: 'gpus' of the rollout (8) leave none of the 8 to train"),
    ],
)
def test_bad_input_is_told_where_it_stands(run: Callable[..., Any], old: str, new: str, said: str) -> None:
    Path("job.yaml").write_text(SCENARIO.replace(old, new), encoding="utf-8")
    code, _, err = run("estimate", "job.yaml")
    assert code == 2
    assert said in err
    assert "hint:" in err


def test_the_examples_are_answered(run: Callable[..., Any]) -> None:
    for path in sorted(EXAMPLES.glob("*.yaml")):
        assert run("estimate", str(path), "--brief")[0] == 0, path


VERL = """\
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.val_files=gsm8k/test.parquet \\
  data.train_batch_size=64 actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B-Instruct \\
  actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 \\
  actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=4 trainer.n_gpus_per_node=8 trainer.test_freq=5
"""


def test_an_evaluation_whose_size_no_file_says_is_left_out_and_named(run: Callable[..., Any]) -> None:
    Path("grpo.sh").write_text(VERL, encoding="utf-8")
    code, out, _ = run("estimate", "grpo.sh", "--gpu", "h100-sxm-80gb", "--brief")
    assert code == 0
    assert "evaluation every 5 steps is left out" in out
    code, out, _ = run("estimate", "grpo.sh", "--gpu", "h100-sxm-80gb", "--evaluate-samples", "1319", "--brief")
    assert "evaluation" in out
    assert "left out" not in out


def test_an_engine_of_trl_has_one_gpu_unless_told_otherwise(run: Callable[..., Any]) -> None:
    script = """\
from trl import GRPOConfig, GRPOTrainer
args = GRPOConfig(use_vllm=True, vllm_mode="colocate", per_device_train_batch_size=8, bf16=True)
trainer = GRPOTrainer(model="Qwen/Qwen2.5-7B-Instruct", args=args)
trainer.train()
"""
    Path("grpo.py").write_text(script, encoding="utf-8")
    code, out, _ = run("import", "grpo.py", "--gpus", "8")
    assert code == 0
    assert "tp: 1 " in out
    _, out, _ = run("estimate", "grpo.py", "--gpu", "h100-sxm-80gb", "--gpus", "8", "--zero", "3")
    assert "vllm in 8 replicas of one GPU" in out


def test_staleness_without_asynchronous_training_says_what_to_write(cli: Callable[..., Any]) -> None:
    job = "--model qwen2.5-7b --job grpo --gpu h100-sxm-80gb --gpus 16 --stack verl --max-staleness 2"
    ran = cli("plan", *job.split())
    assert ran.code == 2
    assert "'max_staleness' needs 'asynchronous'" in ran.err
    assert "write --asynchronous too, or leave it out" in ran.err
