"""What the parts of an engine's step are computed from: formula and source of each."""

MATMUL = "t0 + (a^p + b^p)^(1/p), a = 2 m n k / (e_f peak), b = bytes of weights and activations / (e_b bandwidth)"
LAWS = "operator laws of the accelerator"
NETWORK = "collective laws of the server, with the engine's own start-up time"

FORMULAS: dict[str, tuple[str, str]] = {
    "linear layers": (MATMUL, LAWS),
    "attention": (
        "prompts: t0 + F (1 + s0/s) / (e peak) + bytes / bandwidth; decoding: t0 + KV bytes / (e bandwidth)", LAWS
    ),
    "memory-bound operators": ("floor of a launch + bytes / (efficiency x bandwidth)", LAWS),
    "head and sampling": ("product with the vocabulary, and the logits as memory traffic", LAWS),
    "tensor-parallel communication": ("alpha + c sqrt(MB f) + bytes f / B, f = 2 (n - 1) / n, twice a layer", NETWORK),
    "expert-parallel communication": ("alpha + c sqrt(MB f) + bytes f / B, f = (n - 1) / n, twice a layer", NETWORK),
    "pipeline communication": ("alpha + bytes of the hidden state / B, from stage to stage", NETWORK),
    "host": (
        "time of a step + sequences x time of one + launches that no graph replays and no kernel hides", "the engine"
    ),
}  # fmt: skip
"""Part of a step (serving.phases.PARTS) -> formula and source."""
