"""Losses of jobs beyond the next token, as their frameworks compute them: what lives around them is what is traced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch.nn import functional

Forward = Callable[[Any], Any]
"""Runs a model on the micro-batch as the case has it."""


class Companion(NamedTuple):
    """Frozen weights beside the model, and the context in which they are alone; None: there is nothing to compare."""

    model: Any
    alone: Callable[[], AbstractContextManager[Any]] | None

    def passed(self, compute: Callable[[Any], torch.Tensor]) -> torch.Tensor | float:
        """What is computed of them, without gradients."""
        if self.alone is None:
            return 0.0
        with torch.no_grad(), self.alone():
            return compute(self.model)


def _selected(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Log-probabilities of the labels, a sequence at a time (selective_log_softmax of TRL)."""
    index = labels.unsqueeze(-1)
    if logits.dtype == torch.float32:
        chosen = torch.gather(logits, dim=-1, index=index)
        normaliser = torch.stack([torch.logsumexp(one, dim=-1) for one in logits])
        return (chosen - normaliser.unsqueeze(-1)).squeeze(-1)
    rows = [
        functional.log_softmax(row, dim=-1).gather(dim=-1, index=which)
        for row, which in zip(logits, index, strict=True)
    ]
    return torch.stack(rows).squeeze(-1)


def _compared(ours: torch.Tensor, theirs: torch.Tensor | float) -> torch.Tensor:
    """The logistic loss of pairs, chosen answers first."""
    chosen, rejected = (ours - theirs).chunk(2, dim=0)
    return -functional.logsigmoid(0.1 * (chosen - rejected)).mean()


def pairs_of_trl(run: Forward, model: Any, beside: Companion, tokens: torch.Tensor) -> torch.Tensor:
    """DPOTrainer._compute_loss of 0.29: both answers in one batch, whose outputs live until the loss is there."""
    labels = tokens[..., 1:].contiguous()
    outputs = run(model)
    shifted = outputs.logits[..., :-1, :].contiguous()
    ours = _selected(shifted, labels).sum(dim=1)
    if beside.alone is None:
        return _compared(ours, 0.0)
    with torch.no_grad():
        with beside.alone():
            others = run(beside.model)
        others_shifted = others.logits[..., :-1, :].contiguous()
        theirs = _selected(others_shifted, labels).sum(dim=1)
    return _compared(ours, theirs)


def pairs_of_llama_factory(run: Forward, model: Any, beside: Companion, tokens: torch.Tensor) -> torch.Tensor:
    """CustomDPOTrainer.concatenated_forward: float32 logits, which live for the metrics."""
    labels = tokens[:, 1:].clone()

    def passed(one: Any) -> tuple[torch.Tensor, torch.Tensor]:
        logits = run(one).logits.to(torch.float32)
        picked = torch.gather(logits[:, :-1, :].log_softmax(-1), dim=2, index=labels.unsqueeze(2))
        return picked.squeeze(2).sum(-1), logits

    ours, kept = passed(model)
    loss = _compared(ours, beside.passed(lambda one: passed(one)[0]))
    kept.detach().mean()
    return loss


def answers_of_trl(run: Forward, model: Any, beside: Companion, tokens: torch.Tensor) -> torch.Tensor:
    """KTOTrainer.get_batch_loss_metrics of 0.29: a mismatched answer first, and both through the reference."""
    labels, good = tokens[:, 1:].clone(), torch.arange(tokens.shape[0] // 2)
    bad = torch.arange(tokens.shape[0] // 2, tokens.shape[0])

    def forward(one: Any) -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            mismatched = _selected(run(one).logits[:, :-1, :], labels).sum(-1)
        logits = run(one).logits
        ours = _selected(logits[:, :-1, :], labels).sum(-1)
        return ours, logits.index_select(0, good), logits.index_select(0, bad), mismatched

    ours, chosen_logits, rejected_logits, mismatched = forward(model)
    if beside.alone is not None:
        with torch.no_grad(), beside.alone():
            theirs = forward(beside.model)
        ours, mismatched = ours - theirs[0], mismatched - theirs[3]
    divergence = mismatched.mean().detach()
    return (
        1
        - functional.sigmoid(0.1 * (ours - divergence)).mean()
        + 0.0 * (chosen_logits.detach().sum() + rejected_logits.detach().sum())
    )


def _with_likelihood(run: Forward, model: Any, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, Any]:
    """Cross-entropy of the chosen answers, log-probabilities of all, and the logits, which the metrics hold on to.

    concatenated_forward of ORPOTrainer and CPOTrainer in TRL.
    """
    logits = run(model).logits
    half = logits.shape[0] // 2

    def likelihood() -> torch.Tensor:
        rows = logits[:half][..., :-1, :].contiguous()
        return functional.cross_entropy(rows.view(-1, rows.shape[-1]), tokens[:half, 1:].reshape(-1))

    supervised = likelihood()
    return supervised, _selected(logits[:, :-1, :], tokens[:, 1:].clone()), logits


def odds_of_trl(run: Forward, model: Any, beside: Companion, tokens: torch.Tensor) -> torch.Tensor:
    """ORPOTrainer.concatenated_forward of 0.29: the chosen answers' cross-entropy beside all log-probabilities."""
    supervised, ours, _held = _with_likelihood(run, model, tokens)
    chosen, rejected = ours.mean(-1).chunk(2, dim=0)
    odds = (chosen - rejected) - (torch.log1p(-torch.exp(chosen)) - torch.log1p(-torch.exp(rejected)))
    return supervised - 0.1 * functional.logsigmoid(odds).mean()


def contrast_of_trl(run: Forward, model: Any, beside: Companion, tokens: torch.Tensor) -> torch.Tensor:
    """CPOTrainer.get_batch_loss_metrics of 0.29: pairs without a reference, and the chosen answers' cross-entropy."""
    supervised, ours, _held = _with_likelihood(run, model, tokens)
    return _compared(ours.sum(-1), 0.0) + supervised


def margins_of_trl(run: Forward, model: Any, beside: Companion, tokens: torch.Tensor) -> torch.Tensor:
    """CPOTrainer.concatenated_forward of 0.29 with the loss of SimPO: no copy of the logits, no reference."""
    logits = run(model).logits
    return _compared(_selected(logits[:, :-1, :], tokens[:, 1:].clone()).mean(-1), 0.0)


def rewards_of_trl(run: Forward, model: Any, beside: Companion, tokens: torch.Tensor) -> torch.Tensor:
    """RewardTrainer.compute_loss of 0.29: a value of each answer."""
    chosen, rejected = run(model).logits.squeeze(-1).chunk(2, dim=0)
    return -functional.logsigmoid(chosen - rejected).mean()


def divergence_of_trl(run: Forward, model: Any, beside: Companion, tokens: torch.Tensor) -> torch.Tensor:
    """GKDTrainer.compute_loss of 0.29: the generalised Jensen-Shannon divergence of all tokens, beta 0.5."""
    outputs = run(model)
    with torch.no_grad():
        others = run(beside.model)
    shifted, others_shifted = outputs.logits[:, :-1, :], others.logits[:, :-1, :]
    return _jensen_shannon(shifted, others_shifted, tokens[:, 1:])


def _jensen_shannon(ours: torch.Tensor, theirs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    ours, theirs = ours / 0.9, theirs / 0.9
    ours_log, theirs_log = functional.log_softmax(ours, dim=-1), functional.log_softmax(theirs, dim=-1)
    share = torch.tensor(0.5, dtype=ours.dtype)
    stacked = torch.stack([ours_log + torch.log1p(-share), theirs_log + torch.log(share)])
    mixture = torch.logsumexp(stacked, dim=0)
    to_theirs = functional.kl_div(mixture, theirs_log, reduction="none", log_target=True)
    to_ours = functional.kl_div(mixture, ours_log, reduction="none", log_target=True)
    both = share * to_theirs + (1 - share) * to_ours
    return both.sum() / labels.numel()


def states_of_sentence_transformers(run: Forward, model: Any, beside: Companion, tokens: torch.Tensor) -> torch.Tensor:
    """Pooling by the mean, Normalize and MultipleNegativesRankingLoss: a query against the passages of the batch."""
    states = run(model).last_hidden_state
    mask = torch.ones_like(tokens).unsqueeze(-1).expand(states.size()).to(states.dtype)
    pooled = torch.sum(states * mask, 1) / torch.clamp(mask.sum(1), min=1e-9)
    queries, passages = functional.normalize(pooled, p=2, dim=1).chunk(2, dim=0)
    scores = queries.float() @ passages.float().T * 20.0
    return functional.cross_entropy(scores, torch.arange(scores.shape[0]))


def policy_of_trl(run: Forward, model: Any, beside: Companion, tokens: torch.Tensor) -> torch.Tensor:
    """GRPOTrainer._compute_loss of 1.7: logits over a temperature where they stand, the ratio to the policy before."""
    logits = run(model).logits[:, :-1, :]
    logits.div_(0.9)
    ours = _selected(logits, tokens[:, 1:])
    advantages, before = torch.ones(ours.shape[0], 1), ours.detach()
    ratio = torch.exp(ours - before)
    clipped = torch.clamp(ratio, 0.8, 1.2)
    return -torch.min(ratio * advantages, clipped * advantages).mean()


OBJECTIVES: Mapping[tuple[str, str], Callable[[Forward, Any, Companion, torch.Tensor], torch.Tensor]] = {
    ("dpo", "trl"): pairs_of_trl,
    ("dpo", "llama-factory"): pairs_of_llama_factory,
    ("kto", "trl"): answers_of_trl,
    ("orpo", "trl"): odds_of_trl,
    ("cpo", "trl"): contrast_of_trl,
    ("simpo", "trl"): margins_of_trl,
    ("reward", "trl"): rewards_of_trl,
    ("grpo", "trl"): policy_of_trl,
    ("distill", "trl"): divergence_of_trl,
    ("embedding", "sentence-transformers"): states_of_sentence_transformers,
}
"""Jobs in the way of a framework; the next token is computed inside the model."""
