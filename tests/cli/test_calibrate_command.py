"""`calibrate` from the command line: a stack file that `estimate` reads, and mistakes that are said."""

import json
from pathlib import Path

import pytest

from xe_sizer.cli.main import main
from xe_sizer.profiles.catalogue import load_stack

RUNS = """
- {id: a, job: sft, model: llama-2-7b, gpu: h100-sxm-80gb, gpus: 8, precision: bf16, layout: {zero: 3, dp: 8},
   batch: {micro: 2, global: 64}, seq_len: 2048, recompute: full, measured: {step_time_s: 4.0}}
- {id: b, job: sft, model: llama-2-7b, gpu: h100-sxm-80gb, gpus: 8, precision: bf16, layout: {zero: 3, dp: 8},
   batch: {micro: 4, global: 64}, seq_len: 4096, recompute: full, measured: {step_time_s: 8.1}}
- {id: c, job: sft, model: llama-2-7b, gpu: h100-sxm-80gb, gpus: 8, measured: {peak_memory_gib: 40}}
"""


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    path = tmp_path / "runs.yaml"
    path.write_text(RUNS)
    return path


def test_the_file_is_a_stack_for_estimates(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = tmp_path / "ours.yaml"
    assert main(["calibrate", str(runs), "--stack", "hf-trainer", "--name", "ours", "-o", str(written)]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Fitted to 2 measured times" in shown.err
    assert "c: no time measured" in shown.err
    assert "Memory is not fitted, as no record has a peak" in shown.err
    assert "2 different runs were fitted; of published runs with as many of their own the median error is" in shown.err
    stack = load_stack(str(written))
    assert (stack.name, stack.parent, stack.calibrated_on) == ("ours", "hf-trainer", "2 measurements in runs.yaml")
    command = ["estimate", "--model", "llama-2-7b", "--gpu", "h100-sxm-80gb", "--gpus", "8", "--job", "sft"]
    assert main([*command, "--stack", str(written)]) == 0
    assert "2 measurements in runs.yaml" in capsys.readouterr().out

    def of_times(*asked: str) -> list[float]:
        assert main(["validate", str(runs), "--only", "step_time", "-f", "json", *asked]) == 0
        return [abs(1.0 - each["ratio"]) for each in json.loads(capsys.readouterr().out)["records"]]

    assert max(of_times("--stack", str(written))) < min(of_times("--stack", "hf-trainer"))
    assert main(["validate", str(runs), "--stack", "nem"]) == 2
    assert capsys.readouterr().err.startswith("--stack: unknown stack 'nem'")


def test_runs_like_a_job_are_preferred(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("model: llama-2-7b\ngpu: h100-sxm-80gb\ngpus: 8\njob: sft\nstack: hf-trainer\n")
    assert main(["calibrate", str(runs), "--stack", "hf-trainer", "--like", str(job)]) == 0
    assert "parent: hf-trainer" in capsys.readouterr().out
    job.write_text("model: llama-2-7b\ngpu: nowhere\n")
    assert main(["calibrate", str(runs), "--like", str(job)]) == 2


def test_without_a_file_the_stack_goes_to_stdout(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", str(runs)]) == 0
    assert "\nname: calibrated\nparent: generic\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no records to calibrate on"),
        (["nowhere.yaml"], "no such file"),
        (["{runs}", "--stack", "nem"], "unknown stack 'nem'"),
        (["{runs}", "--name", "Our Cluster"], "cannot be the name of a stack"),
    ],
)
def test_mistakes_are_said(runs: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", *(argument.format(runs=runs) for argument in arguments)]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.out == ""


def test_runs_that_contradict_one_another_are_named(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Such as times in milliseconds among times in seconds: the range would be one that no stack may have."""
    runs.write_text(RUNS.replace("step_time_s: 8.1", "step_time_s: 8100"), encoding="utf-8")
    assert main(["calibrate", str(runs), "--stack", "hf-trainer"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "the runs contradict one another" in shown.err
    assert "b took " in shown.err


def test_a_stack_is_written_to_yaml_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "none.yaml", "-o", str(tmp_path / "stack.pdf")]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("--output: a stack cannot have the ending '.pdf'\n  hint: a stack is YAML; known are ")
    assert list(tmp_path.iterdir()) == []
