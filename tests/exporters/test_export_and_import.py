"""What is exported is read back as the same scenario, for every tool and for what the tool can say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xe_sizer.errors import InputError
from xe_sizer.interop.read import Imported, read_foreign
from xe_sizer.interop.source import Asked
from xe_sizer.interop.write import NEUTRAL, Exporter, Plan, ToolFiles, export, exporters
from xe_sizer.profiles.catalogue import Registry

TRAINING = [name for name, each in exporters().items() if each.training]
SERVING = [name for name, each in exporters().items() if each.serving]
MODELS = ["meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-7B", "mistralai/Mistral-7B-v0.1"]

adapters = st.fixed_dictionaries(
    {
        "lora.rank": st.sampled_from([4, 8, 16, 64]),
        "lora.targets": st.sampled_from([["all-linear"], ["q_proj", "v_proj"]]),
        "lora.dropout": st.sampled_from([0, 0.05]),
    }
)
jobs = st.one_of(
    st.sampled_from(["sft", "pretrain"]).map(lambda job: {"job": job}),
    st.tuples(st.sampled_from(["lora", "qlora"]), adapters).map(lambda both: {"job": both[0], **both[1]}),
)
length = st.one_of(
    st.sampled_from([10, 500, 20_000]).map(lambda steps: {"train.steps": steps}),
    st.sampled_from([1, 3]).map(lambda epochs: {"train.epochs": epochs}),
)
layouts = st.fixed_dictionaries(
    {
        "layout.tp": st.sampled_from([1, 2, 4, 8]),
        "layout.pp": st.sampled_from([1, 2]),
        "layout.cp": st.sampled_from([1, 2]),
        "layout.zero": st.sampled_from([0, 1, 2, 3]),
        "layout.recompute": st.sampled_from(["none", "selective", "full"]),
        "layout.offload": st.sampled_from(["none", "optimizer", "params"]),
    }
)
trained = st.fixed_dictionaries(
    {
        "model": st.sampled_from(MODELS),
        "precision": st.sampled_from(["bf16", "fp16"]),
        "optimizer": st.sampled_from(["adamw", "adamw-8bit", "paged-adamw-8bit"]),
        "attention": st.sampled_from(["flash", "sdpa"]),
        "train.seq_len": st.sampled_from([512, 4096, 32_768]),
        "train.micro_batch": st.sampled_from([1, 2, 8]),
        "train.grad_accum": st.sampled_from([1, 4, 16]),
        "train.padding": st.sampled_from(["packed", "longest-in-micro-batch", "to-seq-len"]),
    }
)
served = st.fixed_dictionaries(
    {
        "model": st.sampled_from(MODELS),
        "job": st.just("inference"),
        "layout.tp": st.sampled_from([1, 2, 4, 8]),
        "layout.pp": st.sampled_from([1, 2]),
        "layout.dp": st.just(1),
        "layout.ep": st.just(1),
        "serve.gpu_memory_utilization": st.sampled_from([0.8, 0.9]),
        "serve.max_sequences": st.sampled_from([16, 256]),
        "serve.max_step_tokens": st.sampled_from([2048, 8192]),
        "serve.max_model_len": st.sampled_from([4096, 32_768]),
        "serve.kv_cache": st.sampled_from(["bf16", "fp8"]),
    }
)


def trained_plan(parts: tuple[dict[str, Any], ...], nodes: int) -> dict[str, Any]:
    values = {key: value for part in parts for key, value in part.items()}
    split = values["layout.tp"] * values["layout.pp"] * values["layout.cp"]
    gpus = max(8 * nodes, split)
    return values | {
        "gpus": gpus, "nodes": max(1, gpus // 8), "gpus_per_node": 8, "layout.dp": gpus // split,
        "train.global_batch": values["train.micro_batch"] * values["train.grad_accum"] * gpus // split,
    }  # fmt: skip


def check_plan(exporter: Exporter, values: dict[str, Any], folder: Path) -> None:
    """What is written for a plan is read back; a tool that cannot run the plan says so and writes nothing."""
    try:
        exported = export(Plan(values), exporter)
    except InputError:
        return
    found = read_back(exporter, exported.written, values["gpus"], folder)
    unsaid = {key for key, _ in exported.unsaid}
    check({key: values.get(key) for key in exporter.says if key not in unsaid}, found)


def read_back(exporter: Exporter, written: ToolFiles, gpus: int, folder: Path) -> Imported:
    file = folder / f"job{exporter.ending}"
    file.write_text(written.text, encoding="utf-8")
    for name, text in written.beside.items():
        (folder / name).write_text(text, encoding="utf-8")
    return read_foreign([file], Asked(hardware={"gpus": gpus}))


def check(values: dict[str, Any], found: Imported) -> None:
    for key, wanted in values.items():
        fact = found.facts.get(key)
        value = list(fact.value) if fact and isinstance(fact.value, tuple) else fact.value if fact else None
        if wanted is None or (value is None and wanted in NEUTRAL.get(key, ())):
            continue
        if key == "model" and value != wanted:  # a tool may have a name of its own for it
            assert Registry().model(str(wanted)).name == Registry().model(str(value)).name
            continue
        assert value == wanted, f"{key}: {wanted} was written, {value} read"
    assert not found.unknown, [each.key for each in found.unknown]
    assert not found.missing


@pytest.mark.parametrize("name", TRAINING)
@settings(max_examples=40, deadline=None)
@given(parts=st.tuples(trained, jobs, length, layouts), nodes=st.sampled_from([1, 2, 4]))
def test_a_training_plan_is_read_back(
    name: str, parts: tuple[dict[str, Any], ...], nodes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    values = trained_plan(parts, nodes)
    check_plan(exporters()[name], values, tmp_path_factory.mktemp("plan"))


@pytest.mark.parametrize("name", SERVING)
@settings(max_examples=40, deadline=None)
@given(values=served)
def test_a_serving_plan_is_read_back(
    name: str, values: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    values = values | {"gpus": values["layout.tp"] * values["layout.pp"], "replicas": 1}
    check_plan(exporters()[name], values, tmp_path_factory.mktemp("plan"))
