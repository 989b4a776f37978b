"""What names of checkpoints say of the format of their weights."""

import pytest

from xe_sizer.software.number_formats import format_of, quantised_in, told_by


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
