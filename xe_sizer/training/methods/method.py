"""What a training method changes: the passes of a sample through the model, and models that stand beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypedDict, Unpack

from msgspec.structs import replace

from xe_sizer.graph.inputs import Learning
from xe_sizer.graph.model import CLASSES, REPLACED, VALUES, VOCABULARY, WORDS, ModelShape
from xe_sizer.immutable import Immutable
from xe_sizer.software.stack import Objective
from xe_sizer.training.adapters import ADAPTERS, ALL_WEIGHTS, Trained

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import Part
    from xe_sizer.training.adapters import AdapterKind, Quantised

ADAPTED = "adapters"  # kind of job in the tables of residuals, whatever the adapters


class Compared(Immutable):
    """Sequences whose states are compared with each other.

    hard_negatives : of each query, beside the passages of the others [-]
    across_gpus : passages of all data-parallel ranks are compared
    cached : passages of all micro-batches of a step are, after a pass of their own
    """

    hard_negatives: int = 0
    across_gpus: bool = False
    cached: bool = False


class MethodOptions(Immutable):
    """What a method is applied with.

    trained : what learns
    reference : where a reference's log-probabilities come from, one of REFERENCES; None: as is usual
    teacher : the model that teaches, where the job has one; teacher_top_k : words of which it says how likely they are
    compared : what a job compares that learns from states of sequences
    """

    trained: Trained = ALL_WEIGHTS
    reference: str | None = None
    teacher: ModelShape | None = None
    teacher_top_k: int | None = None
    compared: Compared = Compared()


class Frozen(Immutable):
    """Weights that learn nothing beside those that do, and what passes through them: a reference model, a teacher.

    words : as reports name them
    model : their shape; None: that of the model that learns
    copies : of them that ranks hold beside the model, spread as it is [-]; 0: they are the model's own
    forwards : passes of every sequence through them, forward alone [-]
    adapted : the passes go through what learns too, adapters among it
    reads : what the job makes of their logits
    """

    words: str
    model: ModelShape | None = None
    copies: int = 1
    forwards: int = 1
    adapted: bool = False
    reads: Objective = Objective.LOG_PROBABILITIES


class Rollout(Immutable):
    """That a job learns from answers which the model itself writes.

    group : answers to a prompt where nobody says; least_group : fewer cannot be compared [-]
    critic : a second model learns what answers are worth
    rated : by a model where nobody says; else a verifier tells right from wrong
    ratios : learns from ratios of probabilities to the policy before the step and to a reference, computed for every
    answer; else from what its own method has beside it
    """

    group: int = 1
    least_group: int = 1
    critic: bool = False
    rated: bool = False
    ratios: bool = True


class Method(Immutable):
    """A method applied to a model.

    kind : the method, whatever the model
    trained : what learns, and how the rest is kept
    sequences_per_sample : sequences that a sample of the data is made of, each through the model (a chosen and a
    rejected answer are two) [-]
    frozen : what stands beside the model and learns nothing, with its passes in every step
    before : the same for passes over the data once, before the training
    objective : what the job makes of the logits
    compared : what it compares where it learns from states of sequences; None: it learns from logits
    """

    kind: MethodKind
    trained: Trained
    sequences_per_sample: int = 1
    frozen: tuple[Frozen, ...] = ()
    before: tuple[Frozen, ...] = ()
    objective: Objective = Objective.NEXT_TOKEN
    compared: Compared | None = None

    @property
    def name(self) -> str:
        return self.kind.name

    def beside(self, companion: Frozen) -> Method:
        """What a pass through frozen weights is like: nothing learns, and other models are not quantised."""
        alone = replace(self, frozen=(), before=(), objective=companion.reads)
        if companion.adapted:
            return alone
        if companion.model is not None:
            return replace(alone, trained=Trained(Learning(base=False)))
        parts = tuple(replace(part, learning=Learning(base=False)) for part in self.parts)
        return replace(alone, trained=Trained(Learning(base=False), held=self.held, parts=parts))

    @property
    def compares(self) -> bool:
        """Whether it learns from answers that are good or bad, in pairs or one by one."""
        learns_next = self.objective in (Objective.NEXT_TOKEN, Objective.DIVERGENCE, Objective.FEW_WORDS)
        return self.sequences_per_sample > 1 or not learns_next

    @property
    def passing(self) -> tuple[Frozen, ...]:
        """Those of the frozen weights that sequences pass through in every step."""
        return tuple(one for one in self.frozen if one.forwards)

    @property
    def label(self) -> str:
        """As reports name the job, with adapters that it does not mean by itself."""
        if self.adapter is None or self.adapter is self.kind.usual_adapter:
            return self.kind.label
        bits = f", {self.held.width.bits:g} bit" if self.held else ""
        return f"{self.kind.label} ({self.adapter.label}{bits})"

    @property
    def adapter(self) -> AdapterKind | None:
        """The kind of what learns beside frozen weights; None where the model's own weights learn."""
        return self.trained.kind

    @property
    def settings(self) -> tuple[str, ...]:
        """Sections of a scenario that say how it is done."""
        return self.adapter.settings if self.adapter else ()

    @property
    def evidence(self) -> str:
        """Published runs that are like it, the kind of job in the tables of residuals."""
        return ADAPTED if self.adapter and self.kind.rollout is None else self.kind.evidence

    @property
    def learning(self) -> Learning:
        return self.trained.learning

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.trained.parts

    @property
    def held(self) -> Quantised | None:
        return self.trained.held

    @property
    def quantised(self) -> bool:
        return self.trained.quantised

    @property
    def added_tokens(self) -> int:
        return self.trained.added_tokens

    @property
    def added_parameters(self) -> int:
        return self.trained.added_parameters

    @property
    def saved_element_share(self) -> float:
        return self.trained.saved_element_share

    @property
    def frozen_linear_bytes(self) -> float | None:
        return self.trained.frozen_linear_bytes

    def wide_activations(self, autocast: bool) -> bool:
        return self.trained.wide_activations(autocast)

    def trainable_parameters(self, model: ModelShape) -> int:
        return self.trained.parameters(model)


TASK = "train.task"
"""The key that says what a job reads from the last layer, where that is not the same in all runs of it."""
TASK_HEADS: Mapping[str, tuple[str, str]] = {
    "causal-lm": (VOCABULARY, VOCABULARY),
    **dict.fromkeys(("seq-cls", "regression", "reranker"), (VALUES, CLASSES)),
    "generative-reranker": (WORDS, WORDS),
}
"""Heads by task, as `MethodKind.heads`; classifiers on decoders score all tokens (transformers, modeling_layers.py)."""
Builder = Callable[["MethodKind", ModelShape, MethodOptions], Method]


class MethodKind(Immutable):
    """A method whatever the model: its names, and what it is like beside other methods.

    name : that of the job in scenarios
    label : as reports name the job
    words : as advice names it
    evidence : published runs that are like it where the model's own weights learn, the kind in tables of residuals
    build : applies it to a model
    adapter : name of the adapters that it means; None where it says nothing of what learns
    implies_adapter : settings of adapters alone mean that there are some
    fine_tunes : starts from a trained model; else it makes one, from texts of full length
    rollout : how it learns from answers of the model's own; None: it learns from data
    lighter : name of the method that may do in its place with less, where there is one
    heads : what it reads from the last layer of a model that predicts the next token, and of an encoder, which
    pre-training asks for masked tokens and fine-tuning for classes, by the names of `graph.model`
    default : what a scenario without a job means
    reads : keys of scenarios that it has a use for, of those that only some methods have
    aliases : what else people call it
    place : in lists of choices, where what is used most comes first; 100: what few people use
    """

    name: str
    label: str
    words: str
    evidence: str
    build: Builder
    rollout: Rollout | None = None
    adapter: str | None = None
    implies_adapter: bool = False
    fine_tunes: bool = True
    lighter: str | None = None
    default: bool = False
    reads: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    heads: tuple[str, str] = (VOCABULARY, CLASSES)
    place: int = 100

    @property
    def usual_adapter(self) -> AdapterKind | None:
        """The adapters that it means, where it means any."""
        return ADAPTERS[self.adapter] if self.adapter else None

    @property
    def quantises(self) -> bool:
        """Whether it means frozen weights in few bits."""
        return self.usual_adapter is not None and self.usual_adapter.quantises

    @property
    def settings(self) -> tuple[str, ...]:
        """Sections of a scenario that say how what it means is done."""
        return self.usual_adapter.settings if self.usual_adapter else ()

    def read_by(self, model: ModelShape, task: str | None = None) -> ModelShape:
        """The model with the head that the job reads, or that a task does of a job that has several.

        Pre-training beside a generator asks of every token whether that has replaced it.
        """
        if model.generator and not self.fine_tunes:
            return model.headed(REPLACED)
        heads = TASK_HEADS[task] if task and TASK in self.reads else self.heads
        return model.headed(heads[int(model.bidirectional)])

    def applied_to(self, model: ModelShape, options: MethodOptions) -> Method:
        """Raises InputError for options that the model cannot have."""
        return self.build(self, model, options)

    def lighter_ones(self) -> Iterator[MethodKind]:
        """The methods that may do in its place, the one that changes least first."""
        kind = METHODS.get(self.lighter or "")
        if kind is not None:
            yield kind
            yield from kind.lighter_ones()


METHODS: dict[str, MethodKind] = {}


class Settings(TypedDict, total=False):
    """What a method may be besides its names and the published runs that are like it; see `MethodKind`."""

    adapter: str | None
    implies_adapter: bool
    fine_tunes: bool
    rollout: Rollout
    lighter: str | None
    default: bool
    reads: tuple[str, ...]
    aliases: tuple[str, ...]
    heads: tuple[str, str]
    place: int


def register(
    name: str, *, label: str, words: str | None = None, evidence: str, **settings: Unpack[Settings]
) -> Callable[[Builder], Builder]:
    """Decorator that makes a method known by the function that applies it to a model; see `MethodKind`."""

    def add(build: Builder) -> Builder:
        METHODS[name] = MethodKind(
            name=name, label=label, words=words or label, evidence=evidence, build=build, **settings
        )
        return build

    return add
