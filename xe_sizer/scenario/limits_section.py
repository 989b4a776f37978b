"""The section `limits` of a scenario file: what the answer must keep."""

from typing import Annotated, TypedDict

from msgspec import Meta

from xe_sizer.scenario.values import Confidence, Degree, NotNegative, Positive, Section


def judged(description: str, of: str, *, wing: str | None = None, option: str | None = None, most: bool = True) -> Meta:
    """A row of the table of limits, beside its key and its range.

    of : quantity of an estimate that the limit bounds, from above or, where not `most`, from below
    wing : training or serving, where only one of them has the quantity; option : where the key names it otherwise
    """
    return Meta(description=description, extra={"of": of, "wing": wing, "option": option, "most": most})


class LimitsSection(Section, frozen=True):
    """What the answer must keep; a broken limit is exit code 1."""

    max_hours: Annotated[Positive | None, judged("Maximum time of the run in hours", "hours", wing="training")] = None
    max_cost: Annotated[
        Positive | None, judged("Maximum price of the run, in the currency of cost", "cost", wing="training")
    ] = None
    max_ttft_s: Annotated[
        Positive | None,
        judged("Maximum time to first token (TTFT) in seconds", "ttft_s", wing="serving", option="ttft"),
    ] = None
    max_tpot_s: Annotated[
        Positive | None,
        judged("Maximum time per output token (TPOT) in seconds", "tpot_s", wing="serving", option="tpot"),
    ] = None
    max_cost_per_million_tokens: Annotated[
        Positive | None,
        judged("Maximum price per million output tokens", "cost_per_million_tokens", wing="serving"),
    ] = None
    max_gpus: Annotated[Degree | None, judged("Maximum number of GPUs", "gpus")] = None
    min_headroom_gib: Annotated[
        NotNegative | None, judged("Memory left free per GPU in GiB", "headroom_gib", most=False)
    ] = None
    confidence: Annotated[
        Confidence | None,
        Meta(description="Required probability that limits hold and memory suffices; default: 0.5, the expected value"),
    ] = None


class LimitsKeys(TypedDict, total=False):
    """The limits as keyword arguments of the public API, for who reads or checks a call of it."""

    max_hours: float | None
    max_cost: float | None
    max_ttft_s: float | None
    max_tpot_s: float | None
    max_cost_per_million_tokens: float | None
    max_gpus: int | None
    min_headroom_gib: float | None
    confidence: float | None
