"""Options, keys and values of other tools: what to write here instead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from xe_sizer.errors import InputError, Location, Problem, did_you_mean
from xe_sizer.scenario.schema import adapter_names, job_names

NO_EFFECT = (
    "adam-beta1, adam-beta2, beta1, beta2, clip-grad, learning-rate, logging-steps, lora-alpha, lr, lr-scheduler-"
    "type, max-grad-norm, output-dir, seed, temperature, top-k, top-p, trust-remote-code, warmup-ratio, "
    "warmup-steps, weight-decay"
)
"""What changes neither memory nor time."""
_LEFT_OUT = "it changes neither memory nor time: leave it out"
MEANT: Mapping[str, str] = {
    "model": "model-name, model-name-or-path, model-id, base-model, pretrained, hf-model",
    "gpus": "num-gpus, n-gpus, ngpus, gpu-count, nproc-per-node, nproc, world-size, num-processes",
    "nodes": "num-nodes, nnodes, n-nodes, servers",
    "gpu": "gpu-type, accelerator, device",
    "server": "instance-type, machine-type, instance",
    "job": "method, finetuning-type, task, train-type",
    "job qlora": "load-in-4bit, qlora, use-qlora",
    "job lora": "lora, use-lora, use-peft, peft",
    "stack": "framework, backend, trainer",
    "stack: the framework by its name, with --zero for its stage": "deepspeed, deepspeed-config, use-deepspeed",
    "stack: one with these kernels, see 'xe-sizer profiles list stack'": (
        "use-liger-kernel, use-liger, liger-kernel, enable-liger-kernel, use-unsloth"
    ),
    "tp": "tensor-parallel-size, tensor-model-parallel-size, tensor-parallel, tp-size",
    "pp": "pipeline-parallel-size, pipeline-model-parallel-size, pipeline-parallel, pp-size",
    "cp": "context-parallel-size, context-parallel, cp-size",
    "ep": "expert-model-parallel-size, expert-parallel-size, expert-parallel, ep-size",
    "dp": "data-parallel-size, data-parallel, dp-size",
    "zero": "zero-stage, deepspeed-stage",
    "zero 3": "fsdp, fsdp2, full-shard, use-fsdp",
    "micro-batch": "micro-batch-size, per-device-train-batch-size, train-micro-batch-size-per-gpu, mbs",
    "global-batch": "global-batch-size, train-batch-size, gbs",
    "grad-accum": (
        "gradient-accumulation-steps, gradient-accumulation, accumulate-grad-batches, accumulation-steps, "
        "grad-accumulation-steps, grad-acc-steps, grad-accum-steps, gas"
    ),
    "micro-batch for sequences per GPU, or --global-batch for those of all GPUs": "batch-size, bs",
    "seq-len|max-model-len": (
        "max-seq-length, max-seq-len, sequence-len, sequence-length, seq-length, cutoff-len, block-size, context-"
        "length, max-length, max-model-len, seq-len, ctx-size, context"
    ),
    "epochs": "num-train-epochs, num-epochs",
    "steps": "max-steps, train-iters, num-steps, iterations",
    "dataset": "data, data-path, train-file",
    "tokenizer": "tokenizer-name-or-path, tokenizer-path, tokenizer-model",
    "padding packed": "packing, sample-packing",
    "recompute full": "gradient-checkpointing, activation-checkpointing, recompute-activations",
    "offload": "cpu-offload, offload-optimizer, optimizer-offload",
    "optimizer": "optim, optimiser",
    "attention": "attn-implementation, use-flash-attn, flash-attn",
    "lora-rank": "lora-r, rank, r, lora-dim, max-lora-rank",
    "adapters": "enable-lora, lora-modules, lora-paths, num-loras",
    "adapter-slots": "max-loras, max-loras-per-batch",
    "cpu-layers: the layers that are not on the GPU": "n-gpu-layers, gpu-layers, ngl, num-gpu, n-layers-gpu",
    "kv-host-gib": "kv-offloading-size, hicache-size, enable-hierarchical-cache, host-cache-size",
    "prefill-replicas": "disaggregation-mode, disaggregated, num-prefill, prefill-workers",
    "lora-targets": "target-modules, lora-target-modules, lora-target",
    "precision": "dtype, torch-dtype, fp16, mixed-precision",
    "precision bf16": "bf16, bfloat16",
    "weights": "quantization, load-in-8bit, quant",
    "kv-cache": "kv-cache-dtype",
    "max-sequences": "max-num-seqs, max-batch-size",
    "max-step-tokens": "max-num-batched-tokens, max-num-tokens",
    "draft-tokens": "num-speculative-tokens",
    "concurrency": "max-concurrency, concurrent-requests, parallel",
    "request-rate": "rps, qps, requests-per-second",
    "input-tokens": "input-len, isl, random-input-len, prompt-tokens, prompt-len",
    "output-tokens": "output-len, osl, random-output-len, max-new-tokens, completion-tokens",
    "group": "num-generations, n-samples-per-prompt, samples-per-prompt, generations-per-prompt",
    "max-output-tokens": "max-completion-length, max-response-length, response-length, generate-max-len",
    "updates": "ppo-epochs, num-ppo-epochs",
    "max-hours": "deadline, max-time, time-limit, max-days, days, hours",
    "max-cost": "budget, max-price",
    "max-kw": "max-power, max-power-kw, power-limit, power-budget",
    "capex-per-server": "capex, server-price, purchase-price, price-per-server, server-capex, server-cost",
    "years": "depreciation, depreciation-years, amortisation-years, amortization-years, useful-life, lifetime",
    "utilisation": "utilization",
    "kwh-price": "electricity-price, power-price, price-per-kwh, electricity, energy-price",
    "staff-share": "staff, opex-share",
    "api-price-per-million": "api-price, api-price-per-million-tokens, break-even",
}
"""An option of ours, with its value where other tools have a switch; then what others call it."""
_SHAPE: Mapping[str, str] = {
    "layers": "num-layers, num-hidden-layers, n-layers, n-layer, num-layer, depth",
    "hidden": "hidden-size, d-model, n-embd, dim, embed-dim, model-dim, width",
    "heads": "num-attention-heads, num-heads, n-heads, n-head, attention-heads",
    "kv_heads": "num-key-value-heads, num-query-groups, num-kv-heads, n-kv-heads, multi-query-group-num",
    "head_dim": "kv-channels, head-size, attention-head-dim",
    "ffn": "ffn-hidden-size, intermediate-size, ffn-dim, mlp-hidden-size, n-inner, d-ff",
    "vocab": "vocab-size, padded-vocab-size, n-vocab",
    "max_positions": "max-position-embeddings, n-positions, n-ctx, max-seq-len, context-length, seq-length",
    "tied_embeddings": "tie-word-embeddings, share-embeddings-and-output-weights, tie-embeddings, weight-tying",
    "norm": "normalization, norm-type",
    "activation": "hidden-act, activation-function, activation-func",
    "position": "position-embedding-type",
    "experts: {count, per_token, ffn}": (
        "num-experts, num-local-experts, n-routed-experts, num-experts-per-tok, moe-router-topk, moe-ffn-hidden-size, "
        "moe-intermediate-size, num-moe-experts"
    ),
}
"""A key of a model that a scenario writes out; then what others call it."""
_GROUPS: Mapping[str, str] = {"cost": "tariff, tariffs, price, prices, pricing, money, tco"}
"""A group of keys; then what others call it."""
_OPTION = re.compile(r"--([a-z-]+)")
_UNKNOWN = re.compile(r"unknown key '([^']+)'(?: in '([^']+)')?")
_NO_VALUE = re.compile(r"'(\w+)' must be one of .*, not '([^']+)'")
_ELSEWHERE = "belongs"  # of the hint to a key of ours that stands in another section than its own
_VALUES: Mapping[tuple[str, str], str] = {
    ("offload", "cpu"): (
        "'optimizer' keeps its states in host memory (ZeRO-Offload), 'params' the weights too (FSDP's CPU offload)"
    ),
}
"""What to say to a value of other tools for a key of ours."""
_SHARDING = re.compile(r"(?:(.*?)[\s_+,/:-]+)?(?:(ddp)|fsdp2?|hsdp|(?:zero|stage)[\s_-]*([0-3]))")


def sharding_in(stack: str) -> tuple[str, int] | None:
    """The framework and the ZeRO stage that a stack is called by: `deepspeed zero3`, `fsdp`; None of another name."""
    found = _SHARDING.fullmatch(stack.strip().lower())
    if found is None:
        return None
    return found[1] or "", 0 if found[2] else int(found[3] or 3)


def listed_names(listed: str) -> list[str]:
    return listed.split(", ")


def unknown_option(
    written: str, command: str, options: Iterable[str], others: Mapping[str, Iterable[str]]
) -> InputError:
    """What to say of an option that a command does not have.

    options : those that it has, with their dashes
    others : command -> options of it, without dashes; where the option is looked for next
    """
    name, own = written.lstrip("-").replace("_", "-").lower(), [one.removeprefix("--") for one in options]
    near = re.sub(r"'(?=\w)", "'--", did_you_mean(name, own) or "")
    several = near if f"{name}s" in own else ""  # which takes what others do of one
    hint = several or _instead(name, own, others) or near or f"'{command} --help' lists all"
    return InputError(Problem(f"'{command}' has no such option", Location(written), hint))


def in_our_words(problem: Problem, keys: Mapping[str, str]) -> Problem:
    """A problem of a scenario's keys; where a key or a value is that of another tool, with what to write instead.

    keys : option -> scenario key
    """
    key, value = _UNKNOWN.match(problem.message), _NO_VALUE.match(problem.message)
    hint = None
    if key and key[2] == "model":
        name = key[1].replace("_", "-").lower()
        hint = next((f"write '{ours}'" for ours, names in _SHAPE.items() if name in listed_names(names)), None)
    elif key and _ELSEWHERE not in (problem.hint or ""):
        hint = _key_instead(key[1].replace("_", "-").lower(), keys)
    elif value:
        hint = _VALUES.get((value[1], value[2].lower())) or _adapter_and_job(value[2].lower())
    return replace(problem, hint=hint or problem.hint)


def _adapter_and_job(name: str) -> str | None:
    """A job under adapters in one word, `qlora-dpo`, as the two that it is of; None of another word."""
    words, adapters, jobs = re.split(r"[-_+ ]", name), adapter_names(), job_names()
    two = [(job, adapter) for job in jobs for adapter in adapters if sorted((job, adapter)) == sorted(words)]
    return next((f"write --job {job} --adapter {adapter}" for job, adapter in two), None)


def _key_instead(name: str, keys: Mapping[str, str]) -> str | None:
    """What a key of another tool is called here, and where it stands."""
    if name in listed_names(NO_EFFECT):
        return _LEFT_OUT
    if section := next((ours for ours, names in _GROUPS.items() if name in listed_names(names)), None):
        return f"write '{section}:'"
    meant = (setting for setting, names in MEANT.items() if name in listed_names(names))
    return next((_as_key(setting.partition("|")[0], keys) for setting in meant), None)


def _as_key(setting: str, keys: Mapping[str, str]) -> str:
    """An option of ours, with its value or with words on it, as a scenario file has it."""
    option, _, rest = setting.partition(" ")
    key = keys[option.rstrip(":")]
    section, _, last = key.rpartition(".")
    place = f" under '{section}'" if section else " at the top level"
    if option.endswith(":") or " " in rest:
        more = _OPTION.sub(lambda other: f"'{keys[other[1]].rpartition('.')[2]}'", rest)
        return f"write '{last}'{place}{':' if option.endswith(':') else ''} {more}"
    return f"write '{last}: {rest}'{place}" if rest else f"write '{last}'{place}"


def _instead(name: str, own: list[str], others: Mapping[str, Iterable[str]]) -> str | None:
    """What other tools' option is called here; where it is one of ours, the command that has it."""
    if name in listed_names(NO_EFFECT):
        return _LEFT_OUT
    if name in own:
        return f"write --{name}"
    meant = [one for setting, names in MEANT.items() if name in listed_names(names) for one in setting.split("|")]
    for setting in meant:
        if setting.partition(" ")[0].rstrip(":") in own:
            return f"write --{setting}"
    for other, options in others.items():
        found = [option for option in (name, *(one.partition(" ")[0] for one in meant)) if option in options]
        if found:
            return f"'xe-sizer {other}' has --{found[0]}"
    return None
