"""Legal layouts of a job on a number of GPUs: what may be divided, and the rules that say so."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from itertools import chain, product
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.immutable import Immutable
from xe_sizer.result.studies import Rule
from xe_sizer.training.layout import (
    FULL,
    LEAST_CHUNKS,
    MIRRORED,
    MOST_CHUNKS,
    OFFLOAD,
    OPEN_CHUNKS,
    RECOMPUTE,
    ROUNDS,
    ROWS,
    Layouts,
    offloaded_parts,
)

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import IntArray
    from xe_sizer.software.stack import Stack

# All legal layouts of a job on given numbers of GPUs.

LARGEST_LIST = 1 << 24
LARGEST_PLAN = 1024  # GPUs up to which every whole node is tried
LARGEST_SEARCH = 4096  # GPUs up to which a smallest count is looked for
ENDS = ("embedding", "loss")
"""What may take a layer's place where layers are spread over the stages of a pipeline."""
FIELDS = Layouts.__struct_fields__


class Rules(Immutable):
    """What makes a layout legal. `fixed` holds the fields that the user chose, as `Layouts` codes them.

    global_batch : None where it follows the layout: micro-batch x accumulation, both fixed, x dp
    uneven_stages : pipelines need not divide the layers
    ends : layers whose place embedding and loss take [-]
    first_batches : what the first global batch and its growth have to be divided into, as the global batch is
    every_way : also what the stack supports but does not do unasked: other ZeRO stages, offloading, no sequence
    parallelism
    host_known : the host's memory is known
    host_apart : the host has memory of its own, to which offloading moves something
    packed : samples stand end to end in sequences of full length
    """

    model: ModelShape
    stack: Stack
    node_ranks: int
    global_batch: int | None
    seq_len: int
    splits_sequences: bool
    fixed: Mapping[str, int]
    uneven_stages: bool = False
    ends: int = 0
    first_batches: tuple[int, ...] = ()
    every_way: bool = False
    host_known: bool = False
    host_apart: bool = True
    packed: bool = False

    @property
    def places(self) -> int:
        """Layers, and what takes the place of one, that are spread over the stages of a pipeline [-]."""
        return self.model.layers + self.ends

    @property
    def most_chunks(self) -> int:
        """Chunks that no pipeline has more of: stages that differ may have the embedding or the head alone [-]."""
        return max(self.places, self.model.layers + len(ENDS) * self.uneven_stages)

    def options(self, name: str, open_options: Iterable[int]) -> tuple[int, ...]:
        return (self.fixed[name],) if name in self.fixed else tuple(open_options)


@cache
def divisors(number: int) -> tuple[int, ...]:
    """All divisors of a positive number, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def tensor_options(rules: Rules) -> tuple[int, ...]:
    """TP divides the attention heads and stays inside a node, where its collectives are affordable."""
    if not rules.stack.supports.tensor_parallel:
        return rules.options("tp", (1,))
    return rules.options(
        "tp", (d for d in divisors(rules.model.heads) if d <= rules.node_ranks and rules.node_ranks % d == 0)
    )


def pipeline_options(rules: Rules) -> tuple[int, ...]:
    """PP divides the layers, with the ends that count as some.

    Where stages may differ, powers of two are tried too, which numbers of GPUs have.
    """
    if not rules.stack.supports.pipeline_parallel or rules.model.encoder_layers or rules.model.shared_blocks:
        return rules.options("pp", (1,))
    more = (2**i for i in range(20) if 2**i <= rules.model.layers) if rules.uneven_stages else ()
    return rules.options("pp", sorted({*divisors(rules.places), *more}))


def context_options(rules: Rules) -> tuple[int, ...]:
    """CP cuts every sequence into 2 CP chunks of equal work, so it needs sequences of a fixed, divisible length.

    Ulysses shares out the heads too.
    """
    stack = rules.stack
    possible = stack.supports.context_parallel and rules.splits_sequences
    possible &= not rules.model.encoder_layers and (rules.every_way or stack.defaults.splits_sequences)
    sizes = (d for d in (1, 2, 4, 8, 16) if rules.seq_len % (2 * d) == 0 and rules.seq_len // d >= 2048)
    if stack.kernels.context == "ulysses":
        sizes = (d for d in sizes if rules.model.heads % d == 0)
    return rules.options("cp", {1, *sizes} if possible else (1,))


def expert_options(rules: Rules, ranks: int) -> tuple[int, ...]:
    """EP divides the experts and the ranks of a pipeline stage."""
    experts = rules.model.experts
    if experts is None or not rules.stack.supports.expert_parallel:
        return rules.options("ep", (1,))
    return rules.options("ep", (d for d in divisors(experts.count) if ranks % d == 0))


def zero_options(rules: Rules, shards: int, pp: int) -> tuple[int, ...]:
    """ZeRO stages of the stack; 2 and 3 go with pipelines where the stack shards stages.

    With offloading all that it has, on one GPU too, where they say which gradients and weights leave the card.
    """
    if "params" in offloaded_parts(OFFLOAD[rules.fixed.get("offload", 0)]):
        return rules.options("zero", (3,))  # weights in host memory are fetched layer by layer
    offloads = any("optimizer" in offloaded_parts(OFFLOAD[code]) for code in offload_options(rules))
    if shards == 1 and not (offloads and rules.stack.states.gradients_on_host):
        return rules.options("zero", (0, rules.stack.supports.offload_from_zero) if offloads else (0,))
    known = rules.stack.supports.zero if rules.every_way or offloads else rules.stack.defaults.zero
    allowed = [stage for stage in known if pp == 1 or stage < 2 or rules.stack.supports.sharded_stages]
    return rules.options("zero", allowed or (0,))


def offload_options(rules: Rules) -> tuple[int, ...]:
    """Nothing, unless it is asked for, or everything is to be tried and it is known what the host can take.

    Nothing either where the memory of the GPU is the host's.

    Activations go to the host for those who ask, since recomputing them is what recipes do first; and where layers are
    recomputed by a stack that then offloads by itself.
    """
    every = (OFFLOAD.index(name) for name in rules.stack.supports.offload if name != "activations")
    tried = tuple(every) if rules.every_way and rules.host_known and rules.host_apart else (OFFLOAD.index("none"),)
    usual = _usual_offload(rules)
    return rules.options("offload", tried if usual is None else (*tried, usual))


def _usual_offload(rules: Rules) -> int | None:
    """What the stack offloads by itself where it recomputes whole layers; None: nothing, or the user says what."""
    usual = rules.stack.defaults.usual_offload
    return None if usual in (None, "none") or "offload" in rules.fixed or not rules.host_apart else OFFLOAD.index(usual)


def _offloads_as_usual(layouts: Layouts, rules: Rules) -> np.ndarray | bool:
    """Whether a layout offloads what the stack does by itself, which goes with full recomputation."""
    usual, full = _usual_offload(rules), layouts.recompute == FULL
    if usual is None:
        tied = rules.stack.defaults.usual_offload
        return True if tied in (None, "none") else np.asarray(full | (layouts.offload != OFFLOAD.index(tied)))
    return np.asarray(np.where(full, layouts.offload != OFFLOAD.index("none"), layouts.offload != usual))


def chunk_options(rules: Rules, pp: int) -> tuple[int, ...]:
    """Chunks of whole layers on a stage, as many as the schedule has.

    Where nobody says so, stages have one, or several where the stack interleaves.
    """
    interleaves = "1f1b-interleaved" in rules.stack.supports.schedules and rules.fixed.get("schedule") != 0
    whole = pp > 1 and rules.places % pp == 0
    chunks = divisors(rules.places // pp) if whole and interleaves else (1,)
    rows = [ROWS[code] for code in schedule_options(rules, pp)]
    tried = {(count, row) for row in rows for count in (*chunks, row.least_chunks)}
    return tuple(sorted({c for c, row in tried if row.least_chunks <= c <= (row.most_chunks or c)}))


def schedule_options(rules: Rules, pp: int) -> tuple[int, ...]:
    """The usual schedule; where everything is tried, those that defer weight gradients too if the stack has them."""
    if pp == 1 or not rules.every_way:
        return rules.options("schedule", (0,))
    known = rules.stack.supports.schedules
    deferring = (code for code, row in enumerate(ROWS) if row.waits[2] < 1 and row.name in known)
    return rules.options("schedule", (0, *deferring))


def replica_options(rules: Rules, numbers: Iterable[int]) -> tuple[int, ...]:
    """DP divides the global batch into whole shares; where the batch follows the layout, it is any of the numbers."""
    if rules.global_batch is None:
        return rules.options("dp", numbers)
    accum = rules.fixed.get("grad_accum", 1)
    return tuple(
        dp for dp in rules.options("dp", divisors(rules.global_batch)) if rules.global_batch % (dp * accum) == 0
    )


def micro_batch_options(rules: Rules, dp: int) -> tuple[int, ...]:
    """Micro-batches divide the share of a replica; a given accumulation leaves one."""
    if rules.global_batch is None:
        return rules.options("micro_batch", ())
    share = rules.global_batch // dp
    accum = rules.fixed.get("grad_accum")
    return rules.options("micro_batch", divisors(share) if accum is None else (share // accum,))


def _groups(rules: Rules, counts: Collection[int]) -> list[tuple[int, int, int, int, int]]:
    """Legal (gpus, tp, cp, pp, dp), by the number of GPUs."""
    wanted = frozenset(counts)
    groups = []
    for tp, cp, pp in product(tensor_options(rules), context_options(rules), pipeline_options(rules)):
        group = tp * cp * pp
        replicas = replica_options(rules, (count // group for count in wanted if count % group == 0))
        groups += [(group * dp, tp, cp, pp, dp) for dp in replicas if group * dp in wanted]
    return sorted(groups)


def without_groups(rules: Rules, counts: Collection[int]) -> tuple[int, ...]:
    """Find the GPU counts that no legal (tp, cp, pp, dp) comes to, ascending."""
    grouped = {group[0] for group in _groups(rules, counts)}
    return tuple(count for count in sorted(counts) if count not in grouped)


def _block(rules: Rules, tp: int, cp: int, pp: int, dp: int) -> dict[str, tuple[int, ...]]:
    """Options of the inner fields for one combination of the outer ones."""
    parallel = int(rules.stack.defaults.sequence_parallel and tp > 1)
    # All ranks share the states (0), or groups of some of them do.
    grouped = rules.every_way and rules.stack.supports.hybrid_sharding
    smaller_groups = (ranks for ranks in divisors(dp * cp) if 1 < ranks < dp * cp) if grouped else ()
    return {
        "tp": (tp,), "pp": (pp,), "cp": (cp,), "dp": (dp,),
        "vpp": rules.options("vpp", chunk_options(rules, pp)),
        "ep": expert_options(rules, tp * cp * dp),
        "zero": zero_options(rules, dp * cp, pp),
        "micro_batch": micro_batch_options(rules, dp),
        "recompute": rules.options("recompute", map(RECOMPUTE.index, rules.stack.supports.recompute)),
        "offload": offload_options(rules),
        "zero_group": rules.options("zero_group", (0, *smaller_groups)),
        "expert_tp": rules.options("expert_tp", (0,)),
        "schedule": schedule_options(rules, pp),
        "sequence_parallel": rules.options("sequence_parallel", (0, 1) if rules.every_way and tp > 1 else (parallel,)),
    }  # fmt: skip


def layout_chunks(
    rules: Rules, counts: Collection[int], size: int, least_memory: bool = False, growth: int = 1
) -> Iterator[Layouts]:
    """Every legal layout on each of the GPU counts, ascending, in chunks of at least `size` but the last.

    growth : how many times as large as the one before each chunk is
    least_memory : only those that could need the least memory (smallest micro-batch, no interleaving, states shared by
    all ranks, norms split over tp), which decide whether anything fits at all
    """
    blocks = _Blocks(rules)
    for _, *degrees in _groups(rules, counts):
        block = _block(rules, *degrees)
        if least_memory:
            firsts = {name: block[name][:1] for name in ("micro_batch", "vpp", "zero_group")}
            block = {**block, **firsts, "sequence_parallel": block["sequence_parallel"][-1:]}
        blocks.add(block)
        if blocks.held >= size:
            yield from blocks.legal()
            blocks, size = _Blocks(rules), size * growth
    if blocks.held:
        yield from blocks.legal()


class _Blocks:
    """Combinations of options, block after block, as columns of layouts."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.held = 0
        self._sizes: list[int] = []
        self._columns: dict[str, list[int | IntArray]] = {name: [] for name in FIELDS if name != "grad_accum"}

    def add(self, block: Mapping[str, tuple[int, ...]]) -> None:
        """Every combination of a block's options, the last field varying fastest."""
        size = outer = math.prod(len(options) for options in block.values())
        for name, options in block.items():
            outer //= len(options)
            self._columns[name].append(_repeated(options, outer, size))
        self.held += size
        self._sizes.append(size)

    def legal(self) -> Iterator[Layouts]:
        """The legal ones of the combinations as one chunk; no chunk where none is legal."""
        merged = {name: self._merged(columns) for name, columns in self._columns.items()}
        merged["grad_accum"] = _accumulation(self.rules, merged["dp"] * merged["micro_batch"])
        layouts = Layouts(**merged)
        legal = is_legal(layouts, self.rules)
        if np.any(legal):
            yield layouts if np.all(legal) else layouts[legal]

    def _merged(self, columns: list[int | IntArray]) -> IntArray:
        """A column of all blocks; blocks in which a field has one value hold that value alone."""
        if all(isinstance(column, int) for column in columns):
            return np.repeat(np.array(columns, dtype=np.int64), self._sizes)
        whole = [np.repeat(c, size) if isinstance(c, int) else c for c, size in zip(columns, self._sizes, strict=True)]
        return np.concatenate(whole)


def _accumulation(rules: Rules, together: IntArray) -> IntArray:
    """Micro-batches of a step: as given, else what is left of the global batch over those that run together."""
    accum = rules.fixed.get("grad_accum")
    if accum is not None or rules.global_batch is None:
        return np.full(together.shape, accum or 1)
    return np.asarray(np.maximum(rules.global_batch // np.maximum(together, 1), 1))


def _repeated(options: tuple[int, ...], inner: int, size: int) -> int | IntArray:
    """Options, each repeated for all combinations of the fields after it, over and over for those before.

    One alone where there is no choice.
    """
    if len(options) == 1:
        return options[0]
    once = np.array(options, dtype=np.int64).repeat(inner)
    return once[np.newaxis].repeat(size // once.size, axis=0).ravel()


def legal_layouts(rules: Rules, counts: Collection[int], least_memory: bool = False) -> Layouts:
    """Every legal layout on each of the GPU counts; may be empty."""
    chunks = list(layout_chunks(rules, counts, LARGEST_LIST, least_memory))
    if not chunks:
        return Layouts.none()
    return chunks[0] if len(chunks) == 1 else Layouts.joined(chunks)


def is_legal(layouts: Layouts, rules: Rules) -> np.ndarray:
    """Rules between fields, which a field that the user fixed may break on some of the others' values.

    Whole micro-batches; interleaving needs stages, chunks of whole layers and a multiple of pp micro-batches;
    expert groups divide the ranks of a stage, and the ranks that split an expert the tensor ranks; ZeRO 2 and 3 go with
    pipelines of some stacks; a schedule but the usual one needs a pipeline, and stages of as many chunks as it has;
    copies of sharded states hold whole groups of experts; where context ranks share out heads, each has some; some
    stacks split one packed sequence at a time.
    Micro-batches that enter at both ends are as many at each, of an even number of stages.
    """
    whole = np.asarray(rules.global_batch is None) | (layouts.samples == rules.global_batch)
    for batch in rules.first_batches:
        whole &= batch % (layouts.micro_batch * layouts.dp) == 0
    chunks = layouts.pp * layouts.vpp
    chunks_fit = (layouts.pp > 1) & (chunks <= rules.most_chunks)
    if not rules.uneven_stages:
        chunks_fit &= rules.places % chunks == 0
    rounds = (layouts.grad_accum % layouts.pp == 0) | ~OPEN_CHUNKS[layouts.schedule]
    interleaved = (layouts.vpp == 1) | (chunks_fit & rounds)
    grouped = (layouts.tp * layouts.cp * layouts.dp) % (layouts.expert_ranks * layouts.ep) == 0
    grouped &= layouts.tp % layouts.expert_ranks == 0
    if rules.stack.kernels.context == "ulysses":
        grouped &= (layouts.cp == 1) | (rules.model.heads % (layouts.tp * layouts.cp) == 0)
    if rules.packed and rules.stack.supports.splits_one_packed:
        grouped &= (layouts.cp == 1) | (layouts.micro_batch == 1)
    staged = (layouts.pp == 1) | (layouts.zero < 2) | rules.stack.supports.sharded_stages
    # Tokens of a micro-batch are cut over the tensor ranks only where there is tensor parallelism.
    sharded = (layouts.sequence_parallel == 0) | (layouts.tp > 1)
    on_card = ~layouts.hosts_optimizer
    offloads = ~layouts.hosts_params | layouts.gathers_by_layer
    offloads &= _offloads_as_usual(layouts, rules)
    offloads &= on_card | (layouts.zero >= rules.stack.supports.offload_from_zero)
    # Alone there is nothing to share: only what offloads needs a stage then, or the user names one.
    staged &= (layouts.zero == 0) | (layouts.data_ranks > 1) | ~on_card | ("zero" in rules.fixed)
    # A group shares its copies evenly; without ZeRO there is nothing to share.
    ranks = np.maximum(layouts.zero_group, 1)
    shared = (layouts.zero_group == 0) | (
        (layouts.zero > 0) & (layouts.data_ranks % ranks == 0) & (layouts.expert_dp % layouts.zero_replicas == 0)
    )
    ordered = (layouts.schedule == 0) | (layouts.pp > 1)
    ordered &= (LEAST_CHUNKS[layouts.schedule] <= layouts.vpp) & (layouts.vpp <= MOST_CHUNKS[layouts.schedule])
    ordered &= layouts.grad_accum >= ROUNDS[layouts.schedule] * layouts.pp
    ordered &= ~MIRRORED[layouts.schedule] | (layouts.pp % 2 == 0) & (layouts.grad_accum % 2 == 0)
    return np.asarray(ordered & shared & whole & interleaved & grouped & staged & sharded & offloads)


def gpu_counts(node_ranks: int, limit: int, parts: bool) -> tuple[int, ...]:
    """Counts worth trying: all whole nodes, beyond LARGEST_PLAN in steps of at most a half.

    parts : also powers of two inside a node
    """
    inside = [2**i for i in range(20) if 2**i < node_ranks] if parts else []
    nodes = LARGEST_PLAN // node_ranks
    more = sorted({base * 2**i for base in (1, 3) for i in range(14)})
    every = (*range(1, nodes + 1), *(n for n in more if n > nodes))
    return tuple(count for count in (*inside, *(node_ranks * n for n in every)) if count <= limit)


# What each rule of the search space removed: how many parallel groupings, how many layouts.

GROUPINGS, LAYOUTS = "groupings", "layouts"


def removed_by_rules(rules: Rules, counts: Collection[int]) -> tuple[Rule, ...]:
    """Count what each rule removes, in the order in which they are applied, of what the rules before it left.

    Groupings are the ways to write a number of GPUs as tp x cp x pp x dp; layouts add the other choices to those that
    are left.
    """
    tests = (
        ("tensor-parallel", "tp divides the attention heads and stays inside a node", tensor_options(rules)),
        ("context-parallel", "cp needs sequences of fixed, divisible length and the stack's support",
         context_options(rules)),
        ("pipeline", "pp divides the layers and needs the stack's support", pipeline_options(rules)),
        ("batch", "dp divides the global batch", replica_options(rules, chain.from_iterable(map(divisors, counts)))),
    )  # fmt: skip
    allowed = [frozenset(options) for _, _, options in tests]
    removed = [0] * len(tests)
    for sizes in parallel_groupings(counts):
        failed = next((index for index, size in enumerate(sizes) if size not in allowed[index]), None)
        if failed is not None:
            removed[failed] += 1
    found = [Rule(name, reason, lost, GROUPINGS) for (name, reason, _), lost in zip(tests, removed, strict=True)]
    blocks = (_block(rules, *degrees) for _, *degrees in _groups(rules, counts))
    raw = sum(math.prod(len(options) for options in block.values()) for block in blocks)
    legal = sum(len(chunk) for chunk in layout_chunks(rules, counts, 1 << 18))
    reason = "whole micro-batches; chunks of whole layers; ZeRO 2 and 3 without pipelines; even expert and ZeRO groups"
    return (*found, Rule("between fields", reason, raw - legal, LAYOUTS))


def parallel_groupings(counts: Collection[int]) -> Iterator[tuple[int, int, int, int]]:
    """Every tp, cp, pp, dp with a product among the counts."""
    for count in counts:
        for tp in divisors(count):
            for cp, pp in product(divisors(count // tp), repeat=2):
                if count // tp % (cp * pp) == 0:
                    yield tp, cp, pp, count // (tp * cp * pp)
