"""Measures runs of the Hugging Face Trainer on this machine's GPU: python scripts/measure_training.py CASES OUT

CASES is a file of evidence records (JSON Lines) without `measured`: model, batch, lengths, recomputation, optimizer,
adapters, precision. Each runs in a process of its own, with random weights and random tokens, and is appended to OUT
with what was measured and under which conditions; one that goes out of memory is a record too. OUT is what
`xe-sizer validate` and `xe-sizer calibrate` read. Cases that OUT has already are passed over.

    --configs FOLDER  FOLDER/MODEL/config.json describes a model; else it comes from the Hugging Face Hub
    --seconds 3       time the steps for so long, for 8 steps at least, after 3 that are not timed
    --phases FILE     append what memory and the host's time are after forward, backward and optimizer, and the kernels

Needs torch, transformers and accelerate, peft for adapters, nvidia-ml-py for clocks and power.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import Trainer, TrainerCallback, TrainingArguments

from xe_sizer.measure.timer import Watch

WARM_UP_STEPS, LEAST_STEPS, MOST_STEPS = 3, 8, 64
GIB = 2**30
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
IGNORED = -100


def build_model(case: dict[str, Any], configs: Path | None) -> Any:
    """The model of a case with random weights on the GPU, and its adapters."""
    lora = case.get("lora")
    where = str(configs / case["model"]) if configs else case["model"]
    config = transformers.AutoConfig.from_pretrained(where)
    config.use_cache = False
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = transformers.AutoModelForCausalLM.from_config(
            config, dtype=DTYPES[case.get("load_dtype", "bf16")], attn_implementation=case.get("attention")
        )
    if lora is None:
        return model
    import peft

    targets = lora.get("targets", ["q_proj", "v_proj"])
    options = peft.LoraConfig(
        r=lora["rank"], lora_alpha=2 * lora["rank"], target_modules=targets, lora_dropout=lora.get("dropout", 0.0),
        task_type="CAUSAL_LM",
    )  # fmt: skip
    return peft.get_peft_model(model, options)


class Samples(torch.utils.data.Dataset):
    """Random tokens; of one length, or of lengths whose logarithm is normal, cut at the sequence length."""

    def __init__(self, case: dict[str, Any], vocab: int) -> None:
        self.vocab, draw = vocab, random.Random(0)
        most, mean = case.get("seq_len") or case["max_seq_len"], case.get("mean_tokens")
        batch = case["batch"]
        count = batch["micro"] * batch.get("grad_accum", 1) * (MOST_STEPS + 4)
        spread = case.get("length_spread", 0.7)
        drawn = [int(draw.lognormvariate(0.0, spread) * mean * 0.8) if mean else most for _ in range(count)]
        self.lengths = [max(8, min(most, tokens)) for tokens in drawn]

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        tokens = torch.randint(3, self.vocab, (self.lengths[index],), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


def collate(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """A batch padded to its longest sample on the right, as DataCollatorForSeq2Seq pads one."""
    pad = torch.nn.utils.rnn.pad_sequence
    tokens = [sample["input_ids"] for sample in samples]
    return {
        "input_ids": pad(tokens, batch_first=True),
        "labels": pad(tokens, batch_first=True, padding_value=IGNORED),
        "attention_mask": pad([torch.ones_like(one) for one in tokens], batch_first=True),
    }


class Clock(TrainerCallback):
    """Marks the end of each step on the GPU; ends the training when enough of them are timed.

    In steps that are looked into (`phases`) each phase is waited for, so these are not timed.
    """

    def __init__(self, seconds: float, looks: bool) -> None:
        self.seconds, self.looks = seconds, looks
        self.marks: list[Any] = []
        self.began: float | None = None
        self.peaks: dict[str, float] = {}
        self.sampler: Watch | None = None
        self.seen: list[dict[str, float]] = []
        self.phase: dict[str, float] | None = None
        self.phase_began = 0.0
        self.profile: Any = None

    @property
    def timed(self) -> list[float]:
        """Seconds of each timed step."""
        pairs = zip(self.marks, self.marks[1:], strict=False)
        return [first.elapsed_time(second) / 1e3 for first, second in pairs]

    def start(self) -> None:
        if self.phase is not None:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            self.phase_began = time.perf_counter()

    def end(self, name: str) -> None:
        """The phase that ends here: the host's seconds, all seconds, memory at its peak and after it."""
        if self.phase is None:
            return
        host_s = time.perf_counter() - self.phase_began
        torch.cuda.synchronize()
        self.phase[f"{name}_host_s"] = self.phase.get(f"{name}_host_s", 0.0) + host_s
        whole_s = time.perf_counter() - self.phase_began
        self.phase[f"{name}_s"] = self.phase.get(f"{name}_s", 0.0) + whole_s
        peak = torch.cuda.max_memory_allocated() / GIB
        self.phase[f"{name}_peak_gib"] = max(self.phase.get(f"{name}_peak_gib", 0.0), peak)
        self.phase[f"{name}_after_gib"] = torch.cuda.memory_allocated() / GIB
        self.start()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.start()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.end("clip")

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.end("optimizer")

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.profile is not None:
            torch.cuda.synchronize()
            self.profile.__exit__(None, None, None)
            control.should_training_stop = True
            return
        if self.phase is not None:
            self.end("zero_grad")
            self.seen.append(self.phase)
            self.phase = {} if len(self.seen) < 2 else None
            if self.phase is None:
                from torch.profiler import ProfilerActivity, profile

                self.profile = profile(activities=[ProfilerActivity.CUDA])
                self.profile.__enter__()
            return
        if state.global_step < WARM_UP_STEPS:
            return
        if not self.marks:
            torch.cuda.synchronize()
            self.began, self.sampler = time.perf_counter(), Watch()
        mark = torch.cuda.Event(enable_timing=True)
        mark.record()
        self.marks.append(mark)
        assert self.began is not None
        enough = len(self.marks) > LEAST_STEPS and time.perf_counter() - self.began > self.seconds
        if enough or len(self.marks) > MOST_STEPS - 8:
            torch.cuda.synchronize()
            self.peaks = {
                "peak_memory_gib": torch.cuda.max_memory_allocated() / GIB,
                "reserved_memory_gib": torch.cuda.max_memory_reserved() / GIB,
            }
            assert self.sampler is not None
            self.sampler.stop()
            if self.looks:
                self.phase = {}
            else:
                control.should_training_stop = True


class Watched(Trainer):
    """The Trainer, with the ends of forward and backward told to the clock."""

    clock: Clock

    def compute_loss(self, *args: Any, **options: Any) -> Any:
        loss = super().compute_loss(*args, **options)
        self.clock.end("forward")
        return loss

    def training_step(self, *args: Any, **options: Any) -> Any:
        loss = super().training_step(*args, **options)
        self.clock.end("backward")
        return loss


def arguments_of(case: dict[str, Any]) -> TrainingArguments:
    """The Trainer's arguments: its defaults but for what the case says, logs and checkpoints, which are off."""
    batch, recompute = case["batch"], case.get("recompute", "none") != "none"
    named = {"adamw": "adamw_torch", None: "adamw_torch_fused"}
    optimizer = case.get("optimizer")
    return TrainingArguments(
        output_dir="/tmp/measured",
        per_device_train_batch_size=batch["micro"],
        gradient_accumulation_steps=batch.get("grad_accum", 1),
        bf16=case.get("mixed_precision") == "bf16",
        gradient_checkpointing=recompute,
        gradient_checkpointing_kwargs={"use_reentrant": False} if recompute else None,
        optim=named.get(optimizer, optimizer),
        torch_compile=bool(case.get("compile")),
        max_steps=10 * MOST_STEPS,
        learning_rate=1e-5,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
    )


def measure(case: dict[str, Any], configs: Path | None, seconds: float, looks: bool) -> Iterator[dict[str, Any]]:
    """The case as a record with what was measured; then, if asked for, what was seen inside of its steps."""
    torch.cuda.init()
    clock = Clock(seconds, looks)
    measured: dict[str, Any] = {}
    conditions: dict[str, Any] = {}
    try:
        model = build_model(case, configs)
        shape = model.config.get_text_config()
        conditions["parameters"] = sum(weight.numel() for weight in model.parameters())
        conditions["attention_implementation"] = shape._attn_implementation
        conditions["experts_implementation"] = getattr(shape, "_experts_implementation", None)
        data = Samples(case, shape.vocab_size)
        conditions["mean_tokens"] = statistics.mean(data.lengths)
        trainer = Watched(
            model=model, args=arguments_of(case), train_dataset=data, data_collator=collate, callbacks=[clock]
        )
        trainer.clock = clock
        trainer.train()
        steps = clock.timed
        measured = {
            "step_time_s": statistics.median(steps),
            "steps_timed": len(steps),
            "step_time_s_mean": statistics.mean(steps),
            "step_time_s_least": min(steps),
            "step_time_s_most": max(steps),
            **clock.peaks,
            "memory_metric": "allocated",
        }
        assert clock.sampler is not None
        if clock.sampler.rows:
            measured["nvidia_smi_gib"] = clock.sampler.used_gib
            conditions |= clock.sampler.conditions
    except torch.OutOfMemoryError as error:
        assert not clock.peaks
        measured = {"oom": True}
        conditions["error"] = str(error).split(". GPU")[0]
        conditions["reserved_memory_gib"] = torch.cuda.max_memory_reserved() / GIB
    properties = torch.cuda.get_device_properties(0)
    conditions |= {"card": properties.name, "card_memory_gib": properties.total_memory / GIB}
    packages = ("torch", "transformers", "accelerate", *(["peft"] if case.get("lora") else []))
    software = ", ".join(f"{name} {version(name)}" for name in packages)
    yield {
        **case,
        "framework": f"Hugging Face Trainer ({software}, CUDA {torch.version.cuda})",
        "measured": measured,
        "notes": "; ".join(f"{name} {value}" for name, value in conditions.items() if value is not None),
    }
    if looks and clock.seen:
        yield {"id": case["id"], "phases": clock.seen[-1], **kernels(clock.profile)}


def kernels(profile: Any) -> dict[str, Any]:
    """How many kernels a step launches, their seconds, and which took longest."""
    events = [event for event in profile.profiler.kineto_results.events() if event.device_type().name == "CUDA"]
    count, seconds = Counter[str](), Counter[str]()
    for event in events:
        if "Optimizer." in event.name():  # an annotation around kernels
            continue
        count[event.name()] += 1
        seconds[event.name()] += event.duration_ns() / 1e9
    rows = [[name[:160], count[name], value] for name, value in seconds.most_common(60)]
    return {"kernels": sum(count.values()), "kernel_s": sum(seconds.values()), "by_kernel": rows}


def run_case(case: dict[str, Any], options: argparse.Namespace) -> None:
    looks = options.phases is not None
    for path, row in zip(
        (options.out, options.phases), measure(case, options.configs, options.seconds, looks), strict=False
    ):
        with path.open("a") as out:
            out.write(json.dumps(row) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--configs", type=Path)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--phases", type=Path)
    parser.add_argument("--until", type=float, default=float("inf"), help="begin no case after so many seconds")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    transformers.logging.set_verbosity_error()
    began = time.perf_counter()
    known = {json.loads(line)["id"] for line in options.out.open()} if options.out.exists() else set()
    # A process that forks knows torch already; CUDA starts in the child alone.
    processes = multiprocessing.get_context("fork")
    for line in options.cases.read_text().splitlines():
        case = json.loads(line)
        if case["id"] in known or time.perf_counter() - began > options.until:
            continue
        child = processes.Process(target=run_case, args=(case, options))
        child.start()
        child.join()
        logging.info("%s: exit %s after %.0f s", case["id"], child.exitcode, time.perf_counter() - began)


if __name__ == "__main__":
    main()
