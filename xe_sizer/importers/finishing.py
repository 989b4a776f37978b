"""What is the same for every tool after its file was read: hardware that was passed, batches that follow, gaps."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from xe_sizer.importers.draft import FLAG, READ, Fact
from xe_sizer.importers.parts.peft import state_alpha
from xe_sizer.profiles.finder import default_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.importers.draft import Draft

_HARDWARE = ("server", "gpu")
_SPLIT = ("layout.tp", "layout.pp", "layout.cp")  # GPUs that work on the same sequences
INFERENCE = "inference"
_MODEL = "model"
_SIZES = ("model.layers", "model.hidden", "model.vocab")


def finish(draft: Draft, hardware: Mapping[str, object]) -> None:
    """Put in what was passed, derive what follows from what is known, and say what is missing."""
    _put_model(draft, hardware.get(_MODEL))
    _put_hardware(draft, hardware)
    for follow in draft.following:
        follow(draft)
    if "gpus" in draft.facts:
        draft.set_aside("nodes", "follows from the number of GPUs")
    _length(draft)
    state_alpha(draft)
    if draft.fact("job") != INFERENCE:
        _number_of_gpus(draft)
        _global_batch(draft)
        draft.default("layout.offload", "none")
    if not any(key in draft.facts for key in _HARDWARE):
        draft.assume("server", default_name("server"), "no file names a GPU; pass --gpu or --server")


def _put_model(draft: Draft, passed: object) -> None:
    """A model passed takes the place of one that was read, and of a shape; a shape needs its largest sizes."""
    shape = [key for key in draft.facts if key.startswith(f"{_MODEL}.")]
    if passed is not None:
        for key in shape:
            draft.drop(key)
        draft.replace(_MODEL, Fact(passed, FLAG))
        draft.missing = [each for each in draft.missing if each.key != _MODEL]
    elif shape:
        for key in _SIZES:
            draft.miss(key, "the file leaves it to something that was not passed", "--set VAR=VALUE, or --model NAME")
    elif not any(each.key == _MODEL for each in draft.missing):
        draft.miss(_MODEL, "no file names one", "--model NAME")


def _put_hardware(draft: Draft, hardware: Mapping[str, object]) -> None:
    """A server passed takes the place of a GPU that was read, and the other way round; so do GPUs and nodes."""
    for pair in (_HARDWARE, ("gpus", "nodes")):
        passed = {key: hardware[key] for key in pair if hardware.get(key) is not None}
        if passed:
            for key in pair:
                draft.drop(key)
        for key, value in passed.items():
            draft.replace(key, Fact(value, FLAG))


def _length(draft: Draft) -> None:
    """Steps decide how long a run is where both steps and passes over the data are known."""
    if "train.steps" in draft.facts and "train.epochs" in draft.facts:
        stated = {key for key in ("train.steps", "train.epochs") if draft.facts[key].origin == READ}
        draft.drop("train.steps" if stated == {"train.epochs"} else "train.epochs")


def _number_of_gpus(draft: Draft) -> None:
    if "gpus" in draft.facts or "nodes" in draft.facts:
        return
    why = f"{draft.tool} takes it from the launch command, which is not among the files"
    draft.miss("gpus", why, "--gpus N, or name the launch script too")


def _global_batch(draft: Draft) -> None:
    """Sequences of an optimizer step = micro-batch x gradient accumulation x data-parallel ranks.

    Of global batch and accumulation the one follows that is not stated.
    """
    micro, gpus, split = draft.fact("train.micro_batch"), draft.trainers, _ranks_of_a_sequence(draft)
    if not isinstance(micro, int) or not isinstance(gpus, int) or gpus % split:
        return
    ranks = gpus // split
    used = ["train.micro_batch", "gpus", *(key for key in _SPLIT if draft.fact(key) != 1)]
    batch, accum = draft.fact("train.global_batch"), draft.fact("train.grad_accum")
    if isinstance(accum, int):
        note = f"micro-batch {micro} x accumulation {accum} x {ranks} data-parallel ranks"
        draft.derive("train.global_batch", micro * accum * ranks, [*used, "train.grad_accum"], note)
    elif isinstance(batch, int) and batch % (micro * ranks) == 0:
        note = f"global batch {batch} / (micro-batch {micro} x {ranks} data-parallel ranks)"
        draft.derive("train.grad_accum", batch // (micro * ranks), [*used, "train.global_batch"], note)


def _ranks_of_a_sequence(draft: Draft) -> int:
    """GPUs that work on the same sequences."""
    sizes = (draft.fact(key) for key in _SPLIT)
    return math.prod(size for size in sizes if isinstance(size, int))
