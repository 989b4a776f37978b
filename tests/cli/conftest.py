"""The command line without the estimator: a saved result stands for every answer."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from xe_sizer.cli.main import main
from xe_sizer.errors import InputError
from xe_sizer.result.training import Result
from xe_sizer.scenario.scenario import serves
from xe_sizer.studies.estimate import serve

FIXTURES = Path(__file__).parents[1] / "report" / "fixtures"


@dataclass
class Estimator:
    """Answers with `lora.json`, with `sft-too-big.json` to the job sft; remembers what it was given."""

    given: list[Any] = field(default_factory=list)
    raises: BaseException | None = None

    def __call__(self, scenario: Any, registry: Any, details: bool = True, operators: bool = False) -> Result:
        self.given.append(scenario)
        if self.raises:
            raise self.raises
        name = "sft-too-big" if scenario.values.job == "sft" else "lora"
        return msgspec.json.decode((FIXTURES / f"{name}.json").read_bytes(), type=Result)

    def to_all(self, scenarios: Sequence[Any], registry: Any, details: bool = True) -> list[Any]:
        """Answers to jobs as above, to services as the estimator does."""
        answers = []
        for scenario in scenarios:
            try:
                answers.append(serve(scenario, registry, details) if serves(scenario) else self(scenario, registry))
            except InputError as error:
                answers.append(error)
        return answers


@pytest.fixture
def estimator(monkeypatch: pytest.MonkeyPatch) -> Estimator:
    fake = Estimator()
    monkeypatch.setattr("xe_sizer.studies.estimate.estimate", fake)
    monkeypatch.setattr("xe_sizer.studies.check.answer_all", fake.to_all)
    return fake


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


Cli = Callable[..., Ran]


def read_answer(cli: Cli, *words: object) -> dict[str, Any]:
    """What a command answers, as JSON, whatever its verdict."""
    ran = cli(*words, "--format", "json")
    assert ran.code in (0, 1), ran.err
    found: dict[str, Any] = json.loads(ran.out)
    return found


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    for name in [name for name in __import__("os").environ if name.startswith("XE_SIZER_")]:
        monkeypatch.delenv(name)

    def run(*arguments: object) -> Ran:
        code = main([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return Ran(code, captured.out, captured.err)

    return run
