"""What a report says of an iteration of reinforcement learning: its phases, its answers, who writes them."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import pytest

import xe_sizer
from tests.cases import ask
from xe_sizer.report.answers.estimate import iteration_points, split_words
from xe_sizer.report.document import Options
from xe_sizer.report.registry import render
from xe_sizer.result.training import Result
from xe_sizer.training.search import size
from xe_sizer.training.summary import summarise

SHARED: dict[str, Any] = {
    "model": "llama-3.2-1b", "gpu": "h100-sxm-80gb", "gpus": 8, "job": "grpo", "stack": "verl",
    "rollout": {"prompts": 32, "group": 4, "input_tokens": 200, "output_tokens": 500, "max_output_tokens": 2048},
}  # fmt: skip


@cache
def answer(gpus: int = 0, asynchronous: bool = False, job: str = "grpo", tp: int = 0) -> Result:
    """On GPUs that do both in turn, or with some that only write answers."""
    apart = {"gpus": gpus, "colocated": False, "asynchronous": asynchronous} if gpus else {}
    apart |= {"tp": tp} if tp else {}
    return xe_sizer.estimate(**{**SHARED, "job": job, "rollout": {**SHARED["rollout"], **apart}})


def points(result: Result) -> dict[str, str]:
    return {point.label: point.text for point in iteration_points(result)}


def test_the_first_screen_says_what_an_iteration_spends_its_time_on() -> None:
    result = answer()
    told = points(result)
    for phase in result.phases:
        assert (f"{phase.name} " in told["Iteration"]) is (phase.share >= 0.01)
    assert told["Responses"].startswith("128 per iteration (32 prompts x 4); 500 tokens each on average")
    assert "colocated with training" in told["Rollout"]


def test_phases_sum_to_the_iteration() -> None:
    text = render(answer(), "table", Options(width=120))
    assert "Phases of an iteration" in text
    assert "time per iteration" in text
    assert "Split of the GPUs" not in text
    assert sum(phase.seconds for phase in answer().phases) == pytest.approx(answer().time.step_s.expected)


def test_gpus_that_only_write_answers_are_a_row_of_their_own() -> None:
    result = answer(gpus=4)
    text = render(result, "table", Options(width=120))
    assert "Split of the GPUs" in text
    assert "on 4 GPUs of its own" in points(result)["Rollout"]
    assert split_words(result.pools) == "4 train, 4 generate (4 replicas of one GPU)"
    assert split_words(answer(gpus=4, tp=4).pools) == "4 train, 4 generate (1 replica of tp 4)"
    assert split_words(answer().pools).startswith("colocated, ")


def test_what_others_hide_is_said_to_run_meanwhile() -> None:
    told = points(answer(gpus=4, asynchronous=True))
    assert "overlapped" in told["Iteration"]
    assert "responses up to 1 iteration old" in told["Rollout"]
    assert "overlapped: hidden behind the longer work" in render(
        answer(gpus=4, asynchronous=True), "table", Options(width=120)
    )


def test_other_jobs_have_steps_and_no_phases() -> None:
    result = xe_sizer.estimate(model="llama-3.2-1b", gpu="h100-sxm-80gb", gpus=8)
    text = render(result, "table", Options(width=120))
    assert points(result) == {}
    assert "iteration" not in text


@pytest.mark.parametrize("form", ["markdown", "html", "csv", "json"])
def test_every_form_has_the_phases(form: str) -> None:
    assert "weight synchronisation" in render(answer(), form, Options())


# What a report says of images: their tokens, where these come from, and what is frozen.

SEEING = {
    "model": "qwen2-vl-2b", "gpus": 1, "stack": "llama-factory", "job": "lora", "data.images": 2,
    "data.image_size": "448x448", "train.seq_len": 2048,
}  # fmt: skip


def result(**flags: object) -> Result:
    """An estimate of a job with images."""
    return summarise(size(ask({**SEEING, **flags})))


def test_tokens_of_images_and_what_they_come_from() -> None:
    """1,024 patches, 4 to a token, and two tokens around; the stack freezes the encoder and the projector."""
    text = render(result(), "table", Options())
    line = next(line for line in text.splitlines() if line.startswith("Images"))
    assert "2 images of 448x448 in each sample: 516 tokens (1,024 patches become 258 tokens each)" in line
    assert line.endswith("frozen: image encoder, projector")


def test_parts_say_what_learns_of_each() -> None:
    found = result()
    assert [part.name for part in found.parts] == ["language", "vision", "projector"]
    assert [part.trainable_parameters > 0 for part in found.parts] == [True, False, False]
    assert sum(part.trainable_parameters for part in found.parts) == found.memory.trainable_parameters
    assert "nothing: frozen" in render(found, "table", Options())


@pytest.mark.parametrize(("images", "told"), [(None, True), (0, False)])
def test_a_model_that_sees_is_said_to_be_trained_without_its_encoder(images: int | None, told: bool) -> None:
    flags = {key: value for key, value in SEEING.items() if not key.startswith("data.")} | {"data.images": images}
    warnings = ask({key: value for key, value in flags.items() if value is not None}).warnings
    assert any("without its image encoder" in warning for warning in warnings) == told


# What reports call profiles that a path names, and the parts of memory on accelerators of other vendors.

NAMES = {"model": "my-model", "server": "my-server", "gpu": "my-gpu", "vendor": "NVIDIA", "job": "LoRA"}


def named(result: Result, **changes: object) -> Result:
    scenario = result.scenario | {"model": "./my-model/config.json", "gpu": "./g.yaml", "server": "./s.yaml"}
    return msgspec.structs.replace(result, scenario=scenario | {"names": {**NAMES, **changes}})


def test_the_headline_has_names_and_the_facts_have_paths(lora: Result) -> None:
    text = render(named(lora), "table", Options())
    assert text.startswith("FITS  LoRA of my-model on 16 x my-gpu (2 x my-server)\n")
    for path in ("./my-model/config.json", "./g.yaml", "./s.yaml"):
        assert text.count(path) == 1


def test_a_saved_result_without_names_shows_what_the_scenario_says(lora: Result) -> None:
    bare = msgspec.structs.replace(lora, scenario={key: v for key, v in lora.scenario.items() if key != "names"})
    assert "lora of llama-2-70b on 16 x h100-sxm-80gb (2 x dell-xe9680-h100)" in render(bare, "table", Options())


@pytest.mark.parametrize(("vendor", "neutral"), [("NVIDIA", False), ("AMD", True), ("Intel", True)])
def test_words_of_one_vendor_are_kept_for_its_own_accelerators(lora: Result, vendor: str, neutral: bool) -> None:
    result = named(lora, vendor=vendor)
    text = render(result, "table", Options(explain=("memory",)))
    assert text.count("device context") == text.count("collective library buffers") == (2 if neutral else 0)
    assert ("CUDA context" in text) is ("NCCL buffers" in text) is not neutral
