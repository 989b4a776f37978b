"""Pipeline stages of Megatron: chunks of a stage, layers of the first and the last one, written layouts.

Rules: megatron/training/arguments.py (`validate_args`) and core/transformer/pipeline_parallel_layer_layout.py.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xe_sizer.importers.parts.megatron import Arguments

_MOST = 10_000  # letters of a written layout
_REPEATED = re.compile(r"\(([^()]*)\)\*(\d+)|([A-Za-z|])\*(\d+)")
_DECODER = "t"
_ENDS = ("embedding", "loss")


def state_stages(arguments: Arguments) -> None:
    """State the chunks of a stage and how many layers the first and the last stage have."""
    draft = arguments.draft
    layout = arguments.take("pipeline_model_parallel_layout")
    pp = int(str(draft.fact("layout.pp") or 1))
    if layout is not None and str(layout.value).lower() not in ("none", "null", ""):
        stages = stages_of(layout.value)
        if stages is None or len(stages) % pp:
            arguments.lose("pipeline_model_parallel_layout", "lists the layers of stages in a form that is not read")
            return
        chunks = len(stages) // pp
        layers = [sum(stages[chunk * pp + stage] for chunk in range(chunks)) for stage in range(pp)]
        draft.state("layout.vpp", chunks, layout)
        if len(set(layers)) > 1 or layers[0] % chunks:
            draft.state("layout.stages", tuple(layers), layout)
        return
    _chunks(arguments, pp)
    _counted_as_layers(arguments, pp)


def _chunks(arguments: Arguments, pp: int) -> None:
    draft = arguments.draft
    stated = arguments.take("num_virtual_stages_per_pipeline_rank", "virtual_pipeline_model_parallel_size")
    chunks = arguments.size("num_virtual_stages_per_pipeline_rank", "virtual_pipeline_model_parallel_size")
    if chunks is not None:
        draft.state("layout.vpp", chunks, stated)
        return
    written = arguments.take("num_layers_per_virtual_pipeline_stage")
    of_chunk = arguments.size("num_layers_per_virtual_pipeline_stage")
    if of_chunk is None:
        arguments.default(
            "layout.vpp", 1, "", "num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank"
        )
        return
    layers = arguments.size("num_layers", "encoder_num_layers")
    if layers is None or (layers + _extra(arguments)) % (pp * of_chunk):
        arguments.lose("num_layers_per_virtual_pipeline_stage", "says chunks only together with the number of layers")
        return
    count = (layers + _extra(arguments)) // pp // of_chunk
    draft.state("layout.vpp", count, written, f"{layers} layers / {pp} stages / {of_chunk}")


def _extra(arguments: Arguments) -> int:
    """Layers that the embedding and the loss count as where stages are made even."""
    return sum(arguments.on(f"account_for_{end}_in_pipeline_split") is not None for end in _ENDS)


def _counted_as_layers(arguments: Arguments, pp: int) -> None:
    """The embedding and the loss take a layer's place where they count as one; a single stage holds all anyway."""
    for end in _ENDS:
        counted = arguments.on(f"account_for_{end}_in_pipeline_split")
        if counted is not None and pp > 1:
            arguments.draft.state(f"layout.account_for_{end}", True, counted)


def stages_of(value: object) -> list[int] | None:
    """Transformer layers of each stage of a written layout, in the order of the chunks; None where it is not read.

    `Et*3|(tt|)*29,m|L` says a stage with the embedding and three layers, 29 of two layers, and so on.
    """
    if isinstance(value, list | tuple):
        return [_layers_of(stage) for stage in value]
    text = re.sub(r"[\s,'\"]", "", str(value))
    for _ in range(8):
        text, changes = _REPEATED.subn(_repeated, text)
        if not changes or len(text) > _MOST:
            break
    if len(text) > _MOST or not re.fullmatch(r"[A-Za-z|]+", text):
        return None
    return [stage.count(_DECODER) for stage in text.split("|")]


def _repeated(match: re.Match[str]) -> str:
    text, times = (match[1], match[2]) if match[2] else (match[3], match[4])
    return text * min(int(times[:6]), _MOST)


def _layers_of(stage: object) -> int:
    """Layers in a stage that is written as a list of names."""
    words = stage if isinstance(stage, list | tuple) else [stage]
    return sum(str(word) in ("decoder", _DECODER) for word in words)
