"""A training scenario with everything resolved but the layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from xe_sizer.errors import Problem
from xe_sizer.graph.operators import as_array
from xe_sizer.immutable import Immutable
from xe_sizer.training.layout import ROUNDS, WORDS
from xe_sizer.training.memory import spare_bytes
from xe_sizer.training.search_space import LARGEST_PLAN, Rules, gpu_counts
from xe_sizer.training.uncertainty import doubtful_bytes
from xe_sizer.training.workload import default_global_batch

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array, IntArray
    from xe_sizer.laws.device import Efficiency
    from xe_sizer.scenario.scenario import Scenario
    from xe_sizer.scenario.schema import ScenarioFile
    from xe_sizer.scenario.tariff import Tariff
    from xe_sizer.training.job import Job
    from xe_sizer.training.layout import Layouts


class ResolvedTraining(Immutable):
    """What is asked, resolved but for the layout.

    fixed : layout fields that the user chose, coded as in `Layouts`
    values, origins : scenario keys with defaults filled in, and where each that counts comes from
    known_samples : in the data set, None where nobody said
    at_replicas : resolves the same scenario for a number of replicas, where the global batch follows the layout; the
    job's batch is that of one replica then
    at_batch : resolves the same scenario with another global batch, where it is assumed and the GPUs are open
    """

    scenario: Scenario
    job: Job
    fixed: Mapping[str, int]
    gpus: int | None
    min_headroom_bytes: float
    tariff: Tariff
    efficiency: Efficiency
    values: ScenarioFile
    origins: Mapping[str, str]
    warnings: tuple[str, ...]
    data_source: str | None
    known_samples: float | None
    at_replicas: Callable[[int], ResolvedTraining] | None = None
    at_batch: Callable[[int], ResolvedTraining] | None = None

    @property
    def whole_servers(self) -> bool:
        """Whether servers are bought whole: one is named, and nobody asks for less than all of its accelerators.

        Less is asked for by `partial_servers`, by a number of GPUs that is part of a server, and by a limit below one.
        """
        values, node = self.scenario.values, self.job.server.accelerators
        part = (self.gpus or 0) % node > 0 or (values.limits.max_gpus or node) < node
        return not (self.job.server.bare or values.partial_servers or part)

    @property
    def recommended_bytes(self) -> float:
        """What a layout must leave free of the card to be recommended [bytes].

        So much that memory likely suffices, unless a confidence was asked for, which `min_headroom_bytes` has.
        """
        spare = spare_bytes(self.job, self.min_headroom_bytes)
        return spare if self.scenario.values.limits.confidence is not None else max(spare, doubtful_bytes(self.job))

    @property
    def likely_bytes(self) -> float:
        """What a layout must leave free of the card for memory to be likely to suffice, as plans count it [bytes]."""
        asked = self.min_headroom_bytes
        return asked if self.scenario.values.limits.confidence is not None else max(asked, doubtful_bytes(self.job))

    def gpu_numbers(self, largest: int) -> tuple[int, ...]:
        """The numbers of GPUs among which a search chooses, ascending, at most `largest` unless the user says more."""
        if not self.job.stack.supports.several_gpus:
            return (1,)
        most = self.scenario.values.limits.max_gpus or largest
        return gpu_counts(self.job.server.accelerators, most, parts=not self.whole_servers)

    @property
    def planned_gpus(self) -> tuple[int, ...]:
        """The numbers of GPUs that a plan tries: the one asked for, else whole servers, or parts of one too."""
        return (self.gpus,) if self.gpus is not None else self.gpu_numbers(LARGEST_PLAN)

    def on_any_gpus(self) -> ResolvedTraining:
        """The same job with its layout and the number of its GPUs left open."""
        return replace(self.without_layout(), gpus=None)

    @property
    def batch_is_free(self) -> bool:
        """Whether nothing else makes the global batch, so that it may grow with the GPUs, as weak scaling has it."""
        return True

    def without_layout(self) -> ResolvedTraining:
        """The same job with the whole layout open, but for a micro-batch whose states are compared with each other."""
        stays = {"offload", "micro_batch"} if self.job.method.compared else {"offload"}
        return replace(self, fixed={name: value for name, value in self.fixed.items() if name in stays})

    def under(self, layouts: Layouts) -> ResolvedTraining:
        """The scenario with the global batch of the first of the layouts, as if somebody had given it."""
        if self.at_replicas is None:
            return self
        return replace(self.at_replicas(int(layouts.dp[0])), fixed=self.fixed, gpus=self.gpus)

    def fitted_to(self, gpus: int) -> ResolvedTraining:
        """The scenario with the global batch that is assumed for so many GPUs, whose number stays open."""
        batch = default_global_batch(self.scenario, gpus, self.job.stack)
        return self if self.at_batch is None or batch == self.job.global_batch else self.at_batch(batch)

    @property
    def fixed_steps(self) -> bool:
        """Whether the steps stand whatever a step reads: they do not follow from passes over the data."""
        return self.scenario.values.train.steps is not None or self.known_samples is None

    @property
    def epochs(self) -> float | None:
        """Passes over the data set that the steps make; None where nobody said how large it is."""
        return self.job.samples_read / self.known_samples if self.known_samples else None

    @property
    def rules(self) -> Rules:
        return Rules(
            model=self.job.model,
            stack=self.job.stack,
            node_ranks=self.job.server.accelerators,
            global_batch=None if self.at_replicas else self.job.global_batch,
            seq_len=self.job.seq_len,
            splits_sequences=self.job.padding in ("packed", "to-seq-len"),
            fixed=self._fixed_with_batch,
            uneven_stages=self._uneven_stages,
            ends=self.job.account_for_embedding + self.job.account_for_loss,
            first_batches=(self.job.batch_ramp.start, self.job.batch_ramp.increment) if self.job.batch_ramp else (),
            packed=self.job.padding == "packed",
            host_known=self.job.server.host_memory_bytes is not None,
            host_apart=self.job.server.host_apart,
        )

    @property
    def _uneven_stages(self) -> bool:
        """Whether stages may differ by a layer, or do so by the stack or as they are given."""
        by_itself = self.job.stack.defaults.counts_ends or self.job.split.uneven
        return bool(self.scenario.values.layout.uneven_stages) or by_itself

    @property
    def _fixed_with_batch(self) -> Mapping[str, int]:
        """What was chosen of the layout, with the accumulation that makes a batch which follows the layout."""
        if self.at_replicas is None:
            return self.fixed
        return {**self.fixed, "grad_accum": self.job.global_batch // self.fixed["micro_batch"]}

    def run_cost(self, hours: Array, gpus: IntArray) -> Array | None:
        """Expected price of runs of so many hours on so many GPUs; None where no price is known.

            cost = hours x cost of an hour of the GPUs that are paid for

        Source: definition.
        """
        per_hour = self.tariff.hour(as_array(self.tariff.billed_gpus(gpus)), as_array(gpus))
        return None if per_hour is None else hours * per_hour

    def no_layout(self, counts: Sequence[int]) -> Problem:
        """What to say where none of the numbers of GPUs has a legal layout."""
        job = self.job
        words = {name: WORDS[name][value] if name in WORDS else value for name, value in self._fixed_with_batch.items()}
        fixed = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in words.items())
        numbers = f"{counts[0]:,}" + (f" to {counts[-1]:,}" if len(counts) > 1 else "")
        message = f"no legal layout on {numbers} GPUs"
        message += "" if self.at_replicas else f" for a global batch of {job.global_batch:,}"
        message += f" with {fixed}" if fixed else ""
        hint = "tp divides heads, pp divides layers, and the global batch is a multiple of micro-batch x dp"
        if self.fixed.get("ep", 1) > 1:
            hint += "; ep x expert tp divides tp x cp x dp"
        if ROUNDS[self.fixed.get("schedule", 0)]:
            hint += f"; {words['schedule']} needs {ROUNDS[self.fixed['schedule']]} x pp micro-batches"
        if {"micro_batch", "grad_accum"} <= self.fixed.keys():
            hint = "the global batch is micro_batch x grad_accum x dp: leave one of the three out"
        asked = "nodes" if "nodes" in self.scenario.origin else "gpus"
        return Problem(message, self.scenario.locate((asked,)), hint)
