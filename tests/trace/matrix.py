"""What is traced: a case names everything that decides the memory of a training step."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from tests.trace.subjects import BY_FAMILY, Subject
from xe_sizer.immutable import Immutable

SHAPES = ((1, 2048), (4, 512), (2, 1024))
METHODS = ("full", "lora-qv", "lora-all")
RANKS = {"lora-qv": 8, "lora-all": 16}
LAYERS = 4
TAUGHT, TAUGHT_BY = ("distill",), 2  # jobs with a teacher, whose layers are so many times the student's
LONG = 8192  # beyond the sliding windows


class Case(Immutable, eq=True):
    """One training step. `dtype`: bf16 (all 16-bit but adapters) or autocast (what learns is float32).

    recompute : every layer's activations are recomputed in the backward
    trainable_layers : the last that learn, with embedding and head frozen; 0: all learn
    optimizer : fused or foreach AdamW; dropout : as the published model has it, else none
    adapter_dropout : adapters drop elements of their input; saved : embedding and head learn beside them
    quantised : frozen linear weights are in four bits, what else is frozen in float32
    job : what the logits are for; framework : whose way to it, TRL's unless another is named
    reference : a copy of the model, or the model with its adapters off, where the job compares with one
    on_head : the output head has an adapter too
    adapter : kind of the adapters where it is another than LoRA, on what `narrow_targets` name
    """

    family: str
    method: str = "full"
    attention: str = "sdpa"
    recompute: bool = False
    batch: int = 1
    length: int = 2048
    layers: int = LAYERS
    optimizer: str = "fused"
    dtype: str = "bf16"
    dropout: bool = False
    adapter_dropout: bool = False
    saved: bool = False
    quantised: bool = False
    job: str = "sft"
    framework: str = "trl"
    reference: str = ""
    adapter: str = ""
    on_head: bool = False
    trainable_layers: int = 0

    @property
    def subject(self) -> Subject:
        return BY_FAMILY[self.family]

    @property
    def rank(self) -> int:
        return RANKS.get(self.method, 0)

    @property
    def targets(self) -> tuple[str, ...]:
        """What LoRA adapts, in the class's names."""
        subject = self.subject
        targets = {"lora-qv": subject.narrow_targets[0], "lora-all": subject.wide_targets}.get(self.method, ())
        return (*targets, subject.ends[1]) if self.on_head else targets

    @property
    def name(self) -> str:
        """Short and unique."""
        dropouts = ("dropout" * self.dropout, "lora-dropout" * self.adapter_dropout, "saved" * self.saved)
        flags = (self.attention, "recompute" * self.recompute, self.optimizer, self.dtype, *dropouts)
        flags += ("nf4" * self.quantised, self.reference, self.adapter, "head" * self.on_head)
        flags += (self.job, self.framework) if self.job != "sft" else ()
        sizes = f"{self.layers}x{self.batch}x{self.length}"
        return "/".join(filter(None, (self.family, self.method, sizes, *flags)))


def _with_dropout_or_saved(plain: Case) -> Iterator[Case]:
    """Dropout of the model and of adapters, and modules that learn beside adapters, where there are such."""
    if plain.subject.dropout:
        yield replace(plain, dropout=True)
    if plain.rank:
        yield replace(plain, adapter_dropout=True)
        if not plain.subject.tied:
            yield replace(plain, saved=True)


def preferences_of(family: str) -> Iterator[Case]:
    """Jobs on pairs of answers and with a teacher, of all weights and of adapters, in 16 bit and under autocast."""
    attention = BY_FAMILY[family].attentions[0]
    for dtype in ("bf16", "autocast"):
        for method, reference in (("full", "copy"), ("lora-all", "adapters-off"), ("lora-qv", "copy")):
            plain = Case(family, method, attention, recompute=True, batch=4, length=1024, dtype=dtype)
            for job in ("dpo", "kto"):
                yield replace(plain, job=job, reference=reference)
            yield replace(plain, job="dpo", framework="llama-factory", reference=reference)
            yield from (replace(plain, job=job) for job in ("orpo", "simpo", "reward", "distill"))
            yield replace(plain, job="dpo", reference=reference, recompute=False, batch=2)


def cases_of(family: str) -> Iterator[Case]:
    """The whole matrix of one family, the plainest cases first."""
    subject = BY_FAMILY[family]
    for attention in subject.attentions:
        for method in METHODS:
            for recompute in (False, True):
                plain = Case(family, method, attention, recompute)
                yield from (replace(plain, batch=batch, length=length) for batch, length in SHAPES)
    first = subject.attentions[0]
    for method in METHODS:
        plain = Case(family, method, first, batch=2, length=1024)
        yield replace(plain, optimizer="foreach")
        yield replace(plain, batch=1, length=LONG)
        if plain.rank and not subject.grouped_experts:
            yield from (replace(plain, recompute=one, dtype="autocast", quantised=True) for one in (False, True))
        for recompute in (False, True):
            yield from (replace(plain, recompute=recompute, layers=layers) for layers in (2, 8))
            if not (subject.grouped_experts and method == "full"):
                yield replace(plain, recompute=recompute, dtype="autocast")
            yield from _with_dropout_or_saved(replace(plain, recompute=recompute))
    if not subject.grouped_experts and subject.answers:
        yield from preferences_of(family)
