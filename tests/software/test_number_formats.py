"""Number formats: names, schemes, and what an accelerator without a format computes in."""

from __future__ import annotations

import pytest
from serving_cases import asked

from xe_sizer.errors import InputError
from xe_sizer.serving.job import wide_modules
from xe_sizer.software.number_formats import ALIASES, FORMATS, format_of, parse_scheme, quantised_in, scheme, told_by

AMPERE = {"fp32": 19.5e12, "bf16": 312e12, "fp16": 312e12, "int8": 624e12, "int4": 1248e12}
HOPPER = {"fp32": 67e12, "bf16": 989e12, "fp16": 989e12, "fp8": 1979e12, "int8": 1979e12}
BLACKWELL = {**HOPPER, "fp4": 9000e12}
VOLTA = {"fp32": 15.7e12, "fp16": 125e12}


@pytest.mark.parametrize(
    ("text", "peaks", "formats"),
    [
        ("w16a16", AMPERE, ("bf16", "bf16", "bf16")),
        ("w16", AMPERE, ("bf16", "bf16", "bf16")),
        ("w8a8", AMPERE, ("int8", "int8", "bf16")),
        ("w8a8", HOPPER, ("fp8", "fp8", "bf16")),
        ("w8a8k8", HOPPER, ("fp8", "fp8", "fp8")),
        ("w8", HOPPER, ("fp8", "bf16", "bf16")),
        ("w4a16", HOPPER, ("int4-plain", "bf16", "bf16")),
        ("w4a8", AMPERE, ("int4-plain", "int8", "bf16")),
        ("w4a4", AMPERE, ("int4-plain", "int4-plain", "bf16")),
        ("w4a4", BLACKWELL, ("nvfp4", "nvfp4", "bf16")),
        ("w4a16k4", BLACKWELL, ("int4-plain", "bf16", "int4-plain")),
        ("W4A16-K8", AMPERE, ("int4-plain", "bf16", "int8")),
        ("w32a32k32", AMPERE, ("fp32", "fp32", "fp32")),
    ],
)
def test_a_scheme_names_three_formats(text: str, peaks: dict[str, float], formats: tuple[str, str, str]) -> None:
    assert parse_scheme(text, "bf16", peaks) == formats
    assert formats[2] in {"bf16", "fp16", "fp8", "int8", "int4-plain", "fp32"}


def test_sixteen_bit_is_what_the_accelerator_has() -> None:
    assert parse_scheme("w16a16", "fp16", VOLTA) == ("fp16", "fp16", "fp16")


@pytest.mark.parametrize("text", ["", "w", "16", "a16", "w4k8a16", "w4a16e16", "w4 a16"])
def test_what_is_no_scheme_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_scheme(text, "bf16", HOPPER)
    problem = caught.value.problems[0]
    assert problem.hint is not None
    assert "w4a16k8" in problem.hint


@pytest.mark.parametrize("text", ["w3a16", "w4a6", "w4a16k2", "w1", "w160"])
def test_a_width_that_no_format_has_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_scheme(text, "bf16", HOPPER)
    assert "4, 8, 16 or 32" in str(caught.value)


@pytest.mark.parametrize("name", [*FORMATS, *ALIASES])
def test_every_name_is_found_in_any_case(name: str) -> None:
    found = format_of(name.upper())
    assert found.name == ALIASES.get(name, name)
    assert found.element_bytes > 0


@pytest.mark.parametrize(("name", "meant"), [("bf61", "bf16"), ("nvfp", "nvfp4"), ("five bits", "known: fp32, bf16")])
def test_an_unknown_format_gets_a_hint(name: str, meant: str) -> None:
    with pytest.raises(InputError) as caught:
        format_of(name)
    assert name in str(caught.value)
    assert meant in str(caught.value)


@pytest.mark.parametrize(
    ("name", "bits"),
    [("nvfp4", 4.5), ("mxfp4", 4.25), ("nf4-single", 4.5), ("nf4", 4.127), ("int4", 4.15625), ("fp8-block", 8.002)],
)
def test_scales_count_as_bits_of_the_weights(name: str, bits: float) -> None:
    """Elements that share a scale add its bits.

    16 share an 8-bit one (NVFP4), 32 one (MX), 64 a float32 (NF4) or an 8-bit one with a float32 per 256 scales (QLoRA,
    section 3: 0.127 bits), 128 a 16-bit scale and a 4-bit zero (GPTQ), 128 x 128 a float32.
    """
    assert 8 * FORMATS[name].element_bytes == pytest.approx(bits, abs=6e-4)


@pytest.mark.parametrize(
    ("weights", "activations", "peaks", "compute"),
    [
        ("bf16", "bf16", HOPPER, "bf16"),
        ("fp8", "fp8", HOPPER, "fp8"),
        ("fp8", "fp8", AMPERE, "bf16"),
        ("fp8", "bf16", HOPPER, "bf16"),
        ("int8", "int8", AMPERE, "int8"),
        ("int4", "bf16", AMPERE, "bf16"),
        ("int4-plain", "int8", AMPERE, "int8"),
        ("int4-plain", "int4-plain", AMPERE, "int4"),
        ("int4-plain", "int4-plain", HOPPER, "bf16"),
        ("nvfp4", "nvfp4", BLACKWELL, "fp4"),
        ("nvfp4", "nvfp4", HOPPER, "bf16"),
        ("fp8", "nvfp4", HOPPER, "bf16"),
        ("fp8", "fp8", VOLTA, "fp16"),
        ("nf4", "bf16", HOPPER, "bf16"),
        ("fp32", "fp32", HOPPER, "fp32"),
    ],
)
def test_products_run_in_the_wider_format_that_has_a_peak(
    weights: str, activations: str, peaks: dict[str, float], compute: str
) -> None:
    """Without one the weights are widened in the kernel, and activations stay in 16 bit."""
    found = scheme(FORMATS[weights], FORMATS[activations], FORMATS["bf16"], peaks)
    assert found.compute == compute
    assert found.weights.name == weights
    assert (found.activations.element_bytes >= 2) == (compute in ("bf16", "fp16", "fp32"))


@pytest.mark.parametrize("gpu", ["a100-sxm-80gb", "v100-sxm-32gb"])
def test_accelerators_without_fp8_keep_it_in_memory_only(gpu: str) -> None:
    found = asked(gpu=gpu, serve__weights="fp8").job
    assert found.scheme.weights.name == "fp8"
    assert found.scheme.compute in ("bf16", "fp16")
    assert found.device.weight_element_bytes == 1
    assert found.device.peak_flops_per_s == asked(gpu=gpu).job.device.peak_flops_per_s


def test_activations_follow_weights_that_the_accelerator_multiplies() -> None:
    usual = {
        ("h100-sxm-80gb", "fp8"): "fp8",
        ("h100-sxm-80gb", "int8"): "bf16",
        ("h100-sxm-80gb", "int4"): "bf16",
        ("a100-sxm-80gb", "fp8"): "bf16",
        ("b200", "nvfp4"): "nvfp4",
    }
    for (gpu, weights), activations in usual.items():
        assert asked(gpu=gpu, serve__weights=weights).job.scheme.activations.name == activations


def test_expert_formats_leave_all_else_in_sixteen_bit() -> None:
    made = scheme(FORMATS["mxfp4"], FORMATS["bf16"], FORMATS["bf16"], HOPPER)
    assert {"qkv", "output_projection", "mlp", "head", "router", "embedding"} <= wide_modules(made)
    assert "experts" not in wide_modules(made)
    assert wide_modules(scheme(FORMATS["bf16"], FORMATS["bf16"], FORMATS["bf16"], HOPPER)) == frozenset()


def test_a_bad_scheme_or_format_of_a_scenario_names_its_key() -> None:
    for flags in ({"serve__scheme": "w5a16"}, {"serve__weights": "int5"}, {"serve__kv_cache": "nf4"}):
        with pytest.raises(InputError) as caught:
            asked(**{"model": "llama-3.1-8b", **flags})
        assert next(iter(flags)).split("__")[1].replace("_", "-") in str(caught.value).replace("_", "-")


# What names of checkpoints say of the format of their weights.


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Qwen/Qwen3-32B-AWQ", "awq"),
        ("TheBloke/Llama-2-7B-GPTQ", "int4"),
        ("Qwen/Qwen1.5-0.5B-Chat-GPTQ-Int4", "int4"),
        ("Qwen/Qwen2-7B-Instruct-GPTQ-Int8", "gptq-int8"),
        ("nvidia/Llama-3.1-8B-Instruct-FP8", "fp8"),
        ("/models/Llama-3.3-70B-Instruct-FP8-dynamic/", "fp8"),
        ("unsloth/Qwen3-14B-Base-unsloth-bnb-4bit", "nf4"),
        ("someone/llama-3-8b-bnb-8bit", "int8"),
        ("axolotl-quants/DeepSeek-V2.5-bnb-nf4-bf16", "nf4"),
        ("nvidia/DeepSeek-V3.1-NVFP4", "nvfp4"),
        ("nvidia/DeepSeek-R1-FP4", "nvfp4"),
        ("amd/Kimi-K2.5-MXFP4", "mxfp4"),
        ("someone/MiniMax-M3-MXFP8", "mxfp8"),
        ("RedHatAI/Llama-3.2-1B-Instruct-quantized.w8a8", "int8"),
        ("google/gemma-4-31B-it-qat-w4a16-ct", "int4"),
        ("bartowski/Llama-3.2-3B-Instruct-Q4_K_M.gguf", "q4_k_m"),
        ("turboderp/Llama-3-8B-exl2-4.6bpw", "exl2-4.65"),
    ],
)
def test_a_name_with_a_format_gives_what_serve_weights_takes(name: str, expected: str) -> None:
    assert quantised_in(name) == expected
    assert format_of(expected).name == expected


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-8B", "unsloth/gpt-oss-20b-BF16", "Qwen/Qwen3-4B-GGUF", "", "/"])
def test_a_name_without_a_known_narrow_format_gives_none(name: str) -> None:
    assert quantised_in(name) is None


def test_a_format_of_unknown_size_is_told_by_its_words() -> None:
    told = told_by("someone/Llama-3-8B-HQQ")
    assert told is not None
    assert (told.words, told.format) == ("HQQ", None)
    assert quantised_in("someone/Llama-3-8B-HQQ") is None
