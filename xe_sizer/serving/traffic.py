"""What requests of a service look like."""

from __future__ import annotations

import math

import numpy as np

from xe_sizer.frozen import frozen

DEFAULT_INPUT_TOKENS, DEFAULT_OUTPUT_TOKENS = 1024.0, 256.0
HIGHEST_LOAD = 0.999  # share of the top rate up to which waits are computed; at the top they have no end
FULL = 0.98  # share of its top rate at which a replica is run where nobody states a load
TARGET_LOAD = 0.85  # the same where requests come by chance and the user does not say how long they may take


def even_spread(mean: float, longest: float) -> float:
    """Standard deviation over mean of lengths drawn evenly up to a longest one [-].

        spread = (longest - mean) / (sqrt(3) mean)      evenly from 2 mean - longest to longest

    Parameters
    ----------
    mean, longest : of the lengths [tokens]

    Returns
    -------
    float, 1 / sqrt(3) for a draw from 0 on [-]

    Source: variance of a uniform distribution, (longest - shortest)^2 / 12.
    """
    return (longest - mean) / (math.sqrt(3.0) * mean)


@frozen(eq=True)
class Traffic:
    """What requests look like: means, and how they spread around them (log-normal).

    inputs, outputs : tokens of a prompt and of an answer
    input_spread, output_spread : standard deviation over mean; 0: all alike
    prefix_hit_share : share of prompt tokens whose keys and values are cached already
    draft_tokens, acceptance_rate, draft_cost : speculative decoding proposes tokens, each kept with this probability
    if those before it were; a proposal takes this share of a step
    longest_input, longest_output : no prompt and no answer of a test is longer [tokens]
    """

    inputs: float
    outputs: float
    input_spread: float = 0.0
    output_spread: float = 0.0
    prefix_hit_share: float = 0.0
    draft_tokens: int = 0
    acceptance_rate: float = 0.0
    draft_cost: float = 0.0
    longest_input: float = math.inf
    longest_output: float = math.inf

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a sequence gains in a step [-]: (1 - a^(g + 1)) / (1 - a) for g proposals (arXiv:2211.17192)."""
        a, proposed = self.acceptance_rate, self.draft_tokens
        return proposed + 1.0 if a >= 1.0 else (1.0 - a ** (proposed + 1)) / (1.0 - a)

    @property
    def outputs_in_time(self) -> float:
        """Mean length of the answers in progress at a moment, in which long ones weigh more [tokens]."""
        return self.outputs * (1.0 + self.output_spread**2)

    @property
    def new_inputs(self) -> float:
        """Prompt tokens that a prefill has to process."""
        return max(self.inputs * (1.0 - self.prefix_hit_share), 1.0)

    def lengths_at(self, mean: float, spread: float, deviations: float) -> float:
        """Quantile of a log-normal with this mean and spread, at `deviations` from its median [tokens]."""
        sigma = float(np.sqrt(np.log1p(spread**2)))
        return float(mean * np.exp(sigma * deviations - sigma**2 / 2.0))
