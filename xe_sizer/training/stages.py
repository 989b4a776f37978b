"""How many layers each stage of a pipeline holds, and on which stages the embedding and the head are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import as_array
from xe_sizer.training.schedules import V_SHAPED

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Array
    from xe_sizer.training.layout import Layouts


@frozen
class Stages:
    """Layers of the first, the last and the fullest middle stage, shape (3, layout) [-].

    middles : middle stages, counted in full ones [-]; head_first : 1 where the first stage has the head, else 0
    end_shares : of the layers at the ends, those in the first stage's first chunk and in the last stage's last chunk,
    shape (2, layout) [-]
    """

    layers: Array
    middles: Array
    head_first: Array
    end_shares: Array

    @property
    def fullest(self) -> Array:
        return np.asarray(self.layers.max(axis=0))

    @property
    def at_ends(self) -> Array:
        """Layers for which the first and the last stage need memory, shape (2, layout) [-].

        The stage after the first holds one micro-batch less than it: where that has more layers, they count.
        """
        return np.stack([np.maximum(self.layers[0], self.layers[2]), self.layers[1]])


@frozen(eq=True)
class Split:
    """How layers are spread over stages: with the ends, by their cost, or so many on the first and the last.

    embedding, loss : each takes a layer's place, on the first and on the last stage
    each : layers of every stage, where all of them are given
    head_layers : what the head costs where stages are filled by cost, in layers; None: they are not [-]
    """

    embedding: bool = False
    loss: bool = False
    head_layers: float | None = None
    first: int | None = None
    last: int | None = None
    each: tuple[int, ...] = ()

    @property
    def uneven(self) -> bool:
        """Whether stages are filled some other way than evenly."""
        return bool(self.head_layers or self.first or self.last or self.each)


def head_in_layers(model: ModelShape) -> float:
    """Cost of the head, where that of a layer is one.

        H = V h / (4 heads d h + 3 ffn h)

    Parameters
    ----------
    model : its vocabulary V, hidden size h, heads of size d, and ffn [-]

    Returns
    -------
    float, H [-], a number: shape ()

    Source: Nanotron models/llama.py (get_block_compute_costs).
    """
    return model.vocab / (4.0 * model.heads * model.head_dim + 3.0 * model.ffn)


def stages_of(model_layers: int, split: Split, layouts: Layouts) -> Stages:
    """Layers by stage.

        layers = L / pp                                                  where it divides, also among vpp chunks
        layers = sum over its chunks of floor((L + e) / S) + (c < (L + e) mod S), less 1 for the embedding and the head
        layers up to stage i = min(floor((L + H) (i + 1) / pp) + 1, L)   by cost, H that of the head
        first, last = as given; the others share the rest
        layers of every stage as given: of those in between the fullest counts

    S = pp vpp chunks, of which stage i has i, i + pp, ...; in a V it has i and 2 pp - 1 - i. e of embedding and head
    count as a layer each: as asked, else both where the stack spreads them so or S does not divide L. A chunk at an end
    may be left with the embedding or the head alone. The fullest stage decides the time. Where nobody says which chunk
    of an end has fewer layers than others, it is the outermost.

    Parameters
    ----------
    model_layers : L [-]
    split : what the stack does, and what is given
    layouts : pp, vpp and schedule, shape (layout,) [-]

    Returns
    -------
    Stages, shape (stage, layout) [-]

    Source: torchtitan 0.2 distributed/pipeline_parallel.py (generate_llm_fqn_per_model_part); Megatron-LM
    transformer_block.py (account_for_embedding_in_pipeline_split, account_for_loss_in_pipeline_split,
    num_layers_in_first_pipeline_stage); DeepSpeed's
    pipelines of BLOOM (arXiv:2211.05100), whose embedding and head take a layer's place each; Nanotron models/base.py
    (build_model), which fills a stage until its cost passes its share.
    """
    pp, vpp, whole = as_array(layouts.pp), as_array(layouts.vpp), float(model_layers)
    folded = as_array(V_SHAPED[layouts.schedule] & (pp > 1))
    layers, outermost = _spread(whole, pp, vpp, folded, split)
    if split.head_layers is not None:
        layers = _by_cost(whole, pp, split.head_layers)
    if split.first is not None or split.last is not None:
        layers = _given(whole, pp, split.first, split.last)
    if split.each:
        layers = np.stack([np.full_like(pp, one) for one in _kinds_of(split.each)])
    if split.uneven:
        outermost = np.maximum(layers[:2] - np.ceil(layers[:2] / vpp) * (vpp - 1.0), 0.0)
    layers = np.where(pp > 1, layers, whole)
    between = np.maximum(whole - layers[0] - layers[1], 0.0)
    shares = outermost / np.maximum(layers[:2], 1.0)
    # Where the second stage has more layers than the first, memory is counted for it.
    shares[0] = np.where(layers[2] > layers[0], 1.0 / vpp, shares[0])
    return Stages(layers, between / np.maximum(layers[2], 1.0), folded, np.where(pp > 1, shares, 1.0 / vpp))


def _spread(whole: float, pp: Array, vpp: Array, folded: Array, split: Split) -> tuple[Array, Array]:
    """Layers of the first, the last and the second stage, spread evenly with the ends that count; outermost chunks."""
    chunks = pp * vpp
    embedding, loss = (np.full_like(pp, float(counts)) for counts in (split.embedding, split.loss))
    if not (split.embedding or split.loss):
        embedding = loss = (whole % chunks > 0).astype(float)
    each, more = np.divmod(whole + embedding + loss, chunks)

    def on(stage: Array) -> Array:
        """Chunks of a stage and what they hold; those before `more` have one layer more."""
        looped = np.clip(np.ceil((more - stage) / pp), 0.0, vpp)
        there_and_back = (stage < more).astype(float) + (2.0 * pp - 1.0 - stage < more)
        return np.asarray(vpp * each + np.where(folded > 0, there_and_back, looped))

    first, last, second = on(0.0 * pp), on(pp - 1.0), on(np.minimum(1.0, pp - 1.0))
    first, last = first - embedding - np.where(folded > 0, loss, 0.0), last - np.where(folded > 0, 0.0, loss)
    outermost = np.stack([each + (more > 0) - embedding, each - loss])
    return np.stack([first, last, np.where(pp > 2, second, 0.0)]), outermost


def _by_cost(whole: float, pp: Array, head_layers: float) -> Array:
    """Layers of the first, the last and the second stage, where a stage takes layers until it passes its share."""
    total = whole + head_layers

    def upto(stages: Array | float) -> Array:
        return np.asarray(np.minimum(np.floor(total * np.minimum(stages / pp, 1.0)) + 1.0, whole))

    before_last = np.where(pp > 1, upto(pp - 1.0), 0.0)
    return np.stack([upto(1.0), whole - before_last, np.where(pp > 2, upto(2.0) - upto(1.0), 0.0)])


def _kinds_of(each: tuple[int, ...]) -> tuple[int, int, int]:
    """Layers of the first, the last and the fullest stage in between, where those of all are given."""
    return each[0], each[-1], max(each[1:-1], default=0)


def _given(whole: float, pp: Array, first: int | None, last: int | None) -> Array:
    """The same where the first or the last stage is given: the others share the rest."""
    known = float(first is not None) + float(last is not None)
    rest = np.ceil((whole - (first or 0) - (last or 0)) / np.maximum(pp - known, 1.0))
    ends = [rest if size is None else np.full_like(rest, float(size)) for size in (first, last)]
    return np.stack([*ends, np.where(pp > 2, rest, 0.0)])
