"""A reinforcement-learning scenario with everything resolved but the layouts and the split of the GPUs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from xe_sizer.graph.operators import as_array
from xe_sizer.immutable import Immutable
from xe_sizer.profiles.text import at_home
from xe_sizer.reinforcement.answers import Asked, constant_answers, cut_answers, logged_answers
from xe_sizer.reinforcement.environment import DEFAULT_CORES, SERVER_CORES, Environment
from xe_sizer.reinforcement.environment import DEFAULT_SPREAD as DEFAULT_CALL_SPREAD
from xe_sizer.serving.job import DEFAULT_TURN_TOKENS
from xe_sizer.software.stack import POOLS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike

    from xe_sizer.graph.operators import Array
    from xe_sizer.laws.hardware import Server
    from xe_sizer.reinforcement.answers import Answers
    from xe_sizer.scenario.provenance import Provenance
    from xe_sizer.scenario.scenario import Scenario
    from xe_sizer.serving.job import ServingJob
    from xe_sizer.software.stack import Kept, RolloutDefaults
    from xe_sizer.training.job import Job
    from xe_sizer.training.layout import Layouts
    from xe_sizer.training.methods import Rollout
    from xe_sizer.training.methods.method import Frozen
    from xe_sizer.training.resolved import ResolvedTraining
    from xe_sizer.training.search_space import Rules

# Settings of an iteration, as the scenario, the stack and the method have them.

# Where nobody says: prompts of a batch of published recipes, and lengths of mathematical problems and their answers.
DEFAULT_PROMPTS = 128
DEFAULT_INPUT_TOKENS, DEFAULT_OUTPUT_TOKENS = 256.0, 1024.0
DEFAULT_SPREAD = 0.6  # assumed: standard deviation over mean of answers that reason
CUT_AT = 4.0  # assumed: times the mean at which answers are cut where nobody says
WORKERS_PER_GPU = 8  # assumed: processes of a node's CPUs that rate answers
DISK = "disk"
DRAIN, ABORT, GO_ON = "drain", "abort", "in-flight"
"""What answers under way do when new weights come: they end first, begin their cache again, or go on."""
OFFLOADS: Mapping[str, tuple[Kept, ...]] = {
    "none": (),
    "optimizer": ("optimizer",),
    "params": ("params", "optimizer"),
}
"""What waits in host memory, by what a scenario calls it."""


class Settings(Immutable):
    """An iteration in figures.

    asked : prompts, answers to each, and their lengths, of all that is written
    kept : share of the answers written that are trained on [-]
    updates : passes over the answers of an iteration [-]
    colocated : answers are written on the GPUs that train; None: a plan tries both ways
    gpus : that only write answers; None: open
    asked_share : of the card that the engine may use, where somebody says; None: nobody does
    offloads : what of the trainer waits in host memory while answers are written
    staleness : iterations by which answers may be older than the weights; 0: training waits for them
    max_sequences : answers that a replica writes at once; None: as many as the engine takes by itself
    log_prob_micro_batch : answers of one pass of a GPU that computes log-probabilities; None: the micro-batch [-]
    logged : file of the lengths of answers; None: they are log-normal
    verifier_s, workers : CPU seconds of an answer, and answers rated at once; None: as many per GPU as are usual
    from_disk : weights come to other GPUs through the file system
    reward_streams : a reward model on GPUs of its own rates answers while others are still written
    """

    asked: Asked
    kept: float
    updates: int
    colocated: bool | None
    gpus: int | None
    engine: str
    sleep: str
    asked_share: float | None
    offloads: tuple[Kept, ...]
    staleness: int
    verifier_s: float
    workers: int | None
    max_sequences: int | None
    log_prob_micro_batch: int | None
    max_output_tokens: float
    logged: str | None
    reward_streams: bool
    from_disk: bool
    defaults: RolloutDefaults

    @property
    def answers(self) -> Answers:
        return self.asked.answers

    @property
    def trained(self) -> float:
        """Answers of an iteration that are trained on [-]."""
        return self.asked.count * self.kept

    def share(self, colocated: bool) -> float | None:
        """Share of the card that the engine may use: as asked; where it shares the card, the stack's; None: open."""
        return self.asked_share or (self.defaults.gpu_memory_utilization if colocated else None)

    @property
    def frozen_offload(self) -> bool:
        """Whether models that do not learn wait in host memory but for their phase, as weights that learn may too."""
        return self.defaults.frozen_offload or "params" in self.offloads

    def beside(self, server: Server | None) -> Settings:
        """The settings on a server, where nothing waits on a host whose memory is the accelerator's."""
        if server is None or server.host_apart:
            return self
        return replace(self, offloads=(), defaults=replace(self.defaults, frozen_offload=False))

    def steps(self, batch: ArrayLike) -> Array:
        """Optimizer steps of an iteration, with so many answers each, of the shape of the batches [-]."""
        return np.asarray(np.maximum(np.ceil(self.trained / as_array(batch) - 1e-9), 1.0) * self.updates)

    def passing(self, layouts: Layouts) -> Layouts:
        """The layouts with the micro-batch of passes that compute log-probabilities, at most a rank's answers."""
        if self.log_prob_micro_batch is None:
            return layouts
        of_a_rank = np.ceil(self.trained / layouts.dp).astype(np.int64)
        return replace(layouts, micro_batch=np.minimum(self.log_prob_micro_batch, np.maximum(of_a_rank, 1)))

    def workers_on(self, gpus: int) -> int:
        """Answers that are rated at once, on the CPUs beside so many GPUs."""
        return self.workers or WORKERS_PER_GPU * gpus


def resolve_settings(provenance: Provenance, method: Rollout, defaults: RolloutDefaults) -> Settings:
    """The settings, each with its origin noted."""
    rollout = provenance.scenario.values.rollout

    def resolve_default(name: str, default: Any, origin: str = "default") -> Any:
        return provenance.resolve_default(f"rollout.{name}", default, origin)

    prompts, group = resolve_default("prompts", DEFAULT_PROMPTS), resolve_default("group", method.group)
    inputs, answers, most = _lengths(provenance)
    if defaults.max_sequences is not None or rollout.max_sequences is not None:
        resolve_default("max_sequences", defaults.max_sequences, "stack")
    over, reread = resolve_default("oversampling", 1.0), False
    apart = rollout.gpus is not None or bool(rollout.asynchronous) or rollout.transport is not None
    colocated = rollout.colocated
    if colocated is None and apart:
        colocated = False
    if colocated is not False and defaults.gpu_memory_utilization is not None:
        resolve_default("gpu_memory_utilization", defaults.gpu_memory_utilization, "stack")
    stale = resolve_default("max_staleness", 1) if rollout.asynchronous else 0
    carried = rollout.partial
    if rollout.update is not None and carried is None:
        carried = rollout.update != DRAIN
    if carried is None and rollout.asynchronous:
        carried = resolve_default("partial", defaults.in_flight, "stack")
    if carried:
        usual = GO_ON if defaults.keeps_cache and colocated is False else ABORT
        reread = resolve_default("update", usual, "stack") == ABORT
    provenance.keep(("rollout", "environment", *POOLS))
    return Settings(
        asked=Asked(
            prompts * over,
            int(group),
            float(inputs),
            answers,
            bool(carried),
            max(int(stale), 1),
            _environment(provenance),
            bool(carried) and reread,
        ),
        kept=1.0 / over,
        updates=int(resolve_default("updates", 1)),
        colocated=colocated,
        gpus=rollout.gpus,
        engine=str(resolve_default("engine", defaults.engine, "stack")),
        sleep=str(resolve_default("sleep", defaults.sleep, "stack")),
        asked_share=rollout.gpu_memory_utilization,
        offloads=OFFLOADS[rollout.offload] if rollout.offload else defaults.offloads,
        staleness=int(stale),
        verifier_s=float(rollout.verifier_s or 0.0),
        workers=rollout.verifier_workers,
        max_sequences=rollout.max_sequences or defaults.max_sequences,
        log_prob_micro_batch=rollout.log_prob_micro_batch,
        max_output_tokens=most,
        logged=rollout.lengths,
        from_disk=rollout.transport == DISK,
        reward_streams=_streams(provenance, defaults),
        defaults=defaults,
    )


def _environment(provenance: Provenance) -> Environment | None:
    """What answers wait for, where they have several turns, or an environment that starts; None: nothing."""
    asked = provenance.scenario.values.environment
    if (asked.turns or 1.0) <= 1.0 and not asked.start_s:
        return None

    def resolve_default(name: str, default: Any) -> Any:
        return provenance.resolve_default(f"environment.{name}", default)

    cores = float(resolve_default("cores", DEFAULT_CORES))
    limits = [] if asked.pool_cores is None else [max(math.floor(asked.pool_cores / cores), 1)]
    limits += [] if asked.at_once is None else [asked.at_once]
    return Environment(
        turns=float(resolve_default("turns", 1.0)),
        turn_tokens=float(resolve_default("turn_tokens", DEFAULT_TURN_TOKENS)),
        seconds=float(asked.seconds or 0.0),
        spread=float(resolve_default("spread", DEFAULT_CALL_SPREAD)),
        start_s=float(asked.start_s or 0.0),
        cores=cores,
        at_once=min(limits, default=None),
        server_cores=float(resolve_default("server_cores", SERVER_CORES)),
    )


def _streams(provenance: Provenance, defaults: RolloutDefaults) -> bool:
    """Whether a reward model on GPUs of its own rates each answer as it ends."""
    asked = provenance.scenario.values.reward.streams
    return defaults.reward_streams if asked is None else asked


def _lengths(provenance: Provenance) -> tuple[float, Answers, float]:
    """Mean tokens of a prompt, tokens of the answers, and the tokens at which these are cut. Raises InputError."""
    rollout, seq_len = provenance.scenario.values.rollout, provenance.scenario.values.train.seq_len
    limit = rollout.max_output_tokens
    asked, told = _logged(provenance.scenario)
    inputs = provenance.resolve_default(
        "rollout.input_tokens", round(float(asked.mean()), 1) if asked.size else _usual_prompt(seq_len, limit),
        "log" if asked.size else "default",
    )  # fmt: skip
    if limit is None and seq_len is not None:  # a prompt with its answer is no longer than that
        limit = max(int(seq_len - inputs), 1)
    if told.size:
        longest = max(math.ceil(told.max()), 1)
        limit = longest if limit is None else min(limit, longest)
        provenance.resolve_default("rollout.output_tokens", round(float(np.minimum(told, limit).mean()), 1), "log")
        most = float(provenance.resolve_default("rollout.max_output_tokens", limit, "log"))
        return float(inputs), logged_answers(told, most), most
    usual = DEFAULT_OUTPUT_TOKENS if limit is None else min(DEFAULT_OUTPUT_TOKENS, limit / 2.0)
    mean = provenance.resolve_default("rollout.output_tokens", usual)
    most = float(provenance.resolve_default("rollout.max_output_tokens", limit or max(round(mean * CUT_AT), 1)))
    if not mean:
        return float(inputs), constant_answers(0.0), most
    return (
        float(inputs),
        cut_answers(mean, provenance.resolve_default("rollout.output_spread", DEFAULT_SPREAD), most),
        most,
    )


def _logged(scenario: Scenario) -> tuple[Array, Array]:
    """Tokens of prompts and responses of the log that the scenario names, none without one. Raises InputError."""
    name = scenario.values.rollout.lengths
    if name is None:
        return np.zeros(0), np.zeros(0)
    from xe_sizer.datasets.rollout_log import rollout_lengths

    return rollout_lengths((scenario.folder_for("rollout.lengths") or Path()) / at_home(name))


def _usual_prompt(seq_len: int | None, limit: int | None) -> float:
    """Tokens of a prompt where nobody says: no more than a sequence has beside the longest answer."""
    if seq_len is None:
        return DEFAULT_INPUT_TOKENS
    beside = seq_len - limit if limit is not None and limit < seq_len else seq_len
    return min(DEFAULT_INPUT_TOKENS, max(min(seq_len // 4, beside), 1))


# The resolved scenario.


class Apart(Immutable):
    """A model beside the actor that has GPUs of its own, as asked for.

    name : of the pool, as reports call it; section : of the scenario, whose keys ask for it
    gpus : of the pool; None: open
    sizes : of its layout or of a replica, those that the user chose
    rules : what makes a layout of it legal
    passes : by the name of each part, whose weights answers pass, and how many answers do
    learner : the training of a critic; None: nothing learns
    service : the engine that serves a reward model; judged : what it is asked for each answer; None: a forward rates
    streams : answers are rated while others are still written
    """

    name: str
    section: str
    gpus: int | None
    sizes: Mapping[str, int]
    rules: Rules
    passes: Mapping[str, tuple[Job, float]]
    learner: Job | None = None
    service: ServingJob | None = None
    judged: Asked | None = None
    streams: bool = False


class ResolvedReinforcement(Immutable):
    """What is asked of an iteration.

    trainer : the optimizer steps of the actor, of all iterations; its keys and origins are those of the scenario
    writer : the engine that writes answers; replica_sizes : of its placement, those that the user chose
    critic : the steps of a critic beside the actor's, in the same layout; None: the method has none
    reference, reward : models that only rate answers; None: there is none
    iterations : of the run [-]
    ways : whether answers may be written on the GPUs that train (True), and apart from them (False)
    apart : models that have GPUs of their own; critic, reference and reward are those on the trainer's
    """

    trainer: ResolvedTraining
    writer: ServingJob
    replica_sizes: Mapping[str, int]
    settings: Settings
    critic: Job | None
    reference: Frozen | None
    reward: Frozen | None
    iterations: int
    ways: tuple[bool, ...]
    apart: tuple[Apart, ...] = ()

    @property
    def scenario(self) -> Scenario:
        return self.trainer.scenario

    @property
    def gpus(self) -> int | None:
        """GPUs of all pools; None: open."""
        return self.trainer.gpus

    @property
    def batch_is_free(self) -> bool:
        """The prompts of an iteration make its batch, and a scenario says how many there are."""
        return False

    def on_any_gpus(self) -> ResolvedReinforcement:
        """The same iterations with the trainer's layout and the number of GPUs left open."""
        return replace(self, trainer=self.trainer.on_any_gpus())

    @property
    def steps(self) -> int:
        """Optimizer steps of an iteration [-]."""
        return int(self.settings.steps(self.actor.global_batch))

    def under(self, layouts: Layouts) -> ResolvedReinforcement:
        """The same iterations with the batch of the first of the layouts, where it follows them."""
        return self if self.trainer.at_replicas is None else replace(self, trainer=self.trainer.under(layouts))

    @property
    def actor(self) -> Job:
        return self.trainer.job

    @property
    def passes(self) -> tuple[Frozen, ...]:
        """Models that every answer passes through before the training, beside actor and critic."""
        return tuple(one for one in (self.reference, self.reward) if one is not None)
