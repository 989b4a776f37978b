"""Arguments of servers of embeddings and scores: Text Embeddings Inference, and Infinity.

Keys: text-embeddings-inference 1.8, router/src/main.rs, each also a variable by its name in capitals; Infinity 0.0.77,
docs/docs/cli_v2.md, each also a variable behind `INFINITY_`. Both run one copy of the model on a GPU.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from xe_sizer.interop.draft import Ignored, Table
from xe_sizer.interop.services import INFINITY, TEI
from xe_sizer.interop.serving import serving_tool, state_service, weights_format
from xe_sizer.interop.values import Written, listed

if TYPE_CHECKING:
    from xe_sizer.interop.draft import Draft
    from xe_sizer.interop.services import Chosen
    from xe_sizer.interop.source import Source

TABLE = Table(file="text_embeddings")
_DEVICES = ("device_id", "env.INFINITY_DEVICE_ID")
_WIDTHS = ("dtype", "env.DTYPE", "env.INFINITY_DTYPE")
_NARROW = ("int8", "fp8")
_ON_CPUS = re.compile(r".*:cpu\b.*")


def _read(draft: Draft, source: Source, chosen: Chosen) -> None:
    service = chosen.service
    if service.image is not None and _ON_CPUS.fullmatch(str(service.image.value)):
        why = "an image for CPUs: the answer is of a GPU"
        draft.ignored.append(Ignored("image", service.image.where, why, "memory or time"))
    name = next((each for each in _WIDTHS if each in draft.keys), _WIDTHS[0])
    width = draft.take(name)
    if width is not None and str(width.value).lower() in _NARROW:
        draft.lose(name, "quantises the weights as it loads them; taken to be 16 bit")
    elif width is not None:
        draft.state("serve.weights", draft.value(width, weights_format), width)
    devices = draft.take(*_DEVICES)
    if devices is not None and (found := listed(devices.value)):
        chosen = replace(chosen, service=replace(service, replicas=Written(len(found), devices.where)))
    draft.state("serve.output_tokens", 0, Written("", service.where), "embeds and scores")
    state_service(draft, chosen, source, TABLE, _place, service.engine)


def _place(draft: Draft) -> None:
    draft.default("layout.tp", 1, "a copy of the model on each GPU")


TOOL = serving_tool(
    name=TEI,
    title="Text Embeddings Inference and Infinity",
    reads="`text-embeddings-router` and `infinity_emb v2` in scripts, Compose files, Kubernetes manifests and services "
    "of KServe",
    engines=(TEI, INFINITY),
    read=_read,
    table=TABLE,
    aliases=("tei", INFINITY, "infinity"),
)
