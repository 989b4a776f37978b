"""Remedies of iterations: which changes each proposes for which job, and in which order they are said."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from cases import REGISTRY
from msgspec.structs import replace
from reinforcement_cases import base, sized

from xe_sizer.reinforcement import advice
from xe_sizer.reinforcement.advice import (
    HARDWARE,
    MENDING,
    QUALITY,
    SHARING,
    adapters,
    advise,
    at_the_same_time,
    deeper_sleep,
    engine_of_its_own,
    interrupted_answers,
    more_gpus,
    narrow_weights,
    no_reference,
    open_sharing,
    other_share,
    other_split,
    shorter_answers,
)
from xe_sizer.reinforcement.estimate import ReinforcementEstimate
from xe_sizer.scenario.read import Change
from xe_sizer.scenario.trials import Option

GIB = 2.0**30


def changed(way: str = "turns", **settings: object) -> ReinforcementEstimate:
    one = base(way)
    resolved = replace(one.reinforcement, settings=replace(one.reinforcement.settings, **settings))
    return replace(one, iteration=replace(one.iteration, resolved=resolved))


def of_stack(way: str = "turns", **defaults: object) -> ReinforcementEstimate:
    return changed(way, defaults=msgspec.structs.replace(base(way).reinforcement.settings.defaults, **defaults))


def proposed(remedy: object, one: ReinforcementEstimate) -> list[dict[str, object]]:
    return [change.values for change in remedy(one, REGISTRY)]  # type: ignore[operator]


def test_gpus_are_shared_the_other_way() -> None:
    """Half of them only write where they did both; they do both where they did not, if the stack has that way."""
    assert proposed(open_sharing, base()) == [{"rollout.gpus": 4}]
    assert proposed(open_sharing, base("pools")) == [{"rollout.colocated": True}]
    assert proposed(open_sharing, of_stack(apart=False)) == []
    assert proposed(open_sharing, sized(gpus=1)) == []
    assert proposed(open_sharing, sized(gpus=2)) == [{"rollout.gpus": 1}]


def test_a_quarter_a_half_or_three_quarters_write() -> None:
    """Whole nodes, or parts of one; but for what is there."""
    quarter = sized(gpus=32, rollout__gpus=24)
    assert proposed(other_split, quarter) == [{"rollout.gpus": 8}, {"rollout.gpus": 16}]
    assert proposed(other_split, base("pools")) == []  # 4 and 12 of 16 would share a node
    assert proposed(other_split, sized(gpus=8, rollout__gpus=4)) == [{"rollout.gpus": 2}, {"rollout.gpus": 6}]
    assert proposed(other_split, sized(gpus=2, rollout__gpus=1)) == []
    assert proposed(other_split, base()) == []


def test_answers_are_written_while_the_trainer_learns() -> None:
    assert proposed(at_the_same_time, base("pools")) == [{"rollout.asynchronous": True}]
    for other in (base(), base("at once"), of_stack("pools", asynchronous=False)):
        assert proposed(at_the_same_time, other) == []


def test_long_answers_go_on_where_the_stack_learns_from_older_ones() -> None:
    assert proposed(interrupted_answers, base()) == [{"rollout.partial": True}]
    carried = replace(base().reinforcement.settings.asked, carried=True)
    for other in (of_stack(asynchronous=False), changed(asked=carried), base("itself")):
        assert proposed(interrupted_answers, other) == []


def test_an_engine_takes_the_place_of_the_trainer_s_own_model() -> None:
    assert proposed(engine_of_its_own, base("itself")) == [{"rollout.engine": "vllm"}]
    assert proposed(engine_of_its_own, base()) == []
    silent = replace(
        base("itself").reinforcement.settings.asked,
        answers=sized(rollout__output_tokens=0).reinforcement.settings.answers,
    )
    assert proposed(engine_of_its_own, changed("itself", asked=silent)) == []


def test_an_engine_has_another_share_of_the_card_where_somebody_gave_it_one() -> None:
    key = "rollout.gpu_memory_utilization"
    assert proposed(other_share, base()) == []
    assert proposed(other_share, changed(asked_share=0.5)) == [{key: 0.8}, {key: 0.6}, {key: 0.4}]
    assert proposed(other_share, changed(asked_share=0.57)) == [{key: 0.8}, {key: 0.4}]
    (change, *_) = other_share(changed(asked_share=0.5), REGISTRY)
    assert change.words == "the engine may use 80 % of the GPU's memory instead of 50 %"


def test_an_engine_sleeps_deeper_where_it_shares_the_card() -> None:
    for how, found in (("none", 1), ("cache", 1), ("weights-to-host", 0), ("weights-dropped", 0)):
        assert len(proposed(deeper_sleep, changed(sleep=how))) == found
    assert proposed(deeper_sleep, changed("pools", sleep="none")) == []


def test_weights_that_write_are_narrower_where_the_card_multiplies_them() -> None:
    assert proposed(narrow_weights, base()) == [{"rollout.weights": "fp8"}]
    assert proposed(narrow_weights, base("itself")) == []
    assert proposed(narrow_weights, sized(gpu="a100-sxm-80gb")) == []
    assert proposed(narrow_weights, sized(rollout__weights="fp8")) == []


def test_a_reference_is_left_out_where_no_critic_needs_it() -> None:
    assert proposed(no_reference, base()) == [{"train.reference": "none"}]
    assert proposed(no_reference, base("critic")) == []
    assert proposed(no_reference, sized(train__reference="none")) == []


def test_adapters_take_the_place_of_all_weights() -> None:
    """With the model's own weights as the reference, where one was asked for."""
    assert proposed(adapters, base()) == [{"adapter": "lora"}]
    copied = sized(train__reference="copy")
    assert proposed(adapters, copied) == [{"adapter": "lora", "train.reference": "adapters-off"}]
    assert proposed(adapters, sized(adapter="lora")) == []


@pytest.mark.parametrize(
    ("most", "mean", "inputs", "found"),
    [
        (2048.0, 400.0, 256.0, [{"most": 1024}, {"most": 512, "mean": 256}]),
        (2048.0, 600.0, 256.0, [{"most": 1024, "mean": 512}, {"most": 512, "mean": 256}]),
        (2046.0, 600.0, 256.0, [{"most": 1023, "mean": 511}]),  # 511 tokens are none that somebody trains on
        (2048.0, 600.0, 4000.0, [{"most": 1024, "mean": 512}]),  # nor half a prompt
        (1000.0, 600.0, 256.0, []),
    ],
)
def test_answers_are_cut_earlier(most: float, mean: float, inputs: float, found: list[dict[str, int]]) -> None:
    """At a half and a quarter; their mean is at most half of that."""
    answers = sized(rollout__output_tokens=mean, rollout__max_output_tokens=int(most)).reinforcement.settings.answers
    asked = replace(base().reinforcement.settings.asked, answers=answers, inputs=inputs)
    keys = {"most": "rollout.max_output_tokens", "mean": "rollout.output_tokens"}
    expected = [{keys[name]: value for name, value in one.items()} for one in found]
    assert proposed(shorter_answers, changed(asked=asked, max_output_tokens=most)) == expected


def test_gpus_are_doubled_in_both_pools() -> None:
    assert [one["gpus"] for one in proposed(more_gpus, base())] == [16, 32, 64, 128]
    assert proposed(more_gpus, base("pools"))[1] == {"gpus": 64, "rollout.gpus": 32}
    assert [one["gpus"] for one in proposed(more_gpus, sized(limits__max_gpus=32))] == [16, 32]
    assert proposed(more_gpus, sized(gpus=None, limits__max_gpus=8)) == []


# Which of them are said.


def option(effort: int, iterations: int, one: ReinforcementEstimate | None = None) -> Option[ReinforcementEstimate]:
    """A change of such an effort, after which the run has so many iterations instead of a hundred."""
    one = one or base()
    shorter = replace(one.reinforcement, iterations=iterations)
    return Option(Change("words", {}, effort), replace(one, iteration=replace(one.iteration, resolved=shorter)))


def test_what_leaves_the_training_as_it_is_comes_before_what_does_not() -> None:
    soon, later, other = option(SHARING, 10), option(SHARING, 20), option(QUALITY, 5)
    assert sorted([other, later, soon], key=advice._by_gain) == [soon, later, other]
    hardware = option(HARDWARE, 1)
    assert sorted([hardware, other, later], key=advice._by_effort) == [later, other, hardware]
    tight = rolled_out(base().usable_bytes * 1.01)
    assert not tight.roomy
    assert min([option(SHARING, 1, tight), later], key=advice._by_gain) is later
    assert min([option(SHARING, 1, tight), other], key=advice._by_effort) is other


def rolled_out(peak_bytes: float) -> ReinforcementEstimate:
    """A base case whose engine needs so much of a card for one answer."""
    one = base()
    least = peak_bytes - one.iteration.kept_bytes
    writes = replace(one.iteration.rollout, peak_bytes=peak_bytes, least_bytes=least)
    return replace(one, iteration=replace(one.iteration, rollout=writes))


def test_an_effect_is_said_with_its_gain() -> None:
    before, half = base(), option(SHARING, 50)
    words = advice._effect(before, half)
    assert words.endswith("(-50 % time)")
    assert "GPUs" not in words
    assert f"instead of {advice._hours(before.total_s)}" in words
    more = option(SHARING, 110, base("pools"))
    assert ", on 16 GPUs, " in advice._effect(before, more)
    lost = rolled_out(2 * before.usable_bytes)
    assert not lost.fits
    assert "instead of" not in advice._effect(lost, half)
    assert (advice._hours(7200.0), advice._seconds(12.34)) == ("2.00 h", "12.3 s")


def test_faster_ways_are_advised_where_all_fits() -> None:
    """One of each kind at most, each at least a twentieth faster, that none of which takes more GPUs."""
    one = base("itself")
    said = advise(one, REGISTRY)
    assert said[0].change == "vllm generates the responses"
    assert advise(one, REGISTRY, 1) == said[:1]
    assert advise(one, REGISTRY, 0) == ()
    assert len(said) <= 5
    gains = [int(words.effect.rsplit("(", 1)[1].split(" ")[0]) for words in said]
    assert all(gain <= -5 for gain in gains)
    assert not any("GPUs instead" in words.change for words in said)


def test_what_does_not_fit_is_mended_by_the_least_effort() -> None:
    """8B with a copy of itself beside it on two cards: without the copy, with adapters, or on more cards."""
    fixed = {"model": "llama-3.1-8b", "gpus": 2, "layout__zero": None, "layout__tp": None, "layout__pp": None}
    one = sized(**fixed, rollout__tp=None, rollout__pp=None)
    assert not one.fits
    said = advise(one, REGISTRY)
    assert said
    assert any("instead of 2 GPUs" in words.change or "adapters" in words.change for words in said)
    assert np.all(np.diff([remedy.effort for remedy in MENDING]) >= 0)
