"""Arguments of llama.cpp's server, and of that of llama-cpp-python.

Keys: llama.cpp, tools/server/README.md, common/arg.cpp and src/llama-model.cpp; llama-cpp-python, server/settings.py.
A context is shared by the requests that run at once (`-c` / `-np`), a step computes `-ub` tokens, `-ngl` counts layers
from the last one.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError
from xe_sizer.interop.draft import Key, Table
from xe_sizer.interop.services import LLAMA_CPP
from xe_sizer.interop.serving import (
    Drafting,
    cache_format,
    human_count,
    method_of,
    serving_tool,
    state_drafts,
    state_service,
)
from xe_sizer.interop.values import Written, plain, positive, positive_or_open, whole
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.software.number_formats import quantised_in
from xe_sizer.software.speculation import DFLASH, DRAFT_MODEL, EAGLE3, METHODS, MTP, NGRAM

if TYPE_CHECKING:
    from xe_sizer.interop.draft import Draft
    from xe_sizer.interop.services import Chosen
    from xe_sizer.interop.source import Source

_SLOTS = ("parallel", "np", "n_parallel", "env.LLAMA_ARG_N_PARALLEL")
_LAYERS = ("n_gpu_layers", "gpu_layers", "ngl", "env.LLAMA_ARG_N_GPU_LAYERS")
_STEP = ("ubatch_size", "ub", "n_ubatch", "env.LLAMA_ARG_UBATCH")
_ALL = ("all", "auto")
_SEEN = "env.CUDA_VISIBLE_DEVICES"
_DRAFTERS = (
    "model_draft",
    "md",
    "hf_repo_draft",
    "hfd",
    "hfrd",
    "spec_draft_model",
    "spec_draft_hf",
    "env.LLAMA_ARG_MODEL_DRAFT",
    "env.LLAMA_ARG_SPEC_DRAFT_MODEL",
)
_DRAFTS = (
    "draft_max",
    "draft",
    "draft_n",
    "spec_draft_n_max",
    "draft_model_num_pred_tokens",
    "env.LLAMA_ARG_DRAFT_MAX",
    "env.LLAMA_ARG_SPEC_DRAFT_N_MAX",
)
_DRAFT_LAYERS = ("gpu_layers_draft", "n_gpu_layers_draft", "ngld", "spec_draft_ngl", "env.LLAMA_ARG_N_GPU_LAYERS_DRAFT")
_KINDS = {
    "draft": DRAFT_MODEL,
    "draftsimple": DRAFT_MODEL,
    "drafteagle3": EAGLE3,
    "draftmtp": MTP,
    "draftdflash": DFLASH,
}
_CACHES = {"f16": "fp16", "f32": "fp32", "q8_0": "int8", "q4_0": "int4-plain"}
TABLE = Table(
    keys=(
        Key(
            ("ubatch_size", "ub", "n_ubatch", "env.LLAMA_ARG_UBATCH"), "serve.max_step_tokens", human_count, default=512
        ),
        Key(_SLOTS, "serve.max_sequences", positive_or_open),
    ),
    file="llama_cpp",
)


def _read(draft: Draft, source: Source, chosen: Chosen) -> None:
    file = draft.take("hf_file", "hff")
    if file is not None:
        draft.state("serve.weights", quantised_in(str(file.value)), file, "by the name of the file")
    _cache(draft)
    _context(draft)
    _drafts(draft)
    draft.following.append(partial(_layers, written=draft.take(*_LAYERS)))
    state_service(draft, chosen, source, TABLE, partial(_place, given=chosen.service.gpus), LLAMA_CPP)


def _drafts(draft: Draft) -> None:
    """What drafts, and how many tokens at most; a drafter with layers on the CPU is slower than is said."""
    kind, drafter = draft.take("spec_type", "env.LLAMA_ARG_SPEC_TYPE"), draft.peek(*_DRAFTERS)
    tokens, layers = draft.take(*_DRAFTS), draft.take(*_DRAFT_LAYERS)
    said = plain(str(kind.value).split(",")[0]) if kind is not None else ""
    method = NGRAM if said.startswith("ngram") else _KINDS.get(said)
    if kind is None and drafter is not None:
        method = method_of(None, drafter.value)
    where = kind or drafter
    if where is None or said == "none":
        return
    if kind is not None and method is None:
        draft.lose("spec_type", "drafts tokens in a way that is not known")
        return
    usual = Written(METHODS[method or DRAFT_MODEL].tokens, where.where)
    state_drafts(draft, Drafting(tokens or usual, method, _DRAFTERS))
    if layers is not None and str(layers.value).strip().lower() in ("0", "none"):
        draft.lose(next(name for name in _DRAFT_LAYERS if name in draft.keys), "drafts on the CPU, which is not sized")


def _cache(draft: Draft) -> None:
    """The format of the KV cache; a block of llama.cpp's has a 16-bit scale for 32 values, which no format here has."""
    written = draft.take("cache_type_k", "ctk", "type_k")
    if written is None:
        return
    word = str(written.value).lower()
    note = f"{word} without its scales, 0.5 bits a value" if word.startswith("q") else ""
    draft.state("serve.kv_cache", _CACHES.get(word) or draft.value(written, cache_format), written, note)


def _context(draft: Draft) -> None:
    """The longest request: the whole context, or the part of it that each of the requests at once has."""
    written, slots = draft.take("ctx_size", "c", "n_ctx", "env.LLAMA_ARG_CTX_SIZE"), draft.peek(*_SLOTS)
    tokens = draft.value(written, human_count) if written is not None else None
    count = draft.value(slots, positive_or_open) if slots is not None else None
    if not isinstance(tokens, int):
        return
    if isinstance(count, int) and 1 < count <= tokens:
        draft.state("serve.max_model_len", tokens // count, written, f"{tokens} for {count} requests at once")
    else:
        draft.state("serve.max_model_len", tokens, written)


def _place(draft: Draft, given: Written | None) -> None:
    """Stages, or ranks where layers are split by rows: all the GPUs that it sees, or is given by its container."""
    parts, mode = draft.take("tensor_split", "ts"), draft.take("split_mode", "sm")
    devices, seen = draft.take("device", "dev"), draft.take(_SEEN)
    how = plain(mode.value) if mode is not None else "layer"
    by, other = ("layout.tp", "layout.pp") if how == "row" else ("layout.pp", "layout.tp")
    draft.default(other, 1)
    listed = next((each for each in (parts, devices, seen) if each is not None), None)
    if mode is not None and how == "none":
        draft.state(by, 1, mode)
    elif listed is not None:
        values = listed.value if isinstance(listed.value, list) else re.split(r"[,/]", str(listed.value))
        draft.state(by, len(values), listed)
    elif given is not None:
        draft.state(by, draft.value(given, positive), given)
    else:
        draft.assume(by, 1, "as many as llama.cpp sees, which the file does not say; pass --gpus")


def _layers(draft: Draft, written: Written | None) -> None:
    """Layers on the CPU: the model's less those on the GPU."""
    if written is None or str(written.value).strip().lower() in _ALL:
        return
    count = draft.value(written, whole)
    if not isinstance(count, int) or count < 0:
        return
    try:
        layers = Registry().model(str(draft.fact("model"))).layers
    except InputError:
        return
    if count < layers:
        draft.state("serve.cpu_layers", layers - count, written, f"{count} of {layers} layers are on the GPU")


TOOL = serving_tool(
    name=LLAMA_CPP,
    title="llama.cpp",
    reads="`llama-server` and `python -m llama_cpp.server` in scripts, Compose files and Kubernetes manifests",
    engines=(LLAMA_CPP,),
    read=_read,
    table=TABLE,
)
