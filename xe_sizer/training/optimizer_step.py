"""What optimizers do to whole matrices once a step: they make them orthogonal, project or precondition them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.graph.operators import as_array
from xe_sizer.laws.collectives import ALL_GATHER, collective_time_s
from xe_sizer.laws.matmul import matmul_time_s
from xe_sizer.training.model_states import learning_matrices
from xe_sizer.units import SIXTEEN_BIT

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.laws.operator_time import Device
    from xe_sizer.software.optimizer import LowRank, Optimizer, Squares
    from xe_sizer.training.job import Job
    from xe_sizer.training.layout import Layouts, Stages
    from xe_sizer.training.model_states import Matrices

# published: singular value decompositions of all matrices of LLaMA 7B, 4.5e14 FLOP, take ten minutes on an A100
# (APOLLO, arXiv:2412.05270, section 1; Q-GaLore, arXiv:2407.08296, section 1)
DECOMPOSITION_FLOP_PER_S = 7.4e11
QR_FLOP_PER_S = 4e12  # assumed: blocked Householder reflections, mostly float32 products of narrow blocks


def newton_schulz_time_s(rows: int, columns: int, iterations: int, device: Device) -> float:
    """Time to make one matrix orthogonal on one accelerator, in 16 bit.

        X <- a X + (b G + c G G) X,  G = X X^T
        t = iterations (t(m, m, n) + t(m, m, m) + t(m, n, m)),  m = min(rows, columns), n = max(rows, columns)

    An iteration is three products: G of 2 m^2 n FLOP, its square of 2 m^3, and the last of 2 m^2 n.

    Parameters
    ----------
    rows, columns : of the matrix [-]
    iterations : usually 5 [-]
    device : whose law of 16-bit products t(m, n, k) is

    Returns
    -------
    float, seconds [s], one number: shape ()

    Source: Jordan et al. 2024, kellerjordan.github.io/posts/muon; products by the accelerator's law.
    """
    m, n = sorted((rows, columns))
    law, peak = device.scan_matmul, device.attention_peak_flops_per_s
    wide, inner = np.array([m, m, n]), np.array([n, m, m])  # columns of the three, and what they sum over
    seconds = matmul_time_s(m, wide, inner, law, peak, device.bandwidth_bytes_per_s, SIXTEEN_BIT)
    return iterations * float(seconds.sum()) if iterations else 0.0


def low_rank_time_s(rows: int, columns: int, low: LowRank, device: Device) -> float:
    """Time to project the gradient of one matrix and to bring its update back, with the projection's share of a step.

        t = products t(n, r, m) + d / every,  d = (4 m^2 n + 22 m^3) / rate of decompositions

    A projection that is drawn takes no d.

    Parameters
    ----------
    rows, columns : of the matrix, m the smaller, n the larger [-]
    low : its rank r, products of a step, and the steps after which the projection is made anew
    device : whose law of 16-bit products t(rows, columns, inner) is

    Returns
    -------
    float, seconds [s], one number: shape ()

    Source: galore_torch galore_projector.py; FLOP of a singular value decomposition with vectors: Golub and Van Loan,
    Matrix Computations, table 8.6.1 (R-SVD).
    """
    m, n = sorted((rows, columns))
    decomposed = (4.0 * m**2 * n + 22.0 * m**3) / DECOMPOSITION_FLOP_PER_S if low.decomposed else 0.0
    return low.products * _product_s(n, min(low.rank, m), m, device) + decomposed / low.every


def preconditioning_time_s(rows: int, columns: int, squares: Squares, device: Device) -> float:
    """Time to precondition one matrix, with the decompositions' share of a step.

        t = sum over preconditioned sides s of products t(s, o, s) + (2 t(s, s, s) + d) / every,  o the other side
        d = 8/3 s^3 / rate of QR, or 9 s^3 / rate of decompositions

    Parameters
    ----------
    rows, columns : of the matrix [-]
    squares : products of a step, and what is decomposed after how many steps
    device : whose law of 16-bit products t(rows, columns, inner) is

    Returns
    -------
    float, seconds [s], one number: shape ()

    Source: SOAP (arXiv:2409.11321), algorithm 3; Shampoo (arXiv:1802.09568); FLOP of QR with its factor, and of
    eigenvectors of a symmetric matrix: Golub and Van Loan, Matrix Computations, sections 5.2 and 8.3.
    """
    seconds = 0.0
    for side, other, count in squares.of(rows, columns):
        by_qr = squares.decomposed == "qr"
        decomposed = 8.0 / 3.0 * side**3 / QR_FLOP_PER_S if by_qr else 9.0 * side**3 / DECOMPOSITION_FLOP_PER_S
        anew = 2.0 * _product_s(side, side, side, device) + decomposed
        seconds += count * (squares.products * _product_s(side, other, side, device) + anew / squares.every)
    return seconds


def matrix_work_time_s(job: Job, layouts: Layouts, stages: Stages) -> Array:
    """Time that the optimizer takes for whole matrices of the fullest stage, once a step.

        t = sum over kinds of matrix of count / s t_one + gather over s ranks + gather over tp ranks

    Whole matrices are gathered in 16 bit: over the tensor-parallel ranks, each of which then does the products, and
    over the s ranks that share the optimizer's states, which divide the matrices among themselves.

    Parameters
    ----------
    job : its optimizer says what is done to a matrix, its method what learns
    layouts : of the ranks; ZeRO 1 and above shares the states
    stages : layers of each

    Returns
    -------
    ndarray of float, shape (layout,), seconds [s]

    Source: Distributed Muon of Liu et al. 2025 (arXiv:2502.16982); TensorParallelMuon of Megatron-Core, duplicated;
    Distributed Shampoo of Shi et al. 2023 (arXiv:2309.06497).
    """
    optimizer = job.optimizer
    total = np.zeros(len(layouts))
    if not (optimizer.newton_schulz_iterations or optimizer.low_rank or optimizer.squares):
        return total
    sharded = layouts.zero >= 1
    stage_share = stages.fullest / job.model.layers
    for matrices in learning_matrices(job):
        group = as_array(layouts.expert_zero_ranks if matrices.experts else layouts.zero_ranks)
        share = np.where(sharded, group, 1.0)
        count = matrices.count * stage_share / (layouts.ep if matrices.experts else 1)
        once = _one_matrix_s(matrices, optimizer, job.device)
        total = total + count / share * once + gathering_s(job, layouts, matrices, count, share)
    return total


def orthogonalisation_bytes(job: Job) -> float:
    """Workspace of the products of the largest matrix that learns.

        bytes = 2 (2 m n + 2 m^2)

    In 16 bit: the gathered matrix and its next iterate, of m rows and n columns, m <= n, and both products, G and G G.

    Parameters
    ----------
    job : its optimizer says whether there are products, its method what learns

    Returns
    -------
    float, workspace [bytes], one number: shape ()

    Source: own count of what Newton-Schulz iterations of torch.optim.Muon hold together.
    """
    if not job.optimizer.newton_schulz_iterations:
        return 0.0
    sizes = [sorted((matrices.rows, matrices.columns)) for matrices in learning_matrices(job)]
    return max((SIXTEEN_BIT * 2.0 * (m * n + m * m) for m, n in sizes), default=0.0)


def _product_s(rows: int, columns: int, inner: int, device: Device) -> float:
    """Time of one product in 16 bit [s]."""
    law, peak = device.scan_matmul, device.attention_peak_flops_per_s
    return float(matmul_time_s(rows, columns, inner, law, peak, device.bandwidth_bytes_per_s, SIXTEEN_BIT))


def _one_matrix_s(matrices: Matrices, optimizer: Optimizer, device: Device) -> float:
    """What the optimizer does to one matrix in a step [s]."""
    rows, columns = matrices.rows, matrices.columns
    seconds = newton_schulz_time_s(rows, columns, optimizer.newton_schulz_iterations, device)
    if optimizer.low_rank is not None:
        seconds += low_rank_time_s(rows, columns, optimizer.low_rank, device)
    if optimizer.squares is not None:
        seconds += preconditioning_time_s(rows, columns, optimizer.squares, device)
    return seconds


def gathering_s(job: Job, layouts: Layouts, matrices: Matrices, count: Array, share: Array) -> Array:
    """Seconds of gathering whole matrices from the ranks that hold parts of them.

        time = (all-gather of held / tp over the ranks that share states + of held / share over tp) / efficiency
        held = count x rows x columns x 2 bytes

    Parameters
    ----------
    job : network and efficiency of collectives
    layouts : of shape (layout,)
    matrices : rows and columns of each, and how many tensor ranks hold one [-]
    count : matrices that are gathered, shape (layout,) [-]
    share : ranks that share the states, shape (layout,) [-]

    Returns
    -------
    ndarray of float, shape (layout,) [s]

    Source: own derivation; collective laws.
    """
    tp = matrices.tensor_ranks(layouts)
    node = job.network.node_ranks
    held_bytes = count * float(matrices.rows * matrices.columns) * SIXTEEN_BIT
    over_states = collective_time_s(ALL_GATHER, held_bytes / tp, share, np.clip(node // tp, 1, share), job.network)
    over_tensors = collective_time_s(ALL_GATHER, held_bytes / share, tp, np.minimum(tp, node), job.network)
    return np.asarray((over_states + over_tensors) / job.stack.efficiency.collectives)
