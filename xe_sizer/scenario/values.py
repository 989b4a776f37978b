"""What values of a scenario may be, and the base of its sections."""

from typing import Annotated

import msgspec
from msgspec import Meta

from xe_sizer.profiles.fields import RANGE

# The upper ends are far above any real job; they keep a slip of the keyboard from becoming an overflow later.
Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=4096,
        pattern=r"^[^\x00-\x1f]*$",
        extra={"must": "have no control characters"},
    ),
]
PlainName = Annotated[
    str, Meta(min_length=1, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", extra={"must": "be a name, no path"})
]
Currency = Annotated[str, Meta(pattern=r"^[A-Z]{3}$", extra={"must": "be three capital letters such as USD"})]
Degree = Annotated[int, Meta(ge=1, le=1_000_000)]
Count = Annotated[int, Meta(ge=1, le=10**12)]
Tokens = Annotated[int, Meta(ge=1, le=10**9)]
MeanTokens = Annotated[float, Meta(ge=1, le=1e9)]
Positive = Annotated[float, Meta(gt=0, le=1e18)]
NotNegative = Annotated[float, Meta(ge=0, le=1e18)]
Fraction = Annotated[float, Meta(gt=0, le=1)]
Share = Annotated[float, Meta(ge=0, le=1)]
Confidence = Annotated[
    float,
    Meta(ge=0.5, lt=1, extra={RANGE: "be at least 0.5, where the expected value decides, and less than 1"}),
]
DropoutRate = Annotated[float, Meta(ge=0, lt=1)]
FailureRate = Annotated[float, Meta(ge=0, le=1000)]

ImageSize = Annotated[
    str, Meta(pattern=r"^[1-9][0-9]{0,4}x[1-9][0-9]{0,4}$", extra={"must": "be width x height, such as 1024x1024"})
]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all parts of a scenario file."""
