"""What an optimizer keeps and moves. Data, one YAML file an optimizer.

An optimizer names a `parent` and overrides what differs; the root of all is AdamW.
"""

from typing import Annotated

import msgspec

from xe_sizer.errors import Where
from xe_sizer.profiles.finder import BUILT_IN, Finder
from xe_sizer.profiles.inherited import load_inherited

Moments = Annotated[float, msgspec.Meta(ge=0, le=16)]
Bytes = Annotated[float, msgspec.Meta(ge=0, le=64)]
Iterations = Annotated[int, msgspec.Meta(ge=0, le=100)]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Kept(_Part, frozen=True):
    """Of a weight's element: `moments`, each in the type that the stack keeps moments in, and bytes of any type."""

    moments: Moments
    packed_bytes: Bytes

    def bytes(self, moment_element_bytes: float) -> float:
        """Size of an element's state where a moment takes so much [bytes]."""
        return self.moments * moment_element_bytes + self.packed_bytes


class State(_Part, frozen=True):
    """State by kind of weight: matrices of the layers, vectors (norms and biases), embeddings with the output head."""

    matrix: Kept
    vector: Kept
    embedding: Kept


class Optimizer(_Part, frozen=True):
    """One optimizer, complete.

    label : as advice names it
    host_bytes : that its step reads and writes per element where it runs on the host, in float32 [bytes]
    in_one_kernel : a weight is updated in one kernel whatever the stack does, without temporaries
    paged : its state lives in unified memory, which the driver moves to the host when the card is full
    newton_schulz_iterations : that make the momentum of a matrix orthogonal, three products each [-]
    smaller : name of the same optimizer with smaller states, or with states that leave the card, where there is one
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
    smaller: str | None = None
    aliases: tuple[str, ...] = ()
    parent: str | None = None


def optimizer_names(finder: Finder = BUILT_IN) -> tuple[str, ...]:
    return finder.names("optimizer")


def load_optimizer(name: str, where: Where = None, finder: Finder | None = None) -> Optimizer:
    """The optimizer of that name, or of a path to a user's own file. Raises InputError."""
    return load_inherited("optimizer", Optimizer, name, where, finder)
