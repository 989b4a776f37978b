"""How the GPUs of one replica share a model, as arrays over placements."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xe_sizer.frozen import frozen

if TYPE_CHECKING:
    from xe_sizer.graph.operators import IntArray


@frozen
class ReplicaLayouts:
    """Sizes of the parallel groups of one replica, arrays of one shape (placements,).

    tp : tensor parallel ranks; pp : pipeline stages; ep : expert parallel ranks
    dp : groups that each compute attention for a share of the sequences, and the experts together
    """

    tp: IntArray
    pp: IntArray
    ep: IntArray
    dp: IntArray

    @classmethod
    def of(cls, tp: ArrayLike = 1, pp: ArrayLike = 1, ep: ArrayLike = 1, dp: ArrayLike = 1) -> ReplicaLayouts:
        sizes = np.broadcast_arrays(*(np.atleast_1d(np.asarray(size, dtype=np.int64)) for size in (tp, pp, ep, dp)))
        return cls(*sizes)

    def __len__(self) -> int:
        return len(self.tp)

    def __getitem__(self, index: NDArray[np.bool_] | IntArray | slice) -> ReplicaLayouts:
        return ReplicaLayouts(**{field.name: getattr(self, field.name)[index] for field in fields(self)})

    @property
    def gpus(self) -> IntArray:
        """GPUs of a replica."""
        return np.asarray(self.tp * self.pp * self.dp)

    @property
    def expert_tp(self) -> IntArray:
        """Ranks that share one expert: what expert parallelism leaves of a stage's ranks."""
        return np.asarray(np.maximum(self.tp * self.dp // self.ep, 1))
