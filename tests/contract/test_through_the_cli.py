"""Whatever registers itself is answered: the names come from the registries, never from here.

Every word that a key of a scenario may have (methods, optimizers, loss kernels, number formats, layouts ...), every
stack, engine and limit is sized, and one word of each key goes through `estimate` or `serve`, `plan`, `check` and
`render` in every format. The answer is a yes or a no (exit code 0 or 1). What two things cannot do together is refused
(2) with a message that names the one asked for, and is answered in another of the scenarios here.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cases import REGISTRY

from xe_sizer.cli.main import main
from xe_sizer.errors import InputError, Problem
from xe_sizer.profiles.finder import BUILT_IN
from xe_sizer.report.registry import format_names
from xe_sizer.scenario.limits import LIMITS, LimitRule
from xe_sizer.scenario.read import read_scenario
from xe_sizer.studies.estimate import estimate, serve

Scenario = Mapping[str, object]
# Small models, dense and of experts, on a GPU that knows every narrow format.
DENSE, EXPERTS = {"model": "llama-3.2-1b", "gpu": "b200"}, {"model": "qwen3-30b-a3b", "gpu": "b200"}
PRICE = {"price_per_gpu_hour": 4.0}
TRAINING: tuple[Scenario, ...] = tuple(
    {**DENSE, "gpus": gpus, "stack": stack, "cost": PRICE} for gpus in (8, 1) for stack in BUILT_IN.names("stack")
) + tuple({**DENSE, "gpus": 8, "stack": stack, "precision": "fp8"} for stack in ("megatron-lm", "generic"))
TRAINING += ({**DENSE, "gpus": 8, "stack": "deepspeed", "precision": "fp16"},)  # gradients in fp16
TRAINING += (
    {**DENSE, "gpus": 8, "stack": "trl", "train": {"teacher_model": "llama-3.1-8b"}},
    {"model": "gpt2", "gpu": "b200", "gpus": 8, "stack": "hf-trainer"},
)
REINFORCEMENT: tuple[Scenario, ...] = tuple(
    {**model, "gpus": gpus, "stack": stack, "job": "grpo", "rollout": {"prompts": 16, "group": 4}}
    for model, gpus in ((DENSE, 8), (EXPERTS, 8))
    for stack in ("verl", "openrlhf", "trl")
)
REINFORCEMENT += (
    {**DENSE, "gpus": 8, "job": "grpo", "rollout": {"prompts": 16, "group": 4, "engine": "tensorrt-llm"}},
)
SERVING: tuple[Scenario, ...] = tuple(
    {**model, "cost": PRICE, "job": "inference", "serve": {load: 4}}
    for model in (DENSE, EXPERTS)
    for load in ("concurrency", "batch")
)
SERVING += ({**DENSE, "cost": PRICE, "job": "inference", "serve": {"request_rate": 4, "requests": 8}},)
SERVING += ({**DENSE, "cost": PRICE, "job": "inference", "serve": {"input_tokens": 512}},)
SERVING += ({**DENSE, "gpus": 1, "job": "inference", "serve": {"engine": "llama.cpp", "concurrency": 1}},)
SERVING += tuple(
    {**EXPERTS, "gpus": 8, "job": "inference", "serve": {"engine": engine, "concurrency": 64}}
    for engine in ("vllm", "sglang")
)
SERVING += (
    {"model": "mimo-7b", "gpu": "b200", "job": "inference", "serve": {"concurrency": 4}},
    {**DENSE, "model": "llama-3.1-8b", "job": "inference", "serve": {"draft_model": "llama-3.2-1b", "concurrency": 4}},
)
SERVING += (
    {"model": "llama-3.1-8b", "gpu": "b200", "job": "inference", "serve": {"engine": "tensorrt-llm", "concurrency": 4}},
)
SERVING += (
    {"model": "deepseek-v4.1-flash", "gpu": "b200", "gpus": 8, "job": "inference", "serve": {"concurrency": 4}},
)
SERVING += ({"model": "nemotron-h-4b", "gpu": "b200", "job": "inference", "serve": {"concurrency": 4}},)
READING: Scenario = {
    "model": "bge-m3",
    "gpu": "l40s",
    "job": "inference",
    "serve": {"request_rate": 1, "output_tokens": 0},
}
SERVING += (READING,)
SERVING += ({"model": "qwen2.5-vl-7b", "gpu": "l40s", "job": "inference", "serve": {"request_rate": 1, "images": 1}},)


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Ran]:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Ran:
        code = main(list(arguments))
        captured = capfd.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


def words() -> Iterator[tuple[str, Any]]:
    """Every key of a scenario that takes one of some words, with each of them, as the printed schema has them."""
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with redirect_stdout(printed):
        assert main(["profiles", "schema", "scenario"]) == 0
    schema = json.loads(printed.buffer.getvalue())  # type: ignore[attr-defined]
    yield from _words(schema["definitions"], schema, "")


def _words(parts: Mapping[str, Any], section: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in section["properties"].items():
        arms = value.get("anyOf", [value])
        if any(arm.get("type") == "string" and "enum" not in arm for arm in arms):
            continue  # takes any text, and lists names that an editor may complete
        for arm in arms:
            if "$ref" in arm:
                yield from _words(parts, parts[arm["$ref"].rpartition("/")[2]], f"{prefix}{key}.")
            for word in arm.get("enum", ()):
                yield f"{prefix}{key}", word


WORDS = tuple(words())
ENGINES = tuple(("serve.engine", name) for name in BUILT_IN.names("engine"))
SERVED = tuple(pair for pair in (*WORDS, *ENGINES) if pair[0].startswith("serve."))
TRAINED = tuple(pair for pair in WORDS if pair not in SERVED and pair != ("job", "inference"))
SOFTWARE = tuple((kind, name) for kind in ("stack", "optimizer") for name in BUILT_IN.names(kind))
WITH_THE_COMMANDS = ("job", "objective")
# One word of each key, the last, which is seldom the default, and every method.
THROUGH = (*dict((*TRAINED, *SOFTWARE, *SERVED)).items(), *(pair for pair in TRAINED[:-1] if pair[0] == "job"))


def scenarios_for(key: str) -> tuple[Scenario, ...]:
    return SERVING if key.startswith("serve.") else REINFORCEMENT if key.startswith("rollout.") else TRAINING


def with_word(scenario: Scenario, key: str, word: Any) -> dict[str, Any]:
    section, _, name = key.rpartition(".")
    made: dict[str, Any] = json.loads(json.dumps(scenario))
    (made.setdefault(section, {}) if section else made)[name] = word
    return made


def answered(
    key: str, word: Any, scenarios: tuple[Scenario, ...], answer: Callable[[Path], dict[str, Any]]
) -> dict[str, Any]:
    """The first answer to a scenario with the word; those before it name the word in their refusal."""
    file = Path("job.yaml")
    refusal = ""
    for scenario in scenarios:
        file.write_text(json.dumps(with_word(scenario, key, word)))
        try:
            return answer(file)
        except InputError as error:
            refusal = " ".join(str(problem) for problem in error.problems)
            assert str(word) in refusal
    pytest.fail(f"{key}: {word} is answered nowhere: {refusal}")


def by_functions(file: Path) -> dict[str, Any]:
    """What `estimate` and `serve` do with a file, without advice. Raises InputError."""
    scenario = read_scenario(file, {}, {})
    ask = serve if scenario.values.job == "inference" else estimate
    answer: dict[str, Any] = msgspec.to_builtins(ask(scenario, REGISTRY, details=False))
    return answer


def told(answer: Mapping[str, Any], key: str) -> str:
    """What the answer says that it reckoned with: the resolved key, and warnings, where it had to take another."""
    resolved: Any = answer["scenario"]
    for part in key.split("."):
        resolved = resolved[part]
    return f"{resolved}; {'; '.join(answer['warnings'])}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("key", "word"), [pair for pair in (*TRAINED, *SOFTWARE, *SERVED) if pair[0] not in WITH_THE_COMMANDS]
)
def test_every_word_is_answered(folder: None, key: str, word: Any) -> None:
    answer = answered(key, word, scenarios_for(key), by_functions)
    assert str(word) in told(answer, key)


@pytest.mark.parametrize(("key", "word"), THROUGH)
def test_a_word_of_every_key_and_every_method_go_through_the_commands(
    run: Callable[..., Ran], key: str, word: Any
) -> None:
    serving = key.startswith("serve.")

    def by_the_command(file: Path) -> dict[str, Any]:
        ran = run("serve" if serving else "estimate", str(file), "--format", "json")
        if ran.code == 2:
            raise InputError(Problem(ran.err))
        assert ran.code in (0, 1), ran.err
        Path("answer.json").write_text(ran.out)
        answer: dict[str, Any] = json.loads(ran.out)
        return answer

    answered(key, word, scenarios_for(key), by_the_command)
    for command in (("check",), *(() if serving else (("plan", "--max-gpus", "8"),))):
        ran = run(command[0], "job.yaml", *command[1:])
        assert ran.code in (0, 1), ran.err
    for name in format_names():
        ran = run("render", "answer.json", "--format", name)
        assert ran.code in (0, 1), ran.err
        assert ran.out or (name == "github" and ran.code == 0)  # there is nothing to annotate


@pytest.mark.parametrize(("key", "word"), [pair for pair in (*TRAINED, *SOFTWARE) if pair[0] in ("objective", "stack")])
def test_every_objective_and_stack_is_searched(run: Callable[..., Ran], key: str, word: str) -> None:
    cost = {"capex_per_server": 290_000} if word == "capex" else PRICE
    Path("job.yaml").write_text(json.dumps({**DENSE, "cost": cost}))
    ran = run("plan", "job.yaml", f"--{key}", word, "--max-gpus", "8", "--format", "json")
    assert ran.code in (0, 1), ran.err
    plan = json.loads(ran.out)
    assert word in (plan["objective"] if key == "objective" else plan["candidates"][0]["command"])


def test_nothing_is_left_out() -> None:
    """That the registries are full when this file asks for their names."""
    kept = {key for key, _ in (*TRAINED, *SERVED)}
    assert {"job", "loss", "precision", "serve.weights", "serve.kv_cache", "serve.engine"} <= kept
    assert min(len(SOFTWARE), len(ENGINES)) > 10
    assert len([word for key, word in TRAINED if key == "job"]) > 3


@pytest.mark.parametrize("rule", LIMITS, ids=lambda rule: rule.name)
def test_every_limit_is_kept_and_missed(run: Callable[..., Ran], rule: LimitRule) -> None:
    command, scenario = ("serve", SERVING[0]) if rule.wing == "serving" else ("estimate", {**TRAINING[0], "gpus": None})
    if rule.of == "answered_s":
        scenario = READING
    codes = {}
    for limit in (1e-4 if scenario is READING else 1, 10**6):
        Path("job.yaml").write_text(json.dumps(with_word(scenario, rule.key, limit)))
        ran = run(command, "job.yaml", "--format", "json")
        judged = next(one for one in json.loads(ran.out)["verdict"]["limits"] if one["name"] == rule.name)
        assert (judged["name"], judged["limit"]) == (rule.name, limit)
        assert judged["ok"] == (ran.code == 0)
        codes[limit] = ran.code
        assert run("check", "job.yaml").code == ran.code
    assert codes[10**6] == (0 if rule.most else 1)
