"""Cross-entropy kernels: what each moves, launches and keeps. Adding a kernel is one row of `LOSSES`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Loss(NamedTuple):
    """One cross-entropy kernel; bytes are per logit.

    forward_bytes, backward_bytes : read and written [bytes]
    forward_launches, backward_launches : kernels started [-]
    kept_bytes : of the logits when the forward is done [bytes]
    live_bytes : alive together when the loss turns into its gradient [bytes]
    gathers : works on the logits of all tensor-parallel ranks, not on the rank's share of the vocabulary
    as_given : works in the type of the logits; bytes are those of 16-bit ones
    """

    name: str
    forward_bytes: float
    backward_bytes: float
    forward_launches: float
    backward_launches: float
    kept_bytes: float
    live_bytes: float
    gathers: bool = False
    as_given: bool = False

    def on(self, width: float) -> Loss:
        """The kernel on logits of a type.

            bytes = those of 16-bit logits x width      where it works in their type

        Parameters
        ----------
        width : size of a logit over that of a 16-bit one [-]

        Returns
        -------
        Loss, bytes per logit [bytes]

        Source: torch.nn.functional.cross_entropy keeps the type of its input.
        """
        if not self.as_given:
            return self
        sizes = ("forward_bytes", "backward_bytes", "kept_bytes", "live_bytes")
        return self._replace(**{name: getattr(self, name) * width for name in sizes})


# Megatron-LM's, which `Kernels` takes unless told otherwise.
VOCABULARY_PARALLEL = Loss("vocab-parallel", 14.0, 10.0, 6.0, 5.0, kept_bytes=4.0, live_bytes=6.0)
_ROWS = (
    # Cast to float32, log-softmax, their gradients and the cast back: log-probabilities are kept in float32; with them
    # live the gradients before and after the log-softmax.
    Loss("eager", 14.0, 22.0, 6.0, 5.0, kept_bytes=4.0, live_bytes=12.0),
    # PyTorch's cross-entropy on the logits as they are, shifted by a copy: log-probabilities are kept; with them live
    # the gradients before and after the log-softmax.
    Loss("no-upcast", 8.0, 14.0, 4.0, 5.0, kept_bytes=2.0, live_bytes=6.0, as_given=True),
    # Float32, rewritten where it stands, and the 16-bit gradient (Megatron-LM).
    VOCABULARY_PARALLEL,
    # The same in a Triton kernel beside the 16-bit logits that the model has returned (fms-acceleration; its published
    # peaks).
    Loss("in-place", 14.0, 10.0, 2.0, 2.0, kept_bytes=6.0, live_bytes=8.0),
    # The logits are read and rewritten once: the gradient takes the place of the 16-bit logits (flash-attn's
    # cross-entropy).
    Loss("flash", 6.0, 4.0, 2.0, 2.0, kept_bytes=2.0, live_bytes=2.0),
    # Eager on the logits of all ranks, beside their 16-bit shards, the gathered copy and a float32 one (Aleph Alpha's
    # scaling).
    Loss("gathered", 14.0, 22.0, 6.0, 5.0, kept_bytes=10.0, live_bytes=20.0, gathers=True),
    # Chunks of an eighth of the tokens in float32, the head's product among them (Liger-Kernel's fused linear
    # cross-entropy).
    Loss("fused", 6.0, 4.0, 2.0, 2.0, kept_bytes=0.0, live_bytes=0.5),
)
LOSSES: Mapping[str, Loss] = {loss.name: loss for loss in _ROWS}
LEAST_MEMORY = min(_ROWS, key=lambda loss: loss.live_bytes)


def loss_names() -> tuple[str, ...]:
    """Names that scenarios and stacks may use."""
    return tuple(LOSSES)
