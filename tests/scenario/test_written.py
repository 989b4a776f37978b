"""Words of other tools and numbers with units, as the keys of a scenario have them."""

from pathlib import Path

import pytest

from xe_sizer.errors import InputError
from xe_sizer.scenario.read import read_scenario
from xe_sizer.scenario.scenario import Scenario

BASE = {"model": "llama-2-7b", "gpu": "rtx-4090"}


def given(**flags: object) -> Scenario:
    return read_scenario(None, BASE | {key.replace("__", "."): value for key, value in flags.items()}, {})


def value(key: str, written: object) -> object:
    found: object = given(**{key: written}).values
    for part in key.split("__"):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize(
    ("key", "written", "meant"),
    [
        ("limits__max_hours", "24h", 24.0),
        ("limits__max_hours", "90m", 1.5),
        ("limits__max_hours", "2 days", 48.0),
        ("limits__max_hours", "1.5d", 36.0),
        ("limits__max_ttft_s", "500ms", 0.5),
        ("limits__max_ttft_s", "2s", 2.0),
        ("limits__max_tpot_s", "50 ms", 0.05),
        ("limits__min_headroom_gib", "2GiB", 2.0),
        ("limits__min_headroom_gib", "2GB", 2e9 / 2**30),
        ("limits__min_headroom_gib", "512MiB", 0.5),
        ("limits__max_cost", "5k", 5000.0),
        ("train__seq_len", "4k", 4096),
        ("train__seq_len", "128K", 131072),
        ("train__seq_len", "10k", 10240),
        ("train__seq_len", "1.5k", 1536),
        ("train__seq_len", "1M", 1_048_576),
        ("data__max_tokens", "8k", 8192),
        ("serve__input_tokens", "1k", 1024.0),
        ("data__tokens", "1.5B", 1.5e9),
        ("data__tokens", "300M", 3e8),
        ("data__tokens", "2T", 2e12),
        ("data__tokens", "10k", 1e4),
        ("data__samples", "52k", 52000),
        ("data__samples", "1.2M", 1_200_000),
        ("train__steps", "1k", 1000),
        ("serve__gpu_memory_utilization", "90%", 0.9),
        ("gpus", "16 GPUs", 16),
        ("train__epochs", "3 epochs", 3.0),
        ("train__steps", "1000 steps", 1000),
    ],
)
def test_a_number_with_a_unit_is_in_the_unit_of_its_key(key: str, written: str, meant: float) -> None:
    assert value(key, written) == pytest.approx(meant, rel=1e-12)
    assert type(value(key, written)) is type(meant)


@pytest.mark.parametrize(
    ("key", "written", "message"),
    [
        ("limits.min_headroom_gib", "2G", "'2G' may be 2 (GiB) or 1.86265 (GB)"),
        ("limits.max_hours", "24x", "'max_hours' must be a number, not '24x'"),
        ("limits.max_hours", "24GB", "'max_hours' must be a number, not '24GB'"),
        ("train.steps", "1.0005k", "'steps' must be a whole number, not '1.0005k'"),
        ("data.samples", "50%", "'samples' must be a whole number, not '50%'"),
    ],
)
def test_a_number_of_two_readings_or_of_another_unit_is_refused(key: str, written: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_scenario(None, BASE | {key: written}, {})
    assert [problem.message for problem in caught.value.problems] == [message]
    assert "--" in str(caught.value.problems[0].location)


@pytest.mark.parametrize(
    ("key", "written", "meant"),
    [
        ("job", "LoRA", "lora"),
        ("job", "QLoRA", "qlora"),
        ("job", "SFT", "sft"),
        ("job", "full", "sft"),
        ("job", "full_finetune", "sft"),
        ("job", "fullfinetune", "sft"),
        ("job", "pre-training", "pretrain"),
        ("precision", "bfloat16", "bf16"),
        ("precision", "BF16", "bf16"),
        ("attention", "flash_attention_2", "flash"),
        ("attention", "SDPA", "sdpa"),
        ("layout__zero", "zero3", 3),
        ("layout__zero", "fsdp", 3),
        ("layout__zero", "FULL_SHARD", 3),
        ("layout__zero", "zero-2", 2),
        ("layout__zero", 1, 1),
        ("layout__recompute", True, "full"),
        ("layout__recompute", "Selective", "selective"),
        ("train__padding", "packing", "packed"),
        ("train__padding", "max_length", "to-seq-len"),
        ("serve__weights", "float8", "fp8"),
        ("serve__kv_cache", "fp8_e4m3", "fp8"),
    ],
)
def test_words_of_other_tools_are_read_whatever_their_case(key: str, written: object, meant: object) -> None:
    assert value(key, written) == meant


def test_what_is_read_otherwise_than_it_is_written_is_kept_but_not_a_matter_of_case_or_unit() -> None:
    found = given(train__seq_len="4k", limits__max_hours="24h", job="LoRA", layout__zero="fsdp", data__tokens="1.5B")
    assert found.read_as == {
        "train.seq_len": ("4k", 4096), "layout.zero": ("fsdp", 3), "data.tokens": ("1.5B", 1.5e9),
    }  # fmt: skip


def test_files_and_variables_are_read_alike(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("model: m\njob: LoRA\ntrain: {seq_len: 4k}\nlimits: {max_hours: 1.5d}\n", encoding="utf-8")
    found = read_scenario(file, {}, {"XE_SIZER_TOKENS": "300M"}).values
    assert (found.job, found.train.seq_len, found.limits.max_hours, found.data.tokens) == ("lora", 4096, 36.0, 3e8)
    file.write_text("model: m\nlimits:\n  min_headroom_gib: 2G\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"job\.yaml:3:21: '2G' may be 2 \(GiB\) or 1.86265 \(GB\)"):
        read_scenario(file, {}, {})


def test_a_number_with_a_wrong_unit_is_told_how_to_write_it() -> None:
    with pytest.raises(InputError) as caught:
        read_scenario(None, BASE | {"limits.max_hours": "24x"}, {})
    assert caught.value.problems[0].hint == "write it without a unit, or as 90m, 24h or 2d"


def test_contradictions_are_found_between_numbers_with_units() -> None:
    with pytest.raises(InputError, match="is above 'max_gpus'"):
        read_scenario(None, BASE | {"gpus": "2k", "limits.max_gpus": "1k"}, {})
