"""FSDP around frozen layers: what its hooks hold at the first layer's backward, with a process group of one rank."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

from tests.trace.sharded import BATCH, LAYERS, LENGTH, SIZES, ShardedCase, first_layer, one_rank, predicted_bytes

FAMILIES = ("llama", "qwen2")
MOST_ERROR = 0.02


@pytest.fixture(scope="module", autouse=True)
def _group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with one_rank(tmp_path_factory.mktemp("group")):
        yield


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("reentrant", [True, False])
def test_what_the_first_layer_s_backward_holds(family: str, reentrant: bool) -> None:
    case = ShardedCase(family, reentrant)
    assert predicted_bytes(case) == pytest.approx(first_layer(case).peak_bytes, rel=MOST_ERROR)


@pytest.mark.parametrize("family", FAMILIES)
def test_reentrant_checkpoints_hold_inputs_and_their_gradients(family: str) -> None:
    """Those of the layers above: a hidden state of 2 x 128 x 256 elements of two bytes, and its gradient."""
    more = first_layer(ShardedCase(family, True)).peak_bytes - first_layer(ShardedCase(family, False)).peak_bytes
    assert more == pytest.approx(2 * (LAYERS - 1) * 2 * BATCH * LENGTH * SIZES["hidden"], rel=0.1)
