"""Kernels of losses: what each moves, launches and keeps. Adding a kernel is one row.

Next to the cross-entropies of `LOSSES` stand the ways in which preference jobs get the log-probabilities of the answers
that they compare, and those in which distillation compares all logits with a teacher's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

LIKELIHOOD_BYTES = 2.0  # traced: of a cross-entropy of half the sequences beside the log-probabilities of all [bytes]


class Loss(NamedTuple):
    """One kernel of a loss; bytes are per logit.

    forward_bytes, backward_bytes : read and written [bytes]
    forward_launches, backward_launches : kernels started [-]
    kept_bytes : of the logits when the forward is done [bytes]
    live_bytes : alive together when the loss turns into its gradient [bytes]
    gathers : works on the logits of all tensor-parallel ranks, not on the rank's share of the vocabulary
    as_given : works in the type of the logits; bytes are those of 16-bit ones
    frozen_bytes : alive together when a pass of the same sequences through frozen weights ends, its own logits among
        them [bytes]; 0: no such pass takes place while the model's logits are there
    answers_bytes : the same where answers come one by one, and mismatched ones pass as well [bytes]
    divided_bytes : alive together where the logits were divided where they stand, if that is more [bytes]
    narrow : name of the kernel in its place where a model's class hands its logits over as they are; None: itself
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
    frozen_bytes: float = 0.0
    narrow: str | None = None
    answers_bytes: float = 0.0
    divided_bytes: float = 0.0

    def of_narrow(self, narrow: bool) -> Loss:
        """The kernel that runs in its place.

            kernel = the one named `narrow`, where logits are handed over as they are

        Parameters
        ----------
        narrow : whether the model's class does so [-]

        Returns
        -------
        Loss, bytes per logit [bytes]

        Source: transformers: ForCausalLMLoss widens logits, BertForMaskedLM and T5ForConditionalGeneration do not.
        """
        return LOSSES[self.narrow] if narrow and self.narrow else self

    def beside_frozen(self) -> Loss:
        """The kernel of a job whose sequences pass through frozen weights between forward and backward.

            live = max(live, frozen)

        Returns
        -------
        Loss, bytes per logit [bytes]

        Source: traced; the reference's or the teacher's logits stand beside what the backward needs.
        """
        return self._replace(live_bytes=max(self.live_bytes, self.frozen_bytes))

    def with_likelihood(self) -> Loss:
        """The kernel beside a cross-entropy of half the sequences, the chosen answers.

            bytes = those of the kernel + half of a float32 cross-entropy's
            kept = 1.5 x kept
            live = live + LIKELIHOOD_BYTES

        Returns
        -------
        Loss, bytes per logit [bytes]

        Source: TRL's ORPOTrainer, whose chosen logits are copied (read 4, write 4), and log-softmaxed (8) beside the
        log-probabilities; the backward is that of the kernel `eager` and an addition (12); traced.
        """
        return self._replace(
            forward_bytes=self.forward_bytes + 8.0,
            backward_bytes=self.backward_bytes + 17.0,
            forward_launches=self.forward_launches + 3.0,
            backward_launches=self.backward_launches + 5.0,
            kept_bytes=1.5 * self.kept_bytes,
            live_bytes=self.live_bytes + LIKELIHOOD_BYTES,
        )

    def of_single_answers(self) -> Loss:
        """The kernel where answers come one by one, beside a mismatched one for each.

            frozen = answers

        Returns
        -------
        Loss, bytes per logit [bytes]

        Source: TRL's KTOTrainer.forward (index_select of completion_logits); traced.
        """
        return self._replace(frozen_bytes=self.answers_bytes)

    def of_policy(self) -> Loss:
        """The kernel of a policy's step, whose logits are divided by the temperature where they stand.

            live = max(live, divided)

        Returns
        -------
        Loss, bytes per logit [bytes]

        Source: TRL's GRPOTrainer (logits.div_): autograd copies the gradient of a tensor of which a slice was written
        in place; traced.
        """
        return self._replace(live_bytes=max(self.live_bytes, self.divided_bytes))

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
        sizes = ("forward_bytes", "backward_bytes", "kept_bytes", "live_bytes", "frozen_bytes")
        return self._replace(**{name: getattr(self, name) * width for name in sizes})


# Megatron-LM's, which `Kernels` takes unless told otherwise.
VOCABULARY_PARALLEL = Loss("vocab-parallel", 14.0, 10.0, 6.0, 5.0, kept_bytes=4.0, live_bytes=6.0)
_ROWS = (
    # Cast to float32, log-softmax, their gradients and the cast back: log-probabilities are kept in float32; with them
    # live the gradients before and after the log-softmax.
    Loss("eager", 14.0, 22.0, 6.0, 5.0, kept_bytes=4.0, live_bytes=12.0, narrow="no-upcast"),
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
    # The same beside a float32 copy of the logits that the model returns, until the loss is there (accelerate
    # utils/operations.py, convert_outputs_to_fp32).
    Loss("flash-returned", 12.0, 4.0, 3.0, 2.0, kept_bytes=2.0, live_bytes=6.0),
    # Eager on the logits of all ranks, beside their 16-bit shards, the gathered copy and a float32 one (Aleph Alpha's
    # scaling).
    Loss("gathered", 14.0, 22.0, 6.0, 5.0, kept_bytes=10.0, live_bytes=20.0, gathers=True),
    # Chunks of an eighth of the tokens in float32, the head's product among them (Liger-Kernel's fused linear
    # cross-entropy).
    Loss("fused", 6.0, 4.0, 2.0, 2.0, kept_bytes=0.0, live_bytes=0.5),
)
_LOG_PROBABILITIES = (
    # The label's logit less the log of the sum of exponentials, a sequence at a time, of a float32 copy without the
    # last token; the copy is kept. With it live the gradient of each of both terms, and zeros for the label's. A pass
    # through frozen weights has such a copy of its own, and both have the float32 logits that they were made of
    # (selective_log_softmax of TRL since 0.14).
    Loss("selected", 38.0, 74.0, 10.0, 16.0, kept_bytes=4.0, live_bytes=16.0, frozen_bytes=16.0, answers_bytes=16.0),
    # The same on 16-bit logits: a log-softmax of each sequence, which is kept; those of the frozen pass stand beside
    # the logits of both and their copies, and one log-softmax of the frozen ones.
    Loss(
        "selected-16-bit",
        8.0,
        20.0,
        8.0,
        12.0,
        kept_bytes=2.0,
        live_bytes=4.0,
        frozen_bytes=10.5,
        answers_bytes=8.0,
        divided_bytes=8.0,
    ),
    # A float32 log-softmax of all, from which the labels' are picked: it is kept. With it live zeros with the labels'
    # gradient, and a second tensor of theirs. Logits live until the loss is there, for its metrics (LLaMA-Factory; TRL
    # up to 0.9).
    Loss("log-softmax", 14.0, 42.0, 6.0, 8.0, kept_bytes=4.0, live_bytes=12.0, frozen_bytes=16.0, answers_bytes=16.0),
    # The same, logits freed before the frozen pass (torchtune; TRL 0.12).
    Loss(
        "log-softmax-freed",
        14.0,
        42.0,
        6.0,
        8.0,
        kept_bytes=4.0,
        live_bytes=12.0,
        frozen_bytes=12.0,
        answers_bytes=16.0,
    ),
    # The same where logits of the model, the reference and mismatched answers live as long as the backward, in whose
    # function they are (ColossalChat coati/trainer/dpo.py and kto.py; traced).
    Loss(
        "log-softmax-held", 14.0, 42.0, 6.0, 8.0, kept_bytes=8.0, live_bytes=16.0, frozen_bytes=20.0, answers_bytes=28.0
    ),
    # On the rank's share of the vocabulary: a float32 softmax is kept; its gradient comes from one-hot labels as 64-bit
    # integers and their product with the mask. The reference passed before the step (NeMo-Aligner
    # utils/distributed.py, DistributedLogprob).
    Loss("one-hot", 46.0, 70.0, 10.0, 9.0, kept_bytes=4.0, live_bytes=20.0),
    # Of 16-bit logits, which are divided by the temperature where they stand, read once, and give their place to the
    # gradient (flash-attn's cross-entropy in verl utils/torch_functional.py, logprobs_from_logits). A frozen pass
    # takes place in a phase of its own.
    Loss("flash-16-bit", 6.0, 4.0, 2.0, 1.0, kept_bytes=2.0, live_bytes=2.0),
    # Of a float32 copy, which stays beside its gradient (the same kernel in OpenRLHF models/utils.py,
    # log_probs_from_logits; models/actor.py widens the logits).
    Loss("flash-32-bit", 10.0, 14.0, 2.0, 2.0, kept_bytes=4.0, live_bytes=8.0),
)
LOG_PROBABILITIES: Mapping[str, Loss] = {loss.name: loss for loss in _LOG_PROBABILITIES}
"""Ways to the log-probabilities of labels, for jobs that compare answers."""
_DIVERGENCES = (
    # The generalised Jensen-Shannon divergence: both logits over a temperature, both log-softmaxes, their mixture from
    # a stack of both, two divergences from it (GKDTrainer of TRL); in the type of the logits.
    Loss("jensen-shannon", 95.0, 120.0, 30.0, 40.0, kept_bytes=14.0, live_bytes=34.0, as_given=True),
    # The forward divergence beside the cross-entropy: the teacher's softmax, the student's log-softmax, their product,
    # a mask; float32 (torchtune's ForwardKLLoss, ModelOpt's LogitsKLLoss).
    Loss("forward-kl", 66.0, 70.0, 16.0, 16.0, kept_bytes=13.0, live_bytes=25.0),
)
DIVERGENCES: Mapping[str, Loss] = {loss.name: loss for loss in _DIVERGENCES}
"""Ways to compare all logits with a teacher's; what the teacher's take is among their bytes."""
WIDENED = Loss("widened", 6.0, 0.0, 1.0, 0.0, kept_bytes=0.0, live_bytes=0.0)
"""Logits that another kernel reads, in float32."""
LOSSES: Mapping[str, Loss] = {loss.name: loss for loss in _ROWS}
LEAST_MEMORY = min(_ROWS, key=lambda loss: loss.live_bytes)


def loss_names() -> tuple[str, ...]:
    """Names that scenarios and stacks may use."""
    return tuple(LOSSES)


def log_probability_names() -> tuple[str, ...]:
    """Names that stacks may use."""
    return tuple(LOG_PROBABILITIES)


def divergence_names() -> tuple[str, ...]:
    """Names that stacks may use."""
    return tuple(DIVERGENCES)
