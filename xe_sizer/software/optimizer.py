"""What an optimizer keeps and moves. Data, one YAML file an optimizer.

An optimizer names a `parent` and overrides what differs; the root of all is AdamW.
"""

from typing import Annotated, Literal

import msgspec

from xe_sizer.units import FLOAT32

Moments = Annotated[float, msgspec.Meta(ge=0, le=16)]
Bytes = Annotated[float, msgspec.Meta(ge=0, le=64)]
Iterations = Annotated[int, msgspec.Meta(ge=0, le=100)]
Steps = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Rank = Annotated[int, msgspec.Meta(ge=1, le=65_536)]
Side = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Count = Annotated[float, msgspec.Meta(ge=0, le=64)]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Kept(_Part, frozen=True):
    """Of a weight's element: `moments`, each in the type that the stack keeps moments in, and bytes of any type.

    line_bytes : of each row and each column of a matrix, beside what its elements have [bytes]
    together : copies of all such weights that the update holds where the stack updates many tensors in one kernel [-]
    """

    moments: Moments
    packed_bytes: Bytes
    line_bytes: Bytes = 0.0
    together: Count = 1.0

    def bytes(self, moment_element_bytes: float) -> float:
        """Size of an element's state where a moment takes so much [bytes]."""
        return self.moments * moment_element_bytes + self.packed_bytes


class State(_Part, frozen=True):
    """State by kind of weight: matrices of the layers, vectors (norms and biases), embeddings with the output head."""

    matrix: Kept
    vector: Kept
    embedding: Kept


class LowRank(_Part, frozen=True):
    """Gradients of the layers' matrices are projected: what a matrix's element keeps, r x n elements keep instead.

    rank : r of the projection, at most the shorter side
    basis : of an element of the m x r projection matrix, m the shorter side
    in_float32 : gradients are cast to float32 before they are projected
    every : steps after which the projection is made anew; decomposed : by a singular value decomposition, else drawn
    products : with the projection in a step, of the gradient and, where the update is made from it, back
    """

    rank: Rank
    basis: Kept
    every: Steps
    decomposed: bool
    products: Count
    in_float32: bool = False

    def basis_bytes(self, m: int, moment_bytes: float) -> float:
        """What is kept to project with, of a matrix whose shorter side is m [bytes].

            bytes = b r m, but 4 m^2 of a decomposition in float32, of which r rows or columns are used as they lie

        Source: galore_torch galore_projector.py, get_orthogonal_matrix: a slice holds the storage of the whole factor,
        unless it is cast back to a narrower type; traced.
        """
        if self.decomposed and (self.in_float32 or moment_bytes >= FLOAT32):
            return float(FLOAT32) * m**2
        return self.basis.bytes(moment_bytes) * min(self.rank, m) * m


class Squares(_Part, frozen=True):
    """Preconditioners of every matrix: one square for each side that is no longer than `largest`.

    blocks : longer sides are cut into blocks of that length; else they have no preconditioner
    kept : squares of a side, in the type of moments
    products : of the whole matrix with the square of a side in every step, those that make its statistics included
    every : steps after which they are decomposed anew; decomposed : by QR, or to an inverse root
    """

    largest: Side
    blocks: bool
    kept: Count
    products: Count
    every: Steps
    decomposed: Literal["qr", "root"]

    def of(self, rows: int, columns: int) -> tuple[tuple[int, int, int], ...]:
        """Preconditioners of a matrix as side, other side of what it works on, and how many there are [-]."""
        if not self.blocks:
            return tuple((s, o, 1) for s, o in ((rows, columns), (columns, rows)) if s <= self.largest)
        pieces = [(a, b, i * j) for a, i in self._cut(rows) for b, j in self._cut(columns)]
        return tuple(each for a, b, count in pieces for each in ((a, b, count), (b, a, count)))

    def elements(self, rows: int, columns: int) -> float:
        """Elements of one square of each of those preconditioners together [-]."""
        return float(sum(count * side**2 for side, _, count in self.of(rows, columns)))

    def _cut(self, side: int) -> tuple[tuple[int, int], ...]:
        """Lengths of the blocks of a side, and how many of each there are."""
        whole, rest = divmod(side, self.largest)
        return tuple((length, count) for length, count in ((self.largest, whole), (rest, 1)) if length and count)


class Temporaries(_Part, frozen=True):
    """What the eager update of a weight holds beside its state, and moves, tensor by tensor.

    copies : of the weight in its own type; float32 : of its elements in float32 whatever that type is
    casts : in float32 where the weight is narrower
    passes : elements read or written, in the weight's type, beyond the states
    """

    copies: Count
    float32: Count
    casts: Count
    passes: Count


class Optimizer(_Part, frozen=True):
    """One optimizer, complete.

    label : as advice names it
    host_bytes : that its step reads and writes per element where it runs on the host, in float32 [bytes]
    in_one_kernel : a weight is updated in one kernel whatever the stack does, without temporaries
    multi_tensor : many tensors are updated in each kernel whatever the stack does
    temporaries : of an eager update that is the same whatever the stack does
    in_backward : a weight is updated as soon as its gradient is there, which is freed
    block_layers : of the model's layers that learn at a time, while the rest and the ends are frozen; 0: all learn
    masters : it updates the stack's master copies, where there are any; else the weights themselves
    master_bytes : of an element of these copies, where it keeps them in fewer bytes than the stack [bytes]
    paged : its state lives in unified memory, which the driver moves to the host when the card is full
    newton_schulz_iterations : that make the momentum of a matrix orthogonal, three products each [-]
    smaller : name of the same optimizer with smaller states, or with states that leave the card, where there is one
    stacks : that have it beside those that say so themselves; whatever inherits from one of them has it too
    aliases : what other tools call it
    """

    name: str
    label: str
    describes: str
    source: str
    state: State
    host_bytes: Bytes
    in_one_kernel: bool
    paged: bool
    newton_schulz_iterations: Iterations
    multi_tensor: bool = False
    temporaries: Temporaries | None = None
    in_backward: bool = False
    block_layers: Iterations = 0
    masters: bool = True
    master_bytes: Bytes | None = None
    low_rank: LowRank | None = None
    squares: Squares | None = None
    smaller: str | None = None
    stacks: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    parent: str | None = None

    def transient(self, of_stack: str) -> str:
        """What the update of a stack holds with this optimizer, as `MemoryAround.optimizer_transient` has it."""
        # Narrow masters are updated from gradients as they are (Megatron-LM distrib_optimizer.py, decoupled_grad).
        narrow = self.master_bytes is not None and self.master_bytes < FLOAT32
        if narrow and of_stack == "float32-gradients":
            return "fused"
        return "multi-tensor" if self.multi_tensor and of_stack == "fused" else of_stack

    def at_rank(self, rank: int) -> "Optimizer":
        """The same where gradients are projected to another rank; itself where they are not."""
        low = self.low_rank
        return self if low is None else msgspec.structs.replace(self, low_rank=msgspec.structs.replace(low, rank=rank))
