"""Layouts as a struct of arrays: one entry per layout, the same functions for one or a million."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xe_sizer.frozen import frozen
from xe_sizer.training.schedules import SCHEDULES

if TYPE_CHECKING:
    from xe_sizer.graph.operators import IntArray

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


@frozen
class Layouts:
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
        names = [field.name for field in fields(cls)]
        arrays = np.broadcast_arrays(*(np.asarray(sizes[name], dtype=np.int64) for name in names))
        return cls(**dict(zip(names, (np.atleast_1d(array) for array in arrays), strict=True)))

    @classmethod
    def joined(cls, parts: Sequence[Layouts]) -> Layouts:
        """Layouts one after the other; there must be some."""
        return cls(**{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)})

    @classmethod
    def none(cls) -> Layouts:
        """No layouts."""
        return cls(**{field.name: np.zeros(0, dtype=np.int64) for field in fields(cls)})

    def __len__(self) -> int:
        return int(self.tp.size)

    def __getitem__(self, index: NDArray[np.bool_] | IntArray | slice) -> Layouts:
        return Layouts(**{field.name: getattr(self, field.name)[index] for field in fields(self)})

    @cached_property
    def gpus(self) -> IntArray:
        return self.tp * self.pp * self.cp * self.dp

    @cached_property
    def samples(self) -> IntArray:
        """Sequences of an optimizer step over all replicas."""
        return self.micro_batch * self.grad_accum * self.dp

    @cached_property
    def data_ranks(self) -> IntArray:
        """Ranks that hold the same dense weights and work on different tokens."""
        return self.dp * self.cp

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
        return np.maximum(self.tp * self.cp * self.dp // (self.expert_ranks * self.ep), 1)

    @cached_property
    def expert_zero_ranks(self) -> IntArray:
        """Ranks that share one copy of the sharded states of the same experts."""
        return np.asarray(np.maximum(self.expert_dp // self.zero_replicas, 1))
