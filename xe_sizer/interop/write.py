"""A plan as the files of another tool: what an exporter provides, and what it leaves to the user."""

from __future__ import annotations

import importlib
import pkgutil
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import yaml
from msgspec import field
from msgspec.structs import replace

from xe_sizer.errors import InputError, Location, Problem, did_you_mean
from xe_sizer.immutable import Immutable
from xe_sizer.interop import tools
from xe_sizer.profiles.catalogue import Registry, load_stack
from xe_sizer.profiles.text import told
from xe_sizer.software.speculation import DFLASH, EAGLE, EAGLE3, MEDUSA
from xe_sizer.software.stack import POOLS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from xe_sizer.graph.model import ModelShape

# The chosen plan under flat scenario keys, and which of them an exporter has said.

ASSUMED = "default"  # origin of a value that neither the user nor the stack gave
OF_STACK = "stack"  # origin of a value that the stack gave
HOURLY_LOAD = "serve.hourly_load"
AUTOSCALE, RATES = "--autoscale", "--learning-rates"
INFERENCE = "inference"
_REFERENCE = "reference"  # what the name of the pass of a reference model has in it
HEADS = (EAGLE, EAGLE3, MEDUSA, DFLASH)
"""Methods of speculative decoding whose weights are a checkpoint of their own."""
NEUTRAL: Mapping[str, frozenset[object]] = {
    **dict.fromkeys(("layout.tp", "layout.pp", "layout.vpp", "layout.cp", "layout.ep"), frozenset({1})),
    **dict.fromkeys(("layout.offload", "layout.recompute"), frozenset({"none"})),
    "layout.zero": frozenset({0}),
    **dict.fromkeys(("layout.zero_group", "layout.expert_tp"), frozenset({0})),
    "layout.sequence_parallel": frozenset({False}),
    "layout.schedule": frozenset({"1f1b", "1f1b-interleaved"}),
    "train.grad_accum": frozenset({1}),
    "train.mtp_layers": frozenset({0}),
    "train.async_checkpoint": frozenset({False}),
    "lora.dora": frozenset({False}),
    "lora.dropout": frozenset({0}),
    "train.dropout": frozenset({0}),
    "rollout.oversampling": frozenset({1}),
    "rollout.updates": frozenset({1}),
    "rollout.offload": frozenset({"none"}),
    **dict.fromkeys(("rollout.tp", "rollout.pp", "rollout.ep"), frozenset({1})),
    **dict.fromkeys((f"{pool}.{size}" for pool in POOLS for size in ("tp", "pp")), frozenset({1})),
    **dict.fromkeys(("train.reference", "train.reward_model"), frozenset({"none"})),
    "adapter": frozenset({"none"}),
    "loss": frozenset({"eager"}),
    "train.backend": frozenset({"fsdp"}),
    "serve.kv_cache": frozenset({"bf16", "fp16"}),
    "serve.weights": frozenset({"bf16", "fp16"}),
}
"""Values that say nothing: a tool that has no word for the key runs them anyway."""
DECIDES = (
    "model", "job", "layout.tp", "layout.pp", "layout.cp", "layout.ep", "layout.zero", "layout.offload",
    "layout.recompute", "train.micro_batch", "train.grad_accum", "train.seq_len", "lora.rank", "train.bits",
    "adapter", "train.teacher_model", "rollout.gpus", *(f"{pool}.gpus" for pool in POOLS),
    "rollout.prompts", "rollout.engine",
    "serve.prefill_replicas", "serve.encode_replicas", "serve.expert_gpus", "serve.adapters", "slice", AUTOSCALE, RATES,
)  # fmt: skip
"""Keys without which the tool would run another plan."""
_ELSEWHERE = (
    "written_as", "names", "origin", "free", "data", "limits", "cost", "efficiency", "storage", "server", "gpu", "gpus",
    "nodes", "gpus_per_node", "replicas", "stack", "objective", "partial_servers", "host_memory_gib",
    "train.failures_per_gpu_day", "train.expert_skew", "train.quantiser", "train.evaluate_samples", "serve.engine",
    "rollout.verifier_s", "rollout.verifier_workers", "rollout.input_tokens", "rollout.output_tokens",
    "rollout.output_spread", "rollout.colocated",
    *(f"serve.{name}" for name in (
        "request_rate", "concurrency", "users", "think_time_s", "batch", "requests", "arrivals", "trace",
        "input_tokens", "output_tokens", "input_spread", "output_spread", "longest_input_tokens",
        "longest_output_tokens", "documents", "images", "image_size", "prefix_hit_share", "turns",
        "turn_tokens", "tool_seconds",
        "fit", "acceptance_rate", "draft_cost", "objective", "hourly_load", "replica_start_s", "percentile",
        "spare_replicas", "scheme", "expert_skew",
    )),
)  # fmt: skip
"""Sections and keys that say what no file of a tool does: data, load, limits, prices, and what the plan was made of."""
_FOLLOW = ("layout.dp", "layout.uneven_stages", "train.global_batch")
"""Keys that follow from others: ranks that are left, and their micro-batches."""
PREFILL_RANKS: Mapping[str, str] = {
    f"layout.{ranks}": f"serve.prefill_{ranks}" for ranks in ("tp", "pp", "ep", "dp")
}  # fmt: skip
"""Keys of the placement of replicas that only prefill, by those of the others."""
DISPATCHER = "serve.dispatcher"
_OF_PROMPTS = {"deepep": "deepep-normal"}
"""Dispatchers with kernels of their own for prompts, and what has these alone."""
SAYS_PREFILL = ("serve.prefill_replicas", *PREFILL_RANKS.values())
_TOLD = (
    *DECIDES, "train.reference", "layout.vpp", "layout.sequence_parallel", "layout.schedule", "layout.zero_group",
    "train.batch_ramp_up", "train.mtp_layers", "layout.stages", "layout.first_stage_layers", "layout.last_stage_layers",
    "layout.account_for_embedding", "layout.account_for_loss",
    "layout.expert_tp", "layout.cp_kind", "layout.offload_layers", "layout.recompute_modules",
    "train.padding", "train.weights_dtype", "train.fused_kernels", "optimizer", "attention", "loss", "lora.targets",
    "lora.dropout", "lora.dora", "lora.modules_to_save", "precision", "serve.weights", "serve.kv_cache",
    "serve.state_dtype", "serve.kv_host_gib", "serve.ngram_tables", "serve.batch_wait_iters", "serve.dispatcher",
    "serve.redundant_experts", "serve.two_batch_overlap", "serve.scheduler_recv_interval", "serve.speculative",
    "serve.draft_tokens", "serve.draft_width", "train.critic_model", "train.reward_model", "rollout.group",
    "rollout.max_output_tokens", "rollout.updates", "rollout.engine", "rollout.tp", "rollout.pp",
    *(f"{pool}.{size}" for pool in POOLS for size in ("tp", "pp")),
    "rollout.ep", "rollout.asynchronous", "rollout.oversampling", "rollout.weights", "rollout.sleep",
    "rollout.offload", "train.backend", "layout.bucket_gib",
    "layout.prefetch_elements", "layout.live_elements", "layout.reuse_elements", "layout.persistent_elements",
)  # fmt: skip


SHARERS = "sharers"  # of a plan: replicas that share a GPU in software
POOLED = "pooled"  # of a plan: requests get embeddings or scores, and no tokens


class Plan:
    """What is to be run. `take` marks a key as said; what is left the tool has no word for.

    values : flat scenario keys in the words of scenarios; `model` is a repository of the Hub where one is known
    asked : keys that the user gave, in a file or otherwise
    shape : of the model; None: the one of the model's name
    steps : optimizer steps of the run, for tools that count nothing else; None where they are an assumption
    of_stack : keys that nobody asked for, with what the stack of the plan does
    locate : where the user wrote a key; None where a problem is the tool's
    hours : replicas in each hour of a day, from midnight; empty where they are as many all day
    in_flight : requests in flight of a replica, waiting and running, which replicas are to follow; None: they do not
    rates : learning rates that a run of its own is to try, as the user wrote them; empty: one run, whose rate is open
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        asked: Iterable[str] = (),
        shape: ModelShape | None = None,
        steps: int | None = None,
        of_stack: Iterable[str] = (),
        locate: Callable[[str], Location | None] = lambda key: None,
        hours: Sequence[int] = (),
        in_flight: float | None = None,
        rates: Sequence[str] = (),
    ) -> None:
        self.values = {key: _whole(value) for key, value in values.items() if value is not None}
        self._shape = shape
        self.asked = frozenset(asked)
        self.steps = self.values.get("train.steps", steps)
        self._said: set[str] = set()
        self.of_stack = frozenset(of_stack)
        self._locate = locate
        self.hours = tuple(hours)
        self.in_flight = in_flight
        self.rates = tuple(rates)

    def take(self, key: str, otherwise: Any = None) -> Any:
        """The value of a key, which is said with it."""
        self._said.add(key)
        return self.values.get(key, otherwise)

    def word(self, key: str, words: Mapping[Any, Any]) -> Any:
        """A tool's word for the value of a key; a value that it has no word for stays to be said."""
        word = words.get(self.peek(key))
        if word is not None:
            self.said(key)
        return word

    def peek(self, key: str, otherwise: Any = None) -> Any:
        """The value of a key, which stays to be said."""
        return self.values.get(key, otherwise)

    def where(self, key: str) -> Location:
        """Where the user wrote a key, else the option that names the tool."""
        return self._locate(key) or Location("--to")

    @property
    def of_prefill(self) -> Plan | None:
        """The plan of the replicas that only prefill, whose placement is their own; None where all do both."""
        if "serve.prefill_replicas" not in self.values:
            return None
        placed: dict[str, Any] = {key: self.values.get(theirs, 1) for key, theirs in PREFILL_RANKS.items()}
        if self.values.get(DISPATCHER) in _OF_PROMPTS:
            placed[DISPATCHER] = _OF_PROMPTS[self.values[DISPATCHER]]
        return Plan(self.values | placed, shape=self._shape)

    @property
    def shape(self) -> ModelShape:
        """The shape of the model. Raises InputError: nothing is known of it."""
        return self._shape or Registry().model(str(self.values["model"]))

    @property
    def has_own_shape(self) -> bool:
        """Whether the scenario writes the shape of the model out."""
        return "model.layers" in self.values

    def said(self, *keys: str) -> None:
        """These keys are said by others, or by how the tool works."""
        self._said.update(keys)

    def left(self) -> Iterator[tuple[str, Any]]:
        """Keys with their values that nothing has said: what the user gave, and what changes memory or time."""
        if self.has_own_shape and "model.layers" not in self._said:
            yield "model", self.shape.name
        for key in dict.fromkeys((*_TOLD, *sorted(self.asked))):
            value = self.values.get(key)
            said = key in self._said or key in _FOLLOW or key.startswith("model.")
            if key in self.values and not said and not is_neutral(key, value):
                yield key, value
        if self.hours and HOURLY_LOAD not in self._said:
            yield HOURLY_LOAD, f"{min(self.hours)} to {max(self.hours)} replicas"
        if self.in_flight is not None and AUTOSCALE not in self._said:
            yield AUTOSCALE, f"{self.in_flight:.3g} requests in flight of a replica"
        if self.rates and RATES not in self._said:
            yield RATES, ", ".join(self.rates)


def is_neutral(key: str, value: Any) -> bool:
    """Whether a value says nothing: a tool that has no word for the key runs it anyway."""
    return any(value == each for each in NEUTRAL.get(key, ()))


def _whole(value: Any) -> Any:
    """2.0 as 2, which is how people write it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def build_plan(
    answer: Mapping[str, Any],
    repository: str | None,
    asked: Mapping[str, Any],
    shape: ModelShape | None = None,
    locate: Callable[[str], Location | None] = lambda key: None,
    autoscale: bool = False,
    rates: Sequence[str] = (),
) -> Plan:
    """The plan of an answer of `estimate` or `serve`, as JSON has it, with all that the user asked for.

    A number of steps that was assumed is no part of it.

    repository : where the model lies on the Hugging Face Hub; None leaves the name of its profile
    asked : what the user gave, by scenario key
    shape : of the model, where its name alone does not tell it
    locate : where the user wrote a key
    autoscale : whether replicas are to follow the requests in flight
    rates : learning rates of which each is to have a run
    """
    scenario, origin = answer["scenario"], answer["scenario"]["origin"]
    wanted = {key: value for key, value in asked.items() if not is_elsewhere(key)}
    values = wanted | {key: value for key, value in _flat(scenario) if not is_elsewhere(key)}
    values |= {key: scenario[key] for key in ("stack", "gpu") if key in scenario}
    values |= {f"serve.{key}": scenario["serve"][key] for key in ("engine",) if "serve" in scenario}
    values["vendor"] = scenario.get("names", {}).get("vendor")
    layout = dict(answer["layout"])
    for key in ("micro_batch", "grad_accum"):
        if key in layout:
            values[f"train.{key}"] = layout.pop(key)
    values |= {f"layout.{key}": value for key, value in layout.items()}
    values |= {key: answer["gpus"][key] for key in ("nodes", "gpus_per_node")}
    values["gpus"] = answer["gpus"]["count"]
    hours: tuple[int, ...] = ()
    if "replicas" in answer:
        values["replicas"] = answer["replicas"]["count"]
    values = _of_iteration(answer) | values
    _add_small(values, answer)
    if apart := answer.get("disaggregation"):
        values["serve.prefill_replicas"] = apart["prefill_replicas"]
        values |= {theirs: apart["prefill_layout"][key.partition(".")[2]] for key, theirs in PREFILL_RANKS.items()}
    if day := answer.get("day"):
        hours = tuple(hour["replicas"] for hour in day["hours"])
        values["replica_start_s"] = day["replica_start_s"]
    if answer.get("time"):
        values |= {key: answer["time"][key]["high"] for key in ("total_s", "step_s") if answer["time"].get(key)}
    values["model"] = repository or values["model"]
    of_stack = {key for key, whose in origin.items() if whose == OF_STACK}
    if origin.get("train.steps") == ASSUMED:
        del values["train.steps"]
        return Plan(values, wanted, shape, of_stack=of_stack, locate=locate, rates=rates)
    steps = (answer.get("time") or {}).get("steps")
    in_flight = answer["per_replica"]["concurrency"] if autoscale else None
    return Plan(values, wanted, shape, steps, of_stack, locate, hours, in_flight, rates)


def _of_iteration(answer: Mapping[str, Any]) -> dict[str, Any]:
    """What an iteration of reinforcement learning chose where nobody said: replicas, pools of models, and a reference.

    A reference beside adapters is the model without them, unless a scenario asks for a copy.
    """
    pools = answer.get("pools") or ()
    writer = next((pool for pool in pools if pool["replicas"] and not pool["model"]), None)
    if writer is None:
        return {}
    parts = (part["name"] for phase in answer.get("phases") or () for part in phase["components"])
    kept = any(_REFERENCE in name for name in parts)
    adapted = (answer["scenario"].get("lora") or {}).get("rank") is not None
    return {
        **{f"rollout.{size}": writer[size] for size in ("tp", "pp", "ep")},
        "rollout.gpus": writer["gpus"] if writer["layout"] is None else None,
        "rollout.gpu_memory_utilization": round(answer["iteration"]["gpu_memory_utilization"], 4),
        "train.reference": ("adapters-off" if adapted else "copy") if kept else "none",
        **{
            f"{pool['name'].partition(' ')[0]}.{key}": size  # critic, reward model, reference model, teacher
            for pool in pools if pool["model"]
            for key, size in {**(pool["layout"] or pool), "gpus": pool["gpus"]}.items() if key in ("gpus", "tp", "pp")
        },
    }  # fmt: skip


def _add_small(values: dict[str, Any], answer: Mapping[str, Any]) -> None:
    """Add what is of small models: that there are no output tokens, and parts of a GPU."""
    if answer["scenario"].get("serve", {}).get("output_tokens") == 0:
        values[POOLED] = True
    part = answer.get("slice") or {}
    if part and not part["in_hardware"]:  # each of the replicas sees all of the memory
        values[SHARERS] = part["per_gpu"]
        values["serve.gpu_memory_utilization"] *= part["memory_share"]


def is_elsewhere(key: str) -> bool:
    """Whether a key says what no file of a tool does."""
    return key in _ELSEWHERE or key.partition(".")[0] in _ELSEWHERE


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


# What an exporter provides, and how a plan becomes the files of its tool.

LEARNING_RATE = "LEARNING_RATE"
"""What stands in files for a number that no scenario has."""


class ToolFiles(Immutable, eq=True):
    """What a tool runs.

    text : its configuration or command
    beside : further files that the text names, by name
    run : the command that starts it, where the text is a configuration
    yours : what the user has to add to this one, beside what all files of the tool lack
    told : what it says that no scenario does, and where that comes from
    """

    text: str
    beside: Mapping[str, str] = field(default_factory=dict)
    run: str = ""
    yours: tuple[str, ...] = ()
    told: tuple[str, ...] = ()


class Added(Immutable, eq=True):
    """What a tool calls settings that the user has to add.

    schedule : the learning rate and its schedule, which no scenario says
    length : how long to train, where the scenario does not say it
    alpha : the scale of adapters, likewise
    """

    schedule: str = ""
    length: str = ""
    alpha: str = ""


class Exporter(Immutable, eq=True):
    """A tool that plans are written for.

    name : what `--to` calls it
    title : what users call it
    ending : of the file's name
    write : the files of a plan; what it takes of the plan is said. Raises InputError: the tool cannot run the plan
    says : scenario keys that the files state, which an import of them reads back
    added : what the tool calls that which the user has to add; empty for tools that do not train
    serving : whether the tool serves models
    training : whether it trains them
    aliases : what else `--to` calls it
    """

    name: str
    title: str
    ending: str
    write: Callable[[Plan], ToolFiles]
    says: tuple[str, ...]
    added: Added = Added()
    serving: bool = False
    training: bool = True
    aliases: tuple[str, ...] = ()


class Exported(Immutable, eq=True):
    """The files of a plan, what of it they do not say, and what is the user's to add."""

    written: ToolFiles
    unsaid: tuple[tuple[str, Any], ...]
    yours: tuple[str, ...]


def export(plan: Plan, exporter: Exporter) -> Exported:
    """A plan as a tool's files.

    Raises
    ------
    InputError : the tool would run another plan, since it has no word for a part of this one
    """
    written = exporter.write(plan)
    its_own = plan.of_stack - frozenset(DECIDES) if _runs_its_own_stack(plan, exporter) else frozenset()
    left = tuple((key, value) for key, value in plan.left() if key not in its_own)
    problems = [
        Problem(
            f"{exporter.title} has no setting for {key}: {told(value)}",
            plan.where(key),
            f"leave {key} out" if key in (AUTOSCALE, RATES) else "fix the key to another value",
        )
        for key, value in left
        if key in DECIDES
    ]
    if problems:
        raise InputError(problems)
    yours = (*_left_to_the_user(plan, exporter), *written.yours)
    comments = [f"yours to add: {each}" for each in yours]
    comments += [f"{exporter.title} has no setting for {key}: {told(value)}" for key, value in left]
    return Exported(replace(written, text=_with_comments(written.text, comments)), left, yours)


def _runs_its_own_stack(plan: Plan, exporter: Exporter) -> bool:
    """Whether the plan was made for the tool: by its stack, or by one that builds on it."""
    name = plan.peek("stack")
    with suppress(InputError):  # a stack of the user's own that lies elsewhere
        while name is not None and name not in (exporter.name, *exporter.aliases):
            name = load_stack(str(name)).parent
        return name is not None
    return False


def _left_to_the_user(plan: Plan, exporter: Exporter) -> Iterator[str]:
    """What the tool is to be told and the scenario does not say."""
    names = exporter.added
    if plan.peek("job") == INFERENCE:
        if plan.peek("serve.speculative") in HEADS and plan.peek("serve.draft_model") is None:
            yield "the weights of the head that drafts (serve.draft_model)"
        return
    if names.schedule:
        open_yet = "the schedule of the learning rate" if plan.rates else "the learning rate and its schedule"
        yield f"{open_yet} ({names.schedule})"
    if names.length and plan.peek("train.steps") is None and plan.peek("train.epochs") is None:
        yield f"how long to train ({names.length})"
    if names.alpha and plan.peek("lora.rank") and plan.peek("lora.alpha") is None:
        yield f"the scale of the adapters ({names.alpha})"


def _with_comments(text: str, comments: Iterable[str]) -> str:
    """YAML, TOML or a script with comments at its beginning, below the lines that say what runs it."""
    lines = text.splitlines(keepends=True)
    start = next((place for place, line in enumerate(lines) if not line.startswith("#")), len(lines))
    added = [f"# {' '.join(each.split())}\n" for each in comments]
    return "".join([*lines[:start], *added, *lines[start:]])


# The exporters, each found by its file in `tools`.


@cache
def exporters() -> dict[str, Exporter]:
    """All exporters by name."""
    modules = (module.name for module in pkgutil.iter_modules(tools.__path__) if not module.ispkg)
    loaded = (importlib.import_module(f"{tools.__name__}.{name}") for name in sorted(modules))
    found: list[Exporter] = [exporter for module in loaded for exporter in getattr(module, "EXPORTERS", ())]
    return {exporter.name: exporter for exporter in found}


def exporter_named(name: str) -> Exporter:
    """The exporter that a user names. Raises InputError: there is none."""
    known = exporters()
    for each in known.values():
        if name.lower() in (each.name, *each.aliases):
            return each
    hint = did_you_mean(name, known) or f"known are {', '.join(known)}"
    raise InputError(Problem(f"nothing is written for '{name}'", Location("--to"), hint))


# Settings as YAML, and arguments as a command over several lines.


NULL = object()
"""What stands for a setting that a tool wants written as null."""


def yaml_text(values: Mapping[str, Any]) -> str:
    """Settings as YAML, in the given order, without those that are None."""
    return yaml.dump(_plain(values), Dumper=_Plain, sort_keys=False, allow_unicode=True, width=120)


class _Plain(yaml.SafeDumper):
    """Without anchors, which readers of configurations seldom expect, and with files in files as they are."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_NUMBER = re.compile(r"[-+]?(?:\.\d+|\d+\.?\d*)[eE][-+]?\d+")  # of YAML 1.2, which PyYAML writes as text without quotes


def _text(dumper: _Plain, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else "'" if _NUMBER.fullmatch(value) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Plain.add_representer(str, _text)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if value is NULL else value


def command_text(words: Iterable[str], flags: Mapping[str, Any], dashes: str = "--") -> str:
    """A command with one flag on each line; a flag that is True stands alone, None and False are left out."""
    lines = [shlex.join(words)]
    for name, value in flags.items():
        if value is None or value is False:
            continue
        values = [] if value is True else [value] if not isinstance(value, list | tuple) else value
        lines.append(shlex.join([f"{dashes}{name}", *map(str, values)]))
    return " \\\n  ".join(lines) + "\n"


def override_text(words: Iterable[str], values: Mapping[str, Any]) -> str:
    """A command with one override of Hydra on each line, as `key=value`; those that are None are left out."""
    lines = [f"{key}={value}" for key, value in values.items() if value is not None]
    return " \\\n  ".join([shlex.join(words), *map(shlex.quote, lines)]) + "\n"
