"""Formats by bits (GGUF, EXL2, MLC), what they store, who runs them, and how fast one sequence is."""

from __future__ import annotations

import pytest

import xe_sizer
from tests.serving_cases import asked
from xe_sizer.evidence.serving_scenario import weights_format_name
from xe_sizer.serving.job import ReplicaLayouts
from xe_sizer.serving.memory import request_bytes, weight_bytes
from xe_sizer.serving.step_time import Work, step_time
from xe_sizer.software.number_formats import FORMATS, exl2_near, format_of, scheme, told_by

PARAMETERS_7B = 6_738_415_616


@pytest.mark.parametrize(
    ("name", "found", "bits"),
    [
        ("llama-2-70b.Q4_K_M.gguf", "q4_k_m", 4),
        ("bartowski/Llama-3.1-8B-Instruct-IQ4_XS", "iq4_xs", 4),
        ("Qwen2.5-7B-Q8_0", "q8_0", 8),
        ("some-Q5_K.gguf", "q5_k_m", 5),
        ("turboderp/Llama2-70B-2.5bpw-h6-exl2", "exl2-2.5", 2),
        ("Llama2-13B-4_65bpw", "exl2-4.65", 4),
        ("Llama2-13B-exl2-4.0", "exl2-4", 4),
    ],
)
def test_names_of_checkpoints_say_the_mixture(name: str, found: str, bits: int) -> None:
    told = told_by(name)
    assert told is not None
    assert told.format is FORMATS[found]
    assert told.bits == bits


@pytest.mark.parametrize("name", ["TheBloke/Llama-2-70B-GGUF", "turboderp/Llama2-70B-exl2"])
def test_a_mixture_without_its_size_is_not_guessed(name: str) -> None:
    told = told_by(name)
    assert told is not None
    assert told.format is None
    assert told.bits is None


@pytest.mark.parametrize(
    ("words", "quantiser", "bits", "found"),
    [
        ("exl2", "", 2.4, "exl2-2.4"),
        ("int4", "exl2", 4.1, "exl2-4"),
        ("exl2-2.5", "", None, "exl2-2.5"),
        ("q4-k-m", "", None, "q4_k_m"),
        ("gptq", "", None, "int4"),
        ("unheard-of", "", None, "unheard-of"),
    ],
)
def test_records_name_formats_in_their_own_words(words: str, quantiser: str, bits: float | None, found: str) -> None:
    assert weights_format_name(words, quantiser, bits) == found


def test_the_nearest_published_width_stands_for_a_mean() -> None:
    assert exl2_near(3.4).name == "exl2-3.5"
    assert exl2_near(1.0).name == "exl2-2.25"
    assert format_of("Q4_K").name == "q4_k_m"


@pytest.mark.parametrize(("name", "bits"), [("q4_k_m", 4.89), ("q8_0", 8.5), ("exl2-2.5", 2.5), ("q4f16_1", 4.5)])
def test_head_and_embedding_are_in_the_mean_bits(name: str, bits: float) -> None:
    model = asked(model="llama-2-7b").job.model
    peaks = {"bf16": 1.0}
    stored = weight_bytes(model, scheme(format_of(name), FORMATS["bf16"], FORMATS["bf16"], peaks))
    norms = (2 * 32 + 1) * 4096
    assert stored == pytest.approx((PARAMETERS_7B - norms) * bits / 8 + 2 * norms, rel=1e-9)
    narrower = weight_bytes(model, scheme(format_of("int4"), FORMATS["bf16"], FORMATS["bf16"], peaks))
    ends = 2 * 32_000 * 4096
    assert narrower == pytest.approx((PARAMETERS_7B - norms - ends) * (0.5 + 2.5 / 128) + 2 * (norms + ends), rel=1e-9)


@pytest.mark.parametrize(
    ("keys", "engine"),
    [
        ({"serve": {"weights": "q4_k_m", "batch": 1}}, "llama.cpp"),
        ({"serve": {"weights": "exl2-4", "batch": 1}}, "exllamav2"),
        ({"serve": {"weights": "q4f16_1", "batch": 1}}, "mlc-llm"),
        ({"serve": {"weights": "q4_k_m", "batch": 1, "engine": "vllm"}}, "vllm"),
        ({"serve": {"weights": "awq", "batch": 1}}, "vllm"),
    ],
)
def test_a_mixture_runs_on_the_engine_that_is_made_for_it(keys: dict[str, dict[str, object]], engine: str) -> None:
    found = xe_sizer.serve(model="llama-2-7b", gpu="rtx-4090", gpus=1, **keys)
    assert found.scenario["serve"]["engine"] == engine


@pytest.mark.parametrize(
    ("engine", "stored"), [("llama.cpp", "q4_0"), ("mlc-llm", "q4f16_1"), ("exllamav2", "int4"), ("vllm", "int4")]
)
def test_four_bits_are_what_the_engine_stores(engine: str, stored: str) -> None:
    assert asked(gpu="rtx-4090", serve__engine=engine, serve__weights="int4").job.scheme.weights.name == stored


def test_kernels_of_an_engine_start_sooner_than_those_of_a_library() -> None:
    """225 products of a 7B model, each with the floor of its engine: 2.5 us instead of what the card's law says."""
    usual = asked(gpu="rtx-4090", serve__engine="vllm", serve__weights="int4").job.device.matmul
    own = asked(gpu="rtx-4090", serve__engine="exllamav2", serve__weights="int4").job.device.matmul
    assert own.floor_s == pytest.approx(2.5e-6)
    assert usual.floor_s > 2 * own.floor_s


def test_one_kernel_of_autoawq_is_made_for_one_sequence() -> None:
    def per_token_ms(engine: str, batch: int) -> float:
        keys = {"engine": engine, "weights": "awq", "batch": batch, "input_tokens": 64, "output_tokens": 64}
        found = xe_sizer.serve(model="mistral-7b", gpu="rtx-4090", gpus=1, serve=keys)
        return 1e3 * (found.latency.tpot_s.expected or 0.0)

    assert per_token_ms("autoawq-gemv", 1) < per_token_ms("autoawq", 1)
    assert per_token_ms("autoawq-gemv", 8) > 1.4 * per_token_ms("autoawq", 8)
    # The cache and the packed weights of 7.24 billion, read once at the card's bandwidth.
    assert per_token_ms("autoawq-gemv", 1) > 7.0e9 * 0.52 / 1008e9 * 1e3


@pytest.mark.parametrize(("gpu", "faster"), [("a100-sxm-80gb", False), ("h100-sxm-80gb", True)])
def test_a_cache_in_fp8_is_converted_in_each_step_where_the_card_has_no_fp8(gpu: str, faster: bool) -> None:
    """It takes half of the memory anywhere; on A100 a step with 64 x 4,000 cached tokens takes as long as in 16 bit."""
    work = Work(decodes=64.0, decode_past=4000.0)
    wide, narrow = (asked(gpu=gpu, serve__kv_cache=name).job for name in ("bf16", "fp8"))
    one = ReplicaLayouts.of()
    times = [step_time(job, one, work).parts["attention"][0] for job in (wide, narrow)]
    assert bool(times[1] < 0.7 * times[0]) is faster
    assert faster or times[1] == pytest.approx(times[0], rel=1e-12)
    assert request_bytes(narrow, one, 4096.0)[0] == request_bytes(wide, one, 4096.0)[0] / 2
