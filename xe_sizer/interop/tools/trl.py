"""TRL: YAML and JSON configurations of its trainers, and the commands that start them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Problem
from xe_sizer.interop import huggingface
from xe_sizer.interop.draft import Table, globs
from xe_sizer.interop.huggingface import (
    ACTIVATIONS,
    ADDED,
    LINEAR_LOG_PROBABILITIES,
    SAYS,
    SERVER_FILE,
    served_apart,
    state_group_answers,
    state_models,
    state_scored_answers,
    state_server,
    trainer_sharding,
    trl_settings,
    trl_trainer,
)
from xe_sizer.interop.source import Tool
from xe_sizer.interop.values import Written, is_on, listed, plain, positive
from xe_sizer.interop.write import Exporter, ToolFiles, yaml_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from xe_sizer.interop.draft import Draft
    from xe_sizer.interop.readers.python_values import Call
    from xe_sizer.interop.source import Certainty, Source
    from xe_sizer.interop.values import Keys
    from xe_sizer.interop.write import Plan

# TRL configurations, which `trl sft --config` and the like run.


def _write(plan: Plan) -> ToolFiles:
    values = trl_settings(plan) | trainer_sharding(plan)
    if values.get("vllm_mode") != "server":
        return ToolFiles(yaml_text(values), run=_run(plan, plan.take("gpus"), plan.take("nodes", 1)))
    if plan.peek("nodes", 1) > 1 and plan.peek("rollout.gpus") > plan.peek("gpus") // plan.peek("nodes"):
        what, hint = "TRL's server has one node", "give the engine the GPUs of one node"
        raise InputError(Problem(what, plan.where("rollout.gpus"), hint))
    served = served_apart(plan, TOOL.title, ["trl", "vllm-serve"])
    run = f"{served.devices} {_run(plan, served.gpus, served.nodes)}".strip()
    told = (f"{SERVER_FILE} starts the engine, before the trainer",)
    return ToolFiles(yaml_text(values), {SERVER_FILE: served.script}, run=run, told=told)


def _run(plan: Plan, gpus: int, nodes: int) -> str:
    machines = f" --num_machines {nodes}" if nodes > 1 else ""
    return f"trl {trl_trainer(plan)} --config FILE --num_processes {gpus}{machines}"


EXPORTERS = (
    Exporter(
        name="trl", title="TRL", ending=".yaml", write=_write, says=(*SAYS, "layout.zero", "rollout.gpus"), added=ADDED
    ),
)


# TRL's keys: what each says, what is lost with it, and which trainer a key belongs to.
#
# Keys and defaults: trl/trainer/*_config.py, trl/scripts/utils.py and trl/trainer/model_config.py (read at 0.9, 0.12,
# 0.17, 0.20, 0.23, 0.26, 0.29, 1.0, 1.10 and 1.16); recipes of alignment-handbook and open-r1 have some keys more.

SFT, DPO, KTO, ORPO, SIMPO = "sft", "dpo", "kto", "orpo", "simpo"
REWARD, PPO, GRPO, DISTILL = "reward", "ppo", "grpo", "distill"
TRAINERS: dict[str, str] = {
    "sft": SFT, "iterativesft": SFT, "dpo": DPO, "dpovlm": DPO, "kto": KTO, "bco": KTO, "orpo": ORPO, "cpo": SIMPO,
    "simpo": SIMPO, "reward": REWARD, "rewardmodeling": REWARD, "prm": REWARD, "ppo": PPO, "grpo": GRPO,
    "grpovlm": GRPO, "gspo": GRPO, "rloo": GRPO, "gfpo": GRPO, "dppo": GRPO, "onlinedpo": DPO, "nashmd": DPO,
    "xpo": DPO, "gkd": DISTILL, "gold": DISTILL, "distillation": DISTILL, "minillm": DISTILL, "mpo": DPO, "apo": DPO,
    "sdft": DISTILL, "sdpo": GRPO, "tpo": DPO,
}  # fmt: skip
"""Names of TRL's trainers, as commands, scripts and folders have them, with the job of each."""
MARKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (DISTILL, globs("teacher_model_name_or_path lmbda seq_kd use_uld_loss teacher_model_server_url")),
    (GRPO, globs("num_generations reward_funcs generation_batch_size steps_per_generation importance_sampling_level "
                 "scale_rewards rloo_k num_iterations mask_truncated_completions epsilon_high normalize_advantages "
                 "reward_weights top_entropy_quantile vllm_mode")),
    (PPO, globs("num_ppo_epochs cliprange cliprange_value vf_coef total_episodes response_length missing_eos_penalty "
                "reward_model_path sft_model_path kl_coef init_kl_coef ppo_epochs")),
    (KTO, globs("desirable_weight undesirable_weight min_density_ratio max_density_ratio prompt_sample_size")),
    (REWARD, globs("center_rewards_coefficient step_separator train_on_last_step_only")),
    (DPO, globs("rpo_alpha precompute_ref_log_probs precompute_ref_batch_size reference_free f_divergence_type "
                "sync_ref_model ref_model_init_kwargs use_weighting discopop_tau loss_weights ref_adapter_name "
                "force_use_ref_model ld_alpha")),
    (SFT, globs("packing packing_strategy max_seq_length dataset_text_field eval_packing completion_only_loss "
                "assistant_only_loss chars_per_token num_of_sequences dataset_batch_size")),
)  # fmt: skip
"""Keys that one trainer alone has, with its job."""
LOSS_TYPES: dict[str, str] = {
    **dict.fromkeys(
        globs("""
        sigmoid hinge ipo exo_pair nca_pair robust bco_pair sppo_hard aot aot_pair aot_unpaired discopop apo_zero
        apo_down sigmoid_norm sft
        """),
        DPO,
    ),
    "kto": KTO, "apo_zero_unpaired": KTO, "bco": KTO, "simpo": SIMPO, "alphapo": SIMPO,
    **dict.fromkeys(globs("grpo dapo bnpo dr_grpo cispo sapo luspo vespo"), GRPO),
    **dict.fromkeys(globs("nll dft chunked_nll"), SFT),
}  # fmt: skip
"""Words of `loss_type`, with the job that has them."""
OF_PREFERENCES = globs("beta max_prompt_length label_smoothing truncation_mode generate_during_eval")
"""Keys that several trainers on preferences have."""
OWN = frozenset(
    (
        *(key for _, keys in MARKS for key in keys), *OF_PREFERENCES,
        *globs("""
        loss_type use_peft lora_r lora_target_modules lora_task_type lora_modules_to_save padding_free dataset_kwargs
        model_init_kwargs dataset_train_split dataset_test_split chat_template_path activation_offloading max_length
        max_completion_length use_vllm log_completions dataset_num_proc dataset_mixture assistant_only_loss
        dataset_prompt_column bnb_4bit_quant_type use_bnb_nested_quant teacher_model_revision
        """),
    )
)  # fmt: skip
"""Keys that TRL has beside those of transformers."""
TABLE = Table(file="trl", further=(huggingface.PEFT, huggingface.TRAINER))


_OTHERS = frozenset({"stage", "finetuning_type", "cutoff_len", "template", "tuner_type", "train_type"})
_MAX_LENGTH = 1024
_RANK, _DROPOUT = 16, 0.05
_COMPLETION = 512
_RLOO_BETA = 0.05
_SCORES = {
    "train.critic_model": ("value_model_path", "reward_model_path"),
    "train.reward_model": ("reward_model_path", "reward_model_name_or_path", "reward_model"),
}
_GENERATES = (GRPO, PPO, DISTILL)
_MODULES = "trl.scripts."
_WORDS = re.compile(r"[a-z]+", re.IGNORECASE)


def _called(words: Sequence[str]) -> str | None:
    """The job of the trainer that a command starts: `trl sft`, or a script named after a trainer."""
    if not words or "swift" in words[0]:
        return None
    name = words[0].rpartition("/")[2]
    if name == "trl":
        return TRAINERS.get(plain(words[1])) if len(words) > 1 else None
    if name.startswith(_MODULES):
        return TRAINERS.get(plain(name.removeprefix(_MODULES)))
    flagged = any(word.startswith(("--model_name_or_path", "--config", "--dataset_name")) for word in words)
    stem = name.removesuffix(".py").removeprefix("run_")
    return TRAINERS.get(plain(stem)) if flagged and name.endswith(".py") else None


def _starts(words: Sequence[str]) -> bool:
    return _called(words) is not None


def _called_in(source: Source) -> Call | None:
    """The call in a Python file by which TRL is known: of a trainer's configuration, else of the trainer."""
    if source.kind != "python" or "trl" not in source.text:
        return None
    return huggingface.find_call(source, *_CONFIGS) or huggingface.find_call(source, *_CLASSES)


def _keys(source: Source) -> Keys:
    if source.kind == "python":
        return huggingface.keys_called(source, (*_CONFIGS, *huggingface.ARGUMENTS), _CLASSES)
    return huggingface.keys_started(source, _starts)


def _recognises(source: Source) -> Certainty:
    if huggingface.find_launch(source, _starts) is not None:
        return 85
    if _called_in(source) is not None:
        return 80
    keys = source.keys
    tops = {name.partition(".")[0] for name in keys}
    if "model_name_or_path" not in keys or tops & _OTHERS:
        return 0
    if tops & OWN:
        return 80
    return 50 if "dataset_name" in keys else 0


def _read(draft: Draft, source: Source) -> None:
    draft.state("stack", TOOL.name, draft.peek("model_name_or_path"))
    huggingface.tell_trainings(draft, source)
    trainer = _trainer(draft, source)
    _job(draft, source, trainer)
    huggingface.state_dtype(draft, "dtype", "torch_dtype", "model_init_kwargs.dtype", "model_init_kwargs.torch_dtype")
    if draft.fact("train.bits") is None and draft.fact("job") != huggingface.QLORA:
        draft.default("train.weights_dtype", "fp32")
    huggingface.state_arguments(draft, source, precision="bf16", recompute="full")
    huggingface.state_attention(draft, "attn_implementation", "model_init_kwargs.attn_implementation")
    _length(draft, trainer)
    if trainer == GRPO:
        state_group_answers(draft, beta=_RLOO_BETA if _is_rloo(draft, source) else 0.0)
        state_models(draft, {"train.reward_model": ("reward_model_name_or_path",)})
    elif trainer == PPO:
        state_scored_answers(draft)
        state_models(draft, _SCORES)
    _padding(draft, trainer)
    _loss(draft, trainer)
    offloaded = draft.on("activation_offloading")
    if offloaded is not None:
        draft.state("layout.offload", ACTIVATIONS, offloaded)
    huggingface.state_launch(draft, source, _starts)
    state_server(draft, source)


def _is_rloo(draft: Draft, source: Source) -> bool:
    """Whether the trainer is RLOO's, which keeps a reference unless told otherwise (trl/trainer/rloo_config.py)."""
    call = _called_in(source)
    words = [call.name] if call is not None else [source.name, *huggingface.words_started(source, _starts)[:2]]
    return draft.peek("rloo_k") is not None or any("rloo" in word.lower() for word in words)


def _trainer(draft: Draft, source: Source) -> str:
    """The job of the trainer: by keys that it alone has, by its loss, else by what the file or its folder is called."""
    marked = [(job, found) for job, keys in MARKS if (found := _present(draft.keys, keys)) is not None]
    loss = draft.peek("loss_type")
    words = [plain(word) for word in listed(loss.value) or ()] if loss is not None else []
    by_loss = next((job for word, job in _LOSS_JOBS.items() if word in words), None)
    named = _named(source)
    called = _called(huggingface.words_started(source, _starts))
    command = huggingface.find_launch(source, _starts)
    call = _called_in(source)
    if call is not None:
        job = next(job for name, job in _CLASS_JOBS.items() if call.is_a(name))
        draft.state("trainer", job, Written(job, call.where))
    elif called is not None and command is not None:
        draft.state("trainer", called, Written(called, command.words[0].where))
    elif by_loss is not None and loss is not None and by_loss != DPO:
        draft.state("trainer", by_loss, loss)
    elif marked:
        draft.state("trainer", marked[0][0], marked[0][1])
    elif named is not None:
        draft.assume("trainer", named, "from the name of the file or its folder", source.start)
    else:
        paired = loss or _present(draft.keys, OF_PREFERENCES)
        if paired is not None:
            draft.state("trainer", DPO, paired)
        else:
            draft.assume("trainer", SFT, "no key tells the trainer")
    return str(draft.fact("trainer"))


_CLASS_JOBS = {
    f"{name}{ending}": job
    for name, job in {
        "SFT": SFT, "IterativeSFT": SFT, "DPO": DPO, "KTO": KTO,
        "BCO": KTO, "ORPO": ORPO, "CPO": SIMPO, "Reward": REWARD,
        "PRM": REWARD, "PPO": PPO, "GRPO": GRPO, "RLOO": GRPO,
        "OnlineDPO": DPO, "NashMD": DPO, "XPO": DPO, "GKD": DISTILL,
        "GOLD": DISTILL, "MiniLLM": DISTILL,
    }.items()
    for ending in ("Config", "Trainer")
}  # fmt: skip
_CONFIGS = tuple(name for name in _CLASS_JOBS if name.endswith("Config"))
_CLASSES = tuple(name for name in _CLASS_JOBS if name.endswith("Trainer"))
_LOSS_JOBS = {plain(word): job for word, job in LOSS_TYPES.items()}


def _present(keys: Keys, wanted: tuple[str, ...]) -> Written | None:
    return next((keys[name] for name in wanted if name in keys), None)


def _named(source: Source) -> str | None:
    """The job that the name of a file says, or that of a folder that it lies in; the nearest to the file counts."""
    parts = Path(source.name).with_suffix("").parts
    for part in reversed(parts):
        words = [word.lower() for word in _WORDS.findall(part)]
        found = [TRAINERS[word] for word in reversed(words) if word in TRAINERS]
        if found:
            return found[0]
    return None


def _job(draft: Draft, source: Source, trainer: str) -> None:
    """The job, its adapters and quantised weights."""
    stated = draft.facts["trainer"]
    draft.drop("trainer")
    adapters = draft.take("use_peft")
    trained = adapters is not None and is_on(adapters.value)
    four, eight = draft.on("load_in_4bit"), draft.on("load_in_8bit")
    if trainer != SFT:
        draft.replace("job", stated)
    elif adapters is not None and trained:
        quantised = four or eight
        draft.state("job", huggingface.QLORA if quantised else huggingface.LORA, quantised or adapters)
    else:
        draft.replace("job", stated)
    if trained:
        _adapters(draft, huggingface.state_peft if source.kind == "python" else _state_model_config)
        if four is not None:
            huggingface.state_bits(draft, 4, four)
        elif eight is not None:
            huggingface.state_bits(draft, 8, eight)
    else:
        for name in ("lora_r", "lora_dropout", "use_dora"):
            if name in draft.keys:
                draft.lose(name, "there are no adapters: use_peft is off", "none")


def _state_model_config(draft: Draft) -> None:
    """State what TRL's own arguments fill in for adapters."""
    for key, name, value in (("lora.rank", "lora_r", _RANK), ("lora.dropout", "lora_dropout", _DROPOUT)):
        if draft.peek(name) is None:
            draft.default(key, value)


def _adapters(draft: Draft, state_defaults: Callable[[Draft], None]) -> None:
    default = huggingface.usual_targets(draft.peek("model_name_or_path") and draft.keys["model_name_or_path"].value)
    huggingface.state_targets(draft, draft.take("lora_target_modules"), default, "peft's choice for this family")
    saved = draft.take("lora_modules_to_save")
    if saved is not None:
        draft.state("lora.modules_to_save", draft.value(saved, listed), saved)
    state_defaults(draft)


def _length(draft: Draft, trainer: str) -> None:
    """The longest sequence; where answers are generated that of prompt and answer together."""
    found = draft.take("max_length", "max_seq_length")
    if trainer in _GENERATES:
        prompt = draft.take("max_prompt_length")
        answer = draft.peek("max_completion_length", "response_length", "max_new_tokens")
        most = draft.value(prompt, positive), draft.value(answer, positive) if answer else _COMPLETION
        if prompt is not None and isinstance(most[0], int) and isinstance(most[1], int):
            draft.state("train.seq_len", most[0] + most[1], prompt, "prompt and answer")
    context = draft.take("vllm_max_model_length") if trainer == GRPO else None
    if found is not None:
        draft.state("train.seq_len", draft.value(found, positive), found)
    elif context is not None:
        draft.state("train.seq_len", draft.value(context, positive), context, "prompt and answer")
    elif trainer not in _GENERATES and "max_length" not in draft.keys:
        draft.default("train.seq_len", _MAX_LENGTH)


def _padding(draft: Draft, trainer: str) -> None:
    """How samples are padded; generated answers as the stack has it, to the longest of those of a process."""
    packed, flat = draft.on("packing"), draft.on("padding_free")
    if packed is not None:
        draft.drop("train.padding")
        draft.state("train.padding", "packed", packed)
    elif flat is not None:
        draft.state("train.padding", "none", flat)
    if trainer not in (GRPO, PPO):
        draft.default("train.padding", "longest-in-micro-batch")


_LIGER_LOSSES = (DPO, KTO, GRPO, DISTILL)
"""Trainers that compute their loss in chunks where Liger's kernels are on (trl/trainer/dpo_trainer.py and its kin)."""


def _loss(draft: Draft, trainer: str) -> None:
    """The loss without the logits of all tokens: Liger's, or that of TRL in chunks of tokens."""
    liger = draft.on("use_liger_loss")
    if liger is not None:
        draft.state("loss", "fused", liger)
    liger = liger or draft.peek("use_liger_kernel")
    if trainer in _LIGER_LOSSES and liger is not None and is_on(liger.value):
        known = draft.fact("train.fused_kernels")
        others = known if isinstance(known, tuple) else ()
        draft.drop("train.fused_kernels")
        draft.state("train.fused_kernels", (*others, LINEAR_LOG_PROBABILITIES), liger)
    chosen = draft.peek("loss_type")
    if trainer != SFT:
        return
    word = plain(chosen.value) if chosen is not None else ""
    if word == "chunkednll":
        draft.state("loss", "fused", chosen, "in chunks of tokens")
    else:
        draft.default("loss", "fused", "in chunks of tokens")


TOOL = Tool(
    name="trl",
    title="TRL",
    reads="`trl sft` and the like in scripts, Python files that call its trainers, YAML and JSON configurations, with "
    "the accelerate and DeepSpeed files that are named beside them",
    recognises=_recognises,
    read=_read,
    table=TABLE,
    keys=_keys,
)
