"""Layers of pipeline stages."""

import numpy as np

from xe_sizer.graph.operators import layers_per_stage


def test_the_fullest_stage_has_whole_layers() -> None:
    assert layers_per_stage(32, np.array([1, 2, 5])).tolist() == [32, 16, 7]


def test_one_kind_of_layer_is_spread_over_the_stages_too() -> None:
    assert layers_per_stage(6.0, np.array([4, 8])).tolist() == [2, 1]
