"""The service on many kinds of hardware: order, what is left out, and the front of one replica."""

from __future__ import annotations

import pytest

from xe_sizer.errors import InputError
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.scenario.read import read_scenario
from xe_sizer.scenario.scenario import Scenario
from xe_sizer.serving.resolve import resolve as resolve_serving
from xe_sizer.studies.hardware import fleet, option, pareto, power_w

REGISTRY = Registry()
CHAT = {
    "model": "llama-3.1-8b",
    "gpu": "h100-sxm-80gb",
    "serve.request_rate": 8,
    "limits.max_ttft_s": 1.0,
    "limits.max_tpot_s": 0.05,
}


def asked(**more: object) -> Scenario:
    return read_scenario(None, CHAT | {key.replace("__", "."): value for key, value in more.items()}, {})


def named(*gpus: str) -> list[dict[str, object]]:
    return [{}, *({"gpu": gpu} for gpu in gpus)]


def test_without_prices_the_least_power_comes_first() -> None:
    found = fleet(asked(), REGISTRY, named("l40s", "a100-sxm-80gb", "b200"))
    kept = [one for one in found.answers if one.ok]
    assert kept == list(found.answers[: len(kept)])
    powers = [power_w(one) or 0.0 for one in kept]
    assert powers == sorted(powers)
    assert len(found.answers) == 4


def test_with_prices_the_cheapest_comes_first() -> None:
    found = fleet(asked(cost__price_per_gpu_hour=2.0), REGISTRY, named("l40s", "a100-sxm-80gb", "b200"))
    prices = [one.cost for one in found.answers if one.ok]
    assert None not in prices
    assert prices == sorted(prices, key=lambda price: price or 0.0)


def test_what_misses_a_limit_comes_behind_what_keeps_it() -> None:
    found = fleet(asked(limits__max_tpot_s=0.01), REGISTRY, named("l4", "b200"))
    kept = [one.ok for one in found.answers]
    assert kept == sorted(kept, reverse=True)
    assert set(kept) == {True, False}


def test_hardware_that_cannot_is_left_out_with_the_reason() -> None:
    found = fleet(asked(precision="fp8"), REGISTRY, named("a100-sxm-80gb"))
    assert [left.name for left in found.left_out] == ["a100-sxm-80gb"]
    assert "fp8" in found.left_out[0].reason
    assert [option(one).gpu for one in found.answers] == ["h100-sxm-80gb"]


def test_alone_it_is_refused() -> None:
    with pytest.raises(InputError, match="fp8"):
        fleet(asked(gpu="a100-sxm-80gb", precision="fp8"), REGISTRY, [{}])


def test_an_option_says_what_its_answer_says() -> None:
    (one,) = fleet(asked(), REGISTRY, [{}]).answers
    line = option(one)
    assert (line.gpus, line.replicas) == (one.gpus, one.replicas)
    assert line.gpus == line.layout.tp * line.layout.pp * line.layout.dp * line.replicas
    assert line.output_tokens_per_s_per_gpu == pytest.approx(8 * 256 / one.gpus)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "mixtral-8x7b"])
def test_nothing_on_the_front_is_beaten(model: str) -> None:
    points = pareto(resolve_serving(asked(model=model), REGISTRY))
    assert len(points) > 4
    per_user = [point.tokens_per_s_per_user for point in points]
    per_gpu = [point.output_tokens_per_s_per_gpu for point in points]
    assert per_user == sorted(per_user, reverse=True)
    assert per_gpu == sorted(per_gpu)
    assert len(set(per_gpu)) == len(per_gpu)


def test_a_model_that_fits_nowhere_has_no_front() -> None:
    assert pareto(resolve_serving(asked(model="llama-3.1-405b", gpus=1), REGISTRY)) == ()
