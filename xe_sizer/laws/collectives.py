"""Time of collectives inside a node, across nodes, and of copies over PCIe."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace
from numpy.typing import ArrayLike, NDArray

from xe_sizer.immutable import Immutable

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, POINT_TO_POINT, RING = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "point_to_point",
    "ring",
)
# NCCL moves data with kernels of 16 to 32 blocks (its channels), each on a multiprocessor of its own, of the 108 of an
# A100 and the 132 of an H100: what compute loses while it hides an exchange. Counted as 20 of 132; the memory that both
# read comes on top.
STOLEN = 0.15


class CollectiveLaw(Immutable, eq=True):
    """Law of one collective inside one node, by the number of ranks.

    t = alpha + c sqrt(MB f) + bytes f / B. Entries of the tuples belong to `ranks` (ascending); a group size
    between two entries is interpolated, one outside takes the nearest.
    """

    ranks: tuple[int, ...]
    alpha_s: tuple[float, ...]
    bus_bytes_per_s: tuple[float, ...]
    root_s_per_sqrt_byte: tuple[float, ...]
    median_error: float | None = None
    p90_error: float | None = None
    source: str = ""


class Network(Immutable, eq=True):
    """What a job's ranks talk over.

    `node_ranks` accelerators share a node's fabric. `scale_out_bytes_per_s` is what one accelerator gets of
    the node's NICs when all of them use it, one direction, after protocol losses; `scale_out_error` what nine in ten
    collectives are closer than to that, None where it was not measured [-]. `stall_s` and `stall_per_node_s` are what
    the function `stall_s` takes. Links inside a node lead along `axes` of a torus, and `chip_ranks` share a chip's.
    """

    node_ranks: int
    scale_up: Mapping[str, CollectiveLaw]
    scale_out_bytes_per_s: float
    scale_out_alpha_s: float
    scale_out_error: float | None = None
    stall_s: float = 0.0
    stall_per_node_s: float = 0.0
    axes: int = 1
    chip_ranks: int = 1


def wire_factor(operation: str, ranks: ArrayLike) -> NDArray[np.float64]:
    """Share of the message that one rank's link carries.

        f = 2 (n - 1) / n      all-reduce
        f = (n - 1) / n        all-gather, reduce-scatter, all-to-all
        f = 1                  send

    Parameters
    ----------
    operation : all_reduce, all_gather, reduce_scatter, all_to_all or point_to_point
    ranks : n, size of the group [-]

    Returns
    -------
    ndarray of float, shape of `ranks` [-]

    Source: convention of nccl-tests: bytes are those of the whole (gathered, or to be reduced) message.
    """
    n = np.maximum(np.asarray(ranks, dtype=np.float64), 1.0)
    if operation == POINT_TO_POINT:
        return np.ones_like(n)
    share = (n - 1.0) / n
    return 2.0 * share if operation == ALL_REDUCE else share


def _node_time_s(
    operation: str, message: NDArray[np.float64], ranks: NDArray[np.float64], law: CollectiveLaw
) -> NDArray[np.float64]:
    x = np.log2(np.maximum(ranks, 1.0))
    known = np.log2(np.asarray(law.ranks, dtype=np.float64))
    carried = message * wire_factor(operation, ranks)
    alpha = np.interp(x, known, law.alpha_s)
    bus = np.interp(x, known, law.bus_bytes_per_s)
    root = np.interp(x, known, law.root_s_per_sqrt_byte)
    return np.asarray(alpha + root * np.sqrt(carried) + carried / bus)


# Published: pods of TPU v5e and v6e are 16 x 16; slices of v4, v5p and TPU7x have 16 chips along an axis from 1,024 on
# (Google Cloud documentation, TPU versions). That smaller groups lie along one axis is assumed.
ALONG_AN_AXIS = 16.0


def links_along_axes(ranks: ArrayLike, network: Network) -> NDArray[np.float64]:
    """Share of the links inside a node that a group uses which fills one axis of a torus after the other.

        s = clip(ln r / ln 16, 1, d) / d      1 without a torus, and for ranks of one chip

    Parameters
    ----------
    ranks : r, size of the group [-]
    network : d, axes of the torus, and the ranks of a chip

    Returns
    -------
    ndarray of float, shape of `ranks` [-]

    Source: https://jax-ml.github.io/scaling-book/sharding: a collective over several axes has the links of all of them.
    """
    r = np.maximum(np.asarray(ranks, dtype=np.float64), 1.0)
    share = np.clip(np.log(r) / np.log(ALONG_AN_AXIS), 1.0, network.axes) / network.axes
    return np.where(r > network.chip_ranks, share, 1.0)


def collective_time_s(
    operation: str,
    message_bytes: ArrayLike,
    ranks: ArrayLike,
    ranks_per_node: ArrayLike,
    network: Network,
    crossing_share: ArrayLike | None = None,
    start_s: float | None = None,
    links: ArrayLike = 1.0,
) -> NDArray[np.float64]:
    """Time of one collective over `ranks` ranks of which `ranks_per_node` share each node.

        t_node(n) = alpha + c sqrt(f(n) bytes) + f(n) bytes / B
        t = max(t_node(g), f(n) (bytes / g) / B_out) + alpha_out log2(2 k)      over k nodes
        t = (n - 1) t_send(bytes / n)                                           ring: each rank's part passes all others

    Across nodes, rings run through all n ranks, one for each of the g ranks that share a node, so the slower tier sets
    the pace: inside the node, or an accelerator's share of the NICs. Of an all-to-all f(k) bytes leave the node.

    Parameters
    ----------
    operation : all_reduce, all_gather, reduce_scatter, all_to_all, point_to_point or ring
    message_bytes : whole message, nccl-tests convention [bytes]
    ranks, ranks_per_node : n, size of the group, and g, how many of it share a node [-]
    network : alpha, c and B by operation and group size; B_out and alpha_out between nodes
    crossing_share : of an all-to-all's message, what leaves the node [-]; None: f(k)
    links : share of the links inside the node that the group sends over [-]
    start_s : of a kernel of its own, in place of alpha + c sqrt(f bytes) and of alpha_out log2(2 k) [s]; None: neither

    Returns
    -------
    ndarray of float, shape that message and ranks broadcast to, seconds [s]; zero for one rank or an empty message

    Source: fits to nccl-tests sweeps (profiles); NCCL's rings. All-reduce over 2 x 8 A100 with 100 GB/s of NICs reaches
    86 to 96 GB/s on the bus (nccl issue 1048, nccl-tests issue 119); 4 GiB over 4 x 8 B200 take 22.05 ms.
    """
    message = np.asarray(message_bytes, dtype=np.float64)
    n = np.asarray(ranks, dtype=np.float64)
    local = np.minimum(np.asarray(ranks_per_node, dtype=np.float64), n)
    if operation == RING:
        part = message / np.maximum(n, 1.0)
        return np.asarray((n - 1.0) * collective_time_s(POINT_TO_POINT, part, n, local, network, links=links))
    nodes = np.maximum(n / np.maximum(local, 1.0), 1.0)
    law = network.scale_up.get(operation) or network.scale_up[ALL_GATHER]
    if start_s is not None:
        law = replace(law, alpha_s=(0.0,) * len(law.ranks), root_s_per_sqrt_byte=(0.0,) * len(law.ranks))
    inside_s = np.where(local > 1, _node_time_s(operation, message / np.asarray(links), local, law), 0.0)
    rings = operation not in (POINT_TO_POINT, ALL_TO_ALL)  # in these every rank sends its own message to its place
    leaving = wire_factor(operation, nodes) if crossing_share is None else np.asarray(crossing_share)
    crossing = message * (wire_factor(operation, n) / local if rings else leaving)
    latency_s = network.scale_out_alpha_s * np.log2(2.0 * nodes) if start_s is None else 0.0
    across_s = np.maximum(inside_s, crossing / network.scale_out_bytes_per_s) + latency_s
    total = np.where(nodes > 1, across_s, inside_s) + (start_s or 0.0)
    return np.where((n > 1) & (message > 0), total, 0.0)


def stall_s(nodes: ArrayLike, network: Network) -> NDArray[np.float64]:
    """What an accelerator waits in a collective over nodes whose hosts send for it, whatever it computes beside it.

        t = s0 log2(2 k) + s1 (k - 1)      over k nodes; 0 over one

    It interrupts its host for every message to another node and waits for what the slowest of them has sent.

    Parameters
    ----------
    nodes : k [-]
    network : s0 and s1, 0 where accelerators reach the NICs themselves

    Returns
    -------
    ndarray of float, shape of `nodes`, seconds [s]

    Source: https://openxla.org/xprof/megascale_stats (stall of send, recv and their ends); the form is fitted to the
    steps of 1 to 32 slices that the profile of the network names.
    """
    k = np.maximum(np.asarray(nodes, dtype=np.float64), 1.0)
    return np.where(k > 1.0, network.stall_s * np.log2(2.0 * k) + network.stall_per_node_s * (k - 1.0), 0.0)


COPY_EFFICIENCY = 0.88  # measured: 55.4 of 63 GB/s on a PCIe 5 x16 H200 with pinned memory


def copy_time_s(
    moved_bytes: ArrayLike, pcie_bytes_per_s: float, efficiency: float = COPY_EFFICIENCY
) -> NDArray[np.float64]:
    """Time to move bytes between host and accelerator over PCIe.

        t = bytes / (e line rate)

    Parameters
    ----------
    moved_bytes : in one direction [bytes]
    pcie_bytes_per_s : line rate of one direction [bytes/s]
    efficiency : e, share of the line rate that pinned memory reaches [-]

    Returns
    -------
    ndarray of float, shape of `moved_bytes`, seconds [s]

    Source: 55.4 of 63 GB/s measured on a PCIe 5 x16 H200 with pinned memory: 0.88 of the line rate.
    """
    return np.asarray(moved_bytes, dtype=np.float64) / (efficiency * pcie_bytes_per_s)
