"""Scripts with the arguments of the Hugging Face Trainer, and Python that calls it, peft and TRL."""

from pathlib import Path

import pytest

from xe_sizer.errors import InputError
from xe_sizer.interop.draft import TOOL_DEFAULT
from xe_sizer.interop.read import Imported, read_foreign
from xe_sizer.interop.source import Asked

LOADS = """
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, Trainer, TrainingArguments
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
name = "mistralai/Mistral-7B-v0.1"
tokenizer = AutoTokenizer.from_pretrained("org/other-tokenizer")
"""
QUANTISED = """
bits = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained(name, quantization_config=bits, dtype=torch.bfloat16)
model = prepare_model_for_kbit_training(model)
adapters = LoraConfig(lora_alpha=16, target_modules=["q_proj", "o_proj"], bias="none")
"""


def read(folder: Path, name: str, text: str) -> Imported:
    path = folder / name
    path.write_text(text)
    return read_foreign([path], Asked(hardware={}))


def facts(found: Imported) -> dict[str, object]:
    return {key: fact.value for key, fact in found.facts.items()}


def test_run_clm_cuts_text_into_blocks(tmp_path: Path) -> None:
    flags = "--model_name_or_path openai-community/gpt2 --per_device_train_batch_size 4 --block_size 512 --bf16"
    found = read(tmp_path, "run.sh", f"torchrun --nproc_per_node 8 examples/run_clm.py {flags} --do_train\n")
    said = facts(found)
    assert (found.tool.name, said["stack"], said["job"], said["gpus"]) == ("hf-trainer", "hf-trainer", "pretrain", 8)
    assert (said["train.seq_len"], said["train.padding"], said["precision"]) == (512, "packed", "bf16")
    assert (said["layout.recompute"], said["train.epochs"], said["train.global_batch"]) == ("none", 3, 32)
    assert found.facts["train.epochs"].origin == TOOL_DEFAULT
    assert not found.unknown


def test_a_script_of_ones_own_with_quantised_weights(tmp_path: Path) -> None:
    flags = "--model_name_or_path org/Qwen-7B --model_max_length 1024 --q_lora --use_lora --lora_r 32"
    more = "--per_device_train_batch_size 2 --gradient_checkpointing True --deepspeed ds_zero2.json"
    said = facts(read(tmp_path, "run.sh", f"deepspeed --num_gpus 4 finetune.py {flags} {more}\n"))
    assert (said["job"], said["lora.rank"], said["train.bits"], said["train.seq_len"]) == ("qlora", 32, 4, 1024)
    assert (said["gpus"], said["layout.zero"], said["layout.recompute"]) == (4, 2, "full")
    assert "lora.targets" not in said


def test_python_that_trains_quantised_weights_with_adapters(tmp_path: Path) -> None:
    text = LOADS + QUANTISED + "Trainer(model=model, args=TrainingArguments('out', max_steps=20, bf16=True))\n"
    found = read(tmp_path, "train.py", text)
    said = facts(found)
    assert (found.tool.name, said["model"], said["job"]) == ("hf-trainer", "mistralai/Mistral-7B-v0.1", "qlora")
    assert (said["train.bits"], said["lora.rank"], said["lora.targets"]) == (4, 8, ("q_proj", "o_proj"))
    assert (said["layout.recompute"], said["train.micro_batch"], said["train.steps"]) == ("full", 8, 20)
    assert [each.key for each in found.missing] == ["gpus"]
    assert not found.unknown


def test_numbers_are_those_of_the_weights_without_mixed_precision(tmp_path: Path) -> None:
    load = "model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.bfloat16)\n"
    config = "{'activation_checkpointing': True}"
    args = f"args = TrainingArguments('out', fsdp='full_shard auto_wrap', fsdp_config={config})\n"
    said = facts(read(tmp_path, "train.py", LOADS + load + args + "Trainer(model=model, args=args)\n"))
    assert (said["precision"], said["layout.zero"], said["layout.recompute"]) == ("bf16", 3, "full")
    assert said["job"] == "sft"


def test_trainers_of_trl_in_python(tmp_path: Path) -> None:
    text = LOADS + QUANTISED + "from trl import SFTConfig, SFTTrainer\n"
    text += "args = SFTConfig(max_length=2048, packing=True, model_init_kwargs={'dtype': 'bfloat16'})\n"
    found = read(tmp_path, "train.py", text + "SFTTrainer(model=model, args=args, peft_config=adapters)\n")
    said = facts(found)
    assert (found.tool.name, said["job"], said["train.seq_len"]) == ("trl", "qlora", 2048)
    assert (said["train.padding"], said["lora.rank"], said["lora.dropout"]) == ("packed", 8, 0)
    assert not found.unknown


def test_the_model_may_be_named_to_the_trainer(tmp_path: Path) -> None:
    text = "from trl import DPOConfig, DPOTrainer\nDPOTrainer(model='Qwen/Qwen2.5-0.5B', args=DPOConfig(bf16=False))\n"
    said = facts(read(tmp_path, "dpo.py", text))
    assert (said["model"], said["job"], said["precision"]) == ("Qwen/Qwen2.5-0.5B", "dpo", "fp32")


def test_a_script_without_the_arguments_of_the_trainer_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        read(tmp_path, "run.sh", "python main.py --model_name_or_path org/M --batch 3\n")
