"""Bad profile files of every kind through the real command line: refused with their place and with code 2."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from .conftest import Ran
from .refusals import refused

Cli = Callable[..., Ran]
BASE = "model: llama-2-7b\ngpu: h100-sxm-80gb\ngpus: 8\n"


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@dataclass(frozen=True)
class Slip:
    """A change of a good profile file, and what is said about it; an empty place is the file alone."""

    old: str
    new: str
    at: str
    says: str
    hint: str | None = None


GPU = """\
name: mine
vendor: NVIDIA
generation: hopper
memory_gib: 79.1
memory_bandwidth_gb_per_s: 3350
peak_tflops: {fp32: 67, bf16: 989, fp16: 989}
tdp_w: 700
pcie: {gen: 5, lanes: 16}
link: {kind: nvlink4, one_way_gb_per_s: 450}
source: {title: data sheet, url: "https://example.com", read_on: "2026-01-01"}
"""
GPU_SLIPS = {
    "key": Slip("memory_gib", "memory_gibs", "4:1", "unknown key 'memory_gibs'", "'memory_gib'"),
    "negative memory": Slip("79.1", "-79.1", "4:13", "must be greater than 0, not -79.1"),
    "no bandwidth": Slip("3350", "0", "5:28", "must be greater than 0, not 0"),
    "text for a number": Slip("700", "700 W", "7:8", "must be a number, not '700 W'"),
    "precision": Slip("bf16: 989", "bf61: 989", "6:25", "unknown precision 'bf61'", "'bf16'"),
    "no 16-bit peak": Slip("bf16: 989, fp16: 989", "fp8: 9", "6:1", "neither bf16 nor fp16", "peak"),
    "another name": Slip("name: mine", "name: other", "1:7", "the file is 'mine.yaml'", "same name"),
    "bytes for GiB": Slip("79.1", "84934656000", "4:13", "must be at most 100000"),
    "bytes for GB": Slip("3350", "3350000000000", "5:28", "must be at most 1000000"),
    "FLOP/s for TFLOP/s": Slip("bf16: 989", "bf16: 9.89e14", "6:31", "must be at most 1000000"),
    "bytes on the link": Slip("450", "4.5e11", "9:41", "must be at most 1000000"),
    "not YAML": Slip("{fp32: 67", "{fp32: 67:", "6:", "", None),
}
SERVER_PROFILE = """\
name: mine
vendor: Dell
gpu: h100-sxm-80gb
gpus: 8
scale_up: {kind: nvswitch, one_way_gb_per_s: 450}
scale_out: {nics: 8, gbit_per_s: 400, fabric: infiniband}
host: {memory_gb: 2048}
source: {title: data sheet, url: "https://example.com", read_on: "2026-01-01"}
"""
SERVER_SLIPS = {
    "key": Slip("scale_out", "scaleout", "6:1", "unknown key 'scaleout'", "'scale_out'"),
    "gpu": Slip("h100-sxm-80gb", "h100-sxm-8gb", "3:6", "unknown gpu 'h100-sxm-8gb'", "'h100-sxm-80gb'"),
    "no GPUs": Slip("gpus: 8", "gpus: 0", "4:7", "must be greater than 0"),
    "fabric": Slip("nvswitch", "nvswich", "5:18", "unknown fabric 'nvswich'", "'nvswitch'"),
    "negative memory": Slip("2048", "-2048", "7:19", "must be greater than 0"),
    "bit/s for Gbit/s": Slip("400", "400000000000", "6:34", "must be at most 1000000"),
}
MODEL = """\
name: mine
family: llama-2
layers: 32
hidden: 4096
heads: 32
ffn: 11008
vocab: 32000
max_positions: 4096
tied_embeddings: false
norm: rmsnorm
norms_per_layer: 2
activation: swiglu
position: rope
parameters: {total: 6738415616, active: 6738415616}
source: {title: a paper, parameters: counted}
"""
MODEL_SLIPS = {
    "key": Slip("hidden", "hiden", "4:1", "unknown key 'hiden'", "'hidden'"),
    "a missing key": Slip("vocab: 32000\n", "", "1:1", "missing key 'vocab'"),
    "count": Slip("layers: 32", "layers: 31", "14:21", "6,536,032,256 parameters", "parameters_note"),
    "heads": Slip("heads: 32", "heads: 31", "5:8", "'hidden' (4096) is not a multiple of 'heads' (31)"),
    "activation": Slip("swiglu", "swiglue", "12:13", "must be one of", "'swiglu'"),
    "a billion layers": Slip("layers: 32", "layers: 1000000000", "3:9", "at most 100000"),
}
STACK = "name: mine\nparent: generic\ndescribes: tuned\nsource: measured\ndefaults: {pad_to_multiple: 8}\n"
STACK_SLIPS = {
    "key": Slip("defaults", "defualts", "5:1", "unknown key 'defualts'", "'defaults'"),
    "parent": Slip("generic", "genric", "2:9", "must be a known stack", "'generic'"),
    "parent path": Slip("generic", "../mine", "2:9", "must be a known stack", "known stacks"),
    "padding": Slip("pad_to_multiple: 8", "padding: longest", "5:21", "must be one of", "'longest-in-micro-batch'"),
    "multiple": Slip("pad_to_multiple: 8", "pad_to_multiple: 0", "5:29", "must be at least 1, not 0"),
    "efficiency in per cent": Slip(
        "defaults: {pad_to_multiple: 8}", "efficiency: {matmul: 95}", "5:22", "must be at most 2, not 95"
    ),
    "memory in bytes": Slip(
        "defaults: {pad_to_multiple: 8}", "memory: {bucket_gib: 536870912}", "5:22", "must be at most 100000"
    ),
    "optimizer": Slip("pad_to_multiple: 8", "optimizer: adma", "5:23", "is not among those", "'adamw'"),
    "ZeRO": Slip("defaults: {pad_to_multiple: 8}", "supports: {zero: [0, 1]}", "1:1", "ZeRO stage 3"),
}
CONFIG = """\
{"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
 "num_attention_heads": 32, "intermediate_size": 11008,
 "vocab_size": 32000, "max_position_embeddings": 4096}
"""
CONFIG_SLIPS = {
    "cut off": Slip('"vocab_size": 32000, "max_position_embeddings": 4096}\n', '"vocab', "3:2", "unterminated string"),
    "text for a number": Slip("4096,", '"4096",', "1:25", "'hidden_size' must be a whole number"),
    "nan": Slip("4096,", "NaN,", "1:25", "'hidden_size' must be a whole number, not nan"),
    "a missing key": Slip("vocab_size", "vocabsize", "", "missing key", None),
    "heads": Slip('heads": 32', 'heads": 33', "2:2", "not a multiple of 33 heads"),
    "a billion layers": Slip('layers": 32', 'layers": 1000000000', "1:46", "between 1 and 100000"),
    "type": Slip('"llama"', '"rwkv"', "1:2", "rwkv", "no profile can describe it yet"),
    "a list": Slip(CONFIG, "[1]", "1:1", "must be a JSON object, not a list"),
    "nested": Slip(CONFIG, '{"a":' * 5000, "1:1", "nested too deeply"),
}
PROFILES = [
    pytest.param(name, scenario, text, slip, id=f"{name}-{about}")
    for name, scenario, text, slips in (
        ("mine.yaml", "model: llama-2-7b\ngpu: ./mine.yaml\n", GPU, GPU_SLIPS),
        ("mine.yaml", "model: llama-2-7b\nserver: ./mine.yaml\n", SERVER_PROFILE, SERVER_SLIPS),
        ("mine.yaml", "model: ./mine.yaml\ngpu: h100-sxm-80gb\n", MODEL, MODEL_SLIPS),
        ("mine.yaml", BASE + "stack: ./mine.yaml\n", STACK, STACK_SLIPS),
        ("config.json", "model: ./config.json\ngpu: h100-sxm-80gb\n", CONFIG, CONFIG_SLIPS),
    )
    for about, slip in slips.items()
]


@pytest.mark.parametrize(("name", "scenario", "text", "slip"), PROFILES)
def test_profile_named_by_its_path(cli: Cli, name: str, scenario: str, text: str, slip: Slip) -> None:
    Path("job.yaml").write_text(scenario)
    Path(name).write_text(text)
    assert cli("estimate", "job.yaml", "--exit-zero").code == 0  # the file without the slip is good
    assert slip.old in text
    Path(name).write_text(text.replace(slip.old, slip.new, 1))
    ran = cli("estimate", "job.yaml", "-o", "out.txt")
    if slip.at.endswith(":"):
        assert ran.code == 2
        assert ran.err.startswith(f"{name}:{slip.at}")
    else:
        refused(ran, f"{name}:{slip.at}" if slip.at else name, slip.says, hint=slip.hint)
    assert {path.name for path in Path().iterdir()} == {name, "job.yaml"}


def test_a_profile_of_a_users_folder_may_be_bad_too(cli: Cli) -> None:
    folder = Path("profiles")
    (folder / "gpu_profiles" / "servers").mkdir(parents=True)
    file = folder / "gpu_profiles" / "servers" / "mine.yaml"
    file.write_text(SERVER_PROFILE.replace("h100-sxm-80gb", "h100-my-gpu"))
    ran = cli("estimate", "--model", "llama-2-7b", "--server", "mine", "--profiles", folder)
    refused(ran, f"{file}:3:6", "unknown gpu 'h100-my-gpu'")


def test_profiles_command_refuses_what_is_no_profile(cli: Cli) -> None:
    Path("job.yaml").write_text(BASE)
    refused(cli("profiles", "show", "job.yaml"), "job.yaml", "no profile of a known kind", hint="peak_tflops")
    refused(cli("profiles", "show", "gone.yaml"), "gone.yaml", "no such file")
    ran = cli("profiles", "validate", "job.yaml")
    assert ran.code == 2
    assert ran.err.startswith("job.yaml: this is no profile of a known kind")


def test_weights_published_in_an_unknown_format_are_found_by_validation(cli: Cli) -> None:
    Path("mine.yaml").write_text(MODEL + "checkpoint_format: fp8-blocks\n")
    ran = cli("profiles", "validate", "mine.yaml")
    assert ran.code == 2
    assert "/mine.yaml:16:20: no number format is called 'fp8-blocks'" in ran.err
    assert "did you mean 'fp8-block'?" in ran.err
