"""LLaMA-Adapter: prompts that every query of a layer attends to beside its keys (Zhang et al. 2023, arXiv:2303.16199).

LitGPT's second version also scales and shifts what each projection returns, and trains the norms (arXiv:2304.15010).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen
from xe_sizer.graph.adapters import AdapterForm
from xe_sizer.graph.parameters import layer_weights
from xe_sizer.training.adapters.adapter import Trained, register
from xe_sizer.training.adapters.norms import norm_parameters
from xe_sizer.training.adapters.on_weights import learning_of
from xe_sizer.units import FLOAT32

if TYPE_CHECKING:
    from xe_sizer.graph.adapters import Place, Size
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Operator
    from xe_sizer.training.adapters.adapter import AdapterOptions

PROMPTS, FIRST_LAYER = 10, 2  # published: prompts of a layer, and layers without any (LitGPT, adapter.py)
OUTPUT, HEAD = "o", "head"


@frozen(eq=True)
class Prompted(AdapterForm):
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


@frozen(eq=True)
class Shifted(AdapterForm):
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
    return Trained(learning_of(options, adapters={OUTPUT: _prompted(model)}))


@register("llama-adapter-v2", label="LLaMA-Adapter v2", aliases=("adapter-v2", "adapter_v2"))
def llama_adapter_v2(model: ModelShape, options: AdapterOptions) -> Trained:
    """Prompts, shifts of every projection and of the head, and the norms."""
    weights = [weight for kind, _ in model.layer_kinds for weight in layer_weights(model, kind)]
    forms: dict[str, AdapterForm] = {
        weight.name: Shifted() for weight in weights if weight.kind == "linear" and weight.split != "expert"
    }
    forms[OUTPUT] = _prompted(model, shifts=True)
    added = norm_parameters(model) + 2 * model.vocab
    return Trained(learning_of(options, adapters=forms, norms=True), added_parameters=added)


def _prompted(model: ModelShape, shifts: bool = False) -> Prompted:
    share = max(model.layers - FIRST_LAYER, 1) / model.layers
    return Prompted(PROMPTS, model.heads, model.heads, share, shifts)
