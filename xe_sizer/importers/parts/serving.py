"""What is the same for all engines: the model and its formats, the release, GPUs, roles and further services."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xe_sizer.errors import Location
from xe_sizer.importers.draft import ASSUMED, READ, Draft, Ignored
from xe_sizer.importers.parts.gpu_names import gpus_in, state_gpu
from xe_sizer.importers.parts.inferencex import named_by
from xe_sizer.importers.parts.service import choose
from xe_sizer.importers.parts.service_files import services_in
from xe_sizer.importers.parts.serving_formats import cache_format, plain_width, weights_format
from xe_sizer.importers.parts.serving_load import state_load
from xe_sizer.importers.tool import Tool
from xe_sizer.importers.values import listed, positive, positive_or_open
from xe_sizer.importers.written import Unread, Written
from xe_sizer.software.number_formats import quantised_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from xe_sizer.importers.parts.service import Chosen, Service
    from xe_sizer.importers.source import Source
    from xe_sizer.importers.table import Table
    from xe_sizer.importers.tool import Certainty
    from xe_sizer.importers.written import Keys

_PLACEMENT = ("tp", "pp", "ep", "dp")
_RANKS = ("layout.tp", "layout.pp", "layout.dp")
_RELEASE = re.compile(r"v?(\d+\.\d+(?:\.\d+)?)")
_OWN_IMAGES = ("vllm/vllm-openai", "lmsysorg/sglang", "tensorrt-llm/release")
_MODELS = ("model", "model_path", "model_tag")
_FOLDER = re.compile(r"(?:/|\.{0,2}/|~|\$).*|[^/]*")
_ACCEPTED = 0.7
_SURE = 95
_CALLED = 30  # a Python file that calls an engine may train with it
_BESIDE = 20  # where a server of another engine stands in front
_USUAL = 1280  # tokens of a prompt and its answer that `serve` assumes
_TOLD = 6  # further services that are told one by one
_STEP = "serve.max_step_tokens"
_OF_ROLES = ("serve.max_sequences", "serve.gpu_memory_utilization", "serve.kv_cache", "serve.max_model_len")


def serving_tool(
    name: str,
    title: str,
    reads: str,
    engines: tuple[str, ...],
    read: Callable[[Draft, Source, Chosen], None],
    table: Table,
) -> Tool:
    """The tool of an engine, whose servers are looked for in files of all kinds.

    engines : what services call it, and those that stand for it
    read : states what a service says, in a draft that has its arguments
    """

    def own(source: Source) -> list[Service]:
        return [each for each in services_in(source).services if each.engine in engines]

    def recognises(source: Source) -> Certainty:
        found = services_in(source).services
        if not own(source):
            return 0
        return _BESIDE if found[0].engine not in engines else _SURE if source.kind != "python" else _CALLED

    def chosen(source: Source) -> Chosen | None:
        return choose(own(source), source.given.get("model"))

    def keys(source: Source) -> Keys:
        found = chosen(source)
        return {**services_in(source).beside, **found.service.keys} if found is not None else {}

    def read_chosen(draft: Draft, source: Source) -> None:
        found = chosen(source)
        if found is None:
            draft.miss("model", f"the file starts no server of {title}", "--from TOOL, or another file")
        else:
            read(draft, source, found)

    return Tool(name, title, reads, recognises, read_chosen, table, keys, serving=True)


def state_service(
    draft: Draft, chosen: Chosen, source: Source, table: Table, place: Callable[[Draft], None], engine: str
) -> None:
    """State what a service says, whatever its engine.

    place : states the placement of a replica by the engine's own arguments
    engine : the name of the engine's profile
    """
    service = chosen.service
    draft.version = draft.version or _release(service)
    draft.state("job", "inference", Written("", service.where))
    draft.state("serve.engine", engine, Written("", service.where))
    _model(draft, source)
    state_formats(draft, source.path.name)
    place(draft)
    draft.apply(table)
    state_load(draft, source.given)
    prefill = _prefill(draft, chosen, table, place)
    _gpus(draft, chosen, prefill)
    state_gpu(draft, service.gpu)
    _of_file_name(draft, source)
    _lengths(draft)
    draft.following.append(_runs)
    _others(draft, chosen.others)


def _runs(draft: Draft) -> None:
    """Set aside what goes with nothing else that the file says, so that the scenario runs."""
    if "serve.prefill_replicas" in draft.facts:
        draft.set_aside("serve.requests", "no test is simulated on prefill and decode replicas")
    if "serve.users" not in draft.facts or not draft.fact("serve.prefix_hit_share"):
        draft.set_aside("serve.kv_host_gib", "counts for users who come back; pass it with --users, --prefix-hit-share")


def _lengths(draft: Draft) -> None:
    """Requests that are no longer than the engine accepts, where nothing says how long they are."""
    longest = draft.fact("serve.max_model_len")
    if isinstance(longest, int) and longest < _USUAL and "serve.input_tokens" not in draft.facts:
        draft.assume("serve.input_tokens", longest // 2, "half of the longest request")
        draft.assume("serve.output_tokens", longest // 8, "an eighth of the longest request")


def _others(draft: Draft, others: Sequence[Service]) -> None:
    """Tell of the services that are not read."""
    for other in others[:_TOLD]:
        told = f"a further service of the file; --set model={_name(other)} reads it instead"
        draft.ignored.append(Ignored(f"service {_name(other)}", other.where, told))
    if len(others) > _TOLD:
        more = f"{len(others) - _TOLD} further services of the file"
        draft.ignored.append(Ignored("services", others[_TOLD].where, more))


def _release(service: Service) -> str | None:
    """The release of the engine that the tag of its own image names."""
    image = str(service.image.value) if service.image else ""
    name, _, tag = image.rpartition(":")
    found = _RELEASE.match(tag) if any(own in name for own in _OWN_IMAGES) else None
    return found[1] if found else None


def _name(service: Service) -> str:
    model = str(service.model.value) if service.model else ""
    return service.name or model or service.role or "?"


def _model(draft: Draft, source: Source) -> None:
    """The model by its id; where the argument is a folder or not set, by the name under which it is served."""
    written, served = draft.take(*_MODELS), draft.take("served_model_name")
    name = next(iter(listed(served.value) or ()), None) if served else None
    is_id = written is not None and not _FOLDER.fullmatch(str(written.value))
    if written is not None and (is_id or name is None):
        draft.state("model", str(written.value).removeprefix("hf://"), written)
    elif served is not None and name is not None:
        draft.state("model", name, served, "the name under which it is served")
    elif (named := named_by(source.path.name)) is not None:
        draft.assume("model", named[0], "by the name of the file; pass --set MODEL=ID")
    else:
        unread = next((draft.unread[each] for each in _MODELS if each in draft.unread), None)
        why = unread.value.why if unread and isinstance(unread.value, Unread) else "no argument names it"
        draft.miss("model", f"the file does not say it: {why}", "--set MODEL=ID, or --model in what reads the scenario")


def state_formats(draft: Draft, file: str | None = None) -> None:
    """The formats of weights and KV cache: by their arguments, else by what the name of the checkpoint says.

    file : the name of the script, which says the format where it says the model too
    """
    method, width, cache = draft.take("quantization", "q"), draft.take("dtype"), draft.take("kv_cache_dtype")
    precision = draft.take("precision")
    named = quantised_in(str(draft.fact("model") or ""))
    plain = plain_width(width.value) if width is not None else None
    if method is not None:
        draft.state("serve.weights", draft.value(method, weights_format), method)
    if named is not None:
        draft.state("serve.weights", named, _where(draft, "model"), "by the name of the checkpoint")
    if precision is not None:
        draft.state("serve.weights", _precision(draft, precision), precision)
    elif plain is not None and method is None:
        draft.state("serve.weights", plain, width)
    if file is not None and _is_assumed(draft, "model") and (said := named_by(file)) is not None:
        draft.assume("serve.weights", _precision(draft, Written(said[1], Location(file))), "by the name of the file")
    if cache is not None:
        draft.state("serve.kv_cache", draft.value(cache, cache_format), cache)


def _is_assumed(draft: Draft, key: str) -> bool:
    return key in draft.facts and draft.facts[key].origin == ASSUMED


def _precision(draft: Draft, written: Written) -> object:
    """The format that a recipe gives in a word; 4-bit floats of OpenAI and AMD have the blocks of OCP's."""
    model = str(draft.fact("model") or "").lower()
    if str(written.value).lower() == "fp4" and ("gpt-oss" in model or model.startswith("amd/")):
        return "mxfp4"
    return draft.value(written, weights_format)


def _where(draft: Draft, key: str) -> Written | None:
    where = draft.facts[key].where
    return Written("", where) if where is not None else None


def state_drafts(draft: Draft, tokens: object, written: Written, accepted: float | None = None) -> None:
    """State speculative decoding.

    tokens : proposals per step; accepted : their mean number that is kept, where the file sets it
    """
    proposed = draft.value(Written(tokens, written.where), positive)
    if not isinstance(proposed, int):
        return
    draft.state("serve.draft_tokens", proposed, written)
    if accepted is not None:
        rate = round(acceptance(proposed, accepted), 4)
        draft.state("serve.acceptance_rate", rate, written, f"{accepted:g} of {proposed} are kept on average")
    else:
        draft.assume("serve.acceptance_rate", _ACCEPTED, "depends on the drafter and the text; pass --acceptance-rate")


def acceptance(proposed: int, accepted: float) -> float:
    """The probability p that a token is kept of which sum(p^i, i = 1..proposed) are on average `accepted`."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        kept = sum(middle**place for place in range(1, proposed + 1))
        low, high = (middle, high) if kept < accepted else (low, middle)
    return low


def _prefill(draft: Draft, chosen: Chosen, table: Table, place: Callable[[Draft], None]) -> Draft | None:
    """The replicas that only prefill, in a draft of their own; what they say apart from the others is told."""
    service = chosen.prefill
    if service is None:
        if chosen.service.role:
            role = chosen.service.role
            why = f"only the servers of the role {role} are in the file; they are sized as a whole service"
            draft.ignored.append(Ignored("disaggregation", chosen.service.where, why))
        return None
    part = Draft(draft.tool, service.keys, draft.version)
    state_formats(part)
    place(part)
    part.apply(table)
    count = service.replicas or Written(1, service.where)
    known = not isinstance(count.value, Unread)
    if known:
        draft.state("serve.prefill_replicas", draft.value(count, positive_or_open), count)
    draft.assume("serve.prefill_replicas", 1, str(getattr(count.value, "why", "the file does not say how many")))
    for name in _PLACEMENT:
        fact = part.facts.get(f"layout.{name}")
        if fact is not None:
            draft.replace(f"serve.prefill_{name}", fact)
    _apart(draft, part, table)
    part.finish(table)
    draft.impossible += part.impossible
    draft.ignored += [
        Ignored(f"prefill.{each.key}", each.where, each.why, each.effect)
        for each in part.ignored
        if each.effect == "memory or time" and each.key not in draft.keys
    ]
    return part


def _apart(draft: Draft, part: Draft, table: Table) -> None:
    """Values of the two roles that differ, of which a scenario has one: prompts run where they are only prefilled."""
    steps = part.facts.get(_STEP)
    if steps is not None and steps.origin == READ:
        own = draft.facts.get(_STEP)
        if own is not None and own.origin == READ and own.value != steps.value:
            told = f"{own.value} on the replicas that decode; one value holds for all"
            draft.ignored.append(Ignored(_foreign(_STEP, draft, table), own.where, told))
        draft.replace(_STEP, steps)
    for key in _OF_ROLES:
        fact = part.facts.get(key)
        if fact is not None and fact.origin == READ and fact.value != draft.fact(key):
            told = f"{fact.value} on the replicas that prefill; one value holds for all"
            draft.ignored.append(Ignored(f"prefill.{_foreign(key, part, table)}", fact.where, told))


def _foreign(key: str, draft: Draft, table: Table) -> str:
    """The argument that sets a scenario key."""
    return next((name for row in table.keys if row.to == key for name in row.names if name in draft.keys), key)


def _gpus(draft: Draft, chosen: Chosen, prefill: Draft | None) -> None:
    """GPUs of the whole service: replicas x ranks of each role, or what containers are given."""
    service = chosen.service
    counted = [each.replicas for each in (service, chosen.prefill) if each is not None and each.replicas is not None]
    if any(isinstance(each.value, Unread) for each in counted):
        return
    replicas = draft.value(service.replicas, positive_or_open) if service.replicas is not None else 1
    own = _of_replica(draft, service)
    if own is None or not isinstance(replicas, int):
        return
    used = [key for key in _RANKS if draft.fact(key) not in (None, 1)] or [key for key in _RANKS if key in draft.facts]
    parts = [f"{replicas} x {own}"] if replicas > 1 else []
    total = replicas * own
    if chosen.prefill is not None and prefill is not None:
        other, count = _of_replica(prefill, chosen.prefill), int(str(draft.fact("serve.prefill_replicas") or 1))
        if other is None:
            return
        total += other * count
        parts = [f"{count} x {other} that prefill", f"{replicas} x {own} that decode"]
    if service.gpus is not None:
        draft.state("gpus", total, service.gpus, ", ".join(parts))
    elif service.replicas is not None and replicas > 1:
        draft.state("gpus", total, service.replicas, ", ".join(parts))
    elif used:
        draft.derive("gpus", total, used, "tp x pp x dp")


def _of_replica(draft: Draft, service: Service) -> int | None:
    """GPUs of one replica: its ranks, where they are known, else what its container is given."""
    stated = int(str(service.gpus.value)) if service.gpus is not None and _is_whole(service.gpus) else None
    ranks = 1
    for key in _RANKS:
        value = draft.fact(key)
        ranks *= value if isinstance(value, int) else 1
    known = "layout.tp" in draft.facts
    return ranks if known else stated


def _is_whole(written: Written) -> bool:
    return str(written.value).isdigit()


def _of_file_name(draft: Draft, source: Source) -> None:
    """A GPU that nothing but the name of the file says."""
    if "gpu" in draft.facts or "server" in draft.facts:
        return
    found = next(gpus_in(source.path.name), None)
    if found is not None:
        draft.assume("gpu", found.name, "by the name of the file")
