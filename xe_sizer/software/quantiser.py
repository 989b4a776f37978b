"""What libraries that keep frozen weights in few bits hold of a weight, and what they move to use it.

Data, one YAML file a library. The root of all is bitsandbytes.
"""

from typing import Annotated

import msgspec

from xe_sizer.software.release import Release
from xe_sizer.units import FLOAT32, SIXTEEN_BIT

Bits = Annotated[int, msgspec.Meta(ge=1, le=16)]
Bytes = Annotated[float, msgspec.Meta(ge=0, le=64)]
Stored = Annotated[float, msgspec.Meta(gt=0, le=4)]
Launches = Annotated[int, msgspec.Meta(ge=0, le=100)]


class Width(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Weights of so many bits.

    stored_bytes : a weight with its share of scales and zero points [bytes]
    forward_bytes, backward_bytes : read and written for a weight to have it in 16 bit, before the product of the
    forward and that of the input's gradient [bytes]
    launches : kernels that do so, in the forward
    input_bytes, output_bytes : moved beside the forward's product for an element of its input and output [bytes]
    keeps_weight : autograd keeps the weight in 16 bit until its backward, which then need not expand it again
    keeps_input : autograd keeps the input of the product
    """

    bits: Bits
    stored_bytes: Stored
    forward_bytes: Bytes
    backward_bytes: Bytes
    launches: Launches
    input_bytes: Bytes = 0.0
    output_bytes: Bytes = 0.0
    keeps_weight: bool = False
    keeps_input: bool = False

    @property
    def expands(self) -> bool:
        """Whether a weight stands in memory in 16 bit while it is used."""
        return self.forward_bytes > 0 or self.backward_bytes > 0


class Quantiser(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One library, complete.

    widths : that it has, the first where nobody says
    casts : a weight is expanded to the type that it was quantised from, and cast to that of the product
    upcasts : peft makes everything float32 that the library leaves as it is (prepare_model_for_kbit_training)
    parts : matrices beside the language model's layers, of an encoder of images, are held in few bits too
    default : stands for all where no stack names another
    aliases : what else people call it, and libraries that do the same
    releases : what older ones did otherwise; release : that was asked for; None: the newest
    """

    name: str
    describes: str
    source: str
    widths: Annotated[tuple[Width, ...], msgspec.Meta(min_length=1)]
    casts: bool
    upcasts: bool
    parts: bool
    default: bool = False
    aliases: tuple[str, ...] = ()
    parent: str | None = None
    releases: tuple[Release, ...] = ()
    release: str | None = None

    @property
    def bits(self) -> tuple[int, ...]:
        """Bits of a weight that it has."""
        return tuple(width.bits for width in self.widths)

    def width(self, bits: int | None = None) -> Width:
        """Weights of so many bits, or of the usual number. Raises StopIteration for one that it does not have."""
        return next(width for width in self.widths if bits in (None, width.bits))

    def cast_bytes(self, quantised_from_bytes: float) -> float:
        """What a wider type than 16 bit adds to the bytes moved for a weight.

            bytes = (wide - 16 bit) + (wide + 16 bit)      written wider, then read and written as 16 bit

        Parameters
        ----------
        quantised_from_bytes : size of an element of what the weights were quantised from [bytes]

        Returns
        -------
        float [bytes], a number: shape ()

        Source: bitsandbytes (autograd/_functions.py, MatMul4Bit: dequantize_4bit(B, quant_state).to(A.dtype)).
        """
        wide = self.casts and quantised_from_bytes >= FLOAT32
        return 2.0 * FLOAT32 if wide else 0.0

    def buffer_bytes(self, quantised_from_bytes: float) -> float:
        """Size of an expanded weight's element while it is used, with what it is cast from [bytes]."""
        return SIXTEEN_BIT + (FLOAT32 if self.cast_bytes(quantised_from_bytes) else 0.0)
