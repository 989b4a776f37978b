"""What sits on a card beside the tensors: contexts, communicators, workspaces, and what the allocator cannot use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import as_array
from xe_sizer.laws.parts import part
from xe_sizer.training.moments import BACKWARD_END, LAYERS_BACKWARD, LOSS, over_time, spread
from xe_sizer.units import GIB

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.training.job import Job
    from xe_sizer.training.layout import Layouts
    from xe_sizer.training.tensors import Tensors


@frozen
class Around:
    """What sits on the card beside the tensors is computed from these; `level` is one of the stack's."""

    job: Job
    layouts: Layouts
    tensors: Array
    level: str


@part("CUDA context", "per process", "measured 0.47 to 0.92 GiB on A100; typical and cautious values of the stack")
def cuda_context(around: Around) -> Array:
    return as_array(getattr(around.job.stack.memory.context_gib, around.level) * GIB).reshape(1, 1, 1)


@part("NCCL buffers", "per communicator that the layout needs", "measured 0.5 to 1.5 GiB a group")
def nccl_buffers(around: Around) -> Array:
    layouts = around.layouts
    groups = (layouts.tp > 1, layouts.pp > 1, layouts.cp > 1, layouts.dp > 1, layouts.ep > 1)
    communicators = sum(np.asarray(group, dtype=float) for group in groups)
    each = getattr(around.job.stack.memory.communicator_gib, around.level)
    return np.asarray(communicators * each * GIB * np.ones((1, 1, 1)))


@part("library workspaces", "cuBLAS and cuBLASLt", "PyTorch defaults, 32 MiB on Hopper")
def library_workspaces(around: Around) -> Array:
    return as_array(getattr(around.job.stack.memory.workspace_gib, around.level) * GIB).reshape(1, 1, 1)


@part(
    "allocator slack",
    "share of the tensors that is reserved but not live",
    "out-of-memory reports, 3.7 to 5 %",
)
def allocator_slack(around: Around) -> Array:
    return np.asarray(around.tensors * getattr(around.job.stack.memory.slack_share, around.level))


@part("communication buckets", "bucket of the reduction, at most the gradients; of replicas all of them", "stack")
def buckets(tensors: Tensors) -> Array:
    """From the loss to the end of the backward; those of DistributedDataParallel always, with every gradient.

    Source: torch/csrc/distributed/c10d/reducer.cpp, initialize_buckets, where gradient_as_bucket_view is off.
    """
    sizes, (dense, experts) = tensors.sizes, tensors.learning
    several, copies = tensors.layouts.data_ranks > 1, tensors.job.stack.memory.copied_gradients
    copied = (dense + experts) * sizes.gradient + tensors.held.adapters * sizes.adapter_gradient
    always = copied * (several & (tensors.layouts.zero == 0) & copies)
    learning = tensors.learned
    bucket = np.minimum(tensors.job.stack.memory.bucket_gib * GIB, learning * tensors.sizes.reduce)
    passing = over_time((LOSS + LAYERS_BACKWARD + BACKWARD_END, bucket * several))
    return np.where(spread(always) > 0, spread(always), passing)
