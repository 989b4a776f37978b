"""The foot of a report: assumptions, prices, and how to repeat it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xe_sizer.report.blocks import scenario_values
from xe_sizer.report.document import Fact, Foot
from xe_sizer.report.format import amount, clean, count, hourly_words, number
from xe_sizer.report.verdict import job_words

if TYPE_CHECKING:
    from xe_sizer.result.common import Answer

ASSUMED = ("stack", "default")  # origins of what nobody gave


def build_foot(answer: Answer) -> Foot:
    """What stands below any answer."""
    written = answer.written
    version = getattr(answer, "tool_version", "") or (written.tool_version if written else "")
    return Foot(
        assumptions=tuple(_assumed(answer.resolved_scenarios)),
        prices=tuple(Fact(gpu, price) for gpu, price in dict.fromkeys(_prices(answer))),
        command=clean(written.command) if written else "",
        version=clean(f"xe-sizer {version}") if version else "xe-sizer",
        date=clean(written.date) if written else "",
        job="; ".join(dict.fromkeys(map(_asked, answer.resolved_scenarios))),
    )


def _asked(scenario: Mapping[str, Any]) -> str:
    """What was asked: `SFT of llama-3.1-70b, 50,000 samples of 600 tokens on average, 3 epochs`."""
    if "serve" in scenario:
        return ", ".join([f"{_model(scenario)} served", *_load(scenario["serve"])])
    return ", ".join([job_words(scenario), *_data(scenario)])


def _model(scenario: Mapping[str, Any]) -> str:
    return clean((scenario.get("names") or {}).get("model") or scenario.get("model") or "the model")


def _load(serve: Mapping[str, Any]) -> Iterator[str]:
    """The requests, as far as they were given."""
    if serve.get("request_rate") is not None:
        yield f"{amount(serve['request_rate'])} requests per second"
    if serve.get("input_tokens") is not None and serve.get("output_tokens") is not None:
        texts, outputs = serve.get("documents") or 1, serve["output_tokens"]
        words = f"{number(serve['input_tokens'])} tokens in"
        yield f"{words} and {number(outputs)} out" if outputs else f"{texts:,} x {words}" if texts > 1 else words


def _data(scenario: Mapping[str, Any]) -> Iterator[str]:
    """The data and how often they are read."""
    data, train = scenario.get("data") or {}, scenario.get("train") or {}
    mean = f" of {number(data['mean_tokens'])} tokens on average" if data.get("mean_tokens") is not None else ""
    if data.get("profile"):
        yield f"data set {clean(str(data['profile']))}"
    elif data.get("samples") is not None:
        yield f"{count(data['samples'])} samples{mean}"
    for name in ("epoch", "step"):
        if (times := train.get(f"{name}s")) is not None:
            yield f"{number(times)} {name}{'' if times == 1 else 's'}"


def _assumed(scenarios: Sequence[Mapping[str, Any]]) -> Iterator[Fact]:
    """Keys that nobody gave, and their values; of several scenarios what they have in common."""
    assumed = [
        {fact.label: fact for fact in scenario_values(scenario) if fact.origin in ASSUMED} for scenario in scenarios
    ]
    for key, fact in assumed[0].items() if assumed else ():
        if all(key in other and other[key].value == fact.value for other in assumed):
            yield fact


def _prices(answer: Answer) -> Iterator[tuple[str, str]]:
    """What an hour of each server costs, or of a GPU whose price was given, and how that is meant."""
    for price in answer.hourly_prices:
        if price is not None:
            source = f"; source: {clean(price.source)}" if price.source else ""
            yield clean(price.hardware), f"{hourly_words(price)}{source}"
