"""Ways of training by name, and the cases that trace each: at least two families of models, where there are two."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from tests.trace.adapters import KINDS
from tests.trace.matrix import Case
from tests.trace.optimizers import KERNELS, LAYERWISE, MAKERS
from tests.trace.seeing import FAMILIES, SeeingCase

DECODERS = ("llama-3", "qwen3")
ENCODERS = ("bert", "roberta", "deberta", "modernbert")
TRANSLATORS = ("t5", "flan_t5", "bart")
PREFERENCES = ("orpo", "simpo", "cpo", "reward")
WEIGHTS = (("full", "copy"), ("lora-all", "adapters-off"), ("lora-qv", "copy"))
DTYPES = ("bf16", "autocast")
NO_RECOMPUTE = ("prefix-tuning", "cartridge")  # peft refuses it for keys and values that learn
FROZEN = ("vision", "projector")


@dataclass(frozen=True)
class Item:
    """One way of training. kind : the table that it stands in; name : in the words of a scenario."""

    kind: str
    name: str
    cases: tuple[Case | SeeingCase, ...]


def items() -> Iterator[Item]:
    """Every way that is traced."""
    for job in ("dpo", "kto"):
        yield Item("method", job, tuple(_compared(job)))
    yield Item("method", "dpo of LLaMA-Factory", tuple(_compared("dpo", "llama-factory")))
    for job in (*PREFERENCES, "distill", "grpo"):
        yield Item("method", job, tuple(replace(case, reference="") for case in _compared(job)))
    yield Item("method", "embedding", tuple(_embeddings()))
    for adapter in KINDS:
        yield Item("adapter", adapter, tuple(_adapted(adapter)))
    for optimizer in (*KERNELS, *MAKERS, *LAYERWISE):
        yield Item("optimizer", optimizer, tuple(_optimized(optimizer)))
    yield Item("layers", "trainable layers", tuple(_last_layers()))
    for name, families in (("encoder", ENCODERS), ("encoder-decoder", TRANSLATORS)):
        yield Item("model", name, tuple(case for family in families for case in _plain(family)))
    yield Item("model", "vision-language", tuple(_seeing()))


def _compared(job: str, framework: str = "trl") -> Iterator[Case]:
    """All weights and adapters, in 16 bit and under autocast, with recomputation and without it."""
    for family in DECODERS:
        for dtype in DTYPES:
            for method, reference in WEIGHTS:
                plain = Case(family, method, batch=4, length=1024, dtype=dtype, job=job, framework=framework)
                yield replace(plain, reference=reference, recompute=True)
                yield replace(plain, reference=reference, batch=2)


def _embeddings() -> Iterator[Case]:
    """An encoder and two decoders, of two layers and of four."""
    for family in ("bert", *DECODERS):
        for dtype in DTYPES:
            for method, _ in WEIGHTS:
                full = Case(family, method, batch=16, length=256, dtype=dtype)
                full = replace(full, job="embedding", framework="sentence-transformers")
                yield from (replace(full, recompute=one, layers=layers) for one in (False, True) for layers in (2, 4))


def _adapted(adapter: str) -> Iterator[Case]:
    for family in DECODERS:
        for recompute in (False, True):
            if not (recompute and adapter in NO_RECOMPUTE):
                yield Case(family, batch=2, length=1024, adapter=adapter, recompute=recompute)


def _optimized(optimizer: str) -> Iterator[Case]:
    """An embedding beside the head, and one table for both."""
    for family in DECODERS:
        yield Case(family, batch=2, length=512, layers=2, optimizer=optimizer)
        yield Case(family, batch=2, length=512, recompute=True, optimizer=optimizer)


def _last_layers() -> Iterator[Case]:
    for family in DECODERS:
        for count in (1, 2, 3):
            plain = Case(family, batch=2, length=512, trainable_layers=count)
            yield from (replace(plain, recompute=one, dtype=dtype) for one in (False, True) for dtype in ("bf16",))


def _plain(family: str) -> Iterator[Case]:
    attention = Case(family).subject.attentions[0]
    for method, _ in WEIGHTS:
        for recompute in (False, True):
            for dtype in DTYPES:
                yield Case(family, method, attention, recompute, batch=4, length=512, dtype=dtype)


def _seeing() -> Iterator[SeeingCase]:
    for family in FAMILIES:
        for recompute in (False, True):
            yield SeeingCase(family, recompute=recompute)
            yield SeeingCase(family, FROZEN, adapted=True, recompute=recompute)
            yield SeeingCase(family, adapted=True, recompute=recompute)
