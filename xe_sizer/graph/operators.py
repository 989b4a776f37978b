"""Operators of one rank and one micro-batch: sizes and bytes, no seconds; and the kernels of losses.

Every size is a numpy array that broadcasts over layouts, so that one graph describes one layout or a million.
`layers` says how many of the model's layers contain the operator (a model may mix dense and expert layers).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xe_sizer.immutable import Immutable

if TYPE_CHECKING:
    from collections.abc import Sequence

# Orders in which a pipeline runs its passes, by their names in scenarios and stacks.

PipelineSchedule = Literal[
    "1f1b", "1f1b-interleaved", "gpipe", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "dualpipe", "dualpipe-v"
]


# Losses: what each kernel moves, launches and keeps. A kernel is one row.
#
# Beside the cross-entropies (`LOSSES`) stand the ways in which preference jobs get log-probabilities of their answers
# (`LOG_PROBABILITIES`), and those in which distillation compares logits with a teacher's (`DIVERGENCES`).

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
    waiting_bytes : of these what is there when such a pass begins [bytes]; 0: half of them
    answers_bytes : the same where answers come one by one, and mismatched ones pass as well [bytes]
    divided_bytes : alive together where the logits were divided where they stand, if that is more [bytes]
    caps : computes the tanh of capped logits itself, and keeps no result of it
    sequences, tokens : of a chunk, where logits are made, compared and turned into gradients chunk by chunk, the head's
        product among them; its bytes are per logit of a chunk, and the gradient of the head's weight is summed beside
        [-]; 0: all at once
    words : of a chunk, where the vocabulary is cut too [-]; 0: it is not
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
    waiting_bytes: float = 0.0
    caps: bool = False
    sequences: int = 0
    tokens: int = 0
    words: int = 0

    def chunks(self, sequences: ArrayLike, tokens: ArrayLike) -> Array:
        """Chunks of a micro-batch, shape that sequences and tokens broadcast to [-].

            chunks = max(floor(sequences / of a chunk), 1)    or ceil(tokens / of a chunk);    1 all at once

        Parameters
        ----------
        sequences, tokens : of a micro-batch on a rank [-]

        Returns
        -------
        ndarray of float, shape that sequences and tokens broadcast to [-]

        Source: Liger-Kernel chunked_loss/fused_linear_preference.py (CHUNK_SIZE pairs), fused_linear_distillation.py.
        """
        count, size = np.broadcast_arrays(as_array(sequences), as_array(tokens))
        if self.tokens:
            return np.asarray(np.maximum(np.ceil(size / self.tokens), 1.0))
        return np.asarray(np.maximum(np.floor(count / self.sequences), 1.0)) if self.sequences else np.ones(count.shape)

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
        if self.sequences:  # the log-softmax of a chunk serves both
            return self
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
        alone = min(self.sequences, 1)
        return self._replace(frozen_bytes=self.answers_bytes, waiting_bytes=0.0, sequences=alone)

    def of_policy(self) -> Loss:
        """The kernel of a policy's step, whose logits are divided by the temperature where they stand.

            live = max(live, divided)

        Returns
        -------
        Loss, bytes per logit [bytes]

        Source: TRL's GRPOTrainer (logits.div_): autograd copies the gradient of a tensor of which a slice was written
        in place; traced. In place of chunks of pairs the logits are streamed; passes without a backward make all (TRL's
        _get_per_token_logps_and_entropies).
        """
        if self.sequences:
            frozen_bytes = LOG_PROBABILITIES["selected-16-bit"].frozen_bytes
            return LOG_PROBABILITIES["streamed"]._replace(frozen_bytes=frozen_bytes)
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
        sizes = ("forward_bytes", "backward_bytes", "kept_bytes", "live_bytes", "frozen_bytes", "waiting_bytes")
        return self._replace(**{name: getattr(self, name) * width for name in sizes})


# Megatron-LM's, which `Kernels` takes unless told otherwise.
VOCABULARY_PARALLEL = Loss("vocab-parallel", 14.0, 10.0, 6.0, 5.0, kept_bytes=4.0, live_bytes=6.0)
_ROWS = (
    # Cast to float32, log-softmax, their gradients and the cast back: log-probabilities are kept in float32; with them
    # live the gradients before and after the log-softmax.
    Loss("eager", 14.0, 22.0, 6.0, 5.0, kept_bytes=4.0, live_bytes=12.0, narrow="no-upcast"),
    # The same beside the 16-bit logits, where a trainer holds what the model has returned while the backward runs
    # (`out` in _forward_backward_step of NeMo AutoModel; torchtitan and torchtune let go of theirs); traced.
    Loss("eager-returned", 14.0, 22.0, 6.0, 5.0, kept_bytes=6.0, live_bytes=14.0, narrow="no-upcast"),
    # PyTorch's cross-entropy on the logits as they are, shifted by a copy: log-probabilities are kept; with them live
    # the gradients before and after the log-softmax.
    Loss("no-upcast", 8.0, 14.0, 4.0, 5.0, kept_bytes=2.0, live_bytes=6.0, as_given=True),
    # Float32, rewritten where it stands, and the 16-bit gradient (Megatron-LM).
    VOCABULARY_PARALLEL,
    # The same compiled (--cross-entropy-loss-fusion with Megatron-LM's own kernels): the exponentials are a tensor of
    # their own beside the float32 logits and the 16-bit ones (core/fusions/fused_cross_entropy.py; peaks of its
    # functional tests).
    Loss("vocab-parallel-compiled", 12.0, 6.0, 3.0, 1.0, kept_bytes=4.0, live_bytes=10.0),
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
    # XLA fuses what lies between the head's product and those of its gradient: the 16-bit logits are read for their
    # maximum and for the sum of exponentials, and once more for the gradient, which is a tensor of its own. The float32
    # copy of cast_logits_to_fp32 and the one-hot labels are none (MaxText utils/max_utils.py,
    # cross_entropy_with_logits).
    Loss("xla", 4.0, 4.0, 2.0, 1.0, kept_bytes=2.0, live_bytes=4.0, caps=True),
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
        waiting_bytes=6.0,
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
    # A pair after the other, forward and backward at once, compiled: 16-bit logits (of the reference too, which are
    # gone before the last), the float32 gradient of what was picked, and the 16-bit one of the logits (Liger-Kernel's
    # chunked_loss; buffers of the code that torch.compile of PyTorch 2.13 writes).
    Loss("chunked", 18.0, 0.0, 8.0, 0.0, kept_bytes=0.0, live_bytes=8.0, sequences=2),
    # 2,048 tokens with 4,096 words after the other, in eager PyTorch, and again in the backward: float32 logits, their
    # shares and gradient, each with the one before it (Liger-Kernel chunked_loss/fused_linear_ppo.py since 0.8, whose
    # loss of policies took an answer at a time before; measured as the allocator has it).
    Loss("streamed", 44.0, 56.0, 12.0, 12.0, kept_bytes=0.0, live_bytes=20.0, tokens=2048, words=4096),
    # 512 tokens after the other in eager PyTorch, whose logits the backward makes again: with a 16-bit gradient live
    # float32 logits, softmax, labels as one-hot and two steps of the gradient; without a backward float32 logits,
    # softmax and log-softmax (FusedLinearForPPO of verl utils/experimental/torch_functional.py; traced).
    Loss("chunked-512", 46.0, 60.0, 16.0, 14.0, kept_bytes=0.0, live_bytes=20.0, frozen_bytes=12.0, tokens=512),
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
    # The first, 1,024 tokens after the other, compiled: both 16-bit logits, the float32 stack of both and what comes of
    # it (Liger-Kernel's LigerFusedLinearJSDLoss; as of `chunked`).
    Loss("chunked-jensen-shannon", 36.0, 0.0, 10.0, 0.0, kept_bytes=0.0, live_bytes=16.0, tokens=1024),
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


# Operators: products, attention, scans, memory-bound kernels, collectives.

Array = NDArray[np.float64]
ContextKind = Literal["all-gather", "ring", "ulysses", "hybrid"]
CONTEXT_KINDS: tuple[ContextKind, ...] = get_args(ContextKind)
IntArray = NDArray[np.int64]


def as_array(value: ArrayLike) -> Array:
    """Return the value as an array of float64; a number becomes an array without dimensions."""
    return np.asarray(value, dtype=np.float64)


def attended_positions(query: ArrayLike, key: ArrayLike, window: ArrayLike | None = None) -> Array:
    """Query-key pairs per head and sample under a causal mask, or under a sliding window.

        pairs = q (k - (q - 1) / 2)                                     causal: s (s + 1) / 2 for q = k = s
        pairs = q w - u (u - 1) / 2,  u = min(max(w - (k - q), 0), q)    window: every query sees at most w < k keys

    Parameters
    ----------
    query : q, queries of a sequence, the last of its tokens [-]
    key : k, keys of it, cached ones included [-]
    window : w, tokens that a query sees at most; None: all [-]

    Returns
    -------
    ndarray of float, shape that query and key broadcast to [-]

    Source: own derivation, counting what the mask leaves; u are the queries that see fewer than w keys.
    """
    q = np.asarray(query, dtype=np.float64)
    k = np.asarray(key, dtype=np.float64)
    if window is None:
        return np.asarray(q * (k - (q - 1.0) / 2.0))
    w = np.minimum(np.asarray(window, dtype=np.float64), k)
    unmasked_prefix = np.clip(w - (k - q), 0.0, q)
    return np.asarray(q * w - unmasked_prefix * (unmasked_prefix - 1.0) / 2.0)


class RankShape(Immutable):
    """What one rank sees of one micro-batch.

    batch : sequences of the micro-batch [-]
    sequence : tokens of one sequence before context parallelism cuts it [-]
    tp, cp, ep : tensor, context and expert parallel sizes [-]
    expert_tp : tensor-parallel size of each expert: tp, part of it, or 1 where tensor ranks hold whole experts [-]
    sequence_parallel : 1 where norms and residuals are sharded over the tensor-parallel ranks, else 0
    head_ranks : ranks of a context group that hold whole sequences of a part of the heads [-]; the others hold parts of
        the sequences
    past : tokens of each sequence whose keys and values are cached already [-]; 0 in training
    """

    batch: Array
    sequence: Array
    tp: Array
    cp: Array
    ep: Array
    expert_tp: Array
    sequence_parallel: Array
    past: Array | float = 0.0
    head_ranks: Array | float = 1.0

    @cached_property
    def ring_ranks(self) -> Array:
        """Ranks of a context group that hold different parts of the same sequences and heads."""
        return np.asarray(self.cp / self.head_ranks)

    @cached_property
    def keys(self) -> Array:
        """Keys that the last query of a sequence may attend to."""
        return self.sequence + self.past

    @cached_property
    def ones(self) -> Array:
        return np.ones_like(self.tp)

    @cached_property
    def tokens(self) -> Array:
        return self.batch * self.sequence / self.cp

    @cached_property
    def resident_tokens(self) -> Array:
        """Tokens whose hidden state the rank holds between the tensor-parallel regions."""
        return self.tokens / np.where(self.sequence_parallel > 0, self.tp, 1.0)


def attention_groups(rank: RankShape) -> Array:
    """Groups of tensor ranks that attend to sequences of their own and share the experts.

        groups = max(expert_tp ep / tp, 1)

    Parameters
    ----------
    rank : of shape (rank shape,) [-]

    Returns
    -------
    ndarray of float, shape (rank shape,) [-]

    Source: own derivation: experts are spread over all ranks of all groups.
    """
    return np.maximum(rank.expert_tp * rank.ep / rank.tp, 1.0)


def group_sizes(rank: RankShape) -> dict[str, Array]:
    """Ranks of each parallel group that exchanges something inside the layers.

        dp = attention_groups

    Parameters
    ----------
    rank : of shape (rank shape,) [-]

    Returns
    -------
    dict of the groups of `Collective`, shape (rank shape,) [-]

    Source: definition.
    """
    return {
        "tp": rank.tp, "cp": rank.ring_ranks, "ep": rank.ep, "dp": attention_groups(rank), "etp": rank.expert_tp,
        "heads": np.asarray(rank.head_ranks * rank.ones),
    }  # fmt: skip


class Kernels(Immutable):
    """Which kernels a stack runs; `eager` means one kernel per arithmetic step.

    norm, rotary, activation : fused or eager; an activation may be native: PyTorch's own kernel, its gate apart;
        rotary in-attention: the attention kernel turns queries and keys itself
    residual : apart, or in-norm: the next norm's kernel adds it
    attention : flash, sdpa or eager; decode: a few queries on a long cache, one kernel split over the keys
    cache : none; paged: one kernel writes the new keys and values in place; in-attention: the attention kernel
        does; concatenated: every layer copies its whole cache to make room (DynamicCache of transformers)
    loss : the cross-entropy, see `Loss`
    fused_qkv, fused_gate_up : one matrix product instead of three or two
    repeats_kv : keys and values are copied to the number of query heads before attention
    softmax : of eager attention: float32 (kept so, and cast) or fused (kept in the compute type)
    dropout : masks are drawn where the model has dropout
    mixer : fused: convolution, scan and gate of a state-space layer read what the projection returned; copied: each of
        its parts is copied out and turned around first
    accumulation : of gradients over micro-batches: apart, or fused: the product of a weight gradient adds to them
    routing : eager, or fused: choosing, sorting and summing up in three kernels
    combine : weighted: what experts return is multiplied by their shares and kept for these; summed: the activation has
        been multiplied by them, and nothing is kept
    activation_input : of experts and MLPs, what autograd keeps for the activation: wide, as it is; narrow, as products
        in 8 bit keep their inputs
    dispatch : per-expert: a token goes to every expert that it picked; per-place: once to each node and rank that
        holds some of them, and on from there; to-all: all tokens go to all ranks, which sum up what theirs say
    context : what ranks that share sequences exchange: all-gather: keys and values, before attention; ring: the same,
        block after block behind attention; ulysses: parts of the sequences for heads; hybrid: ulysses among as many
        ranks as keys and values have heads, a ring of such groups
    split_experts : gather-tokens: ranks that split an expert give each other all tokens, and each sends them on;
        gather-copies: a token goes to one of them, and they gather what has come
    expert_input : permuted: rows that are gathered by expert before the product; indexed: those of the tokens, which
        the kernel reads by their index, and which are cast once for all experts of a token
    experts : grouped: one kernel for all experts of a product; products: one for each, side by side; in-turn: one for
        each after the other, on tokens sorted before; loop: one expert after the other, as the model's reference
        implementation does; loop-all: so, those that no token picked too; unsplit: grouped, but for models whose
        implementation splits sorted tokens, whose loop nothing replaces
    expert_imbalance : the busiest rank's load over the mean, however experts are spread [-]
    expert_spread : standard deviation of the loads of experts over their mean [-]
    expert_skew : tokens of the busiest rank over their mean, where they are known [-]
    redundant_experts : copies of busy experts beside those of the model, which are placed by their load; None: experts
        lie in their order
    dispatched_bytes : of an element that goes to an expert; None: as activations [bytes]
    exchange_start_s : of a kernel that sends tokens to experts or back; None: as the laws of collectives have it [s]
    expert_capacity : tokens that an expert takes at most over the mean [-]; inf: all
    pads_experts : the tokens of every expert are padded to that
    padded_routing : how tokens get to padded experts and back: by rows, or by products with masks
    expert_tile : rows that grouped products compute at once
    expert_side : rows and columns of an expert's weight that they take of a longer side; 0: sizes that divide it
    expert_starts : where an expert's rows begin: at a tile, half of which is wasted on average; or anywhere, so that
        the tile in which one expert's rows end and the next one's begin is computed for both
    reserved_below : ranks that split an expert, below which grouped products run over as many rows as could be needed
        wherever tokens go, `expert_tile` - 1 for each of the rank's experts beside its tokens; 0: never
    reserved_gated : so they do for sizes alone that their kernel is good at
    fused_scans : kinds of mixer whose chunked scan is one kernel
    sparse_masked, sparse_dense : kinds of sparse attention that run with a mask over all pairs, or attend to all tokens
        and leave the indexer out
    sparse_heads : of a rank, to which kernels pad in which each query picks its keys from a cache, and they work on as
        many keys as a query may pick; 0: neither
    block_rate : share of the accelerator's FLOP rate that kernels reach in which queries pick blocks of a cache; 0: as
        other attention
    attention_mask : of sdpa: none, as the kernel knows windows and labels hide padding; padded: where sequences of a
        micro-batch are padded, or longer than a window; always
    windows : layers with a sliding window keep and read no more than it; else all tokens
    selective : what selective recomputation runs again, see `graph.recompute`: attention (its core), alternate (every
        other matrix product and all that only moves memory, but not the attention core), or names of modules
    kept, hosted : of a layer that runs again, tensors by name that stay for its backward on the card, or in host
        memory; both None: what `selective` says
    predicted : of a model of masked tokens, what the head works on: all tokens, or those that are masked
    gathered_inputs : with sequence parallelism, products that are split by columns keep their input whole
    mlp : whole; tiled: slices of the tokens one after the other, each once more in the backward
    adapters : modules beside the projections; in-place: in one function with projections that read the same, and with
        all of the MLP, which writes gradients over what it has read
    """

    norm: Literal["fused", "eager"] = "fused"
    rotary: Literal["fused", "eager", "in-attention"] = "fused"
    activation: Literal["fused", "native", "eager"] = "fused"
    attention: Literal["flash", "sdpa", "eager", "decode"] = "flash"
    loss: Loss = VOCABULARY_PARALLEL
    fused_qkv: bool = True
    fused_gate_up: bool = True
    repeats_kv: bool = False
    softmax: Literal["float32", "fused"] = "float32"
    dropout: bool = False
    expert_imbalance: float = 1.0
    expert_spread: float = 0.0
    expert_skew: float | None = None
    redundant_experts: int | None = None
    dispatched_bytes: float | None = None
    exchange_start_s: float | None = None
    expert_capacity: float = np.inf
    pads_experts: bool = False
    padded_routing: Literal["rows", "products"] = "rows"
    selective: str | tuple[str, ...] = "attention"
    kept: tuple[str, ...] | None = None
    hosted: tuple[str, ...] | None = None
    mlp: Literal["whole", "tiled"] = "whole"
    adapters: Literal["modules", "in-place"] = "modules"
    predicted: Literal["all", "masked"] = "all"
    gathered_inputs: bool = False
    residual: Literal["apart", "in-norm"] = "apart"
    cache: Literal["none", "paged", "concatenated", "in-attention"] = "none"
    mixer: Literal["fused", "copied"] = "fused"
    accumulation: Literal["apart", "fused"] = "apart"
    routing: Literal["eager", "fused"] = "eager"
    combine: Literal["weighted", "summed"] = "weighted"
    activation_input: Literal["wide", "narrow"] = "wide"
    dispatch: Literal["per-expert", "per-place", "to-all"] = "per-expert"
    expert_input: Literal["permuted", "indexed"] = "permuted"
    context: ContextKind = "all-gather"
    split_experts: Literal["gather-tokens", "gather-copies"] = "gather-tokens"
    experts: Literal["grouped", "products", "in-turn", "unsplit", "loop", "loop-all"] = "grouped"
    attention_mask: Literal["none", "padded", "always"] = "none"
    expert_tile: float = 0.0
    expert_side: float = 0.0
    expert_starts: Literal["at-tiles", "anywhere"] = "at-tiles"
    reserved_below: float = 0.0
    reserved_gated: bool = False
    fused_scans: tuple[str, ...] = ()
    sparse_masked: tuple[str, ...] = ()
    sparse_dense: tuple[str, ...] = ()
    sparse_heads: float = 0.0
    block_rate: float = 0.0
    windows: bool = True
    stops_early: bool = False
    pads_vocabulary: bool = True

    @property
    def masks_experts(self) -> bool:
        """Whether tokens are multiplied with masks; products of experts are then batched, all of as many rows."""
        return self.pads_experts and self.padded_routing == "products"

    @classmethod
    def chosen(cls, choice: object, **further: Any) -> Kernels:
        """The kernels that a stack or an engine names, field by field; `further` fields over them."""
        named = {one: getattr(choice, one) for one in cls.__struct_fields__ if hasattr(choice, one)}
        return cls(**named | further)


class Lifetime(Immutable, kw_only=True):
    """What of an operator lives beside its saved tensors, and what recomputation changes.

    `forward_temporary_bytes` is what lives while its forward runs, beside all that is kept by then.
    Of selective recomputation: `again` is the share of its forward that runs again, `dropped_bytes` what of the saved
    is not kept on the card for it, `hosted_bytes` what waits in host memory. `unneeded` where whole layers that run
    again stop before it.
    """

    again: float = 0.0
    unneeded: bool = False
    dropped_bytes: Array | float = 0.0
    hosted_bytes: Array | float = 0.0
    forward_temporary_bytes: Array | float = 0.0


class Operator(Lifetime):
    """What all operators share. `saved_bytes` is what autograd keeps of one layer until its backward."""

    name: str
    module: str
    layers: float
    saved_bytes: Array


class Matmul(Operator):
    """C[m,n] = A[m,k] B[k,n], `copies` times. Backward: dA (if `input_gradient`) and dB (if `weight_gradient`).

    `learns` is false where a stack computes the gradient of a frozen weight and throws it away. `grouped`: of experts
    whose rows differ in number, all at once. `apart`: every copy is a kernel of its own. `tiles`: so many slices of the
    rows one after the other, each of which runs its forward once more before its backward; None: all rows at once.
    `computed`: B is made from what learns in every forward, and its gradient goes on to that; `operand_bytes` of the
    saved ones are B itself, which only the gradient of A needs. `reserved`: true where rows of experts are reserved for
    the worst case, in a persistent kernel with a law of its own; None: nowhere. `accumulated_bytes`: what the product
    of dB reads and writes of an element of the gradient that it adds to, beside its result. `unpadded`: of a vocabulary
    that nobody rounds up. `alone`: true where a rank holds one expert, whose grouped product is a single one.
    `padding`: elements of a weight that a grouped product computes over those that there are; None: no others.
    `cast_rows`: rows of A that are cast before, for each copy (None: all).
    """

    m: Array
    n: Array
    k: Array
    copies: Array
    input_gradient: bool
    weight_gradient: bool
    learns: bool
    adapter: bool = False
    grouped: bool = False
    apart: bool = False
    tiles: Array | None = None
    computed: bool = False
    operand_bytes: Array | None = None
    reserved: Array | None = None
    alone: Array | None = None
    accumulated_bytes: float = 0.0
    unpadded: bool = False
    padding: Array | None = None
    cast_rows: Array | None = None

    @property
    def forward_flops(self) -> Array:
        return 2.0 * self.m * self.n * self.k * self.copies

    @property
    def backward_flops(self) -> Array:
        """FLOPs that the training needs, whatever the stack wastes."""
        return self.forward_flops * (float(self.input_gradient) + float(self.learns))


class Attention(Operator):
    """softmax(Q K^T) V of `heads` heads over `pairs` query-key pairs per head and sequence.

    `statistics_bytes` is the part of `saved_bytes` that recomputing the core avoids: probabilities, log-sum-exp.
    `score_temporary_bytes`: per score, what the backward of unfused attention holds beside what is saved.
    `returned_bytes`: probabilities that a layer hands back, which live until the next one does.
    `softmax`: how unfused attention passes over its scores, as in `eager_attention_bytes`.
    `cached_element_bytes`: size of a key's or value's element where a cache keeps it in a format of its own.
    `values_in_keys`: the values are part of the keys and not read again.
    `loaded_keys`: keys that are read per sequence, fewer than `key` under a sliding window (None: all).
    `masked`: share of micro-batches whose kernel is given a mask and works on all pairs (None: none).
    `blocks`: the keys come in so many blocks of a ring one after the other, each in a kernel of its own (None: one).
    `narrow`: its operands are in 8 bit, and so are its products where the accelerator has them.
    `gathers`: each query reads the keys of its own pairs.
    `peak_share`: of the accelerator's FLOP rate that its kernel reaches at most (None: as the law of attention has it).
    `window`: keys that a query sees at most (None: all).
    """

    batch: Array
    heads: Array
    kv_heads: Array
    query: Array
    key: Array
    pairs: Array
    qk_head_dim: int
    v_head_dim: int
    kernel: str
    statistics_bytes: Array
    score_temporary_bytes: float = 0.0
    returned_bytes: Array | float = 0.0
    softmax: str = "unfused"
    cached_element_bytes: float | None = None
    loaded_keys: Array | None = None
    masked: Array | None = None
    values_in_keys: bool = False
    blocks: Array | None = None
    narrow: bool = False
    gathers: bool = False
    peak_share: Array | None = None
    window: Array | float | None = None

    @property
    def head_dim(self) -> float:
        """Width of a head: the mean of its keys' and its values'."""
        return (self.qk_head_dim + self.v_head_dim) / 2.0

    @property
    def forward_flops(self) -> Array:
        return 2.0 * self.batch * self.heads * self.pairs * (self.qk_head_dim + self.v_head_dim)

    @property
    def query_elements(self) -> Array:
        """Elements of Q and the output."""
        return self.batch * self.heads * self.query * (self.qk_head_dim + self.v_head_dim)

    @property
    def key_value_elements(self) -> Array:
        """Elements of K and V that are read."""
        keys = self.key if self.loaded_keys is None else self.loaded_keys
        width = self.qk_head_dim + (0 if self.values_in_keys else self.v_head_dim)
        return self.batch * self.kv_heads * keys * width

    def gathered_bytes(self, element_bytes: float) -> Array:
        """Keys and values that queries read which each gather their own [bytes]."""
        cached = element_bytes if self.cached_element_bytes is None else self.cached_element_bytes
        width = self.qk_head_dim + (0 if self.values_in_keys else self.v_head_dim)
        return self.batch * self.kv_heads * self.pairs * width * cached

    def operand_bytes(self, element_bytes: float) -> Array:
        """Q, K, V and the output, read or written once; of a ring in each of its blocks [bytes]."""
        cached = element_bytes if self.cached_element_bytes is None else self.cached_element_bytes
        blocks = 1.0 if self.blocks is None else self.blocks
        return self.query_elements * element_bytes * blocks + self.key_value_elements * cached

    def resident_bytes(self, element_bytes: float) -> Array:
        """Of these what the rank holds at a time: of a ring the block at work and the one that comes [bytes]."""
        if self.blocks is None:
            return self.operand_bytes(element_bytes)
        held = np.minimum(2.0 / self.blocks, 1.0)
        return (self.query_elements + self.key_value_elements * held) * element_bytes


class Scan(Operator):
    """Chunked scan of a state-space mixer: small products of activations (m, n, k, copies), and states that pass on.

    moved_bytes : that its kernels read and write
    state_bytes : of the states at the borders of chunks
    walked : chunks of a sequence that one kernel walks through one after the other; 0: none
    kernels : that run one after the other
    kind : of mixer; fused : its scan is one kernel
    """

    products: tuple[tuple[Array, Array, Array, Array], ...]
    state_bytes: Array
    moved_bytes: Array
    walked: Array
    kernels: float
    kind: str
    fused: bool = False

    @property
    def forward_flops(self) -> Array:
        return np.asarray(sum(2.0 * m * n * k * copies for m, n, k, copies in self.products))


class MemoryBound(Operator):
    """Kernels that only move memory; `temporary_bytes` live only while its backward runs. `adapter`: of an adapter."""

    forward_bytes: Array
    backward_bytes: Array
    forward_launches: float | Array
    backward_launches: float | Array
    temporary_bytes: Array
    adapter: bool = False


class Picks(Immutable, eq=True):
    """How the tokens of a mixture of experts choose: `per_token` experts out of `chosen_groups` of `groups`."""

    per_token: int
    groups: int = 1
    chosen_groups: int = 1


class Collective(Operator):
    """Exchange inside the layer. Message sizes in the convention of `laws.collectives`.

    `group` is tp, cp, ep, etp: ranks that split an expert, or dp: ranks that attend to sequences of their own and share
    experts.
    `picks` where a token goes once to each node and rank that holds experts which it picked; None: to every expert.
    `start_s` of a kernel that does not start as the laws of collectives have it; None: it does [s].
    """

    group: str
    forward: tuple[tuple[str, Array], ...]
    backward: tuple[tuple[str, Array], ...]
    picks: Picks | None = None
    start_s: float | None = None


def stacked(arrays: Sequence[Array], shape: tuple[int, ...]) -> Array:
    """Several arrays along a new first axis, each broadcast to the shape.

        rows[i] = arrays[i]

    Parameters
    ----------
    arrays : each of a shape that broadcasts to the common one [-]
    shape : the common one [-]

    Returns
    -------
    ndarray of float, shape (array, ...) with the common one behind [-]

    Source: definition.
    """
    rows = np.empty((len(arrays), *shape))
    for row, array in enumerate(arrays):
        rows[row] = array
    return rows


# Layers on pipeline stages.


def layers_per_stage(layers: ArrayLike, pp: ArrayLike) -> Array:
    """Layers of the fullest stage.

        layers = ceil(L / pp)

    Parameters
    ----------
    layers : L of the model, or those of one kind [-]
    pp : pipeline stages [-]

    Returns
    -------
    ndarray of float, shape that both broadcast to [-]

    Source: own derivation: stages of whole layers; the fullest decides memory and time.
    """
    return np.asarray(np.ceil(as_array(layers) / as_array(pp)))


# Launches: kernels that the host starts for an operator.

if TYPE_CHECKING:
    Messages = tuple[tuple[str, Array], ...]
# What the host does for one expert's product in Transformer Engine's GroupedLinear, in launches: views and quantisers
# of its slice, the cached weight, the product on one of four streams; backward also hook and buffer of the gradient.
# Fitted to Qwen3-30B-A3B on B200 (Megatron Bridge 25.11, micro-batch 1): 9.2 ms for a layer with 16 experts on a rank.
SIDE_BY_SIDE_LAUNCHES = (15.0, 20.0)


def launches(operator: Operator) -> tuple[Array, Array]:
    """Kernels that one forward and one backward of the operator launch.

        launches = 1, and one for each gradient      matrix products, times copies where they are apart
        launches = 15, and 20 for each gradient      of every product that runs beside others of its group
        launches = 1, 3; eager 5, 8                  attention, of each block of keys
        launches = kernels, 2.5 kernels              scans
        launches = messages that are not empty       collectives

    Memory-bound operators state theirs. Where an operator has no rows, moves nothing or sends nothing, nothing is
    launched: an operator stands in the graph for all layouts, also for those that have no use for it.

    Parameters
    ----------
    operator : of one layer

    Returns
    -------
    (forward, backward), ndarrays of float that broadcast to shape (rank shape,) [-]

    Source: own count of the kernels of PyTorch, of the fused attention kernels and of the eager modules of Hugging
    Face.
    """
    if isinstance(operator, Matmul):
        each = SIDE_BY_SIDE_LAUNCHES if operator.apart and operator.grouped else (1.0, 1.0)
        copies = operator.copies if operator.apart else 1.0
        gradients = float(operator.input_gradient) + float(operator.weight_gradient)
        return _where(operator.m, each[0] * copies), _where(operator.m, each[1] * gradients * copies)
    if isinstance(operator, Attention):
        each = (5.0, 8.0) if operator.kernel == "eager" else (1.0, 3.0)
        blocks = 1.0 if operator.blocks is None else operator.blocks
        return _where(operator.batch, each[0] * blocks), _where(operator.batch, each[1] * blocks)
    if isinstance(operator, Scan):
        return _where(operator.moved_bytes, operator.kernels), _where(operator.moved_bytes, 2.5 * operator.kernels)
    if isinstance(operator, MemoryBound):
        return (
            _where(operator.forward_bytes, operator.forward_launches),
            _where(operator.backward_bytes, operator.backward_launches),
        )
    if isinstance(operator, Collective):
        return _sent(operator.forward), _sent(operator.backward)
    raise TypeError(f"no launch count for {type(operator).__name__}")


def _sent(messages: Messages) -> Array:
    """How many of the messages are not empty [-]."""
    return np.asarray(sum((_where(message, 1.0) for _, message in messages), np.zeros(1)))


def _where(work: Array, launched: float | Array) -> Array:
    """The launches where there is any work."""
    return np.where(np.asarray(work) > 0, launched, 0.0)
