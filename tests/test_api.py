"""The public API: the same answers as the command line, with the keywords' places in its errors."""

import doctest
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import xe_sizer
from xe_sizer.cli.main import main

ROOT = Path(__file__).parents[1]
JOB = "examples/lora-llama-2-70b.yaml"
CHAT = "examples/serve/llama-3.1-70b-chat.yaml"
PYTHON = "```python\n"


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def examples(page: str) -> list[doctest.Example]:
    """Lines with >>> of a page's Python blocks, with what must come out."""
    parser = doctest.DocTestParser()
    blocks = (ROOT / page).read_text(encoding="utf-8").split(PYTHON)[1:]
    return [example for block in blocks for example in parser.get_examples(block.split("```")[0])]


@pytest.mark.parametrize("page", ["docs/api.md", "README.md"])
def test_the_code_in_the_documentation_says_what_it_prints(page: str) -> None:
    found = examples(page)
    assert found
    said: list[str] = []
    test = doctest.DocTest(found, {}, page, page, 0, None)
    doctest.DocTestRunner().run(test, out=said.append)
    assert not said, "".join(said)


def asked_of_the_command(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*arguments, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def alike(value: Any) -> Any:
    """A result without what depends on who asks (the command, the words of warnings, origins) and on the clock."""
    if isinstance(value, Mapping):
        apart = ("command", "written", "origin", "seconds", "warnings")
        return {key: alike(item) for key, item in value.items() if key not in apart}
    return [alike(item) for item in value] if isinstance(value, list | tuple) else value


def plain(answer: object) -> Any:
    return msgspec.json.decode(msgspec.json.encode(answer))


@pytest.mark.parametrize(
    "asked",
    [
        "estimate(model='llama-3.1-8b', gpu='h100-sxm-80gb', gpus=8, job='lora')",
        "plan(model='llama-3.2-1b', gpu='h100-sxm-80gb', job='sft', limits={'max_gpus': 2})",
        "sensitivity(model='llama-3.2-1b', gpu='h100-sxm-80gb', gpus=1, job='lora')",
        "compare({'job': 'lora'}, {'job': 'sft'}, model='llama-3.2-1b', gpu='h100-sxm-80gb', gpus=1)",
        "serve(model='llama-3.2-1b', gpu='h100-sxm-80gb')",
        "estimate(xe_sizer.load('examples/lora-llama-2-70b.yaml'))",
    ],
)
def test_the_first_call_of_a_process_knows_every_job(asked: str) -> None:
    """Others of these tests have imported the jobs already."""
    code = f"import xe_sizer; xe_sizer.{asked}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_estimate_answers_as_the_command_does(capsys: pytest.CaptureFixture[str]) -> None:
    answer = xe_sizer.estimate(xe_sizer.load(JOB), details=True, gpus=32, train={"seq_len": 8192}, lora={"rank": 8})
    command = asked_of_the_command(capsys, "estimate", JOB, "--gpus", "32", "--seq-len", "8192", "--lora-rank", "8")
    assert alike(plain(answer)) == alike(command)


def test_plan_answers_as_the_command_does(capsys: pytest.CaptureFixture[str]) -> None:
    answer = xe_sizer.plan(xe_sizer.load(JOB), among=["dell-xe9680-h200"], limits={"max_gpus": 16}, objective="time")
    command = asked_of_the_command(
        capsys, "plan", JOB, "--among", "dell-xe9680-h200", "--max-gpus", "16", "--objective", "time"
    )
    found, wanted = alike(plain(answer)), alike(command)
    assert (found["candidates"], found["answers"]) == (wanted["candidates"], wanted["answers"])


def test_serve_answers_as_the_command_does(capsys: pytest.CaptureFixture[str]) -> None:
    answer = xe_sizer.serve(xe_sizer.load(CHAT), serve={"request_rate": 7.5}, pareto=True, details=True)
    command = asked_of_the_command(capsys, "serve", CHAT, "--request-rate", "7.5", "--pareto")
    found, wanted = alike(plain(answer)), alike(command)
    (said,), (told,) = found.pop("cautions"), wanted.pop("cautions")
    assert said.replace("serve={'spare_replicas': 1}", "--spare-replicas 1") == told
    assert found == wanted


def test_compare_answers_as_the_command_does(capsys: pytest.CaptureFixture[str]) -> None:
    answer = xe_sizer.compare({"job": "sft"}, {"gpus": 16, "layout": {"tp": 4}}, model="llama-2-7b", gpu="b200", gpus=8)
    keys = ("--model", "llama-2-7b", "--gpu", "b200", "--gpus", "8")
    command = asked_of_the_command(capsys, "compare", "job=sft", "gpus=16,tp=4", *keys)
    found, wanted = alike(plain(answer)), alike(command)
    results = [one["result"] for one in wanted["alternatives"]]  # the command adds the job of its options before them
    assert [one["result"] for one in found["alternatives"]] == results[-2:]
    assert [one.name for one in answer.alternatives] == ["job=sft", "gpus=16,layout.tp=4"]


def test_sensitivity_answers_as_the_command_does(capsys: pytest.CaptureFixture[str]) -> None:
    answer = xe_sizer.sensitivity(xe_sizer.load(JOB))
    assert alike(plain(answer)) == alike(asked_of_the_command(capsys, "sensitivity", JOB))


RECORD = {
    "id": "mine", "job": "lora", "model": "llama-2-7b", "stack": "nemo", "gpu": "h100-sxm-80gb", "gpus": 8,
    "batch": {"micro": 1, "global": 64}, "seq_len": 4096, "measured": {"step_time_s": 5.0},
}  # fmt: skip


def test_check_judges_files_and_folders_as_the_command_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = "model: llama-2-7b\nserver: dell-xe9680-h100\ngpus: 8\ntrain: {steps: 10, seq_len: 512, global_batch: 64}\n"
    (tmp_path / "good.yaml").write_text(f"{job}job: sft\n")
    (tmp_path / "bad.yaml").write_text(f"{job}job: stf\n")
    (tmp_path / "axolotl.yaml").write_text(
        "base_model: meta-llama/Llama-2-7b-hf\nadapter: lora\nmicro_batch_size: 1\nsequence_len: 512\n"
    )
    found = xe_sizer.check(".")
    assert (found.summary.total, found.summary.invalid, found.exit_code) == (3, 1, 2)
    assert not capsys.readouterr().err
    assert main(["check", ".", "--format", "json"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert [one["file"] for one in told["scenarios"]] == [one.file for one in found.scenarios]
    assert told["summary"] == msgspec.to_builtins(found.summary)
    (bad,) = (one for one in found.scenarios if one.problems)
    assert (bad.file, bad.problems[0].line) == ("bad.yaml", 5)


def test_keywords_of_check_win_over_every_scenario() -> None:
    strict = xe_sizer.check(JOB, CHAT, limits={"max_gpus": 1})
    assert [one.ok for one in xe_sizer.check(JOB, CHAT).scenarios] == [True, True]
    assert [one.ok for one in strict.scenarios] == [False, False]


def test_validate_takes_files_and_records(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_text(json.dumps({**RECORD, "id": "other"}), encoding="utf-8")
    accuracy = xe_sizer.validate(file, RECORD, only="step_time")
    assert [(one.id, one.measured) for one in accuracy.records] == [("other", 5.0), ("mine", 5.0)]
    assert accuracy.records[0].predicted == accuracy.records[1].predicted


def test_details_add_to_an_answer_and_change_nothing_of_it() -> None:
    job, chat = xe_sizer.load(JOB), xe_sizer.load(CHAT)
    whole, lean = xe_sizer.estimate(job, details=True), xe_sizer.estimate(job)
    assert (lean.verdict, lean.layout, lean.cost, lean.data) == (whole.verdict, whole.layout, whole.cost, whole.data)
    assert (lean.memory.peak_bytes, lean.time.total_s) == (whole.memory.peak_bytes, whole.time.total_s)
    assert whole.advice
    assert not lean.advice
    assert not lean.sources
    service, bare = xe_sizer.serve(chat, details=True), xe_sizer.serve(chat)
    assert (bare.verdict, bare.layout, bare.cost) == (service.verdict, service.layout, service.cost)
    assert service.load_curve
    assert not bare.load_curve
    too_large = xe_sizer.estimate(job, gpus=1, layout={"tp": 1})
    assert not too_large.verdict.fits
    assert too_large.verdict.reasons[0].fix == too_large.advice[0].change


def test_every_problem_of_a_call_names_its_keyword() -> None:
    with pytest.raises(xe_sizer.InputError) as caught:
        xe_sizer.plan(model="gpt3", gpu="l4", gpus=8.0, lora={"ranks": 8}, layout={"tp": 0})  # type: ignore[typeddict-unknown-key]
    places = [str(problem.location) for problem in caught.value.problems]
    assert places == ["plan(gpus)", "plan(lora.ranks)", "plan(layout.tp)", "plan(model)"]


@pytest.mark.parametrize(
    ("ask", "place"),
    [
        (xe_sizer.estimate, "estimate()"),
        (lambda: xe_sizer.serve(model="gpt2", among=["l41"]), "serve(among)"),
        (lambda: xe_sizer.sensitivity(model="gpt2", profiles=["nowhere"]), "sensitivity(profiles)"),
        (lambda: xe_sizer.compare({"gpus": 8}), "compare()"),
        (lambda: xe_sizer.compare({"gpus": 8}, {"gpus": -8}, model="gpt2", gpu="l4"), "compare(gpus)"),
        (xe_sizer.check, "check()"),
        (lambda: xe_sizer.check(3), "check(paths)"),
        (lambda: xe_sizer.validate(only="speed"), "validate(only)"),
        (lambda: xe_sizer.validate({"id": "a", "job": "sft", "gpus": "x"}), "validate()"),
        (lambda: xe_sizer.load("nowhere.yaml"), "nowhere.yaml"),
    ],
)
def test_a_bad_argument_is_an_input_error_at_its_place(ask: Any, place: str) -> None:
    with pytest.raises(xe_sizer.InputError) as caught:
        ask()
    assert str(caught.value.problems[0].location) == place


GPT2: dict[str, Any] = {"model": "gpt2", "gpu": "l4", "gpus": 1, "train": {"steps": 1}}
NO_LIST = "give each as an argument of its own: compare(*alternatives)"
NO_ALTERNATIVE = "an alternative is a scenario, a result of estimate or a dictionary of keys, not"


def problems_of(ask: Callable[[], object]) -> list[tuple[str, str, str | None]]:
    """Place, message and hint of each problem of a question."""
    with pytest.raises(xe_sizer.InputError) as caught:
        ask()
    return [(str(problem.location), problem.message, problem.hint) for problem in caught.value.problems]


@pytest.mark.parametrize("function", ["estimate", "plan", "serve", "sensitivity"])
@pytest.mark.parametrize(
    ("wrong", "named", "hint"),
    [
        (JOB, f"'{JOB}'", f"xe_sizer.load('{JOB}') reads a scenario from a file"),
        (Path(JOB), f"'{JOB}'", f"xe_sizer.load('{JOB}') reads a scenario from a file"),
        (5, "5", "xe_sizer.load(path) reads a scenario from a file"),
        (False, "False", "xe_sizer.load(path) reads a scenario from a file"),
        ("", "''", "xe_sizer.load(path) reads a scenario from a file"),
        (GPT2, "a dictionary", "keys are keyword arguments: {function}(**keys)"),
        ({}, "a dictionary", "keys are keyword arguments: {function}(**keys)"),
    ],
)
def test_what_is_no_scenario_is_answered_with_what_makes_one(function: str, wrong: Any, named: str, hint: str) -> None:
    message = f"the first argument must be a scenario, not {named}"
    ask = getattr(xe_sizer, function)
    assert problems_of(lambda: ask(wrong)) == [(f"{function}()", message, hint.format(function=function))]
    assert problems_of(lambda: ask(scenario=wrong, gpus=8)) == problems_of(lambda: ask(wrong))


@pytest.mark.parametrize(
    ("alternatives", "wrong"),
    [
        (("a.yaml", Path("b.yaml")), [("'a.yaml'", "xe_sizer.load('a.yaml') reads a scenario from a file"),
                                      ("'b.yaml'", "xe_sizer.load('b.yaml') reads a scenario from a file")]),
        (({"gpus": 2}, 5), [("5", "xe_sizer.load(path) reads a scenario from a file")]),
        (([{"gpus": 1}, {"gpus": 2}],), [("a list", NO_LIST)]),
    ],
)  # fmt: skip
def test_what_is_no_alternative_is_told_for_each(alternatives: Any, wrong: list[tuple[str, str]]) -> None:
    expected = [("compare()", f"{NO_ALTERNATIVE} {named}", hint) for named, hint in wrong]
    assert problems_of(lambda: xe_sizer.compare(*alternatives, **GPT2)) == expected


def test_keys_that_would_change_no_alternative_are_told() -> None:
    answer = xe_sizer.estimate(**GPT2)
    assert len(xe_sizer.compare(answer, answer, gpu=None).alternatives) == 2
    message = "the alternatives are results: no key changes them"
    found = problems_of(lambda: xe_sizer.compare(answer, answer, gpus=8, job="sft"))
    assert found == [("compare(gpus)", message, None), ("compare(job)", message, None)]


def test_a_job_is_no_alternative_to_a_service_and_a_key_of_one_must_be_text() -> None:
    service = xe_sizer.serve(xe_sizer.load(CHAT))
    (found,) = problems_of(lambda: xe_sizer.compare(service, {"gpus": 8, "job": "sft"}, **GPT2))
    assert found[:2] == ("gpus=8,job=sft", "this is a job that trains, and others are services")
    (found,) = problems_of(lambda: xe_sizer.compare({5: 1}, {"gpus": 8}, **GPT2))  # type: ignore[dict-item]
    assert found[:2] == ("compare(5)", "unknown key '5'")


@pytest.mark.parametrize("form", [str, Path, lambda folder: [str(folder)], lambda folder: (Path(folder),)])
def test_one_folder_of_profiles_needs_no_list(tmp_path: Path, form: Callable[[Path], Any]) -> None:
    (tmp_path / "gpu_profiles").mkdir()
    text = (ROOT / "gpu_profiles" / "l4.yaml").read_text(encoding="utf-8")
    (tmp_path / "gpu_profiles" / "my-l4.yaml").write_text(text.replace("name: l4", "name: my-l4"), encoding="utf-8")
    assert xe_sizer.estimate(**{**GPT2, "gpu": "my-l4"}, profiles=form(tmp_path)).scenario["gpu"] == "my-l4"


@pytest.mark.parametrize("form", [str, Path, lambda name: [name], np.array])
def test_one_name_to_choose_among_needs_no_list(form: Callable[[str], Any]) -> None:
    answer = xe_sizer.plan(**GPT2, among=form("l40s"))
    assert {candidate.gpu for candidate in answer.candidates} == {"l4", "l40s"}


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (lambda: xe_sizer.estimate(**GPT2, profiles="nowhere"), [("estimate(profiles)", "'nowhere' is not a folder")]),
        (lambda: xe_sizer.estimate(**GPT2, profiles=5), [("estimate(profiles)", "this must name folders, not 5")]),
        (lambda: xe_sizer.sensitivity(**GPT2, profiles=["", None]), [
            ("sensitivity(profiles)", "this must name folders, not ''"),
            ("sensitivity(profiles)", "this must name folders, not None"),
        ]),
        (lambda: xe_sizer.compare(GPT2, GPT2, profiles={"a": 1}), [
            ("compare(profiles)", "this must name folders, not a dictionary"),
        ]),
        (lambda: xe_sizer.plan(**GPT2, among=5), [("plan(among)", "this must name GPUs and servers, not 5")]),
        (lambda: xe_sizer.plan(**GPT2, among=["l41", "l4", "l42"]), [
            ("plan(among)", "no GPU or server is called 'l41'"),
            ("plan(among)", "no GPU or server is called 'l42'"),
        ]),
        (lambda: xe_sizer.serve(**GPT2, among="l41"), [("serve(among)", "no GPU or server is called 'l41'")]),
        (lambda: xe_sizer.serve(**GPT2, pareto="x"), [("serve(pareto)", "this must be True or False, not 'x'")]),
        (lambda: xe_sizer.plan(**{**GPT2, "gpus": 0}, among=[5], any_gpu="x", explain=1), [
            ("plan(among)", "this must name GPUs and servers, not 5"),
            ("plan(any_gpu)", "this must be True or False, not 'x'"),
            ("plan(explain)", "this must be True or False, not 1"),
            ("plan(gpus)", "'gpus' must be at least 1, not 0"),
        ]),
        (lambda: xe_sizer.load(5), [("load(path)", "this must be the path of a file, not 5")]),
        (lambda: xe_sizer.load(""), [("load(path)", "this must be the path of a file, not ''")]),
        (lambda: xe_sizer.load({}), [("load(path)", "this must be the path of a file, not a dictionary")]),
        (lambda: xe_sizer.validate(5, ["nowhere.jsonl", None], only="speed"), [
            ("validate(only)", "no quantity is called 'speed'"),
            ("validate()", "a source is a path or a record, not 5"),
            ("validate()", "a source is a path or a record, not None"),
            ("nowhere.jsonl", "no such file"),
        ]),
        (lambda: xe_sizer.validate(RECORD, only=["step_time"]), [("validate(only)", "no quantity is called a list")]),
        (lambda: xe_sizer.Scenario(JOB), [
            ("Scenario()", f"a scenario is made of a file that was read, not of '{JOB}'"),
        ]),
        (lambda: xe_sizer.validate([]), [("validate()", "the list has no records")]),
    ],
)  # fmt: skip
def test_arguments_of_wrong_types_are_all_told(ask: Any, expected: list[tuple[str, str]]) -> None:
    assert [found[:2] for found in problems_of(ask)] == expected


def test_numpy_switches_and_lists_of_records_are_taken() -> None:
    assert xe_sizer.plan(**GPT2, explain=np.bool_(True)).search.rules  # type: ignore[arg-type]
    listed, single = xe_sizer.validate([RECORD], only="step_time"), xe_sizer.validate(RECORD, only="step_time")
    assert listed.records == single.records


@pytest.mark.parametrize(
    ("ask", "hint"),
    [
        (lambda: xe_sizer.estimate(**{**GPT2, "job": "inference"}),
         "'xe_sizer.serve()' sizes inference; job='sft' and others are trained"),
        (lambda: xe_sizer.plan(xe_sizer.load(CHAT)),
         f"\"xe_sizer.serve(xe_sizer.load('{CHAT}'))\" sizes inference; job='sft' and others are trained"),
        (lambda: xe_sizer.estimate(model="gpt2"),
         "for example gpu='rtx-4090'; 'xe-sizer profiles list' prints all"),
        (lambda: xe_sizer.estimate(**{**GPT2, "gpus": 5}, layout={"pp": 5}),
         "layout={'uneven_stages': True} (layout.uneven_stages: true) lets stages differ by a layer"),
        (lambda: xe_sizer.serve(model="llama-3.1-8b", gpu="a100-sxm-80gb", precision="fp8"),
         "it has fp32, tf32, bf16, fp16, int8, int4; serve.weights keeps quantized weights on any GPU"),
    ],
)  # fmt: skip
def test_hints_tell_what_to_write_in_python(ask: Any, hint: str) -> None:
    assert [found[2] for found in problems_of(ask)] == [hint]


def test_a_warning_names_the_key_that_limits() -> None:
    serve: Any = {"request_rate": 8.0, "input_tokens": 800, "output_tokens": 200}
    answer = xe_sizer.serve(model="llama-3.1-8b", gpu="l40s", gpus=1, serve=serve)
    (full,) = [warning for warning in answer.warnings if "of what they sustain" in warning]
    assert full.endswith(": limits.max_ttft_s and limits.max_tpot_s say how long requests may take")


def test_a_problem_in_a_loaded_file_names_its_line(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("model: gpt2\ngpus: many\n", encoding="utf-8")
    with pytest.raises(xe_sizer.InputError) as caught:
        xe_sizer.estimate(xe_sizer.load(file), gpu="l4")
    assert [str(problem.location) for problem in caught.value.problems] == [f"{file}:2:7"]


def test_a_file_is_overridden_key_by_key_and_stays_as_it_is() -> None:
    job = xe_sizer.load(JOB)
    answer = xe_sizer.estimate(job, layout={"tp": 4})
    assert (answer.layout.tp, answer.layout.pp) == (4, 1)
    job.keys["layout"]["tp"] = 2
    assert job.keys["layout"] == {"tp": 8, "pp": 1}


def test_values_of_python_and_numpy_are_taken() -> None:
    numbers: dict[str, Any] = {"gpus": np.int64(8), "train": {"steps": np.int32(1000), "epochs": None}}
    model = Path("model_profiles/gpt2.yaml")
    answer = xe_sizer.estimate(**numbers, model=model, gpu="l4", server=None, job="lora", lora={"targets": ("qkv",)})
    assert (answer.gpus.count, answer.scenario["lora"]["targets"]) == (8, ("qkv",))


def test_a_call_reads_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XE_SIZER_GPUS", "nonsense")
    assert xe_sizer.estimate(model="gpt2", gpu="l4", gpus=1, train={"steps": 1}).gpus.count == 1


def test_importing_the_package_imports_nothing_else_of_it() -> None:
    program = "import sys; before = set(sys.modules); import xe_sizer; print(*sorted(set(sys.modules) - before))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert {name for name in found if name.partition(".")[0] not in sys.stdlib_module_names} == {"xe_sizer"}
    assert "typing" not in found


def test_the_package_lists_its_functions_and_knows_no_other() -> None:
    assert set(dir(xe_sizer)) >= {"estimate", "plan", "serve", "compare", "sensitivity", "validate", "load"}
    assert all(callable(getattr(xe_sizer, name)) for name in dir(xe_sizer) if not name.startswith("_"))
    with pytest.raises(AttributeError, match="has no attribute 'size'"):
        _ = xe_sizer.size  # type: ignore[attr-defined]


SCRIPT = """
import xe_sizer

job = xe_sizer.load("job.yaml")
for gpus in range(8, 65, 8):
    answer = xe_sizer.estimate(job, gpus=gpus, train={"seq_len": 4096}, limits={"max_hours": 24})
    hours: float = answer.time.total_s.expected / 3600
reveal_type(xe_sizer.plan(job).candidates)
reveal_type(xe_sizer.serve(job, serve={"request_rate": 5}).latency)
xe_sizer.estimate(gpus="eight")
xe_sizer.estimate(train={"sequence": 4096})
xe_sizer.estimate(modle="gpt2")
"""


def test_a_type_checker_knows_keywords_and_answers(tmp_path: Path) -> None:
    mypy = pytest.importorskip("mypy.api")
    script = tmp_path / "notebook.py"
    script.write_text(SCRIPT, encoding="utf-8")
    out, _, _ = mypy.run(["--strict", "--cache-dir", str(tmp_path / "cache"), "--no-error-summary", str(script)])
    said = [line.removeprefix(f"{script}:") for line in out.splitlines() if line.startswith(str(script))]
    numbers = [line.split(":")[0] for line in said if " error: " in line]
    assert numbers == ["10", "11", "12"], out
    assert "xe_sizer.result.studies.Candidate" in out
    assert "xe_sizer.result.serving.Latency" in out


def test_a_batch_that_its_parts_do_not_make_is_said_as_the_command_says_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ranks are left to the search here, as in most imported files: none makes 128 of 1 x 4."""
    job = tmp_path / "job.yaml"
    job.write_text(
        "model: llama-3.1-8b\ngpu: h100-sxm-80gb\ngpus: 8\njob: sft\nstack: trl\n"
        "train: {micro_batch: 4, grad_accum: 4, global_batch: 128}\nlayout: {zero: 0}\n"
    )
    told = "a global batch of 128 is not micro_batch 1 x grad_accum 4 x dp for any dp on 8 GPUs"
    with pytest.raises(xe_sizer.InputError, match=told):
        xe_sizer.estimate(xe_sizer.load(job), train={"micro_batch": 1})
    assert main(["estimate", str(job), "--micro-batch", "1"]) == 2
    said = capsys.readouterr().err
    assert f"{job}:6:54: {told}\n  hint: leave one of the two out; grad_accum is given at {job}:6:37\n" in said
    assert main(["estimate", str(job)]) in (0, 1)
