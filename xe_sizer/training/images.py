"""Images of the samples of a job: how many, how large, and the tokens that they become."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import Learning
    from xe_sizer.graph.model import VisionTower
    from xe_sizer.graph.vision import Seen


@frozen
class Images:
    """The images of a sequence, and what encodes them.

    tower : the encoder and its projector; encoder, projector : what of each learns
    each : images of a sequence [-]; seen : what becomes of one
    forced : with recomputation the encoder's inputs are made to need gradients, so that the backward passes frozen
    layers too
    """

    tower: VisionTower
    encoder: Learning
    projector: Learning
    each: float
    seen: Seen
    forced: bool = False

    @property
    def pieces(self) -> float:
        """Pieces of a sequence's images, which the encoder sees apart [-]"""
        return self.each * self.seen.pieces

    @property
    def tokens(self) -> float:
        """Tokens of the language model for the images of a sequence [tokens]"""
        return self.each * self.seen.tokens

    @property
    def patches(self) -> float:
        """Patches of a sequence's images [-]"""
        return self.pieces * self.seen.patches
