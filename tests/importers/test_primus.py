"""Primus experiments as scenarios, of each framework underneath."""

from pathlib import Path

import pytest

from xe_sizer.interop.draft import READ, TOOL_DEFAULT
from xe_sizer.interop.read import Imported, read_foreign
from xe_sizer.interop.source import Asked
from xe_sizer.interop.tools.primus import catalogue_name

HEAD = """\
work_group: ${PRIMUS_TEAM:amd}
modules:
  pre_trainer:
    framework: %s
    config: pre_trainer.yaml
    model: %s.yaml
    overrides:
"""


def read(tmp_path: Path, framework: str, model: str, overrides: str, **given: str) -> Imported:
    path = tmp_path / "experiment.yaml"
    path.write_text(HEAD % (framework, model) + "".join(f"      {line}\n" for line in overrides.splitlines()))
    return read_foreign([path], Asked(hardware={"gpus": 8}, given=given))


def values(found: Imported) -> dict[str, object]:
    return {key: fact.value for key, fact in found.facts.items()}


def test_megatron(tmp_path: Path) -> None:
    found = read(
        tmp_path, "megatron", "llama3.1_8B", "micro_batch_size: ${MBS:4}\ntrain_iters: 50\nfp8: hybrid\nsave: null"
    )
    expected = {
        "model": "llama-3.1-8b", "job": "pretrain", "stack": "primus", "train.micro_batch": 4, "train.steps": 50,
        "train.global_batch": 16, "precision": "fp8", "layout.zero": 1, "train.dropout": 0.0, "train.seq_len": 1024,
    }  # fmt: skip
    assert {key: values(found).get(key) for key in expected} == expected
    origins = {key: found.facts[key].origin for key in ("train.micro_batch", "layout.zero", "train.seq_len")}
    assert origins == {"train.micro_batch": READ, "layout.zero": TOOL_DEFAULT, "train.seq_len": TOOL_DEFAULT}
    assert not found.unknown


def test_values_that_are_passed_fill_in_references(tmp_path: Path) -> None:
    assert (
        values(read(tmp_path, "megatron", "llama3_8B", "micro_batch_size: ${MBS:4}", MBS="2"))["train.micro_batch"] == 2
    )


def test_torchtitan(tmp_path: Path) -> None:
    text = "training:\n  local_batch_size: 4\n  seq_len: 4096\nactivation_checkpoint:\n  mode: full"
    found = values(read(tmp_path, "torchtitan", "qwen3_8b-fp8", text))
    expected = {
        "model": "qwen3-8b", "train.micro_batch": 4, "train.seq_len": 4096, "layout.recompute": "full",
        "layout.zero": 3, "precision": "fp8", "train.weights_dtype": "fp32", "train.global_batch": 32,
    }  # fmt: skip
    assert {key: found.get(key) for key in expected} == expected


def test_maxtext(tmp_path: Path) -> None:
    text = "per_device_batch_size: 9\nmax_target_length: 8192\nici_fsdp_parallelism: 8\nquantization: fp8"
    found = values(read(tmp_path, "maxtext", "mixtral_8x7B", text + "\nici_tensor_parallelism: -1"))
    expected = {
        "model": "mixtral-8x7b", "train.micro_batch": 9, "train.seq_len": 8192, "layout.zero": 3, "layout.tp": 1,
        "precision": "fp8", "layout.recompute": "full",
    }  # fmt: skip
    assert {key: found.get(key) for key in expected} == expected


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("remat_policy: minimal_flash", ("selective", "minimal_flash", None, None)),
        ("remat_policy: none", ("none", None, None, None)),
        ("remat_policy: custom\nout_proj: device\nquery_proj: remat\ndecoder_layer_input: offload",
         ("selective", None, ("out_proj",), ("decoder_layer_input",))),
    ],
)  # fmt: skip
def test_remat_policies_of_maxtext(tmp_path: Path, said: str, wanted: tuple[object, ...]) -> None:
    found = read(tmp_path, "maxtext", "mixtral_8x7B", f"per_device_batch_size: 9\n{said}")
    keys = ("recompute", "recompute_policy", "recompute_keep", "recompute_offload")
    assert tuple(values(found).get(f"layout.{key}") for key in keys) == wanted
    assert not found.lost
    assert not found.unknown
    assert [each.key for each in read(tmp_path, "maxtext", "mixtral_8x7B", "remat_policy: mine").lost] == [
        "remat_policy"
    ]


@pytest.mark.parametrize(
    ("stem", "name"),
    [("llama2_70B", "llama-2-70b"), ("deepseek_v3_236b-fp8", "deepseek-v2"), ("qwen3_30B_A3B", "qwen3-30b-a3b"),
     ("own_model", "own_model")],
)  # fmt: skip
def test_names_of_model_files(stem: str, name: str) -> None:
    assert catalogue_name(stem) == name
