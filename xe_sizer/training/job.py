"""One training job with everything resolved but the layout: what memory and time are computed for."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from xe_sizer.graph.operators import as_array
from xe_sizer.immutable import Immutable
from xe_sizer.laws.device import activation_bytes
from xe_sizer.software.stack import Objective
from xe_sizer.training.layout import Split, head_in_layers
from xe_sizer.training.padding import PACKED
from xe_sizer.units import FLOAT32, SIXTEEN_BIT

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import Learning
    from xe_sizer.graph.model import ModelShape, VisionTower
    from xe_sizer.graph.operators import Array, Kernels
    from xe_sizer.graph.vision import Seen
    from xe_sizer.laws.collectives import Network
    from xe_sizer.laws.hardware import Server
    from xe_sizer.laws.operator_time import Device
    from xe_sizer.software.optimizer import Optimizer
    from xe_sizer.software.stack import Stack
    from xe_sizer.training.layout import Layouts
    from xe_sizer.training.methods import Method
    from xe_sizer.training.methods.method import Frozen
    from xe_sizer.training.token_lengths import TokenLengths

# Jobs in which only some of a model's layers learn, the last ones or a few at a time: what learns, what runs back.


class LearningLayers(Immutable):
    """How much of a model learns where not all of it does.

    count : layers that learn in a step; None: all, with embedding and head, which else are frozen [-]
    kept : layers at the end above which autograd keeps what it needs, where it is known which; None: all [-]
    share : of the layers' weight gradients that are computed; reach : of the layers that the backward passes [-]
    """

    count: int | None = None
    share: float = 1.0
    reach: float = 1.0
    kept: int | None = None

    @property
    def ends(self) -> float:
        """1 where embedding and head learn with the layers, else 0."""
        return float(self.count is None)

    @classmethod
    def of(cls, layers: int, last: int | None, block: int) -> LearningLayers:
        """The layers that learn of a model's.

            reach = n / L                       the last n of L layers
            reach = (L + n) / 2 L               any n that follow each other, on average over all places

        Parameters
        ----------
        layers : L of the model [-]
        last : n at the end that learn, where a scenario says so [-]
        block : n that an optimizer lets learn at a time; 0: all [-]

        Returns
        -------
        LearningLayers

        Source: autograd stops below the first weight that learns; BAdam (arXiv:2404.02827), block_optim.py.
        """
        count = min(last or block or layers, layers)
        if last is None and not block:
            return cls()
        reach = count / layers if last is not None else (layers + count) / (2.0 * layers)
        return cls(count, count / layers, reach, count if last is not None else None)


# Images of the samples of a job: how many, how large, and the tokens that they become.


class Images(Immutable):
    """The images of a sequence, and what encodes them.

    tower : the encoder and its projector; encoder, projector : what of each learns
    each : images of a sequence [-]; seen : what becomes of one
    forced : with recomputation the encoder's inputs are made to need gradients, so that the backward passes frozen
    layers too
    """

    tower: VisionTower
    encoder: Learning
    projector: Learning
    each: float
    seen: Seen
    forced: bool = False

    @property
    def pieces(self) -> float:
        """Pieces of a sequence's images, which the encoder sees apart [-]"""
        return self.each * self.seen.pieces

    @property
    def tokens(self) -> float:
        """Tokens of the language model for the images of a sequence [tokens]"""
        return self.each * self.seen.tokens

    @property
    def patches(self) -> float:
        """Patches of a sequence's images [-]"""
        return self.pieces * self.seen.patches


class Gathering(Immutable, eq=True):
    """How many elements of weights ZeRO-3 gathers and keeps; the defaults are DeepSpeed's own [-].

    ahead : gathered before the modules that need them run (stage3_prefetch_bucket_size)
    live : gathered in all, beyond which nothing is gathered ahead (stage3_max_live_parameters)
    reuse : a weight stays that is needed again within so many (stage3_max_reuse_distance)
    whole : tensors up to this size are never sharded (stage3_param_persistence_threshold)

    Source: DeepSpeed runtime/zero/config.py, DeepSpeedZeroConfig.
    """

    ahead: float = 5e7
    live: float = 1e9
    reuse: float = 1e9
    whole: float = 1e5


OWN = Gathering()


# What stops training between its steps, as a user asks for it: checkpoints, evaluations, failures.


class Pauses(Immutable):
    """Pauses of a run; none of them by default.

    checkpoint_every, evaluate_every : steps from one to the next; None: never
    asynchronous : whether storage is written from host memory while training goes on
    write_bytes_per_s : what storage takes from all nodes together; None: a rate for each node that is chosen
    evaluated_samples : samples of one evaluation [-]
    failures_per_gpu_day : that stop the whole job [1/day]
    """

    checkpoint_every: int | None = None
    asynchronous: bool = False
    write_bytes_per_s: float | None = None
    evaluate_every: int | None = None
    evaluated_samples: float = 0.0
    failures_per_gpu_day: float = 0.0

    @property
    def any(self) -> bool:
        """Whether the run takes longer than its steps."""
        return bool(self.checkpoint_every or self.evaluate_every or self.failures_per_gpu_day)


NO_PAUSES = Pauses()


# A global batch that starts small and grows by the same number of sequences until it is whole.


class BatchRamp(Immutable, eq=True):
    """The first batch, what it grows by each time, and sequences until it is whole [-]."""

    start: int
    increment: int
    samples: int

    def levels(self, whole: int, available: float) -> tuple[Array, Array]:
        """Batches before the whole one, and how many steps each has.

            batch_k = start + k increment,  k = 0 ... K - 1,  K = (whole - start) / increment
            steps_k = samples / K / batch_k

        Parameters
        ----------
        whole : global batch in the end [-]
        available : sequences that the run reads, which may be fewer than those until then [-]

        Returns
        -------
        (batches, steps), ndarrays of float, shape (level,) [-]; empty where the batch is whole from the start

        Source: Megatron-LM's --rampup-batch-size (core/num_microbatches_calculator.py, RampupBatchsizeNumMicroBatches-
        Calculator): each size takes the same number of samples.
        """
        batches = as_array(np.arange(self.start, whole, self.increment))
        each = self.samples / max(len(batches), 1)
        left = np.clip(available - each * np.arange(len(batches)), 0.0, each)
        return batches, left / batches

    def more_steps(self, whole: int, available: float) -> float:
        """Steps beyond those that whole batches would make of the same sequences [-]."""
        batches, steps = self.levels(whole, available)
        return float(np.sum(steps - steps * batches / whole))


class Job(Immutable):
    """A resolved job. `steps` optimizer steps of `global_batch` samples; `samples` in the data set.

    first_stage_layers, last_stage_layers : of a pipeline; None: the layers are spread
    stage_layers : of every stage of a pipeline, where all are given
    account_for_embedding, account_for_loss : each takes a layer's place where layers are spread over stages
    pauses : checkpoints, evaluations and failures
    batch_ramp : how the global batch grows in the beginning; None: it is whole from the start
    recompute_layers : of a stage's layers, those that full recomputation runs again; None: all
    offload_layers : of a stage's layers, those whose activations are offloaded where any are; None: all
    trainable_layers : at the end of the model, that learn alone; None: all, or as many as the optimizer says
    offload_fraction : of the optimizer, where it is offloaded, that waits and runs on the host [-]
    expert_skew : tokens of the busiest rank of experts over their mean [-]; None: as the stack has it
    expert_capacity, pads_experts : most tokens of an expert over the mean [-], and whether all are padded to it
    empty_cache_steps : after which free blocks of the allocator are given back; None: never
    target_share : tokens of a decoder's sequence over those of its encoder's, which the lengths are of [-]
    images : of its samples, which an encoder turns into tokens; encodes : the images that are encoded, where the job is
    that encoder's part of another
    gathering : what ZeRO-3 gathers ahead and keeps
    """

    model: ModelShape
    method: Method
    stack: Stack
    server: Server
    network: Network
    device: Device
    precision: str
    optimizer: Optimizer
    attention: str
    lengths: TokenLengths
    padding: str
    seq_len: int
    samples: float
    global_batch: int
    steps: int
    recompute_layers: int | None = None
    offload_fraction: float = 1.0
    trainable_layers: int | None = None
    offload_layers: int | None = None
    batch_ramp: BatchRamp | None = None
    expert_skew: float | None = None
    expert_capacity: float | None = None
    pads_experts: bool = False
    empty_cache_steps: int | None = None
    first_stage_layers: int | None = None
    last_stage_layers: int | None = None
    stage_layers: tuple[int, ...] = ()
    account_for_embedding: bool = False
    account_for_loss: bool = False
    pauses: Pauses = NO_PAUSES
    lengths_assumed: bool = False
    target_share: float = 1.0
    images: Images | None = None
    encodes: Images | None = None
    gathering: Gathering = OWN

    @property
    def sequences_each(self) -> float:
        """Sequences of a sample that go through the model; of an encoder's part the pieces of its images."""
        each = float(self.method.sequences_per_sample)
        return each * self.encodes.pieces if self.encodes else each

    @property
    def samples_per_sequence(self) -> float:
        """Samples, or parts of one, that a sequence holds: several where they are packed [-]."""
        return self.seq_len / self.lengths.mean if self.padding == PACKED else 1.0

    @cached_property
    def kernels(self) -> Kernels:
        """The graph's view of the stack's kernels, with the loss as the job's types have it."""
        kernels = self.stack.graph_kernels(self.attention, self.method.kind.fine_tunes, self.method.objective)
        loss = kernels.loss.of_narrow(self.model.narrow_loss and not self.autocasts)
        loss = loss.on(self.logit_bytes / SIXTEEN_BIT)
        if self.expert_skew is not None:
            kernels = replace(kernels, expert_imbalance=self.expert_skew, expert_spread=0.0)
        if self.expert_capacity is not None:
            kernels = replace(kernels, expert_capacity=self.expert_capacity, pads_experts=self.pads_experts)
        return replace(kernels, loss=loss.beside_frozen() if self.method.passing else loss)

    @property
    def autocasts(self) -> bool:
        """Whether products run in a narrower type than the weights are kept in."""
        return self.stack.states.autocast and self.element_bytes < FLOAT32

    @cached_property
    def split(self) -> Split:
        """How layers are spread over the stages of a pipeline."""
        defaults = self.stack.defaults
        ends = self.account_for_embedding, self.account_for_loss
        asked = any(ends)
        head = head_in_layers(self.model) if defaults.fills_stages_by_cost and not asked else None
        ends = ends if asked else (defaults.counts_ends, defaults.counts_ends)
        return Split(*ends, head, self.first_stage_layers, self.last_stage_layers, self.stage_layers)

    @property
    def packs(self) -> bool:
        """Whether the stack can put the job's samples end to end."""
        supports = self.stack.supports
        return supports.packing and (supports.packs_answers or not self.method.compares)

    @property
    def interrupted(self) -> bool:
        """Whether the whole run takes more than its steps."""
        return self.pauses.any or bool(self.method.before) or self.batch_ramp is not None

    @property
    def samples_read(self) -> float:
        """Samples that the steps read, each as often as it comes; packed sequences hold several, or part of one."""
        return self.steps * self.global_batch * self.samples_per_sequence

    @cached_property
    def learning_layers(self) -> LearningLayers:
        """Which of the layers learn; adapters do in all of them."""
        if not self.method.learning.base:
            return LearningLayers()
        return LearningLayers.of(self.model.layers, self.trainable_layers, self.optimizer.block_layers)

    def optimizer_on_card(self, layouts: Layouts) -> Array:
        """Share of the optimizer's states that the card holds and updates, shape (layout,) [-]."""
        return np.where(layouts.hosts_optimizer, 1.0 - self.offload_fraction, 1.0)

    @property
    def pages_states(self) -> bool:
        """Whether the driver may move the optimizer's states to a host that has memory of its own."""
        return self.optimizer.paged and self.server.host_apart

    def gradients_on_host(self, layouts: Layouts) -> Array:
        """Share of the gradients that waits in host memory between micro-batches, shape (layout,) [-]."""
        leaves = layouts.hosts_optimizer & (layouts.zero >= 2) & self.stack.states.gradients_on_host
        return np.where(leaves, self.offload_fraction, 0.0)

    def pace_s(self, layouts: Layouts, step_s: Array) -> Array:
        """Time of steps under layouts as if each read the job's global batch, shape (layout,) [s].

            time = step x B / B of the layout, which differ only where the batch follows the layout

        Source: definition.
        """
        return np.asarray(step_s * (self.global_batch / layouts.samples))

    @property
    def read_tokens(self) -> float:
        """Tokens of those samples, before any is cut and without padding."""
        return self.samples_read * self.lengths.mean * self.method.sequences_per_sample

    @property
    def element_bytes(self) -> float:
        """Size of an activation element [bytes]."""
        wide = self.method.wide_activations(self.stack.states.autocast)
        return FLOAT32 if wide else activation_bytes(self.precision)

    @property
    def master_bytes(self) -> float:
        """Size of an element of the master copies that the optimizer updates, 0 where there are none [bytes]."""
        of_stack, of_optimizer = self.stack.states.master_bytes, self.optimizer.master_bytes
        if not self.optimizer.masters or of_optimizer is None:
            return of_stack if self.optimizer.masters else 0.0
        return min(of_stack, of_optimizer)

    @property
    def logit_bytes(self) -> float:
        """Size of a logit that a loss in the type of the logits reads [bytes].

        The next token's is computed inside the model; what a job makes of the logits outside reads what accelerate
        makes float32 under autocast.

        Source: accelerate Accelerator.prepare_model (convert_outputs_to_fp32).
        """
        outside = self.method.objective is not Objective.NEXT_TOKEN and self.stack.states.autocast
        return FLOAT32 if outside else self.element_bytes

    @property
    def casts_weights(self) -> bool:
        """Whether linear weights are kept in float32 and cast to 16 bit in every micro-batch."""
        states = self.stack.states
        kept_bytes = states.trained_weight_bytes if self.method.learning.base else states.frozen_bytes
        return states.autocast and kept_bytes == FLOAT32 and self.element_bytes < FLOAT32 and not self.method.quantised

    @property
    def upcasts(self) -> bool:
        """Whether everything is float32 that a quantised model does not hold in few bits."""
        held = self.method.held
        return held is not None and held.quantiser.upcasts and self.stack.states.quantised_upcast

    @property
    def widens_activations(self) -> bool:
        """Whether layers in few bits return float32, since the embedding and the norms before them do.

        Source: peft prepare_model_for_kbit_training; bitsandbytes nn/modules.py, Linear4bit.forward, which returns the
        type that it was given, under autocast too.
        """
        return self.upcasts and self.element_bytes < FLOAT32

    def beside(self, companion: Frozen) -> Job:
        """The job of frozen weights beside the model alone: the same sequences through them, nothing learns."""
        method = self.method.beside(companion)
        alone = replace(self, method=method, stack=self.stack.for_copies() if companion.copies else self.stack)
        if companion.model is None:
            return alone
        return replace(alone, model=companion.model, first_stage_layers=None, last_stage_layers=None, stage_layers=())
