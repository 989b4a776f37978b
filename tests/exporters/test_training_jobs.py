"""Training as Jobs, JobSets, queues of Kueue and arrays of Slurm: by their schemas, and read back as the same job."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from published_schemas import documents, problems

from xe_sizer.cli.command import answer_to
from xe_sizer.cli.export import exported_plan
from xe_sizer.cli.read_back import differences, other_estimate, read_back
from xe_sizer.errors import InputError
from xe_sizer.interop.read import read_foreign
from xe_sizer.interop.source import Asked
from xe_sizer.interop.write import Exported, Plan, export, exporter_named
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.profiles.yaml_reader import documents_of
from xe_sizer.result.common import Sized
from xe_sizer.scenario.read import read_scenario
from xe_sizer.scenario.scenario import Scenario

ADAPTERS = """\
model: qwen2.5-7b
job: lora
stack: trl
server: dell-xe9680-h100
gpus: 8
data: {samples: 200000, mean_tokens: 700}
train: {epochs: 2, seq_len: 4096, checkpoint_every: 200}
lora: {rank: 16, alpha: 32}
"""
WEIGHTS = """\
model: llama-3.1-8b
job: sft
stack: trl
server: dell-xe9680-h100
gpus: 16
data: {samples: 200000, mean_tokens: 900}
layout: {zero: 2}
train: {epochs: 3, seq_len: 4096, checkpoint_every: 500, global_batch: 64}
"""
PRETRAINING = """\
model: llama-3.1-70b
job: pretrain
stack: megatron-lm
server: dell-xe9680-h100
gpus: 64
layout: {tp: 8, pp: 4}
train: {global_batch: 256, seq_len: 8192, steps: 20000, checkpoint_every: 500, micro_batch: 1}
"""
JOBS = {"adapters": ADAPTERS, "two nodes": WEIGHTS, "pre-training": PRETRAINING}
TARGETS = ("kubernetes", "jobset", "kueue", "slurm-array")


@cache
def answered(name: str) -> tuple[Scenario, Sized]:
    path = Path("job.yaml")
    scenario = read_scenario(path, {}, {}, lambda _: documents_of(path, JOBS[name])[0])
    return scenario, answer_to(scenario, Registry())


@cache
def exported(target: str, name: str) -> tuple[Plan, Exported]:
    return exported_plan(exporter_named(target), *answered(name), Registry())


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("target", [each for each in TARGETS if each != "slurm-array"])
def test_a_job_follows_its_published_schema(target: str, name: str) -> None:
    assert list(problems(exported(target, name)[1].written, target)) == []


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("target", TARGETS)
def test_a_job_is_read_back_as_the_same(target: str, name: str, tmp_path: Path) -> None:
    (plan, found), (scenario, answer) = exported(target, name), answered(name)
    file = tmp_path / f"job{exporter_named(target).ending}"
    file.write_text(found.written.text, encoding="utf-8")
    for beside, text in found.written.beside.items():
        (tmp_path / beside).write_text(text, encoding="utf-8")
    assert read_foreign([file], Asked()).facts["gpus"].value == answer.gpus.count
    again = read_back(found, exporter_named(target), {"gpus": answer.gpus.count, "server": "dell-xe9680-h100"})
    assert again is not None
    assert list(differences(plan, found, again, Registry())) == []
    assert other_estimate(again, scenario, answer, Registry()) is None


RATES = ("1e-5", "3e-5", "1e-4")


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("target", ["kubernetes", "jobset", "kueue", "slurm"])
def test_each_learning_rate_has_a_run_of_its_own(target: str, name: str, tmp_path: Path) -> None:
    (scenario, answer), exporter = answered(name), exporter_named(target)
    plan, found = exported_plan(exporter, scenario, answer, Registry(), rates=RATES)
    text = found.written.text
    again = read_back(found, exporter, {"gpus": answer.gpus.count, "server": "dell-xe9680-h100"})
    assert again is not None
    assert list(differences(plan, found, again, Registry())) == []
    assert "LEARNING_RATE" not in text
    if target == "slurm":
        assert "#SBATCH --array=0-2\n" in text
        body = "\n".join(line for line in text.splitlines() if line.startswith("rate"))
        shell = f'{body}\necho "$rate"'
        shown = subprocess.run(["bash", "-c", shell], env={"SLURM_ARRAY_TASK_ID": "1"}, capture_output=True, check=True)
        assert shown.stdout == b"3e-5\n"
        assert text.count("/lr-$rate") == 1
        return
    assert list(problems(found.written, target)) == []
    jobs = [each for each in documents(found.written) if each["kind"] in ("Job", "JobSet")]
    assert [each["metadata"]["name"].rpartition("-lr-")[2] for each in jobs] == ["1", "2", "3"]
    for rate, each in zip(RATES, jobs, strict=True):
        words = str(each)
        assert [other for other in RATES if f"'{other}'" in words] == [rate]
        assert f"/lr-{rate}'" in words
        if "rdzv_endpoint" in words:
            assert f"{each['metadata']['name']}-" in words
    assert "'1e-5'" in text  # a number to the readers of Kubernetes, where it has no quotes


def job_of(target: str, name: str) -> dict[str, Any]:
    found = next(each for each in documents(exported(target, name)[1].written) if each["kind"] in ("Job", "JobSet"))
    spec: dict[str, Any] = found["spec"]
    return spec if target == "kubernetes" else spec["replicatedJobs"][0]["template"]["spec"]


@pytest.mark.parametrize(("target", "first"), [
    ("kubernetes", "meta-llama-3-1-70b-0.meta-llama-3-1-70b"),
    ("jobset", "meta-llama-3-1-70b-workers-0-0.meta-llama-3-1-70b"),
])  # fmt: skip
def test_the_pods_of_all_nodes_meet_at_the_first(target: str, first: str) -> None:
    job = job_of(target, "pre-training")
    assert (job["completions"], job["parallelism"], job["completionMode"]) == (8, 8, "Indexed")
    (pod,) = job["template"]["spec"]["containers"]
    assert pod["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    words = pod["command"]
    assert words[words.index("--rdzv_endpoint") + 1] == f"{first}:29500"
    assert {"name": "CUDA_DEVICE_MAX_CONNECTIONS", "value": "1"} in pod["env"]


def test_a_job_over_nodes_has_a_service_that_names_its_pods() -> None:
    kinds = {each["kind"]: each for each in documents(exported("kubernetes", "two nodes")[1].written)}
    assert kinds["Service"]["spec"]["selector"] == {"batch.kubernetes.io/job-name": kinds["Job"]["metadata"]["name"]}
    assert kinds["Job"]["spec"]["template"]["spec"]["subdomain"] == kinds["Service"]["metadata"]["name"]
    assert [each["kind"] for each in documents(exported("kubernetes", "adapters")[1].written)] == ["ConfigMap", "Job"]


def test_kueue_admits_a_set_that_waits_in_a_queue() -> None:
    (found,) = (each for each in documents(exported("kueue", "pre-training")[1].written) if each["kind"] == "JobSet")
    assert found["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "LOCAL_QUEUE"}
    assert found["spec"]["suspend"] is True
    assert any("LOCAL_QUEUE" in each for each in exported("kueue", "pre-training")[1].yours)


PLAN: dict[str, Any] = {
    "model": "Qwen/Qwen2.5-7B", "job": "sft", "precision": "bf16", "train.seq_len": 4096, "train.micro_batch": 2,
    "train.grad_accum": 4, "train.epochs": 3, "layout.zero": 3, "layout.recompute": "full", "gpus": 16, "nodes": 2,
    "gpus_per_node": 8, "train.checkpoint_every": 100, "step_s": 36.0, "total_s": 70 * 3600.0,
}  # fmt: skip


def test_an_array_has_as_many_tasks_as_the_run_takes_with_what_each_does_over() -> None:
    text = export(Plan(PLAN), exporter_named("slurm-array")).written.text
    # A task of 24 hours does 100 steps of 36 s over, and leaves 15 minutes: 22.75 hours of 70.
    assert re.findall(r"#SBATCH --(array|time)=(\S+)", text) == [("time", "24:00:00"), ("array", "1-4%1")]
    assert '${last:+--resume_from_checkpoint "$last"}\n' in text


def test_megatron_leaves_a_task_before_its_time_and_goes_on_from_the_last_checkpoint() -> None:
    text = exported("slurm-array", "pre-training")[1].written.text
    assert "--load checkpoints \\\n  --exit-duration-in-mins 1425\n" in text
    assert "--save checkpoints \\\n  --save-interval 500 \\\n" in text


@pytest.mark.parametrize(("changed", "message"), [
    ({"train.checkpoint_every": None}, "the plan has no train.checkpoint_every"),
    ({"step_s": 900.0}, "train.checkpoint_every: 100 steps take 25.0 hours"),
])  # fmt: skip
def test_a_task_that_cannot_go_on_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        export(Plan(PLAN | changed), exporter_named("slurm-array"))


@pytest.mark.parametrize("target", ["jobset", "kueue", "kubernetes", "slurm-array"])
def test_what_no_trainer_splits_is_refused_by_name(target: str) -> None:
    with pytest.raises(InputError, match=r"layout\.recompute: selective"):
        export(Plan(PLAN | {"layout.recompute": "selective"}), exporter_named(target))


SHELL_JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: tune}
spec:
  template:
    spec:
      containers:
      - name: tune
        command: [bash, -c]
        args:
        - |
          pip install trl
          accelerate launch --num_processes 4 -m trl.scripts.sft --model_name_or_path Qwen/Qwen3-4B \\
            --dataset_name my/data --max_length 2048 --per_device_train_batch_size 2
"""


def test_a_job_of_a_shell_is_read_as_its_script(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(SHELL_JOB, encoding="utf-8")
    facts = read_foreign([file], Asked()).facts
    said = {key: facts[key].value for key in ("model", "gpus", "train.seq_len", "train.micro_batch")}
    assert said == {"model": "Qwen/Qwen3-4B", "gpus": 4, "train.seq_len": 2048, "train.micro_batch": 2}


def test_a_job_that_trains_nothing_stays_unknown(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    job = yaml.safe_load(SHELL_JOB)
    job["spec"]["template"]["spec"]["containers"][0]["args"] = ["echo nothing"]
    file.write_text(yaml.safe_dump(job), encoding="utf-8")
    with pytest.raises(InputError):
        read_foreign([file], Asked())
