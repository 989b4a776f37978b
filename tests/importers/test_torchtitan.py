"""TOML files, registries and commands of TorchTitan."""

from pathlib import Path

import pytest

from xe_sizer.cli.command import answer_to
from xe_sizer.errors import InputError
from xe_sizer.graph.weights import count_parameters
from xe_sizer.interop.read import Imported, read_foreign
from xe_sizer.interop.source import Asked
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.profiles.model import inline_model
from xe_sizer.scenario.read import read_scenario

BASE = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
seq_len = 4096
steps = 100
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 4
"""
REGISTRY = """
from torchtitan.components.loss import ChunkedLossWrapper
from torchtitan.components.optimizer import default_adamw
from torchtitan.config import ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC
from torchtitan.trainer import Trainer
from . import model_registry

def qwen3_debugmodel() -> Trainer.Config:
    return Trainer.Config(model_spec=model_registry("debugmodel"), training=TrainingConfig(max_context_length=512))

def qwen3_14b() -> Trainer.Config:
    return Trainer.Config(
        loss=ChunkedLossWrapper.Config(),
        model_spec=model_registry("14B"),
        optimizer=default_adamw(lr=1e-4),
        training=TrainingConfig(num_tokens_per_microbatch_per_dp_rank=4 * 4096, max_context_length=4096, steps=30),
        parallelism=ParallelismConfig(tensor_parallel_degree=2),
        activation_checkpoint=FullAC.Config(),
    )

def qwen3_14b_compiled() -> Trainer.Config:
    config = qwen3_14b()
    config.compile.enable = True
    return config
"""


def read(folder: Path, text: str, name: str = "job.toml", given: dict[str, str] | None = None) -> Imported:
    path = folder / name
    path.write_text(text)
    return read_foreign([path], Asked(given=given or {}))


def values(found: Imported) -> dict[str, object]:
    return {key: fact.value for key, fact in found.facts.items()}


def test_a_file_and_what_is_filled_in(tmp_path: Path) -> None:
    found = read(tmp_path, BASE)
    facts = values(found)
    assert (facts["model"], facts["job"], facts["train.micro_batch"]) == ("llama-3.1-8b", "pretrain", 2)
    assert (facts["layout.tp"], facts["layout.zero"], facts["layout.sequence_parallel"]) == (4, 3, True)
    assert (facts["precision"], facts["train.weights_dtype"], facts["train.grad_accum"]) == ("bf16", "fp32", 1)
    assert found.facts["layout.recompute"].origin == "tool-default"
    assert not found.unknown


@pytest.mark.parametrize(
    ("more", "stack"),
    [
        ("[compile]\nenable = true\n", "torchtitan"), ("[compile]\nenable = false\n", "torchtitan-eager"),
        ('[compile]\nenable = true\ncomponents = ["loss"]\n', "torchtitan-eager"), ("", "torchtitan-eager"),
    ],
)  # fmt: skip
def test_the_stack_is_eager_where_the_model_is_not_compiled(tmp_path: Path, more: str, stack: str) -> None:
    assert values(read(tmp_path, BASE + more))["stack"] == stack


def test_a_pipeline_works_on_parts_of_the_local_batch(tmp_path: Path) -> None:
    more = (
        'pipeline_parallel_degree = 2\npipeline_parallel_schedule = "Interleaved1F1B"\n'
        "pipeline_parallel_layers_per_stage = 4\n"
    )
    facts = values(read(tmp_path, BASE + more))
    assert (facts["train.micro_batch"], facts["train.grad_accum"]) == (1, 2)
    assert (facts["layout.schedule"], facts["layout.vpp"], facts["layout.zero"]) == ("1f1b-interleaved", 4, 2)


def test_eight_bit_products(tmp_path: Path) -> None:
    text = BASE.replace('flavor = "8B"', 'flavor = "8B"\nconverters = ["float8"]')
    more = '[quantize.linear.float8]\nrecipe_name = "rowwise"\n'
    facts = values(read(tmp_path, text + more))
    assert (facts["precision"], facts["train.fp8_recipe"]) == ("fp8", "rowwise")


def test_settings_of_older_releases(tmp_path: Path) -> None:
    old = (
        '[model]\nname = "llama3"\nflavor = "70B"\n[training]\nbatch_size = 8\nseq_len = 8192\ncompile = true\n'
        "tensor_parallel_degree = 8\ndata_parallel_shard_degree = -1\n[experimental]\ncontext_parallel_degree = 2\n"
    )
    facts = values(read(tmp_path, old))
    assert (facts["train.micro_batch"], facts["layout.tp"], facts["layout.cp"]) == (8, 8, 2)
    assert facts["stack"] == "torchtitan"


def test_the_model_for_debugging_is_a_shape(tmp_path: Path) -> None:
    facts = values(read(tmp_path, BASE.replace("8B", "debugmodel")))
    assert (facts["model.layers"], facts["model.ffn"]) == (6, 768)


@pytest.mark.parametrize(
    ("family", "flavor", "parameters"),
    [
        ("llama3", "debugmodel", 2 * 2048 * 256 + 6 * (4 * 256 * 256 + 3 * 256 * 768 + 2 * 256) + 256),
        ("qwen3", "debugmodel",
         2048 * 256 + 8 * (2 * 256 * 16 * 128 + 2 * 256 * 8 * 128 + 3 * 256 * 3072 + 2 * 256 + 2 * 128) + 256),
        ("qwen3", "debugmodel_moe",
         2 * 2048 * 256 + 256
         + 8 * (2 * 256 * 16 * 128 + 2 * 256 * 8 * 128 + 64 * 3 * 256 * 768 + 64 * 256 + 2 * 256 + 2 * 128)),
        ("deepseek_v3", "debugmodel",
         2 * 2048 * 256 + 256
         + 6 * (256 * 16 * 192 + 256 * (512 + 64) + 512 + 512 * 16 * 256 + 16 * 128 * 256 + 2 * 256)
         + 3 * 256 * 1024 + 5 * (8 * 3 * 256 * 256 + 3 * 256 * 512 + 8 * 256)),
    ],
)  # fmt: skip
def test_a_model_for_debugging_is_all_that_an_estimate_needs(
    tmp_path: Path, family: str, flavor: str, parameters: int
) -> None:
    path = tmp_path / "job.toml"
    path.write_text(BASE.replace("llama3", family).replace("8B", flavor).replace("degree = 4", "degree = 1"))
    found = read_foreign([path], Asked(hardware={"gpus": 8}))
    given = read_scenario(found.path, {}, {}, lambda _: found.document())
    assert answer_to(given, Registry()).verdict.fits
    assert not isinstance(given.values.model, str)
    assert count_parameters(inline_model(given.values.model, given.locate)).total == parameters


def test_a_registry_without_a_name_is_read_at_the_first_that_is_not_for_debugging(tmp_path: Path) -> None:
    found = read(tmp_path, REGISTRY, "config_registry.py")
    facts = values(found)
    assert (facts["model"], facts["train.micro_batch"], facts["layout.recompute"]) == ("qwen3-14b", 4, "full")
    assert facts["loss"] == "fused"
    assert "qwen3_14b is read" in next(each.why for each in found.ignored if each.key == "config")


def test_a_configuration_of_a_registry_by_its_name(tmp_path: Path) -> None:
    facts = values(read(tmp_path, REGISTRY, "config_registry.py", {"config": "qwen3_14b_compiled"}))
    assert facts["stack"] == "torchtitan"
    with pytest.raises(InputError, match="no function 'qwen3_15b'"):
        read(tmp_path, REGISTRY, "config_registry.py", {"config": "qwen3_15b"})


def test_a_command_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(BASE)
    script = 'NGPU=16 CONFIG_FILE="./own.toml" ./run_train.sh --training.local_batch_size 6\n'
    facts = values(read(tmp_path, script, "run.sh"))
    assert (facts["gpus"], facts["train.micro_batch"], facts["model"]) == (16, 6, "llama-3.1-8b")


def test_a_command_of_a_registry_names_the_model(tmp_path: Path) -> None:
    script = "torchrun --nproc_per_node=8 -m torchtitan.train --module llama3 --config llama3_8b --training.steps 7\n"
    facts = values(read(tmp_path, script, "run.sh"))
    assert (facts["gpus"], facts["train.steps"], facts["model"]) == (8, 7, "llama-3.1-8b")


def test_async_tensor_parallelism_hides_its_exchange_and_schedules_of_both_ways_are_known(tmp_path: Path) -> None:
    text = (
        BASE
        + """
pipeline_parallel_degree = 2
pipeline_parallel_schedule = "DualPipeV"
enable_async_tensor_parallel = true
"""
    )
    found = read(tmp_path, text, given={"gpus": "8"})
    assert "tensor-parallel" in found.facts["train.overlap"].value
    assert found.facts["layout.schedule"].value == "dualpipe-v"
    assert not {"parallelism.enable_async_tensor_parallel", "parallelism.pipeline_parallel_schedule"} & {
        each.key for each in found.lost
    }
