"""Names of the orders in which a pipeline runs its passes, as scenarios and stacks write them."""

from typing import Literal

PipelineSchedule = Literal["1f1b", "1f1b-interleaved", "gpipe", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min"]
