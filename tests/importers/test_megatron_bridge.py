"""Recipes of Megatron Bridge as scenarios."""

from pathlib import Path

import pytest

from xe_sizer.interop.draft import READ, TOOL_DEFAULT
from xe_sizer.interop.huggingface import parse_recipe, recipe_model
from xe_sizer.interop.read import Imported, read_foreign
from xe_sizer.interop.source import Asked

RECIPES = """\
from megatron.bridge.perf_recipes.llama.common import _benchmark_common, _perf_precision, llama3_8b_pretrain_config


def llama3_8b_pretrain_16gpu_b200_fp8mx_config():
    cfg = llama3_8b_pretrain_config()
    cfg.mixed_precision = _perf_precision("fp8_mx")
    cfg.model.tensor_model_parallel_size = 2
    cfg.model.cuda_graph_impl = "local"
    cfg.train.global_batch_size = 64
    cfg.train.micro_batch_size = 2
    _benchmark_common(cfg)
    return cfg


def llama3_70b_peft_8gpu_h100_bf16_config():
    cfg = llama3_70b_peft_config()
    cfg.train.micro_batch_size = 1
    return cfg
"""


def read(tmp_path: Path, text: str, **given: str) -> Imported:
    path = tmp_path / "recipes.py"
    path.write_text(text)
    return read_foreign([path], Asked(given=given))


def test_the_first_recipe(tmp_path: Path) -> None:
    found = read(tmp_path, RECIPES)
    expected = {
        "model": "llama-3-8b", "job": "pretrain", "stack": "megatron-bridge", "gpus": 16, "gpu": "b200",
        "train.micro_batch": 2, "train.global_batch": 64, "train.seq_len": 8192, "train.steps": 50, "layout.tp": 2,
        "layout.zero": 1, "precision": "fp8", "train.fp8_recipe": "mxfp8", "layout.recompute": "none",
    }  # fmt: skip
    assert found.tool.name == "megatron-bridge"
    assert {key: fact.value for key, fact in found.facts.items() if key in expected} == expected
    assert (found.facts["gpus"].origin, found.facts["train.steps"].origin) == (READ, TOOL_DEFAULT)
    assert [each.key for each in found.lost] == ["model.cuda_graph_impl"]


def test_a_recipe_is_chosen_by_its_name(tmp_path: Path) -> None:
    found = read(tmp_path, RECIPES, recipe="llama3_70b_peft_8gpu_h100_bf16_config")
    facts = {key: fact.value for key, fact in found.facts.items()}
    assert (facts["model"], facts["job"], facts["lora.rank"], facts["gpus"]) == ("llama-3-70b", "lora", 32, 8)


@pytest.mark.parametrize(
    ("name", "model"),
    [("qwen25_500m", "qwen2.5-0.5b"), ("llama31_405b", "llama-3.1-405b"), ("qwen3_1p7b", "qwen3-1.7b"),
     ("mixtral_8x7b_64k", "mixtral-8x7b"), ("nemotronh_8b", "nemotron-h-8b"), ("made_up_9b", "made_up_9b")],
)  # fmt: skip
def test_models_of_recipes(name: str, model: str) -> None:
    assert recipe_model(name) == model


def test_a_layout_of_stages_is_one_list(tmp_path: Path) -> None:
    stages = '[["embedding", "decoder"], ["decoder", "decoder"], ["decoder"], ["decoder", "loss"]]'
    own = f"    cfg.model.pipeline_model_parallel_size = 2\n    cfg.model.pipeline_model_parallel_layout = {stages}\n"
    found = read(tmp_path, RECIPES.replace('    cfg.model.cuda_graph_impl = "local"\n', own))
    facts = {key: fact.value for key, fact in found.facts.items()}
    assert (facts["layout.vpp"], facts["layout.stages"]) == (2, (2, 3))


def test_parts_of_a_name() -> None:
    recipe = parse_recipe("gpt_oss_120b_pretrain_64gpu_b200_bf16_config")
    assert (recipe.model, recipe.job, recipe.gpus, recipe.gpu, recipe.precision) == (
        "gpt-oss-120b", "pretrain", 64, "b200", "bf16",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ('cfg.mixed_precision = "bf16_mixed"', "fp32"),  # by that name, whatever ddp says
        ('cfg.mixed_precision = "fp16_mixed"', "fp16"),
        ("cfg.mixed_precision.grad_reduce_in_fp32 = True", "fp32"),
        ("cfg.model.bf16 = True", "bf16"),
    ],
)
def test_what_gradients_are_kept_in(line: str, kept: str, tmp_path: Path) -> None:
    text = RECIPES.replace('cfg.mixed_precision = _perf_precision("fp8_mx")', line).replace("_fp8mx_", "_bf16_")
    text = text.replace("    _benchmark_common(cfg)\n", "    cfg.ddp.grad_reduce_in_fp32 = False\n")
    assert read(tmp_path, text).facts["train.gradient_dtype"].value == kept
