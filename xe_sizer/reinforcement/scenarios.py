"""What a reinforcement-learning scenario asks of each wing: a scenario of training, and one of a service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace as replaced

from xe_sizer.scenario.schema import (
    DataSection,
    Histogram,
    LayoutSection,
    LimitsSection,
    LoraSection,
    ServeSection,
    TrainSection,
)

if TYPE_CHECKING:
    from xe_sizer.errors import Location
    from xe_sizer.profiles.convert import KeyPath
    from xe_sizer.reinforcement.settings import Settings
    from xe_sizer.scenario.read import Given

SCALE = 1_000_000  # answers by which shares of lengths become counts
WRITTEN_AS: Mapping[tuple[str | int, ...], str] = {
    ("serve", "input_tokens"): "input_tokens",
    ("serve", "output_tokens"): "output_tokens",
    **{("serve", name): name for name in ("engine", "weights", "kv_cache", "gpu_memory_utilization", "max_sequences")},
    **{("layout", name): name for name in ("tp", "pp", "ep")},
}  # keys of a service that a scenario has in its section `rollout`
UNKNOWN_TO_SERVICES = ("data", "train", "storage", "lora", "p_tuning")


def trainer_scenario(given: Given, settings: Settings, steps: int, padding: str) -> Given:
    """The optimizer steps on all answers of a run: sequences of a prompt with its answer, whose lengths are known.

    Keys that the user did not give count as the stack's own.
    """
    values, asked = given.values, settings.asked
    lengths = [max(round(asked.inputs + tokens), 1) for tokens in asked.answers.lengths.tolist()]
    counts = [float(share) * SCALE for share in asked.answers.probabilities]
    longest = lengths[-1]
    batch = values.train.global_batch or (None if values.train.grad_accum else max(round(settings.trained), 1))
    train = replaced(
        values.train,
        steps=steps,
        epochs=None,
        seq_len=values.train.seq_len or longest,
        global_batch=batch,
        padding=values.train.padding if values.train.padding not in (None, "packed") else padding,
    )
    alone = values.gpus
    if settings.colocated is False and values.gpus is not None:
        alone = None if settings.gpus is None else max(values.gpus - settings.gpus, 1)
    found = Histogram(lengths=tuple(lengths), counts=tuple(counts))
    data = DataSection(samples=max(round(settings.trained * steps), 1), histogram=found)  # the longest of all counts
    return replace(given, values=replaced(values, train=train, data=data, gpus=alone))


def service_scenario(given: Given, settings: Settings, gpus: int | None, utilization: float | None) -> Given:
    """The replicas that write answers, as a service that is tested with all of them at once.

    gpus : of all replicas; None: open
    utilization : share of the card that the engine may use; None: its own
    """
    values, rollout = given.values, given.values.rollout
    serve = ServeSection(
        engine=settings.engine,
        requests=max(round(settings.asked.count), 1),
        input_tokens=settings.asked.inputs,
        output_tokens=max(settings.answers.mean, 1.0),
        max_model_len=None,
        gpu_memory_utilization=utilization,
        weights=rollout.weights,
        kv_cache=rollout.kv_cache,
        max_sequences=settings.max_sequences,
    )
    # Ranks of experts beyond the tensor ranks serve sequences of their own.
    groups = None if rollout.tp is None else max((rollout.ep or 1) // rollout.tp, 1)
    empty: dict[str, Any] = {"train": TrainSection(), "data": DataSection(), "lora": LoraSection()}
    served = replaced(
        values, **empty, serve=serve, job=None, stack=None, gpus=gpus, nodes=None, limits=LimitsSection(),
        layout=LayoutSection(tp=rollout.tp, pp=rollout.pp, ep=rollout.ep, dp=groups),
    )  # fmt: skip
    return replace(given, values=served, origin=_kept(given.origin), locate=_located(given))


def companion_scenario(given: Given, model: str | None, name: str) -> Given:
    """The same training of another model, as a critic is: all of its weights learn."""
    values = given.values if model is None else replaced(given.values, model=model)
    where = given.locate

    def locate(key_path: KeyPath, *, key: bool = False) -> Location:
        named = key_path[:1] == ("model",) and model is not None
        return where(("train", name) if named else key_path, key=key)

    origin = {key: how for key, how in given.origin.items() if not key.startswith("model.")}
    return replace(given, values=values, origin=origin, locate=locate)


def _kept(origin: Mapping[str, str]) -> dict[str, str]:
    """Where keys came from that a service reads as they are."""
    unknown = (*UNKNOWN_TO_SERVICES, "layout", "limits", "serve", "rollout", "gpus", "nodes")
    return {key: how for key, how in origin.items() if key.partition(".")[0] not in unknown}


def _located(given: Given) -> Any:
    """Places of the keys of a service where the scenario has them."""

    def locate(key_path: KeyPath, *, key: bool = False) -> Location:
        name = WRITTEN_AS.get(key_path)
        return given.locate(("rollout", name) if name else key_path, key=key)

    return locate
