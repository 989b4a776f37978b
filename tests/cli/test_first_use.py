"""What the first users of the command line ran into, each by a command of its own.

A row is what they typed, what must be said now and what must not, with the exit code. The files are theirs, cut down.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import xe_sizer
from xe_sizer.immutable import Immutable

from .conftest import Ran

Cli = Callable[..., Ran]

ZERO_2 = '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'
ZERO_3 = '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}'
TRAINER = (
    "train.py --deepspeed ds.json --bf16 True --model_max_length 2048 --num_train_epochs 1 "
    "--gradient_checkpointing True --gradient_accumulation_steps 4 --model_name_or_path"
)
MISTRAL = f"deepspeed --num_gpus {{}} {TRAINER} mistralai/Mistral-7B-v0.1 --per_device_train_batch_size 4\n"
LLAMA_70B = f"deepspeed --num_gpus 8 --num_nodes 4 {TRAINER} meta-llama/Llama-3.1-70B --per_device_train_batch_size 1\n"
AXOLOTL_FULL = """base_model: meta-llama/Llama-3.1-8B
deepspeed: ds.json
micro_batch_size: 1
gradient_accumulation_steps: 4
num_epochs: 2
sequence_len: 4096
sample_packing: true
optimizer: adamw_torch
bf16: true
gradient_checkpointing: true
"""
AXOLOTL_LORA = """base_model: meta-llama/Llama-3.1-8B
adapter: lora
lora_r: 16
lora_alpha: 32
lora_dropout: 0.05
lora_target_linear: true
micro_batch_size: 2
gradient_accumulation_steps: 4
num_epochs: 2
sequence_len: 4096
sample_packing: true
optimizer: adamw_torch
bf16: true
gradient_checkpointing: true
plugins:
  - axolotl.integrations.liger.LigerPlugin
liger_rope: true
liger_rms_norm: true
liger_glu_activation: true
liger_fused_linear_cross_entropy: true
"""
LLAMA_FACTORY = """model_name_or_path: meta-llama/Llama-3.1-8B
stage: sft
do_train: true
finetuning_type: full
deepspeed: ds.json
cutoff_len: 2048
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
num_train_epochs: 3.0
bf16: true
"""
FSDP = """distributed_type: FSDP
mixed_precision: bf16
num_machines: 1
num_processes: 8
fsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: true, fsdp_activation_checkpointing: true}
"""
TRL = """from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

dataset = load_dataset("tatsu-lab/alpaca", split="train")
config = SFTConfig(
    per_device_train_batch_size=2, gradient_accumulation_steps=4, num_train_epochs=1, max_length=2048, packing=True,
    bf16=True,
)
SFTTrainer(model="Qwen/Qwen2.5-7B", args=config, train_dataset=dataset).train()
"""
GRPO_TRL = """from trl import GRPOConfig, GRPOTrainer

args = GRPOConfig(use_vllm=True, vllm_mode="colocate", per_device_train_batch_size=4, num_generations=8,
                  max_completion_length=1024, max_steps=500, bf16=True)
GRPOTrainer(model="Qwen/Qwen2.5-0.5B-Instruct", args=args).train()
"""
VERL = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=1024 "
    "data.max_prompt_length=512 data.max_response_length=1024 actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct "
    "actor_rollout_ref.actor.ppo_mini_batch_size=256 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16 "
    "actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.model.enable_gradient_checkpointing=True "
    "actor_rollout_ref.rollout.tensor_model_parallel_size=2 actor_rollout_ref.rollout.name=vllm "
    "actor_rollout_ref.rollout.gpu_memory_utilization=0.6 actor_rollout_ref.rollout.n=5 trainer.n_gpus_per_node=8 "
    "trainer.nnodes=1 trainer.test_freq=5 trainer.total_epochs=15\n"
)
TORCHTITAN = """[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 1
seq_len = 8192
steps = 1000
[activation_checkpoint]
mode = "selective"
selective_ac_option = "op"
[compile]
enable = true
"""
MEGATRON = """torchrun --nproc_per_node 8 --nnodes 64 pretrain_gpt.py --tensor-model-parallel-size 8 \
  --pipeline-model-parallel-size 16 --num-layers 80 --hidden-size 8192 --num-attention-heads 64 \
  --group-query-attention --num-query-groups 8 --ffn-hidden-size 28672 --swiglu --seq-length 4096 \
  --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 1024 --bf16 --train-iters 1000 \
  --normalization RMSNorm --position-embedding-type rope --untie-embeddings-and-output-weights --vocab-size 128256 \
  --use-distributed-optimizer --sequence-parallel
"""
UNKNOWN_CONFIG = """{"model_type": "frobnitz", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192,
"hidden_act": "silu", "rms_norm_eps": 1e-5, "tie_word_embeddings": false, "architectures": ["FrobnitzForCausalLM"]}
"""
RUN = """- id: {id}
  source: {{title: ours}}
  job: sft
  stack: hf-trainer
  model: llama-3.1-8b
  gpu: h100-sxm-80gb
  gpus: 8
  gpus_per_node: 8
  precision: bf16
  layout: {{zero: 3}}
  batch: {{micro: {micro}, global: {batch}}}
  seq_len: 4096
  measured: {measured}
"""
TIMES = "".join(
    RUN.format(id=f"run-{micro}", micro=micro, batch=8 * micro, measured=f"{{step_time_s: {1.1 * micro + 1}}}")
    for micro in (1, 2, 4)
)
CONTRADICTION = "a global batch of 8 is not micro_batch 1 x grad_accum 4 x dp 8 (32)"
SFT_70B = "model: llama-3.1-70b\njob: sft\ndata: {samples: 100000, mean_tokens: 1000, max_tokens: 8000}\n"
SFT_8B = "model: llama-3.1-8b\ngpu: h100-sxm-80gb\ngpus: 8\njob: sft\n"
OPEN_API = "openapi: 3.0.0\npaths:\n" + "".join(
    f"  /p{n}:\n    get:\n      summary: operation number {n} of them\n      tags: [a, b]\n" for n in range(60_000)
)
H100, ONE_8B = "--gpu h100-sxm-80gb", "--model llama-3.1-8b --gpu h100-sxm-80gb"


class Row(Immutable):
    """files : by name; commands : one after the other; the code is the last one's, what is said that of all"""

    row: str
    commands: tuple[str, ...]
    says: tuple[str, ...]
    never: tuple[str, ...] = ()
    code: int = 0
    files: Mapping[str, str] = {}


ROWS = [
    # Architect, CI, serving
    Row(
        "5",
        ("sensitivity sft.yaml --server dell-xe9680-h100 --stack nemo --gpus 32",),
        ("packing packed in 191 instead of 782 steps",),
        files={"sft.yaml": SFT_70B},
    ),
    Row(
        "12",
        (f"estimate {ONE_8B} --gpus 8 --stack hf-trainer --brief",),
        ("Published runs with the hf-trainer stack took", "conditions decide, which this job does not state: release"),
        ("in the median",),
    ),
    Row(
        "14",
        (f"estimate {ONE_8B} --gpus 8 --stack hf-trainer --zero 3",),
        (
            (
                "hf-trainer runs FSDP as accelerate does: gradients stay whole until the last micro-batch of a step "
                "and shards of what learns are float32 though bf16 is loaded; not so with --backend deepspeed"
            ),
        ),
    ),
    Row(
        "15",
        ("check big.yaml",),
        ("big.yaml:22:1: unknown key 'key19'", "and 19,980 more such problems"),
        ("key20'",),
        2,
        {"big.yaml": SFT_8B.replace("gpus: 8\njob: sft\n", "") + "".join(f"key{n}: 1\n" for n in range(20_000))},
    ),
    Row(
        "15 a large file",
        ("check huge.yaml",),
        ("huge.yaml: the file is larger than 1 MB",),
        (),
        2,
        {"huge.yaml": OPEN_API},
    ),
    Row(
        "15 a large file of a folder",
        ("check sc",),
        ("sc/api.yaml: skipped: not a scenario", "1 passed"),
        (),
        0,
        {"sc/api.yaml": OPEN_API, "sc/job.yaml": SFT_8B},
    ),
    Row(
        "16",
        ("check sc",),
        (
            "hardware assumed, since the file names none: 8 x h100-sxm-80gb",
            "; hardware assumed",
            "the file says 2 epochs; how many samples?",
            "1 value assumed",
        ),
        ("1 values", "--epochs 1 has no effect", "0 keys"),
        0,
        {"sc/axolotl.yml": AXOLOTL_LORA},
    ),
    Row(
        "16 in JUnit",
        ("check axolotl.yml --format junit",),
        ("hardware assumed, since the file names none",),
        (),
        0,
        {"axolotl.yml": AXOLOTL_LORA},
    ),
    Row(
        "16 as an annotation",
        ("check axolotl.yml --format github",),
        ("hardware assumed, since the file names none",),
        (),
        0,
        {"axolotl.yml": AXOLOTL_LORA},
    ),
    Row(
        "17",
        ("estimate job.yaml --brief",),
        ("LoRA of llama-3.2-1b on 8 x h100-sxm-80gb",),
        (),
        0,
        {"base.yaml": SFT_8B, "job.yaml": "extends: base.yaml\nmodel: llama-3.2-1b\njob: lora\n"},
    ),
    Row(
        "20",
        (f"serve {ONE_8B} --input-tokens 30k --output-tokens 300 --brief",),
        ("30k is read as 30720",),
        ("may be",),
    ),
    Row("20 as with 8k", (f"serve {ONE_8B} --input-tokens 8k --output-tokens 300 --brief",), ("8k is read as 8192",)),
    Row("28", (f"plan {ONE_8B} --gpus 8 --max-days 3",), ("hint: write --max-hours",), ("max-cost",), 2),
    Row(
        "28 units",
        (
            (
                "estimate --model llama-3.1-8b --gpu h100-sxm-80gb --gpus 64 --job pretrain --tokens 200B "
                "--max-hours 60d --brief"
            ),
        ),
        ("max_hours 1,440 h (60.0 d), estimate",),
    ),
    Row(
        "29",
        ("estimate sft.yaml --server dell-xe9680-h100 --stack nemo --gpus 32",),
        ("the same data in 191 optimizer steps instead of 782", "in 191 instead of 782 optimizer steps"),
        ("in 190", "in 192"),
        files={"sft.yaml": SFT_70B},
    ),
    Row(
        "30",
        ("estimate --model llama-3.1-8b --gpu 'HGX H200'",),
        ("'HGX H200' is a server: write server: dell-xe9680-h200",),
        ("gb200",),
        2,
    ),
    Row("31", (f"estimate {ONE_8B} --gpus 1 --job lora --zero 2 --brief",), ("ZeRO 2 without effect (dp 1)",)),
    Row("31 chosen", (f"plan {ONE_8B} --gpus 1 --job lora --brief",), ("FITS",), ("dp 1, ZeRO",)),
    Row(
        "32",
        ("export job.yaml --to trl --stack trl --samples 20000 --epochs 2",),
        ("num_train_epochs: 2",),
        ("max_steps",),
        0,
        {"job.yaml": SFT_8B},
    ),
    # ML engineer
    Row(
        "A1 one GPU",
        ("estimate run.sh --gpu a100-sxm-80gb --brief",),
        ("DOES NOT FIT", "needs 147 GiB"),
        (),
        1,
        {"run.sh": MISTRAL.format(1), "ds.json": ZERO_2},
    ),
    Row(
        "A1 two GPUs",
        ("estimate run.sh --gpu a100-sxm-80gb --brief",),
        ("TIGHT, OVER", "the fewest that fit: 4"),
        (),
        1,
        {"run.sh": MISTRAL.format(2), "ds.json": ZERO_2},
    ),
    Row(
        "A2",
        ("estimate run.sh --gpu h100-sxm-80gb --brief",),
        ("FITS SFT of llama-3.1-70b on 32", "hf-trainer on deepspeed"),
        ("sync_each_batch", "DOES NOT FIT"),
        0,
        {"run.sh": LLAMA_70B, "ds.json": ZERO_3},
    ),
    Row(
        "A2 gradients",
        (f"estimate axolotl.yml {H100} --gpus 8",),
        ("axolotl on deepspeed",),
        ("gradients 15.0",),
        0,
        {"axolotl.yml": AXOLOTL_FULL, "ds.json": ZERO_3},
    ),
    Row(
        "A3",
        (f"estimate axolotl.yml --stack deepspeed {H100} --gpus 8 --brief",),
        ("stack deepspeed",),
        ("cannot load",),
        0,
        {"axolotl.yml": AXOLOTL_FULL, "ds.json": ZERO_3},
    ),
    Row(
        "A3 in LLaMA-Factory",
        (f"estimate lf.yaml --stack deepspeed {H100} --gpus 8 --brief",),
        ("stack deepspeed",),
        (),
        0,
        {"lf.yaml": LLAMA_FACTORY, "ds.json": ZERO_3},
    ),
    Row(
        "A4",
        ("import axolotl.yml --gpus 1 -o job.yaml", "export job.yaml --to axolotl"),
        (
            "num_epochs: 2",
            "lora_alpha: 32",
            "lora_dropout: 0.05",
            "yours to add: the learning rate and its schedule (learning_rate, lr_scheduler, warmup_ratio)",
        ),
        ("max_steps",),
        0,
        {"axolotl.yml": AXOLOTL_LORA},
    ),
    Row(
        "A4 in TRL",
        ("import trl.py fsdp.yaml -o job.yaml", "export job.yaml --to trl"),
        ("num_train_epochs: 1",),
        ("max_steps",),
        0,
        {"trl.py": TRL, "fsdp.yaml": FSDP},
    ),
    Row(
        "A5",
        ("import axolotl.yml --gpus 1 -o job.yaml", "export job.yaml --to axolotl"),
        ("axolotl.integrations.liger.LigerPlugin", "liger_rms_norm: true", "liger_fused_linear_cross_entropy: true"),
        ("no setting",),
        0,
        {"axolotl.yml": AXOLOTL_LORA},
    ),
    Row(
        "A6",
        ("import trl.py fsdp.yaml -o job.yaml", "export job.yaml --to trl --samples 207865"),
        ("num_train_epochs: 1",),
        ("no such option",),
        0,
        {"trl.py": TRL, "fsdp.yaml": FSDP},
    ),
    Row(
        "A7",
        ("import run.sh",),
        ("Read from trl.py (TRL)", "gpus: 8", "zero: 3", "stack: trl"),
        (),
        0,
        {"run.sh": "accelerate launch --config_file fsdp.yaml trl.py\n", "trl.py": TRL, "fsdp.yaml": FSDP},
    ),
    Row(
        "A8",
        ("estimate trl.py fsdp.yaml",),
        ("one file is taken, not 2", "xe-sizer import trl.py fsdp.yaml -o job.yaml"),
        ("unexpected extra argument",),
        2,
        {"trl.py": TRL, "fsdp.yaml": FSDP},
    ),
    Row(
        "A10, A11",
        ("estimate llama3.toml --gpus 8 --brief",),
        ("Published runs with the torchtitan stack took", "conditions decide"),
        (),
        0,
        {"llama3.toml": TORCHTITAN},
    ),
    *(
        Row(
            f"A12 {written}",
            (f"estimate --model llama-3.2-1b --{kind} '{written}' --brief",),
            (f"{written} is read as {name}",),
        )
        for kind, written, name in (
            ("gpu", "H100", "h100-sxm-80gb"),
            ("gpu", "A100 80GB", "a100-sxm-80gb"),
            ("server", "H100", "dell-xe9680-h100"),
        )
    ),
    Row(
        "A12 of several sizes",
        ("estimate --model llama-3.2-1b --gpu A100",),
        ("'A100' matches several gpus", "'a100-sxm-40gb' (40 GiB) or 'a100-sxm-80gb' (79 GiB)"),
        (),
        2,
    ),
    Row(
        "A13",
        ("compare trl.py axolotl.yml",),
        ("trl axolotl",),
        ("not an alternative",),
        1,
        {"trl.py": TRL, "axolotl.yml": AXOLOTL_LORA},
    ),
    Row(
        "A14",
        ("calibrate runs.yaml -o ours.yaml", "validate runs.yaml --stack ours.yaml"),
        ("Memory is not fitted, as no record has a peak", "3 records predicted"),
        ("give both the same name",),
        0,
        {"runs.yaml": TIMES},
    ),
    Row(
        "A15",
        ("import axolotl.yml --gpus 1 -o job.yaml", "estimate job.yaml --gpu H100 --gpus 8 --micro-batch 1"),
        (CONTRADICTION,),
        ("no legal layout",),
        2,
        {"axolotl.yml": AXOLOTL_LORA},
    ),
    Row(
        "A17",
        ("estimate --model config.json --gpu h100-sxm-80gb --brief",),
        ("model type 'frobnitz' is not known; it is built like a Llama, as its keys suggest",),
        (),
        0,
        {"config.json": UNKNOWN_CONFIG},
    ),
    Row(
        "A18",
        (f"estimate axolotl.yml {H100} --gpus 1 --brief",),
        ("the file says 2 epochs; how many samples?",),
        ("--epochs 2 has no effect",),
        0,
        {"axolotl.yml": AXOLOTL_LORA},
    ),
    *(
        Row(
            f"A19 {stack}",
            (
                (
                    f"estimate --model llama-3.2-1b --job lora --stack {stack} --gpu rtx-4090 --gpus 1 --samples 3000 "
                    "--epochs 3 --brief"
                ),
            ),
            ("1,125 steps of",),
            (", 71 steps",),
        )
        for stack in ("trl", "unsloth")
    ),  # 3 x 3,000 samples in batches of 8
    Row(
        "A20",
        (f"export megatron.sh --to megatron-lm {H100}",),
        ("--rotary-base 500000",),
        (),
        0,
        {"megatron.sh": MEGATRON},
    ),
    Row(
        "A21",
        (f"estimate megatron.sh {H100} --brief",),
        ("the fewest that fit with this tp/pp: 128",),
        ("2,048",),
        0,
        {"megatron.sh": MEGATRON},
    ),
    Row(
        "A22",
        ("data train.jsonl --tokenizer meta-llama/Llama-3.1-8B",),
        ("give a local tokenizer.json, or the folder that has it",),
        (),
        2,
        {"train.jsonl": '{"text": "a b c"}\n'},
    ),
    # Reinforcement learning
    Row(
        "C1",
        (f"estimate grpo.sh {H100} --brief",),
        ("evaluation every 5 steps is left out: its number of samples is not known; --evaluate-samples 1000 adds it",),
        ("evaluation 35 %",),
        0,
        {"grpo.sh": VERL},
    ),
    Row(
        "C1 known",
        (f"estimate grpo.sh {H100} --evaluate-samples 1319 --samples 7473",),
        (", of which evaluation",),
        ("is left out", "of it evaluation"),
        0,
        {"grpo.sh": VERL},
    ),
    Row(
        "C2",
        (f"estimate grpo.sh {H100} --brief",),
        ("Too few published runs with verl: the range is that of",),
        ("says enough", "in the median"),
        0,
        {"grpo.sh": VERL},
    ),
    Row(
        "C4",
        (f"estimate grpo_trl.py --gpus 8 {H100} --brief",),
        ("vllm in 8 replicas of one GPU",),
        ("tp 2",),
        0,
        {"grpo_trl.py": GRPO_TRL},
    ),
    Row(
        "C10",
        (f"estimate grpo.sh {H100} --samples 7473 --brief",),
        (", 105 iterations of",),
        ("110 iterations",),
        0,
        {"grpo.sh": VERL},
    ),
    Row(
        "C11",
        (f"estimate grpo.sh {H100}",),
        ("Responses 5,120 per iteration", "colocated with training", "truncated at 1,024", "during generation"),
        ("in turn", "meanwhile", "answers are", "answers of", "writes answers"),
        0,
        {"grpo.sh": VERL},
    ),
    # The sentences that nobody says
    Row(
        "section 5",
        (
            (
                "plan --model llama-3.1-70b --job sft --gpu rtx-4090 --gpus 1 --tp 1 --micro-batch 1 --zero 0 "
                "--recompute none --offload none --brief"
            ),
        ),
        ("1 layout searched",),
        ("1 layouts",),
        1,
    ),
    Row(
        "section 5 alternatives",
        ("compare --model gpt2 gpus=8 stak=nemo",),
        ("'stak=nemo' is not an alternative",),
        (),
        2,
    ),
    Row(
        "section 5 packing",
        (
            (
                "estimate --model llama-2-70b --server dell-xe9680-h100 --gpus 16 --job lora --stack nemo "
                "--samples 12012 --mean-tokens 114.5 --max-tokens 8588 --steps 1000 --brief"
            ),
        ),
        ("packing instead of padding (the same data in 28 optimizer steps instead of 1,000; ",),
        ("comes nearest",),
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.row)
def test_a_row_is_mended(row: Row, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in row.files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    ran = [cli(*shlex.split(command)) for command in row.commands]
    said = " ".join(f"{one.err} {one.out}" for one in ran)
    said = re.sub(r"\s+", " ", said)
    assert [text for text in row.says if text not in said] == [], said
    assert [text for text in row.never if text in said] == [], said
    assert ran[-1].code == row.code, said
    assert "Traceback" not in said


def test_python_says_of_an_imported_job_what_the_command_line_says(cli: Cli, tmp_path: Path) -> None:
    """Row A15."""
    (tmp_path / "axolotl.yml").write_text(AXOLOTL_LORA)
    job = tmp_path / "job.yaml"
    assert cli("import", tmp_path / "axolotl.yml", "--gpus", 1, "-o", job).code == 0
    with pytest.raises(xe_sizer.InputError, match=re.escape(CONTRADICTION)):
        xe_sizer.estimate(xe_sizer.load(job), gpu="H100", gpus=8, train={"micro_batch": 1})


def test_instruments_show_what_holds_together(cli: Cli, tmp_path: Path) -> None:
    """Row C3: what is reserved is part of what nvidia-smi shows, and that is no more than the card has."""
    file = tmp_path / "grpo.sh"
    file.write_text(VERL)
    said = re.sub(r"\s+", " ", cli("estimate", file, "--gpu", "h100-sxm-80gb").out)
    shown = re.search(r"typically shows ([\d.]+) GiB allocated, ([\d.]+) reserved, ([\d.]+) in nvidia-smi", said)
    assert shown
    allocated, reserved, card = map(float, shown.groups())
    usable = re.search(r"of ([\d.]+) GiB per GPU", said)
    assert usable
    assert allocated <= reserved < card <= float(usable[1])


@pytest.mark.parametrize("name", ["big.yaml", "huge.yaml"])
def test_a_large_file_is_refused_at_once(cli: Cli, tmp_path: Path, name: str) -> None:
    """Row 15, in seconds of this process, where it took 25 and more than 60."""
    text = next(row.files[name] for row in ROWS if name in row.files)
    file = tmp_path / name
    file.write_text(text)
    begun = time.process_time()
    ran = cli("check", file)
    assert ran.code == 2
    assert time.process_time() - begun < 8
    assert len(ran.err.splitlines()) < 30
