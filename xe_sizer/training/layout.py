"""Layouts as a struct of arrays: one entry per layout, the same functions for one or a million."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np
from msgspec.structs import astuple, replace
from numpy.typing import ArrayLike, NDArray

from xe_sizer.graph.operators import as_array
from xe_sizer.immutable import Immutable

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Array, IntArray

# Schedules of a pipeline: what stages wait for one another, and the micro-batches whose activations they hold.
#
# One row each. F, B and W are the passes of a micro-batch through all layers of a stage: forward, gradients of its
# inputs, gradients of its weights.

Held = Callable[["Array", "Array", "Array", "Array"], tuple["Array", "Array"]]
"""Of stages, chunks of each, micro-batches, and of the two ends' layers the shares in their outermost chunks."""


class Schedule(Immutable):
    """One order of a pipeline's passes.

    waits : (f, b, w); every stage but the slowest adds f F + b B + w W to the bubble
    spared : (f, b, w) that reordering the first and last micro-batches takes off the whole bubble again
    repeats : (share, k, r); each micro-batch beyond the first 1 + r (pp - 1) adds share x max(2 max(F, B) - k min(F, B)
        - W, 0): the block that repeats has no room for passes that differ much
    held : micro-batches alive on the first stage and on the last
    least_chunks, most_chunks : of a stage; 0: as many as there are layers
    v_shaped : chunks run down the stages and back up, so that the first stage has the head too
    mirrored : micro-batches enter at both ends, so that each rank holds its stage and the one as far from the other end
    hides_experts : the exchange of experts runs behind the passes of another micro-batch
    rounds : a step has at least so many micro-batches for each stage
    source : where the row is from
    """

    name: str
    waits: tuple[float, float, float]
    held: Held
    source: str
    spared: tuple[float, float, float] = (0.0, 0.0, 0.0)
    repeats: tuple[float, float, float] = (0.0, 0.0, 0.0)
    least_chunks: int = 1
    most_chunks: int = 1
    v_shaped: bool = False
    mirrored: bool = False
    hides_experts: bool = False
    rounds: int = 0


def _interleaved(pp: Array, vpp: Array, micro_batches: Array, outermost: Array) -> tuple[Array, Array]:
    """Stage i runs 2 (pp - i - 1) + (vpp - 1) pp + 1 chunks forward before its first backward ends; one chunk: pp - i.

    The first stage holds pp micro-batches of each chunk and pp - 1 more of its first; the last one pp of each but its
    last, and the chunk that runs.

    Megatron-LM core/pipeline_parallel/schedules.py, get_pp_rank_microbatches.
    """
    others = 1.0 - outermost[1]
    running = np.maximum(outermost[1], others / np.maximum(vpp - 1.0, 1.0))
    return pp + (pp - 1.0) * outermost[0], pp * others + running


def _all(pp: Array, vpp: Array, micro_batches: Array, outermost: Array) -> tuple[Array, Array]:
    return micro_batches, micro_batches


def _pipeline_full(pp: Array, vpp: Array, micro_batches: Array, outermost: Array) -> tuple[Array, Array]:
    return pp, pp


def _two_pipelines_full(pp: Array, vpp: Array, micro_batches: Array, outermost: Array) -> tuple[Array, Array]:
    return 2.0 * pp - 1.0, 2.0 * pp - 1.0


def _half(pp: Array, vpp: Array, micro_batches: Array, outermost: Array) -> tuple[Array, Array]:
    held = (pp + 2.0) // 2.0
    return held, held


def _both_ways(pp: Array, vpp: Array, micro_batches: Array, outermost: Array) -> tuple[Array, Array]:
    return pp + 1.0, pp + 1.0


def _half_of_both_ways(pp: Array, vpp: Array, micro_batches: Array, outermost: Array) -> tuple[Array, Array]:
    """Of 2 pp stages, each half of a rank: 2 pp + 1 halves."""
    return pp + 0.5, pp + 0.5


def _third(pp: Array, vpp: Array, micro_batches: Array, outermost: Array) -> tuple[Array, Array]:
    held = (pp + 4.0) // 3.0
    return held, held


_ZERO_BUBBLE = "zero bubble (arXiv:2401.10241), table 1"
_DUAL = "DeepSeek-V3 (arXiv:2412.19437), 3.2.1, and deepseek-ai/DualPipe, README.md and dualpipe"
_CONTROLLED = "controllable memory (arXiv:2405.15362) and its scheduler, sail-sg zerobubble/scheduler/zbv_greedy.py"
ROWS = (
    Schedule("1f1b", (1, 1, 1), _interleaved, "Narayanan et al. 2021 (arXiv:2104.04473)", most_chunks=0),
    Schedule("1f1b-interleaved", (1, 1, 1), _interleaved, "arXiv:2104.04473", least_chunks=2, most_chunks=0),
    Schedule("gpipe", (1, 1, 1), _all, "GPipe (arXiv:1811.06965)"),
    Schedule("zb-h1", (1, 1, -1), _pipeline_full, _ZERO_BUBBLE),
    Schedule("zb-h2", (1, 1, -2), _two_pipelines_full, _ZERO_BUBBLE),
    Schedule(
        "zb-v", (0, 1, -1), _pipeline_full, "arXiv:2401.10241 and its scheduler, zerobubble/scheduler/zbv.py",
        least_chunks=2, most_chunks=2, v_shaped=True,
    ),
    Schedule(
        "v-half", (0.5, 1.5, -0.5), _half, _CONTROLLED, spared=(1, 0, 1), repeats=(0.5, 2, 1),
        least_chunks=2, most_chunks=2, v_shaped=True,
    ),
    Schedule(
        "v-min", (1, 1, 0), _third, _CONTROLLED, repeats=(1, 1, 0), least_chunks=2, most_chunks=2, v_shaped=True,
    ),
    # (pp / 2 - 1)(F&B + B - 3 W) for stages of which a rank runs two, one of each direction; B has both gradients.
    Schedule(
        "dualpipe", (0.5, 1, -0.5), _both_ways, _DUAL, spared=(0.5, 1, -0.5), mirrored=True, hides_experts=True,
        rounds=2,
    ),
    # The same of 2 pp stages, of which a rank has two and runs both for each micro-batch.
    Schedule(
        "dualpipe-v", (0.5, 1, -0.5), _half_of_both_ways, _DUAL, least_chunks=2, most_chunks=2, v_shaped=True,
        hides_experts=True, rounds=2,
    ),
)  # fmt: skip
SCHEDULES = tuple(row.name for row in ROWS)
# Chunks of stages by SCHEDULES, as ROWS have them; open ones share the bubble, the two of a V are what makes it one.
OPEN_CHUNKS = np.array([row.most_chunks == 0 for row in ROWS])
LEAST_CHUNKS = np.array([row.least_chunks for row in ROWS])
# Whether chunks run down the stages and back up, so that the first stage has the head too.
V_SHAPED = np.array([row.v_shaped for row in ROWS])
# Whether ranks hold two stages for micro-batches that enter at either end; whether exchanges of experts are hidden.
MIRRORED = np.array([row.mirrored for row in ROWS])
HIDES_EXPERTS = np.array([row.hides_experts for row in ROWS])
# Micro-batches that a step has at least, for each stage.
ROUNDS = np.array([row.rounds for row in ROWS])
# Whether a stage has other passes to do while a tensor is under way: those of other chunks, or deferred W.
HAS_OTHER_WORK = np.array([row.least_chunks > 1 or row.waits[2] < 1 for row in ROWS])
# Any number where they are open.
MOST_CHUNKS = np.array([row.most_chunks or np.iinfo(np.int64).max for row in ROWS])
_WAITS, _SPARED, _REPEATS = (
    np.array([getattr(row, name) for row in ROWS], dtype=float) for name in ("waits", "spared", "repeats")
)


class Passes(Immutable):
    """Seconds of the passes of one micro-batch through a stage, F, B and W, shape (stage, layout)."""

    forward_s: Array
    backward_s: Array
    weight_s: Array

    @property
    def total_s(self) -> Array:
        return self.forward_s + self.backward_s + self.weight_s


def bubble_time_s(
    schedule: IntArray, pp: Array, vpp: Array, micro_batches: Array, passes: Passes, middles: Array
) -> Array:
    """Time that the slowest stage of a pipeline waits in one optimizer step.

        bubble = sum over the other stages of max(f F + b B + w W, 0) / vpp - spared + repeats
        spared = f' F + b' B + w' W,  repeats = (m - 1 - r (pp - 1)) share max(2 max(F, B) - k min(F, B) - W, 0)

    vpp shares it where the schedule interleaves; pp - 1 stages are the others, of which the first, the last and the
    middle ones may differ. It is never negative.

    Parameters
    ----------
    schedule : index into SCHEDULES, shape (layout,) [-]
    pp, vpp, micro_batches : stages, chunks of each, m of a step, shape (layout,) [-]
    passes : on the first, the last and the fullest middle stage, shape (3, layout) [s]
    middles : middle stages, counted in full ones, shape (layout,) [-]

    Returns
    -------
    ndarray of float, shape (layout,) [s]

    Source: the rows of ROWS; checked against simulations of the schedules.
    """
    times = np.stack([passes.forward_s, passes.backward_s, passes.weight_s])
    slowest, columns = np.argmax(passes.total_s, axis=0), np.arange(len(schedule))
    waits = np.maximum(np.einsum("lk,ksl->sl", _WAITS[schedule], times), 0.0)
    whole = waits[0] + waits[1] + middles * waits[2] - waits[slowest, columns]
    whole = whole / np.where(OPEN_CHUNKS[schedule], vpp, 1.0)
    on_slowest = times[:, slowest, columns]
    spared = np.einsum("lk,kl->l", _SPARED[schedule], on_slowest)
    longer, shorter = np.maximum(*on_slowest[:2]), np.minimum(*on_slowest[:2])
    share, times_shorter, rounds = _REPEATS[schedule].T
    repeated = share * np.maximum(2.0 * longer - times_shorter * shorter - on_slowest[2], 0.0)
    further = np.maximum(micro_batches - 1.0 - rounds * (pp - 1.0), 0.0)
    bubble_s = np.maximum(whole - spared, 0.0) + further * repeated
    return np.where(pp > 1, bubble_s, 0.0)


def micro_batches_in_flight(
    schedule: IntArray, pp: Array, vpp: Array, micro_batches: Array, end_shares: Array | None = None
) -> Array:
    """Micro-batches whose activations a stage holds, in the mean over its layers; never more than there are.

        first = pp, last = 1                                              1f1b
        first = pp + (pp - 1) s                                           1f1b-interleaved, s = 1 / vpp in even chunks
        last = pp (1 - s) + max(s, (1 - s) / (vpp - 1))
        first = last = m                                                  gpipe
        first = last = pp                                                 zb-h1, zb-v
        first = last = 2 pp - 1                                           zb-h2
        first = last = floor((pp + 2) / 2)                                v-half
        first = last = floor((pp + 4) / 3)                                v-min
        first = last = pp + 1                                             dualpipe
        first = last = pp + 1 / 2                                         dualpipe-v

    Activations that wait for a deferred W count whole: nearly all that a layer keeps is what its W needs.

    Parameters
    ----------
    schedule : index into SCHEDULES, shape (layout,) [-]
    pp, vpp, micro_batches : stages, chunks of each, m of a step, shape (layout,) [-]
    end_shares : s, of the layers of the first stage those in its first chunk, of the last stage's those in its last, of
        shape (stage, layout) [-]; None: chunks have as many layers

    Returns
    -------
    ndarray of float, shape (stage, layout) [-]; stages are the first and the last

    Source: the rows of ROWS.
    """
    held, even = np.zeros((2, len(schedule))), 1.0 / as_array(vpp)
    shares = np.stack([even, even]) if end_shares is None else end_shares
    # With a single chunk the first stage holds no more of it than its place in the pipeline asks for.
    shares = np.stack([np.where(as_array(vpp) > 1, shares[0], 0.0), np.where(as_array(vpp) > 1, shares[1], 1.0)])
    for code in np.flatnonzero(np.bincount(schedule)):
        mine = schedule == code
        stages, chunks, passing = (as_array(size)[mine] for size in (pp, vpp, micro_batches))
        held[:, mine] = ROWS[code].held(stages, chunks, passing, shares[:, mine])
    return np.asarray(np.minimum(np.where(pp > 1, held, 1.0), micro_batches))


RECOMPUTE = ("none", "selective", "full")
SELECTIVE, FULL = (RECOMPUTE.index(mode) for mode in ("selective", "full"))
OFFLOAD = ("none", "optimizer", "params", "activations", "optimizer+activations", "params+activations")
_STATES = 3  # of OFFLOAD that say which states live in host memory; the same again with activations
# Fields of `Layouts` that stand for words, as scenarios and results spell them.
WORDS: dict[str, tuple[str, ...]] = {"recompute": RECOMPUTE, "offload": OFFLOAD, "schedule": SCHEDULES}
SWITCHES = ("sequence_parallel",)
"""Fields of `Layouts` that are 0 or 1, and true or false in scenarios and results."""


def offloaded_parts(name: str) -> frozenset[str]:
    """What an offload keeps in host memory, by its name in OFFLOAD; the optimizer goes with the weights."""
    parts = frozenset(name.split("+")) - {"none"}
    return parts | {"optimizer"} if "params" in parts else parts


def can_offload(name: str, supported: Collection[str]) -> bool:
    """Whether a stack that supports these parts can keep what `name` stands for in host memory."""
    return all(part in supported for part in name.split("+"))


class Layouts(Immutable):
    """Sizes of the parallel groups and what goes with them; arrays of one shape.

    Ranks are placed tp, cp, dp, pp from the innermost outwards, as Megatron-LM does. `recompute`, `offload` and
    `schedule` index RECOMPUTE, OFFLOAD and SCHEDULES (1f1b is interleaved where vpp is above 1); `sequence_parallel`
    is 0 or 1; `zero` is the ZeRO stage (3 is also FSDP), `zero_group` the ranks that share one copy of what it shards
    (0: all data-parallel ranks; fewer is hybrid sharding), `expert_tp` the tensor ranks that split an expert (0: as the
    rest of the layout has it).
    """

    tp: IntArray
    pp: IntArray
    vpp: IntArray
    cp: IntArray
    ep: IntArray
    dp: IntArray
    zero: IntArray
    micro_batch: IntArray
    grad_accum: IntArray
    recompute: IntArray
    offload: IntArray
    sequence_parallel: IntArray
    schedule: IntArray
    zero_group: IntArray
    expert_tp: IntArray

    @classmethod
    def of(cls, **sizes: ArrayLike) -> Layouts:
        """Layouts from broadcastable sizes; every field must be given."""
        names = list(cls.__struct_fields__)
        arrays = np.broadcast_arrays(*(np.asarray(sizes[name], dtype=np.int64) for name in names))
        return cls(**dict(zip(names, (np.atleast_1d(array) for array in arrays), strict=True)))

    @classmethod
    def joined(cls, parts: Sequence[Layouts]) -> Layouts:
        """Layouts one after the other; there must be some."""
        return cls(**{f: np.concatenate([getattr(part, f) for part in parts]) for f in cls.__struct_fields__})

    @classmethod
    def none(cls) -> Layouts:
        """No layouts."""
        return cls(**{field: np.zeros(0, dtype=np.int64) for field in cls.__struct_fields__})

    def __len__(self) -> int:
        return int(self.tp.size)

    def __getitem__(self, index: NDArray[np.bool_] | IntArray | slice) -> Layouts:
        return Layouts(**{field: getattr(self, field)[index] for field in self.__struct_fields__})

    @cached_property
    def gpus(self) -> IntArray:
        return self.tp * self.pp * self.cp * self.dp

    @cached_property
    def samples(self) -> IntArray:
        """Sequences of an optimizer step over all replicas."""
        return self.micro_batch * self.grad_accum * self.dp

    @cached_property
    def stage_copies(self) -> IntArray:
        """Ranks of a pipeline that hold the same stage: two where micro-batches enter at both ends."""
        return np.where(MIRRORED[self.schedule] & (self.pp > 1), 2, 1)

    @cached_property
    def data_ranks(self) -> IntArray:
        """Ranks that hold the same dense weights and work on different tokens."""
        return self.dp * self.cp * self.stage_copies

    @cached_property
    def hosts_optimizer(self) -> NDArray[np.bool_]:
        """Whether the optimizer's states live in host memory, and the host updates the weights."""
        return np.asarray(self.offload % _STATES >= OFFLOAD.index("optimizer"))

    @cached_property
    def hosts_params(self) -> NDArray[np.bool_]:
        """Whether the weights live in host memory."""
        return np.asarray(self.offload % _STATES == OFFLOAD.index("params"))

    @cached_property
    def hosts_activations(self) -> NDArray[np.bool_]:
        """Whether what the layers keep for the backward waits for it in host memory."""
        return np.asarray(self.offload >= OFFLOAD.index("activations"))

    @cached_property
    def gathers_by_layer(self) -> NDArray[np.bool_]:
        """Whether every micro-batch gathers the layers that it runs (ZeRO-3, FSDP), and frees them again."""
        return np.asarray((self.zero == 3) & (self.pp == 1))

    @cached_property
    def gathers_stages(self) -> NDArray[np.bool_]:
        """Whether a sharded pipeline stage is gathered once a step, and stays so until its last backward."""
        return np.asarray((self.zero == 3) & (self.pp > 1))

    @cached_property
    def zero_ranks(self) -> IntArray:
        """Ranks that share one copy of the sharded states; all that hold the same weights unless a group is chosen."""
        return np.where((self.zero_group > 0) & (self.zero > 0), self.zero_group, self.data_ranks)

    @cached_property
    def zero_replicas(self) -> IntArray:
        """Copies of the sharded states."""
        return np.asarray(np.maximum(self.data_ranks // self.zero_ranks, 1))

    @cached_property
    def expert_ranks(self) -> IntArray:
        """Ranks that split each expert: as chosen, else tp, unless the expert groups need the tensor ranks."""
        usual = np.where((self.dp * self.cp) % self.ep == 0, self.tp, 1)
        return np.where(self.expert_tp > 0, self.expert_tp, usual)

    @cached_property
    def expert_dp(self) -> IntArray:
        """Ranks that hold the same experts."""
        return np.maximum(self.tp * self.cp * self.dp // (self.expert_ranks * self.ep), 1) * self.stage_copies

    @cached_property
    def expert_zero_ranks(self) -> IntArray:
        """Ranks that share one copy of the sharded states of the same experts."""
        return np.asarray(np.maximum(self.expert_dp // self.zero_replicas, 1))


# How many layers each stage of a pipeline holds, and on which stages the embedding and the head are.


class PerLayout(Immutable):
    """A record of arrays whose last axis is the layout."""

    def __getitem__(self, index: IntArray | slice) -> Self:
        """The same of some of the layouts."""
        if isinstance(index, slice):
            return type(self)(*(figures[..., index] for figures in astuple(self)))
        return type(self)(*(figures.take(index, axis=-1) for figures in astuple(self)))


class Counted(IntEnum):
    """Which stage of a pipeline memory is counted for in place of the first, of any number from 1.

    EITHER is what one of the first two has most of.
    """

    EITHER = 0
    FIRST = 1
    SECOND = 2


class Stages(PerLayout):
    """Layers of the first, the last and the fullest middle stage, shape (3, layout) [-].

    middles : middle stages, counted in full ones [-]; head_first : 1 where the first stage has the head, else 0
    mirrored : 1 where it runs both ends for half of the micro-batches each, and holds the weights of both, else 0
    end_shares : of the layers at the ends, those in the first stage's first chunk and in the last stage's last chunk,
    shape (2, layout) [-]
    counted : which stage memory is counted for in place of the first, as in Counted; own : the layers of that stage [-]
    """

    layers: Array
    middles: Array
    head_first: Array
    end_shares: Array
    counted: Array
    own: Array
    mirrored: Array

    @property
    def fullest(self) -> Array:
        return np.asarray(self.layers.max(axis=0))

    @property
    def at_ends(self) -> Array:
        """Layers for which the stage that is counted and the last one need memory, shape (2, layout) [-]."""
        return np.stack([self.own, self.layers[1]])

    def counting(self, counted: Array, own: Array) -> Self:
        """The same with another stage in place of the first. own : its layers, shape (layout,) [-]"""
        return replace(self, counted=counted, own=own)

    def in_outermost(self, vpp: Array) -> Array:
        """Share of those layers in the first stage's first chunk and in the last one's last, shape (2, layout) [-]."""
        first, last = self.end_shares
        second = (self.counted != Counted.FIRST) & (self.layers[2] > self.layers[0])
        second |= self.counted >= Counted.SECOND
        return np.stack([np.where(second, 1.0 / vpp, first), last])


class Split(Immutable, eq=True):
    """How layers are spread over stages: with the ends, by their cost, or so many on the first and the last.

    embedding, loss : each takes a layer's place, on the first and on the last stage
    each : layers of every stage, where all of them are given
    head_layers : what the head costs where stages are filled by cost, in layers; None: they are not [-]
    """

    embedding: bool = False
    loss: bool = False
    head_layers: float | None = None
    first: int | None = None
    last: int | None = None
    each: tuple[int, ...] = ()

    @property
    def uneven(self) -> bool:
        """Whether stages are filled some other way than evenly."""
        return bool(self.head_layers or self.first or self.last or self.each)


def head_in_layers(model: ModelShape) -> float:
    """Cost of the head, where that of a layer is one.

        H = V h / (4 heads d h + 3 ffn h)

    Parameters
    ----------
    model : its vocabulary V, hidden size h, heads of size d, and ffn [-]

    Returns
    -------
    float, H [-], a number: shape ()

    Source: Nanotron models/llama.py (get_block_compute_costs).
    """
    return model.vocab / (4.0 * model.heads * model.head_dim + 3.0 * model.ffn)


def build_stages(model_layers: int, split: Split, layouts: Layouts) -> Stages:
    """Layers by stage.

        layers = L / pp                                                  where it divides, also among vpp chunks
        layers = sum over its chunks of floor((L + e) / S) + (c < (L + e) mod S), less 1 for the embedding and the head
        layers up to stage i = min(floor((L + H) (i + 1) / pp) + 1, L)   by cost, H that of the head
        first, last = as given; the others share the rest
        layers of every stage as given: of those in between the fullest counts

    Where micro-batches enter at both ends, a rank runs its stage for half of them and the mirrored one for the others,
    so that stages are the mean of both.

    S = pp vpp chunks, of which stage i has i, i + pp, ...; in a V it has i and 2 pp - 1 - i. e of embedding and head
    count as a layer each: as asked, else both where the stack spreads them so or S does not divide L. A chunk at an end
    may be left with the embedding or the head alone. The fullest stage decides the time. Where nobody says which chunk
    of an end has fewer layers than others, it is the outermost.

    Parameters
    ----------
    model_layers : L [-]
    split : what the stack does, and what is given
    layouts : pp, vpp and schedule, shape (layout,) [-]

    Returns
    -------
    Stages, shape (stage, layout) [-]

    Source: torchtitan 0.2 distributed/pipeline_parallel.py (generate_llm_fqn_per_model_part); Megatron-LM
    transformer_block.py (account_for_embedding_in_pipeline_split, account_for_loss_in_pipeline_split,
    num_layers_in_first_pipeline_stage); DeepSpeed's
    pipelines of BLOOM (arXiv:2211.05100), whose embedding and head take a layer's place each; Nanotron models/base.py
    (build_model), which fills a stage until its cost passes its share.
    """
    pp, vpp, whole = as_array(layouts.pp), as_array(layouts.vpp), float(model_layers)
    folded = as_array(V_SHAPED[layouts.schedule] & (pp > 1))
    mirrored = as_array(MIRRORED[layouts.schedule] & (pp > 1))
    ends = (stage_layers(model_layers, split, layouts, stage) for stage in (0.0 * pp, pp - 1.0))
    second = _on_stage(whole, split, layouts, np.minimum(1.0, pp - 1.0))
    if split.each:
        second = np.full_like(pp, max(split.each[1:-1], default=0))
    layers = np.stack([*ends, np.where(pp > 2, second, np.where(pp > 1, 0.0, whole))])
    outermost = _outermost(whole, pp, vpp, split)
    if split.uneven:
        outermost = np.maximum(layers[:2] - np.ceil(layers[:2] / vpp) * (vpp - 1.0), 0.0)
    between = np.maximum(whole - layers[0] - layers[1], 0.0)
    shares = outermost / np.maximum(layers[:2], 1.0)
    shares = np.where(pp > 1, shares, 1.0 / vpp)
    head_first = np.maximum(folded, mirrored)
    middles, either = between / np.maximum(layers[2], 1.0), np.maximum(layers[0], layers[2])
    return Stages(layers, middles, head_first, shares, np.zeros_like(pp), either, mirrored)


def stage_layers(model_layers: int, split: Split, layouts: Layouts, stage: Array) -> Array:
    """Layers of one stage of a pipeline.

        layers = as in build_stages; the mean of the stage and the mirrored one where micro-batches enter at both ends

    Parameters
    ----------
    model_layers : of the whole model [-]
    split : what the stack does, and what is given
    layouts : pp, vpp and schedule, shape (layout,) [-]
    stage : counted from 0, shape (layout,) [-]

    Returns
    -------
    ndarray of float, shape (layout,) [-]

    Source: as build_stages.
    """
    pp, whole = as_array(layouts.pp), float(model_layers)
    own, other = (_on_stage(whole, split, layouts, each) for each in (stage, pp - 1.0 - stage))
    return np.asarray(np.where(pp > 1, np.where(MIRRORED[layouts.schedule], (own + other) / 2.0, own), whole))


def _on_stage(whole: float, split: Split, layouts: Layouts, stage: Array) -> Array:
    """Layers of a stage before any rank has two."""
    pp, vpp = as_array(layouts.pp), as_array(layouts.vpp)
    if split.each:
        return np.asarray(as_array(split.each)[np.minimum(stage.astype(int), len(split.each) - 1)])
    if split.first is not None or split.last is not None:
        return _given(whole, pp, split.first, split.last, stage)
    if split.head_layers is not None:
        return _by_cost(whole, pp, split.head_layers, stage)
    return _spread(whole, pp, vpp, as_array(V_SHAPED[layouts.schedule] & (pp > 1)), split, stage)


def _chunk_layers(whole: float, pp: Array, vpp: Array, split: Split) -> tuple[Array, Array, Array, Array]:
    """Layers of every chunk, how many chunks have one more, and those whose place embedding and head take."""
    chunks = pp * vpp
    embedding, loss = (np.full_like(pp, float(counts)) for counts in (split.embedding, split.loss))
    if not (split.embedding or split.loss):
        embedding = loss = (whole % chunks > 0).astype(float)
    each, more = np.divmod(whole + embedding + loss, chunks)
    return each, more, embedding, loss


def _outermost(whole: float, pp: Array, vpp: Array, split: Split) -> Array:
    """Layers of the first stage's first chunk and of the last stage's last, where they are spread evenly."""
    each, more, embedding, loss = _chunk_layers(whole, pp, vpp, split)
    return np.stack([each + (more > 0) - embedding, each - loss])


def _spread(whole: float, pp: Array, vpp: Array, folded: Array, split: Split, stage: Array) -> Array:
    """Layers of a stage, spread evenly with the ends that count: its chunks, of which the first have one layer more."""
    each, more, embedding, loss = _chunk_layers(whole, pp, vpp, split)
    looped = np.clip(np.ceil((more - stage) / pp), 0.0, vpp)
    there_and_back = (stage < more).astype(float) + (2.0 * pp - 1.0 - stage < more)
    held = vpp * each + np.where(folded > 0, there_and_back, looped)
    with_head = stage == np.where(folded > 0, 0.0, pp - 1.0)
    return np.asarray(held - embedding * (stage == 0) - loss * with_head)


def _by_cost(whole: float, pp: Array, head_layers: float, stage: Array) -> Array:
    """Layers of a stage that takes them until it passes its share."""
    total = whole + head_layers

    def before(stages: Array) -> Array:
        return np.where(stages > 0, np.minimum(np.floor(total * np.minimum(stages / pp, 1.0)) + 1.0, whole), 0.0)

    return np.asarray(before(stage + 1.0) - before(stage))


def _given(whole: float, pp: Array, first: int | None, last: int | None, stage: Array) -> Array:
    """The same where the first or the last stage is given: the others share the rest."""
    known = float(first is not None) + float(last is not None)
    layers = np.ceil((whole - (first or 0) - (last or 0)) / np.maximum(pp - known, 1.0))
    for place, size in ((0.0 * pp, first), (pp - 1.0, last)):
        layers = layers if size is None else np.where(stage == place, float(size), layers)
    return np.asarray(layers)
