"""Recipes and commands of NeMo AutoModel."""

from pathlib import Path

import pytest

from xe_sizer.interop.read import Imported, read_foreign
from xe_sizer.interop.source import Asked

BASE = """
recipe: TrainFinetuneRecipeForNextTokenPrediction
step_scheduler:
  global_batch_size: 64
  local_batch_size: 4
  max_steps: 100
model:
  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained
  pretrained_model_name_or_path: org/Llama-8B
dataset:
  _target_: nemo_automodel.components.datasets.llm.chat_dataset.ChatDataset
  seq_length: 2048
optimizer:
  _target_: torch.optim.AdamW
"""
LAYOUT = """
distributed:
  strategy: fsdp2
  tp_size: 2
  activation_checkpointing: true
"""


def read(folder: Path, text: str, name: str = "job.yaml") -> Imported:
    path = folder / name
    path.write_text(text)
    return read_foreign([path], Asked())


def values(found: Imported) -> dict[str, object]:
    return {key: fact.value for key, fact in found.facts.items()}


def test_a_recipe_and_what_is_filled_in(tmp_path: Path) -> None:
    found = read(tmp_path, BASE + LAYOUT)
    facts = values(found)
    assert (facts["model"], facts["job"], facts["train.seq_len"]) == ("org/Llama-8B", "sft", 2048)
    assert (facts["train.micro_batch"], facts["train.global_batch"], facts["train.steps"]) == (4, 64, 100)
    assert (facts["layout.zero"], facts["layout.tp"], facts["layout.recompute"]) == (3, 2, "full")
    assert (facts["precision"], facts["train.padding"]) == ("bf16", "longest-in-micro-batch")
    assert found.facts["layout.cp"].origin == "tool-default"
    assert not found.unknown


@pytest.mark.parametrize(
    ("target", "loss"),
    [
        ("linear_ce.FusedLinearCrossEntropy", "fused"), ("masked_ce.MaskedCrossEntropy", "eager"),
        ("chunked_ce.ChunkedCrossEntropy", "fused"), ("te_parallel_ce.TEParallelCrossEntropy", "vocab-parallel"),
    ],
)  # fmt: skip
def test_losses(tmp_path: Path, target: str, loss: str) -> None:
    text = f"{BASE}loss_fn:\n  _target_: nemo_automodel.components.loss.{target}\n"
    assert values(read(tmp_path, text))["loss"] == loss


@pytest.mark.parametrize(
    ("text", "job", "targets"),
    [
        ("peft:\n  target_modules: '*_proj'\n  dim: 16\n", "lora", ("all-linear",)),
        ("peft:\n  match_all_linear: true\n  dim: 16\n", "lora", ("all-linear",)),
        ("peft:\n  target_modules: ['*q_proj', '*.v_proj']\n  dim: 16\nquantization:\n  load_in_4bit: true\n",
         "qlora", ("q_proj", "v_proj")),
    ],
)  # fmt: skip
def test_adapters(tmp_path: Path, text: str, job: str, targets: tuple[str, ...]) -> None:
    facts = values(read(tmp_path, BASE + text))
    assert (facts["job"], facts["lora.rank"], facts["lora.targets"]) == (job, 16, targets)


def test_packed_sequences_set_the_length(tmp_path: Path) -> None:
    facts = values(read(tmp_path, BASE + "packed_sequence:\n  packed_sequence_size: 4096\n"))
    assert (facts["train.seq_len"], facts["train.padding"]) == (4096, "packed")


def test_a_pipeline_works_on_parts_of_the_local_batch(tmp_path: Path) -> None:
    more = (
        "distributed:\n  strategy: fsdp2\n  pp_size: 2\n  ep_size: 8\n  pipeline:\n    pp_schedule: interleaved1f1b\n"
        "    pp_microbatch_size: 1\n    layers_per_stage: 4\n"
    )
    facts = values(read(tmp_path, BASE.replace("org/Llama-8B", "meta-llama/Llama-3.1-8B") + more))
    assert (facts["train.micro_batch"], facts["layout.schedule"], facts["layout.vpp"]) == (1, "1f1b-interleaved", 4)


def test_what_a_scenario_cannot_say_is_told(tmp_path: Path) -> None:
    more = "compile:\n  enabled: true\nfreeze_config:\n  freeze_vision_tower: true\n  freeze_embeddings: false\n"
    found = read(tmp_path, BASE + more)
    assert {each.key for each in found.lost} == {"compile.enabled", "freeze_config.freeze_vision_tower"}


@pytest.mark.parametrize(
    "command",
    [
        "automodel own.yaml --nproc-per-node 4 --step_scheduler.local_batch_size=2",
        "torchrun --nproc-per-node=4 automodel/finetune.py --config own.yaml --step_scheduler.local_batch_size 2",
    ],
)
def test_a_command_with_its_recipe(tmp_path: Path, command: str) -> None:
    (tmp_path / "own.yaml").write_text(BASE)
    facts = values(read(tmp_path, f"{command}\n", "run.sh"))
    assert (facts["gpus"], facts["train.micro_batch"], facts["model"]) == (4, 2, "org/Llama-8B")


def test_a_draft_model_is_trained_against_its_target(tmp_path: Path) -> None:
    text = (
        "recipe: TrainEagle3Recipe\nrecipe_args:\n  target_model_name_or_path: org/Llama-8B\n  seq_length: 1024\n"
        "  micro_batch_size: 2\n  ttt_steps: 4\n"
    )
    found = read(tmp_path, text)
    assert (values(found)["model"], values(found)["train.micro_batch"]) == ("org/Llama-8B", 2)
    assert "recipe_args.ttt_steps" in {each.key for each in found.lost}


@pytest.mark.parametrize(("word", "kind"), [("bfloat16", "bf16"), ("torch.float32", "fp32")])
def test_what_fsdp_reduces_in(word: str, kind: str, tmp_path: Path) -> None:
    found = read(tmp_path, BASE + LAYOUT + f"  mp_policy: {{reduce_dtype: {word}}}\n")
    assert (values(found)["train.reduce_dtype"], found.facts["train.reduce_dtype"].origin) == (kind, "read")
