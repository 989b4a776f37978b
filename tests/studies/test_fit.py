"""The largest that fits: what is found fits as likely as was asked, and the next larger does not."""

from __future__ import annotations

import pytest

from tests.cases import REGISTRY
from xe_sizer.errors import InputError
from xe_sizer.result.training import FitQuestion, Result
from xe_sizer.scenario.read import read_scenario
from xe_sizer.studies.estimate import estimate
from xe_sizer.studies.fit import fit, models_by_size

CARD = {"model": "llama-3.1-8b", "gpu": "rtx-4090", "gpus": 1, "job": "qlora", "train.seq_len": 2048,
        "train.padding": "packed", "train.global_batch": 16, "train.micro_batch": 1, "train.steps": 10}  # fmt: skip
KEYS = {"context": "train.seq_len", "micro-batch": "train.micro_batch", "rank": "lora.rank", "model": "model"}


def found(question: FitQuestion, **changes: object) -> Result:
    given = CARD | {key.replace("__", "."): value for key, value in changes.items()}
    return fit(read_scenario(None, given, {}), question, REGISTRY, details=False)


def alone(question: FitQuestion, value: object) -> Result:
    return estimate(read_scenario(None, CARD | {KEYS[question]: value}, {}), REGISTRY, details=False)


@pytest.mark.parametrize("question", ["context", "micro-batch", "rank"])
def test_what_is_found_fits_and_the_next_does_not(question: FitQuestion) -> None:
    told = found(question).fit
    assert told is not None
    assert told.next_value is not None
    assert (told.question, told.bound) == (question, "memory")
    assert told.probability >= 0.75 > told.next_probability  # type: ignore[operator]
    fits, over = alone(question, told.value), alone(question, told.next_value)
    assert fits.verdict.memory == "fits"
    assert over.verdict.memory != "fits"
    assert over.memory.peak_bytes == told.next_peak_bytes


def test_the_report_is_that_of_the_largest() -> None:
    result = found("context")
    assert result.fit is not None
    assert result.memory == alone("context", result.fit.value).memory


def test_a_higher_confidence_finds_less() -> None:
    usual, sure = found("context").fit, found("context", limits__confidence=0.95).fit
    assert usual is not None
    assert sure is not None
    assert sure.value < usual.value  # type: ignore[operator]
    assert sure.probability >= 0.95


def test_what_ends_the_search_beside_memory() -> None:
    big = {"gpu": "b200", "model": "gpt2", "job": "lora"}
    positions, batch = found("context", **big).fit, found("micro-batch", **big | {"train__seq_len": 128}).fit
    assert positions is not None
    assert (positions.value, positions.bound, positions.next_value) == (1024, "positions", None)
    assert batch is not None
    assert (batch.value, batch.bound) == (16, "batch")


def test_the_largest_model_fits_and_none_that_is_larger_does() -> None:
    told = found("model").fit
    assert told is not None
    names = models_by_size(REGISTRY)
    assert alone("model", told.value).verdict.memory == "fits"
    above = names[names.index(str(told.value)) + 1]
    assert told.next_value == above


def test_without_a_number_it_is_one_card_or_one_server() -> None:
    open_ = {key: value for key, value in CARD.items() if key != "gpus"}
    card = fit(read_scenario(None, open_, {}), "rank", REGISTRY, details=False)
    server = read_scenario(None, {**open_, "gpu": None, "server": "dell-xe9680-h100"}, {})
    assert (card.gpus.count, fit(server, "rank", REGISTRY, details=False).gpus.count) == (1, 8)


@pytest.mark.parametrize(
    ("question", "changes", "said"),
    [
        ("rank", {"job": "sft", "model": "gpt2"}, "only adapters with a rank have one to look for"),
        ("context", {"model": "llama-3.1-405b"}, "not even the smallest fits: context 256"),
    ],
)
def test_what_has_no_answer_is_bad_input(question: FitQuestion, changes: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        found(question, **changes)
