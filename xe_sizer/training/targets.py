"""Encoder-decoders under training: the length of what they answer, and the layouts that they have no equation for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.scenario.provenance import problem_at

if TYPE_CHECKING:
    from xe_sizer.errors import Problem
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.scenario.provenance import Provenance
    from xe_sizer.scenario.read import Given

# Published: T5 reads 512 tokens and answers with 114, the spans that are missing there (arXiv:1910.10683).
MISSING_SPANS = 114 / 512
TUNED_TARGETS = 0.25  # assumed: summaries are shorter, translations as long
WHOLE_LAYOUTS = {"pp": "pipelines", "cp": "context parallelism"}


def target_share(provenance: Provenance, model: ModelShape, seq_len: int, fine_tunes: bool) -> float:
    """Tokens of the decoder's sequence over those of the encoder's; 1 for models of one half.

        share = target_len / seq_len,  target_len = max(part x seq_len, 1) where nobody says it
        part = 114 / 512 (the missing spans), 1 (the whole text), 1 / 4 (fine-tuning)

    Parameters
    ----------
    provenance : of the scenario's keys
    model : the model that is trained
    seq_len : tokens of the encoder's sequence [-]
    fine_tunes : the job answers something else than pre-training does

    Returns
    -------
    float [-]

    Source: definition; pre-training of T5 (arXiv:1910.10683) and of BART, which rebuilds all of a text whose spans are
    masks (arXiv:1910.13461, section 2.2).
    """
    if not model.encoder_layers:
        return 1.0
    part = TUNED_TARGETS if fine_tunes else 1.0 if model.whole_targets else MISSING_SPANS
    return int(provenance.settle("train.target_len", max(int(part * seq_len), 1))) / seq_len


def half_conflicts(given: Given, model: ModelShape) -> Iterator[Problem]:
    """Layouts that split the layers or the tokens of an encoder-decoder, and targets of a model without a decoder."""
    for key, words in WHOLE_LAYOUTS.items():
        if model.encoder_layers and (getattr(given.values.layout, key) or 1) > 1:
            message = f"{words} of an encoder and a decoder have no equation yet ({model.name})"
            yield problem_at(given, f"layout.{key}", message, "spread it over tp and dp, with ZeRO")
    if given.values.train.target_len is not None and not model.encoder_layers:
        message = f"{model.name} has no decoder apart from an encoder, whose sequences 'target_len' would be"
        yield problem_at(given, "train.target_len", message, "leave it out")
