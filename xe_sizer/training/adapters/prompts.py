"""Prompts that learn: as tokens before a sequence, or as keys and values of every layer.

Prompt tuning: Lester et al. 2021, arXiv:2104.08691. Prefix tuning: Li and Liang 2021, arXiv:2101.00190. Multitask
prompt
tuning: Wang et al. 2023, arXiv:2303.02861. CPT: arXiv:2410.17222. Cartridges: Eyuboglu et al. 2025, arXiv:2506.06266.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.graph.key_value_heads import cache_width
from xe_sizer.training.adapters.adapter import Trained, register
from xe_sizer.training.adapters.on_weights import learning_of

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.training.adapters.adapter import AdapterOptions

TASKS, TASK_RANKS = 1, 1  # published: tasks of a multitask prompt, and ranks of each task's part (peft's defaults)
SINK = 1  # published: first positions of a cartridge that stay as they are (peft's default)


def _kept_width(model: ModelShape) -> int:
    """Elements of the keys and values of a position in one layer [-]."""
    return round(float(cache_width(model, np.ones(1))[0]))


@register("prompt-tuning", label="Prompt tuning", settings=("p_tuning",), aliases=("prompt_tuning",))
def prompt_tuning(model: ModelShape, options: AdapterOptions) -> Trained:
    """The embeddings of virtual tokens: parameters = tokens x hidden.

    Source: peft (tuners/prompt_tuning/model.py).
    """
    tokens = options.virtual_tokens
    learning = learning_of(options, before=True)
    return Trained(learning, added_parameters=tokens * model.hidden, added_tokens=tokens)


@register("multitask-prompt-tuning", label="Multitask prompt tuning", settings=("p_tuning",))
def multitask(model: ModelShape, options: AdapterOptions) -> Trained:
    """A prompt times a low-rank matrix of each task: parameters = tokens hidden + tasks ranks (tokens + hidden).

    Source: peft (tuners/multitask_prompt_tuning/model.py).
    """
    tokens = options.virtual_tokens
    own = tokens * model.hidden + TASKS * TASK_RANKS * (tokens + model.hidden)
    return Trained(learning_of(options, before=True), added_parameters=own, added_tokens=tokens)


@register("context-prompt-tuning", label="CPT", settings=("p_tuning",))
def context(model: ModelShape, options: AdapterOptions) -> Trained:
    """What is added to the embeddings of the tokens of examples: parameters = tokens x hidden, and as many stay.

    Source: peft (tuners/cpt/model.py).
    """
    tokens = options.virtual_tokens
    size = tokens * model.hidden
    return Trained(
        learning_of(options, before=True),
        added_parameters=size,
        added_bytes=size * options.element_bytes,
        added_tokens=tokens,
    )


@register("prefix-tuning", label="Prefix tuning", settings=("p_tuning",), aliases=("prefix_tuning", "prefixtuning"))
def prefix_tuning(model: ModelShape, options: AdapterOptions) -> Trained:
    """Keys and values before those of the sequence, in every layer: parameters = tokens layers (keys + values).

        parameters = tokens hidden + (hidden + 1) encoder + (encoder + 1) layers (keys + values)      from an encoder

    Source: peft (tuners/prefix_tuning/model.py, PrefixEncoder).
    """
    tokens, kept = options.virtual_tokens, model.layers * _kept_width(model)
    own = tokens * kept
    if encoder := options.encoder_hidden:
        own = tokens * model.hidden + (model.hidden + 1) * encoder + (encoder + 1) * kept
    return Trained(learning_of(options, prefix=tokens), added_parameters=own)


@register("cartridge", label="Cartridge", settings=("p_tuning",))
def cartridge(model: ModelShape, options: AdapterOptions) -> Trained:
    """A prefix that stands for a long text, whose first position does not learn.

    Source: peft (tuners/cartridge/model.py).
    """
    tokens, each = options.virtual_tokens, model.layers * _kept_width(model)
    return Trained(
        learning_of(options, prefix=tokens),
        added_parameters=(tokens - SINK) * each,
        added_bytes=SINK * each * options.element_bytes,
    )
