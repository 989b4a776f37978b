"""Profiles of models that take images: with their encoder they have as many parameters as their repository states."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import REGISTRY

from xe_sizer.errors import InputError
from xe_sizer.graph.vision import vision_parameters
from xe_sizer.graph.weights import count_parameters
from xe_sizer.profiles.finder import BUILT_IN
from xe_sizer.profiles.model import load_model_profile

# As the pages of the repositories on the Hugging Face Hub state them (safetensors).
PUBLISHED = {
    "gemma-3-4b": 4_300_079_472,
    "gemma-3-12b": 12_187_325_040,
    "gemma-3-27b": 27_432_406_640,
    "llama-4-scout-17b-16e": 108_641_793_536,
    "llama-4-maverick-17b-128e": 401_583_781_376,
    "qwen2-vl-2b": 2_208_985_600,
    "qwen2-vl-7b": 8_291_375_616,
    "qwen2.5-vl-3b": 3_754_622_976,
    "qwen2.5-vl-7b": 8_292_166_656,
    "qwen2.5-vl-72b": 73_410_777_344,
    "qwen3-vl-4b": 4_437_815_808,
    "qwen3-vl-8b": 8_767_123_696,
    "qwen3-vl-30b-a3b": 31_070_754_032,
    "llava-1.5-7b": 7_063_427_072,
    "mistral-small-3.1-24b": 24_011_361_280,
    "paligemma-3b": 2_923_466_480,
    "smolvlm-2.2b": 2_246_272_880,
    "internvl3-8b": 7_944_373_760,
    "internvl3-78b": 78_408_318_336,
}
# Counted on PyTorch's meta device from the vision classes of transformers 5.23, with their projectors.
COUNTED = {
    "qwen2-vl-7b": 675_759_104,
    "qwen2.5-vl-7b": 676_550_144,
    "qwen3-vl-8b": 576_388_336,
    "llama-4-scout-17b-16e": 871_932_416,
    "llava-1.5-7b": 324_487_168,
    "pixtral-12b": 434_957_312,
    "mistral-small-3.1-24b": 438_958_080,
    "internvl3-78b": 5_708_504_448,
    "kimi-k2.5": 471_143_920,
    "gemma-3-4b": 435_054_656 - 15_238_352,  # the class has a pooling head, which the model leaves out
}


@pytest.mark.parametrize(("name", "published"), PUBLISHED.items())
def test_language_model_and_encoder_are_the_published_model(name: str, published: int) -> None:
    model = REGISTRY.model(name)
    assert model.vision is not None
    assert count_parameters(model).total + vision_parameters(model.vision) == published


@pytest.mark.parametrize(("name", "counted"), COUNTED.items())
def test_encoders_are_those_of_the_reference_implementation(name: str, counted: int) -> None:
    tower = REGISTRY.model(name).vision
    assert tower is not None
    assert vision_parameters(tower) == counted


@pytest.mark.parametrize(
    ("was", "instead", "says"),
    [
        ("parameters: 676550144", "parameters: 676550143", "676,550,144 parameters, not 676,550,143"),
        ("widths: [5120, 5120, 3584]", "widths: [5120, 5120, 4096]", "the last width must be the 'hidden'"),
        ("max_pixels: 12845056", "max_pixels: 0", "native images need 'max_pixels' or 'max_side'"),
        ("resize: native", "resize: square", "squares and tiles need 'side'"),
        ("  heads: 16", "  heads: 17", "not a multiple of 'heads' (17)"),
    ],
)
def test_a_profile_that_contradicts_itself_is_refused(was: str, instead: str, says: str, tmp_path: Path) -> None:
    path = BUILT_IN.find("model", "qwen2.5-vl-7b", None)
    assert path is not None
    text = path.read_text(encoding="utf-8")
    assert was in text
    wrong = tmp_path / "qwen2.5-vl-7b.yaml"
    wrong.write_text(text.replace(was, instead), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_model_profile(wrong)
    assert says in str(caught.value)
