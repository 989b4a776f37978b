"""Prompts that learn: as tokens before a sequence, or as keys and values of every layer.

Prompt tuning: Lester et al. 2021, arXiv:2104.08691. Prefix tuning: Li and Liang 2021, arXiv:2101.00190. Multitask
prompt
tuning: Wang et al. 2023, arXiv:2303.02861. CPT: arXiv:2410.17222. Cartridges: Eyuboglu et al. 2025, arXiv:2506.06266.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from xe_sizer.graph.attention import cache_width
from xe_sizer.graph.inputs import AdapterForm
from xe_sizer.graph.weights import layer_weights
from xe_sizer.training.adapters.adapter import Trained, register
from xe_sizer.training.adapters.low_rank import build_learning
from xe_sizer.training.adapters.vectors import norm_parameters
from xe_sizer.units import FLOAT32

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import Place, Size
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Operator
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
    learning = build_learning(options, before=True)
    return Trained(learning, added_parameters=tokens * model.hidden, added_tokens=tokens)


@register("multitask-prompt-tuning", label="Multitask prompt tuning", settings=("p_tuning",))
def multitask(model: ModelShape, options: AdapterOptions) -> Trained:
    """A prompt times a low-rank matrix of each task: parameters = tokens hidden + tasks ranks (tokens + hidden).

    Source: peft (tuners/multitask_prompt_tuning/model.py).
    """
    tokens = options.virtual_tokens
    own = tokens * model.hidden + TASKS * TASK_RANKS * (tokens + model.hidden)
    return Trained(build_learning(options, before=True), added_parameters=own, added_tokens=tokens)


@register("context-prompt-tuning", label="CPT", settings=("p_tuning",))
def context(model: ModelShape, options: AdapterOptions) -> Trained:
    """What is added to the embeddings of the tokens of examples: parameters = tokens x hidden, and as many stay.

    Source: peft (tuners/cpt/model.py).
    """
    tokens = options.virtual_tokens
    size = tokens * model.hidden
    return Trained(
        build_learning(options, before=True),
        added_parameters=size,
        added_bytes=size * options.element_bytes,
        added_tokens=tokens,
    )


@register(
    "prefix-tuning", label="Prefix tuning", settings=("p_tuning",), aliases=("prefix_tuning", "prefixtuning"), place=5
)
def prefix_tuning(model: ModelShape, options: AdapterOptions) -> Trained:
    """Keys and values before those of the sequence, in every layer: parameters = tokens layers (keys + values).

        parameters = tokens hidden + (hidden + 1) encoder + (encoder + 1) layers (keys + values)      from an encoder

    Source: peft (tuners/prefix_tuning/model.py, PrefixEncoder).
    """
    tokens, kept = options.virtual_tokens, model.layers * _kept_width(model)
    own = tokens * kept
    if encoder := options.encoder_hidden:
        own = tokens * model.hidden + (model.hidden + 1) * encoder + (encoder + 1) * kept
    return Trained(build_learning(options, prefix=tokens), added_parameters=own)


@register("cartridge", label="Cartridge", settings=("p_tuning",))
def cartridge(model: ModelShape, options: AdapterOptions) -> Trained:
    """A prefix that stands for a long text, whose first position does not learn.

    Source: peft (tuners/cartridge/model.py).
    """
    tokens, each = options.virtual_tokens, model.layers * _kept_width(model)
    return Trained(
        build_learning(options, prefix=tokens),
        added_parameters=(tokens - SINK) * each,
        added_bytes=SINK * each * options.element_bytes,
    )


# P-tuning: virtual tokens from a small prompt encoder before a frozen model (Liu et al. 2021, arXiv:2103.10385).

PERCEPTRON = 1024  # published: hidden size of NeMo's prompt encoder (bottleneck_dim of its p_tuning configuration)


@register("p-tuning", label="P-tuning", settings=("p_tuning",), usual=True, place=4)
def p_tuning(model: ModelShape, options: AdapterOptions) -> Trained:
    """An embedding of the virtual tokens and a perceptron with biases, e wide inside.

        parameters = tokens w + (w + 1) e + (e + 1) hidden                              NeMo: w = 1024
        parameters = tokens hidden + (hidden + 1) e + (e + 1) e + (e + 1) hidden        peft

    The frozen model still carries the gradient back to its input: no weight gradients, all input gradients.
    Source: NeMo's prompt encoder (embedding_dim of its p_tuning configuration); peft (tuners/p_tuning/model.py).
    """
    tokens, hidden = options.virtual_tokens, model.hidden
    if width := options.prompt_embedding:
        inside = options.encoder_hidden or PERCEPTRON
        own = tokens * width + (width + 1) * inside + (inside + 1) * hidden
    else:
        inside = options.encoder_hidden or hidden
        own = tokens * hidden + (hidden + 1) * inside + (inside + 1) * (inside + hidden)
    return Trained(build_learning(options), added_parameters=own, added_tokens=tokens)


# LLaMA-Adapter: prompts that every query of a layer attends to beside its keys (Zhang et al. 2023, arXiv:2303.16199).
#
# LitGPT's second version also scales and shifts what each projection returns, and trains the norms (arXiv:2304.15010).

PROMPTS, FIRST_LAYER = 10, 2  # published: prompts of a layer, and layers without any (LitGPT, adapter.py)
OUTPUT, HEAD = "o", "head"


class Prompted(AdapterForm, eq=True):
    """softmax(q k_p^T) v_p of `prompts`, times a gate, added: elements = prompts hidden + gates.

    share : of the layers that have it [-]; heads : whose scores are kept in float32 and cast [-]
    shifts : of what this projection returns, a scale and a shift are learnt too: elements + 2 n
    Source: LitGPT (adapter.py, CausalSelfAttention.scaled_dot_product_attention); peft
    (tuners/adaption_prompt/layer.py).
    """

    prompts: int
    gates: int
    heads: int
    share: float = 1.0
    shifts: bool = False

    reads_input = False

    def elements(self, n: Size, k: Size) -> Size:
        """Prompts and gates of an average layer [-]."""
        return self.share * (self.prompts * n + self.gates) + 2.0 * n * float(self.shifts)

    def operators(self, at: Place) -> Iterator[Operator]:
        """Scores of the prompts, their sum, and its addition; the queries and what is added are kept."""
        scores, outputs = at.tokens * self.heads * self.prompts, at.tokens * at.k * at.element_bytes
        kept = outputs + scores * (FLOAT32 + 2.0 * at.element_bytes)
        width = at.k / self.heads
        made = (
            at.product("scores", at.tokens, self.prompts, width, copies=float(self.heads), learns=False),
            at.product("values", at.tokens, width, self.prompts, copies=float(self.heads), learns=False),
            at.kernels("gate", 4.0 * outputs + 12.0 * scores, 6.0 * outputs + 16.0 * scores, (6.0, 9.0), kept, outputs),
        )
        yield from (replace(op, layers=op.layers * self.share) for op in made)
        if self.shifts:
            yield from Shifted().operators(at)


class Shifted(AdapterForm, eq=True):
    """s * (x W^T + b): elements = 2 n. The shifted output is kept for the gradient of s.

    Source: LitGPT (adapter_v2.py, AdapterV2Linear.forward).
    """

    reads_input = False

    def elements(self, n: Size, k: Size) -> Size:
        """A scale and a shift for each output [-]."""
        return 2.0 * n

    def operators(self, at: Place) -> Iterator[Operator]:
        """A sum and a product; backward, both gradients and their sums over tokens."""
        outputs = at.tokens * at.n * at.element_bytes
        yield at.kernels("shift", 4.0 * outputs, 8.0 * outputs, (2.0, 5.0), outputs, 2.0 * outputs)


@register(
    "llama-adapter", label="LLaMA-Adapter", aliases=("adapter", "adaption_prompt", "adaption-prompt", "adaptionprompt")
)
def llama_adapter(model: ModelShape, options: AdapterOptions) -> Trained:
    """Prompts in all but the first two layers, with a gate for every head."""
    return Trained(build_learning(options, adapters={OUTPUT: _prompted(model)}))


@register("llama-adapter-v2", label="LLaMA-Adapter v2", aliases=("adapter-v2", "adapter_v2"))
def llama_adapter_v2(model: ModelShape, options: AdapterOptions) -> Trained:
    """Prompts, shifts of every projection and of the head, and the norms."""
    weights = [weight for kind, _ in model.layer_kinds for weight in layer_weights(model, kind)]
    forms: dict[str, AdapterForm] = {
        weight.name: Shifted() for weight in weights if weight.kind == "linear" and weight.split != "expert"
    }
    forms[OUTPUT] = _prompted(model, shifts=True)
    added = norm_parameters(model) + 2 * model.vocab
    return Trained(build_learning(options, adapters=forms, norms=True), added_parameters=added)


def _prompted(model: ModelShape, shifts: bool = False) -> Prompted:
    share = max(model.layers - FIRST_LAYER, 1) / model.layers
    return Prompted(PROMPTS, model.heads, model.heads, share, shifts)
