"""Kinds of adapters under trace: the configuration of peft, and the keys of a scenario that say the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import peft

from tests.trace.matrix import Case

RANK = 8


@dataclass(frozen=True)
class Traced:
    """One kind of adapter.

    config : its class in peft; options : its arguments; keys : of the scenario
    ranked : both take a rank; targeted : both take the names of projections
    by_layer : what learns is counted over the layers of the published model, of which the trace has fewer
    """

    config: Callable[..., Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, Any] = field(default_factory=dict)
    ranked: bool = True
    targeted: bool = True
    by_layer: bool = False

    def of(self, case: Case) -> Any:
        """The configuration for a case."""
        targets = {"target_modules": list(case.subject.narrow_targets[0])} if self.targeted else {}
        ranks = {"r": RANK} if self.ranked else {}
        return self.config(**targets, **ranks, **self.options, task_type="CAUSAL_LM")

    def flags(self, case: Case) -> dict[str, Any]:
        """The keys of a scenario for a case."""
        targets = {"lora.targets": list(case.subject.narrow_targets[1])} if self.targeted else {}
        ranks = {"lora.rank": RANK} if self.ranked else {}
        return {"job": "sft", "adapter": case.adapter, **targets, **ranks, **self.keys}


# Left out: what picks entries by their values, so that sizes are unknown under fake tensors (FRoD, SHiRA, Uni-LoRA,
# WaveFT), and what clusters weights while it is made (AdaMSS).
PROMPT = {"num_virtual_tokens": 64}
PROMPT_KEYS = {"p_tuning.virtual_tokens": 64}
KINDS: Mapping[str, Traced] = {
    "lora": Traced(peft.LoraConfig),
    "adalora": Traced(peft.AdaLoraConfig, {"init_r": 12, "target_r": 8, "total_step": 1000}),
    "beft": Traced(peft.BeftConfig, ranked=False),
    "boft": Traced(peft.BOFTConfig, {"boft_block_size": 64}, {"lora.block_size": 64}, ranked=False),
    "fourierft": Traced(peft.FourierFTConfig, {"n_frequency": 1000}, ranked=False),
    "hira": Traced(peft.HiraConfig),
    "hra": Traced(peft.HRAConfig),
    "ia3": Traced(peft.IA3Config, {"feedforward_modules": []}, ranked=False),
    "loha": Traced(peft.LoHaConfig),
    "lokr": Traced(peft.LoKrConfig),
    "oft": Traced(peft.OFTConfig, {"oft_block_size": 32}, ranked=False),
    "pvera": Traced(peft.PveraConfig),
    "randlora": Traced(peft.RandLoraConfig),
    "dora": Traced(peft.LoraConfig, {"use_dora": True}),
    "ln-tuning": Traced(
        peft.LNTuningConfig,
        {"target_modules": ["input_layernorm", "post_attention_layernorm", "norm"]},
        ranked=False,
        targeted=False,
        by_layer=True,
    ),
    "prefix-tuning": Traced(peft.PrefixTuningConfig, PROMPT, PROMPT_KEYS, False, False, True),
    "cartridge": Traced(peft.CartridgeConfig, PROMPT, PROMPT_KEYS, False, False, True),
    "prompt-tuning": Traced(peft.PromptTuningConfig, PROMPT, PROMPT_KEYS, ranked=False, targeted=False),
    "trainable-tokens": Traced(
        peft.TrainableTokensConfig,
        {"token_indices": [1, 2]},
        {"p_tuning.virtual_tokens": 2},
        ranked=False,
        targeted=False,
    ),
    "c3a": Traced(peft.C3AConfig, {"block_size": 256}, ranked=False),
    "deft": Traced(peft.DeftConfig),
    "delora": Traced(peft.DeloraConfig),
    "glora": Traced(peft.GloraConfig),
    "gralora": Traced(peft.GraloraConfig),
    "lily": Traced(peft.LilyConfig),
    "miss": Traced(peft.MissConfig),
    "osf": Traced(peft.OSFConfig, ranked=False),
    "peanut": Traced(peft.PeanutConfig),
    "psoft": Traced(peft.PsoftConfig),
    "road": Traced(peft.RoadConfig, ranked=False),
    "supertuning": Traced(peft.SupertuningConfig, ranked=False),
    "tinylora": Traced(peft.TinyLoraConfig),
    "vblora": Traced(peft.VBLoRAConfig),
    "vera": Traced(peft.VeraConfig),
}
