"""What a job makes of the logits."""

from enum import Enum


class Objective(Enum):
    """The cross-entropy of the next token, or what else a job computes from the logits.

    Log-probabilities of answers, in pairs or single ones, alone or beside a cross-entropy of the chosen ones (odds
    ratio); a divergence from a teacher's logits; or the logits themselves, which something else reads.
    """

    NEXT_TOKEN = "next token"
    LOG_PROBABILITIES = "log-probabilities"
    ANSWERS = "log-probabilities of single answers"
    ODDS_RATIO = "odds ratio"
    DIVERGENCE = "divergence"
    LOGITS = "logits"
    POLICY = "log-probabilities of a policy's own answers"
