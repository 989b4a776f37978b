"""Low-rank adapters (LoRA, Hu et al. 2021, arXiv:2106.09685), with magnitudes of their own (DoRA) or a frozen A."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen
from xe_sizer.graph.adapters import AdapterForm

if TYPE_CHECKING:
    from xe_sizer.graph.adapters import Place, Size
    from xe_sizer.graph.operators import MemoryBound, Operator

MAGNITUDE_LAUNCHES = (12.0, 6.0)  # counted: kernels of the forward and of the backward (peft, tuners/lora/dora.py)


@frozen(eq=True)
class Factors(AdapterForm):
    """Two factors of a low rank, A of r rows and k columns, B of n rows and r columns, whatever is made of them."""

    rank: int

    def elements(self, n: Size, k: Size) -> Size:
        """Elements of A and B [-]: r (k + n)."""
        return self.rank * (k + n)

    def matrices(self, n: int, k: int) -> tuple[tuple[int, int], ...]:
        """A and B [-]."""
        return ((self.rank, k), (n, self.rank))


@frozen(eq=True)
class LowRank(Factors):
    """x A^T B^T beside x W^T: A has `rank` rows, B as many columns.

    magnitudes : the norm of each row of W + B A is an own parameter (DoRA, Liu et al. 2024, arXiv:2402.09353)
    freezes_first : A does not learn, so that its input need not be kept (LoRA-FA, Zhang et al. 2023, arXiv:2308.03303)

    elements = r (inputs + outputs), and as many magnitudes as outputs
    Source: peft (tuners/lora/layer.py, Linear.forward).
    """

    magnitudes: bool = False
    freezes_first: bool = False

    @property
    def joins(self) -> bool:
        return not (self.magnitudes or self.freezes_first)

    def elements(self, n: Size, k: Size) -> Size:
        """Elements of A and B [-]: r (k + n), and n magnitudes."""
        return self.rank * (k * float(not self.freezes_first) + n) + n * float(self.magnitudes)

    def buffer_bytes(self, n: Size, k: Size) -> Size:
        """A where it does not learn, in float32 as peft keeps it [bytes]."""
        return 4.0 * self.rank * k * float(self.freezes_first)

    def matrices(self, n: int, k: int) -> tuple[tuple[int, int], ...]:
        """A and B [-]."""
        both = super().matrices(n, k)
        return both[1:] if self.freezes_first else both

    def operators(self, at: Place) -> Iterator[Operator]:
        """The two products, and the kernels around them.

        A column-split weight keeps A whole and splits B, a row-split one splits A, as Megatron's parallel adapters do.
        """
        yield from at.chain(self.rank, learns=(not self.freezes_first, True))
        yield at.sum()
        if self.magnitudes:
            yield _magnitudes(at)


def _magnitudes(at: Place) -> MemoryBound:
    """DoRA's norm of W + s B A in every forward, and its magnitudes times the outputs.

    Of a weight's element: B A (1 written), a copy of W (2 bytes read, 1 written), s B A (2), the sum (3), its norm (1);
    the identity that B A is computed from (2 of inputs squared). Of an output: magnitudes times that of the frozen
    weight (2) and of the adapter (2), the scale (2), the sum (3). The norm has no gradient. Both outputs are kept; the
    identity and four matrices like the weight stand beside each other for a while.
    Source: peft (tuners/lora/dora.py, DoraLinearLayer.forward and get_weight_norm).
    """
    size, n, k = at.size, at.n, at.k
    of_weights = n * k * (8.0 * size + at.element_bytes) + 2.0 * k * k * size
    of_outputs = 9.0 * at.tokens * n * size
    return at.kernels(
        "magnitudes",
        of_weights + of_outputs,
        of_outputs,
        MAGNITUDE_LAUNCHES,
        saved_bytes=at.tokens * n * (at.element_bytes + size),
        temporary_bytes=(4.0 * n + k) * k * size,
    )
