"""Speculative decoding: who proposes tokens, how many, and how often each is kept where nobody measured it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from xe_sizer.immutable import Immutable

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape

Acceptance = tuple[float, ...]
"""Probability that the token at each position is kept if those before it were [-]; the last holds for all others."""


class Drafting(Immutable, eq=True):
    """One method of speculative decoding.

    label : what reports call it; tokens : that are proposed in a step where nobody says
    acceptance, low, high : published acceptance by position, in the middle and at both ends of what was published
    source : of these
    own_weights : it has weights beside those of the model that engines hold in 16 bit, whatever the model's format
    computes : it runs on the GPUs; else it looks up what was written before
    own_head : its vocabulary's logits come of weights of its own
    at_once : one pass drafts all positions; else each draft follows the one before
    """

    name: str
    label: str
    tokens: int
    acceptance: Acceptance
    low: Acceptance
    high: Acceptance
    source: str
    own_weights: bool = False
    computes: bool = True
    own_head: bool = False
    at_once: bool = False


MTP, EAGLE, EAGLE3, DRAFT_MODEL, NGRAM = "mtp", "eagle", "eagle3", "draft-model", "ngram"
MEDUSA, DFLASH, SUFFIX = "medusa", "dflash", "suffix"

METHODS = {
    row.name: row
    for row in (
        # By position from mean tokens of steps with 1 to 8 drafts: a(k) = (AL(k) - AL(k-1)) / (AL(k-1) - AL(k-2)).
        Drafting(
            MTP, "the model's own MTP modules", 1, (0.87, 0.79, 0.74, 0.69), (0.79, 0.61, 0.46, 0.23),
            (0.93, 0.86, 0.83, 0.88),
            "DeepSeek-V4-Pro, GLM-5.2 and Qwen3.5-397B on SPEED-Bench coding (InferenceX golden_al_distribution), "
            "DeepSeek-V3 with 0.85 to 0.90 for the first (arXiv:2412.19437)",
        ),
        Drafting(
            EAGLE, "an EAGLE head", 3, (0.70, 0.57, 0.48), (0.60, 0.48, 0.40), (0.79, 0.74, 0.72),
            "Llama-3.1-8B on MT-Bench (vLLM issue 20780 and pull request 16035), the best of arXiv:2401.15077", True,
        ),
        Drafting(
            EAGLE3, "an EAGLE-3 head", 3, (0.74, 0.72, 0.69, 0.67), (0.65, 0.61, 0.51), (0.83, 0.74, 0.75, 0.80),
            "Llama-3.1-8B, Qwen3-8B and gpt-oss-20b on MT-Bench (vLLM tests/v1/spec_decode/test_acceptance_length.py), "
            "Kimi-K2.5 and MiniMax-M3 on SPEED-Bench coding (InferenceX golden_al_distribution)", True, own_head=True,
        ),
        Drafting(
            DRAFT_MODEL, "a draft model", 3, (0.75,), (0.5,), (0.9,),
            "0.5 to 0.9 with models orders of magnitude smaller (arXiv:2211.17192); the middle is assumed", True,
            own_head=True,
        ),
        Drafting(
            NGRAM, "n-grams of the prompt", 3, (0.35, 0.60, 0.70), (0.10, 0.40, 0.50), (0.81, 0.91, 0.95),
            "0.54 to 0.81 for the first where there is a match (vLLM issue 19254 and pull request 24344); assumed "
            "below, as steps without a match propose nothing", computes=False,
        ),
        # Later heads from what each gets right alone, 0.68, 0.33 and 0.18: one that is right follows others that are.
        Drafting(
            MEDUSA, "Medusa heads", 3, (0.62, 0.45, 0.48), (0.50, 0.40, 0.40), (0.68, 0.48, 0.55),
            "0.60 for the first head (arXiv:2401.10774, section 2.3.3), 0.68, 0.33 and 0.18 alone for three heads of "
            "Llama-3.1-70B (TensorRT-LLM issue 2506); assumed below, for heads of less training", True, own_head=True,
            at_once=True,
        ),
        # Rates alike behind the first, from mean tokens of steps with 15 drafts.
        Drafting(
            DFLASH, "a DFlash block", 15, (0.80, 0.75), (0.68, 0.62), (0.83, 0.80),
            "Qwen3-8B: 2.8 tokens a step (SGLang issue 29244), 3.28 on MT-Bench and 5.00 on GSM8K (Model-Optimizer "
            "pull request 1211), 0.82 for the first and 4.74 in all on mathematics (Red Hat's speculator)", True,
            at_once=True,
        ),
        Drafting(
            SUFFIX, "suffixes of answers before", 3, (0.40, 0.62, 0.70), (0.08, 0.50, 0.50), (0.85, 0.92, 0.95),
            "0.62 for the first in the eighth of the steps that have a match on MT-Bench (vLLM pull request 24852), "
            "5.3 times the speed where agents repeat themselves (arXiv:2411.04975); the middle is assumed, above "
            "n-grams of the prompt, which it beats on Spec-Bench (vLLM pull request 25784)", computes=False,
        ),
    )
}  # fmt: skip


NO_DRAFTS = "none"
"""Where no tokens are proposed, though the model has modules for it."""


def drafting_names() -> tuple[str, ...]:
    return (*METHODS, NO_DRAFTS)


def other_draftings() -> dict[str, str]:
    """What engines call the methods."""
    return {
        "nextn": MTP, "deepseek_mtp": MTP, "eagle-3": EAGLE3, "eagle2": EAGLE, "eagle-2": EAGLE,
        "draft_model": DRAFT_MODEL, "standalone": DRAFT_MODEL, "draft_target": DRAFT_MODEL, "draft": DRAFT_MODEL,
        "n-gram": NGRAM, "prompt_lookup": NGRAM, "suffix_decoding": SUFFIX, "off": NO_DRAFTS,
    }  # fmt: skip


def drafting_of(method: str | None, draft_model: str | None, tokens: int | None, model: ModelShape) -> str | None:
    """The method that is asked for: as named, by the model that drafts, or by the modules that the model has.

    None: none, or proposals of which nobody says where they come from
    """
    if tokens == 0:
        return None
    if method is not None:
        return None if method == NO_DRAFTS else method
    if draft_model is not None:
        return named_drafting(draft_model)
    return MTP if tokens and model.mtp_layers else None


def named_drafting(draft_model: str) -> str:
    """The method of what drafts, by its name: heads say what they are in theirs, models that write text nothing."""
    said = draft_model.lower().replace("eagle-3", EAGLE3)
    return next((name for name in (EAGLE3, EAGLE, MEDUSA, DFLASH) if name in said), DRAFT_MODEL)


def extended(acceptance: Sequence[float], positions: int) -> Acceptance:
    """Acceptance at so many positions: as stated, and the last for all that follow [-]."""
    return tuple(acceptance[min(place, len(acceptance) - 1)] for place in range(positions))


def kept_tokens(acceptance: Sequence[float]) -> float:
    """Mean tokens that a sequence gains in a step of speculative decoding [-].

        tokens = 1 + a1 + a1 a2 + ... + a1 a2 ... ak
        tokens = (1 - a^(k + 1)) / (1 - a)                all positions alike

    Parameters
    ----------
    acceptance : a, the probability that the draft at each position is kept if those before it were [-]

    Returns
    -------
    float, 1 without drafts [-]

    Source: arXiv:2211.17192, equation 1, by position: a step ends with the first draft that is not kept, and one token
    of the model itself.
    """
    gained = kept = 1.0
    for one in acceptance:
        kept *= one
        gained += kept
    return gained


def branched(acceptance: Sequence[float], width: int) -> Acceptance:
    """Acceptance at each position of a tree that proposes several tokens there [-].

        a_w = 1 - (1 - a)^(1 + log2(w) / 3)

    Parameters
    ----------
    acceptance : a, of the likeliest token at each position [-]
    width : w, tokens that are proposed at each [-]

    Returns
    -------
    tuple of float [-]

    Source: fitted to Medusa's first head, right with 0.6 by its likeliest token and with 0.8 by one of five
    (arXiv:2401.10774, section 2.3.3).
    """
    return tuple(1.0 - (1.0 - one) ** (1.0 + math.log2(width) / 3.0) for one in acceptance)
