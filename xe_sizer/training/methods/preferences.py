"""Preference methods: pairs of answers, with and without a frozen reference, rewards and distillation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Problem
from xe_sizer.graph.model import CLASSES, VALUES
from xe_sizer.software.stack import Objective
from xe_sizer.training.methods.method import Frozen, Method, register

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.training.methods.method import MethodKind, MethodOptions

# The reference model of jobs that compare answers: a copy, the model without its adapters, or a pass beforehand.

NONE, COPY, PRECOMPUTED, ADAPTERS_OFF = "none", "copy", "precomputed", "adapters-off"
REFERENCE = "reference model"
"""As reports name it."""
Companions = tuple[tuple[Frozen, ...], tuple[Frozen, ...]]
"""What passes in every step, and what passes once before."""


def reference_passes(options: MethodOptions, forwards: int = 1) -> Companions:
    """Return the passes of the reference: those of every step, and those once beforehand.

    forwards : of every sequence [-]
    Raises InputError where adapters shall be off and there are none.

    Source: TRL's DPOTrainer, which holds no reference model beside adapters (is_peft_model) and may compute its
    log-probabilities before the training (precompute_ref_log_probs); LLaMA-Factory train/dpo/trainer.py.
    """
    # The frozen weights where adapters learn, else a copy, unless somebody says.
    chosen = options.reference or (ADAPTERS_OFF if options.trained.kind else COPY)
    if chosen == ADAPTERS_OFF and options.trained.kind is None:
        raise InputError(Problem("there are no adapters that could be off", hint=f"'{COPY}' keeps the model twice"))
    if chosen == NONE:
        return (), ()
    passes = Frozen(REFERENCE, copies=int(chosen == COPY), forwards=forwards)
    return ((), (passes,)) if chosen == PRECOMPUTED else ((passes,), ())


# Kahneman-Tversky optimisation (Ethayarajh et al. 2024, arXiv:2402.01306): single answers, each good or bad.

DIVERGENCE = Frozen("estimate of the divergence", copies=0, adapted=True)
"""A prompt with the answer to another passes through the model that learns, without gradients."""


@register("kto", label="KTO", evidence="sft", implies_adapter=True, reads=("train.reference",), aliases=("bco",))
def kto(kind: MethodKind, model: ModelShape, options: MethodOptions) -> Method:
    """Each answer forwards and backwards; a mismatched one forwards; and both through the reference.

    Source: TRL KTOTrainer (_compute_kl_logps, forward, get_batch_loss_metrics); LLaMA-Factory train/kto/trainer.py.
    """
    frozen, before = reference_passes(options, forwards=2)
    return Method(kind, options.trained, frozen=(DIVERGENCE, *frozen), before=before, objective=Objective.ANSWERS)


# Direct preference optimisation (Rafailov et al. 2023, arXiv:2305.18290): pairs of answers beside a reference.


@register(
    "dpo", label="DPO", evidence="sft", implies_adapter=True, reads=("train.reference",), place=5,
    aliases=("ipo", "dpop", "apo", "robust-dpo", "direct-preference-optimization"),
)  # fmt: skip
def dpo(kind: MethodKind, model: ModelShape, options: MethodOptions) -> Method:
    """Chosen and rejected in one batch, and both once more through the reference; IPO and its kin cost the same.

    Source: TRL DPOTrainer.concatenated_forward and _compute_loss.
    """
    frozen, before = reference_passes(options)
    return Method(
        kind, options.trained, sequences_per_sample=2, frozen=frozen, before=before,
        objective=Objective.LOG_PROBABILITIES,
    )  # fmt: skip


# Odds ratio preference optimisation (Hong et al. 2024, arXiv:2403.07691): pairs of answers without a reference.


@register("orpo", label="ORPO", evidence="sft", implies_adapter=True)
def orpo(kind: MethodKind, model: ModelShape, options: MethodOptions) -> Method:
    """Log-probabilities of both answers, and the cross-entropy of the chosen one.

    Source: TRL ORPOTrainer.concatenated_forward.
    """
    return Method(kind, options.trained, sequences_per_sample=2, objective=Objective.ODDS_RATIO)


# Simple and contrastive preference optimisation: pairs of answers, and nothing else.
#
# SimPO: Meng et al. 2024, arXiv:2405.14734. CPO: Xu et al. 2024, arXiv:2401.08417.


@register("simpo", label="SimPO", evidence="sft", implies_adapter=True)
def simpo(kind: MethodKind, model: ModelShape, options: MethodOptions) -> Method:
    """Mean log-probabilities of both answers.

    Source: TRL CPOTrainer.concatenated_forward with the loss type simpo and cpo_alpha 0.
    """
    return Method(kind, options.trained, sequences_per_sample=2, objective=Objective.LOG_PROBABILITIES)


@register("cpo", label="CPO", evidence="sft", implies_adapter=True)
def cpo(kind: MethodKind, model: ModelShape, options: MethodOptions) -> Method:
    """Log-probabilities of both answers, and the cross-entropy of the chosen one.

    Source: TRL CPOTrainer.concatenated_forward.
    """
    return Method(kind, options.trained, sequences_per_sample=2, objective=Objective.ODDS_RATIO)


# Distillation of logits: a student learns all that a frozen teacher says of each token.
#
# Hinton et al. 2015, arXiv:1503.02531; GKD: Agarwal et al. 2023, arXiv:2306.13649.

TEACHER = "teacher"
"""As reports name it."""


@register(
    "distill", label="Distillation", evidence="sft", implies_adapter=True,
    reads=("train.teacher_model", "train.teacher_top_k"), place=9,
    aliases=("distillation", "knowledge-distillation", "kd", "gkd", "minillm"),
)  # fmt: skip
def distill(kind: MethodKind, model: ModelShape, options: MethodOptions) -> Method:
    """Each sequence once more through the teacher, which stands beside the student and is spread as it is.

    Of a teacher's k likeliest words log-probabilities alone are compared: no logits of both are there together.

    Source: TRL GKDTrainer.compute_loss; torchtune recipes/knowledge_distillation_distributed.py; NeMo RL
    algorithms/distillation.py (topk_logits_k).
    """
    if options.teacher is None:
        hint = "train.teacher_model names it, as model does the student"
        raise InputError(Problem(f"the job '{kind.name}' needs a teacher", hint=hint))
    few = options.teacher_top_k is not None
    teacher = Frozen(TEACHER, model=options.teacher, reads=Objective.FEW_WORDS if few else Objective.LOGITS)
    objective = Objective.FEW_WORDS if few else Objective.DIVERGENCE
    return Method(kind, options.trained, frozen=(teacher,), objective=objective)


# Reward models (Ouyang et al. 2022, arXiv:2203.02155): a value of each answer, learnt from pairs of them.


@register(
    "reward", label="Reward model", evidence="sft", implies_adapter=True, heads=(VALUES, CLASSES), place=8,
    aliases=("rm", "reward-model", "reward-modeling"),
)  # fmt: skip
def reward(kind: MethodKind, model: ModelShape, options: MethodOptions) -> Method:
    """Chosen and rejected in one batch through a head with one output: no logits of the vocabulary.

    Source: TRL RewardTrainer.compute_loss on AutoModelForSequenceClassification with one label.
    """
    return Method(kind, options.trained, sequences_per_sample=2)
