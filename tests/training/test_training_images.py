"""Training of models that see: tokens of images, what is frozen, and what a rank holds and computes for it.

Qwen2-VL's encoder is 32 layers of width 1,280 over patches of 14 x 14 pixels in two frames, four of which become one
token, 665,271,296 parameters with the projector of the 2B model. An image of 448 x 448 is 1,024 patches, 256 tokens and
two around them.
"""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from tests.cases import ask, job, layouts
from xe_sizer.errors import InputError
from xe_sizer.training.activations import EncoderActivations, encoder_activations
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.job import Job
from xe_sizer.training.layout import Layouts
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.step_time import encoder_flops, timeline

TOWER = 665_271_296
LANGUAGE = 1_543_714_304
PROJECTOR = 2 * 1280 + 5120 * 5120 + 5120 + 5120 * 1536 + 1536
SEEING = {"model": "qwen2-vl-2b", "stack": "hf-trainer", "data.images": 2, "data.image_size": "448x448"}


def asked(**flags: object) -> object:
    return ask({**SEEING, **{name.replace("__", "."): value for name, value in flags.items()}}).job


def test_images_add_their_tokens_to_those_of_texts() -> None:
    texts = {"data.mean_tokens": 100, "data.max_tokens": 400, "data.samples": 1000}
    without = ask({"model": "qwen2-vl-2b", **texts}).job.lengths
    seen = asked(**texts).lengths
    assert seen.mean == pytest.approx(without.mean + 2 * 258)
    assert seen.longest == pytest.approx(without.longest + 2 * 258)


def test_sequences_of_full_length_hold_their_images_already() -> None:
    assert asked(train__seq_len=2048).lengths.mean == 2048


def test_all_parts_learn_unless_the_stack_freezes_them() -> None:
    assert asked().method.trainable_parameters(asked().model) == LANGUAGE + TOWER
    assert asked(stack="ms-swift").method.trainable_parameters(asked().model) == LANGUAGE
    only = asked(train__freeze=["vision", "language"])
    assert only.method.trainable_parameters(only.model) == PROJECTOR


def test_adapters_on_all_linear_layers_are_on_the_encoder_too() -> None:
    """Rank 8 on qkv as one matrix, output and both of the MLP in 32 layers, and on both products of the projector."""
    wide = asked(job="lora", lora__rank=8, lora__targets=["all-linear"])
    narrow = asked(job="lora", lora__rank=8, lora__targets=["all-linear"], train__freeze=["vision", "projector"])
    more = wide.method.trainable_parameters(wide.model) - narrow.method.trainable_parameters(wide.model)
    layer = 8 * (1280 + 3 * 1280 + 1280 + 1280 + 2 * (1280 + 5120))
    assert more == 32 * layer + 8 * (5120 + 5120 + 5120 + 1536)


def test_names_of_separate_projections_miss_an_encoder_that_stores_one_matrix() -> None:
    one = asked(job="lora", lora__targets=["q_proj", "v_proj"])
    assert not one.method.parts[0].learns
    clip = ask({**SEEING, "model": "llava-1.5-7b", "job": "lora", "lora.targets": ["q_proj", "v_proj"]}).job
    assert clip.method.parts[0].adapter_parameters == 24 * 2 * 8 * (1024 + 1024)


@pytest.mark.parametrize(("frozen", "learning"), [(["none"], TOWER), (["vision", "projector"], 0)])
def test_every_tensor_parallel_rank_has_the_whole_encoder(frozen: list[str], learning: int) -> None:
    one = asked(train__freeze=frozen)
    held = Evaluation(one, layouts(tp=np.array([1, 2]), pp=1)).held
    assert held.parts[0].tolist() == [TOWER, TOWER]
    assert held.parts_learning[0].tolist() == [learning, learning]


def test_the_encoder_is_on_the_first_stage_alone() -> None:
    one = asked()
    held = Evaluation(one, layouts(pp=2)).held
    assert held.parts[:, 0].tolist() == [TOWER, 0]


def test_a_stack_that_splits_the_encoder_leaves_biases_and_norms_whole() -> None:
    one = asked(stack="megatron-lm")
    held = Evaluation(one, layouts(tp=2)).held.parts[0, 0]
    assert TOWER / 2 < held < 0.51 * TOWER


def kept_of_images(made: Job, chosen: Layouts) -> EncoderActivations:
    encoder = Evaluation(made, chosen).encoder
    assert encoder is not None
    return encoder_activations(encoder.job, encoder.layouts, encoder.shapes, 2.0, np.ones(1))


def test_a_frozen_encoder_keeps_its_pixels_alone() -> None:
    """2 images of 1,024 patches of 3 x 2 x 14 x 14 float32 values."""
    one = kept_of_images(asked(train__freeze=["vision", "projector"]), layouts())
    assert one.kept[0] == 0
    assert one.backward_peak[0] == 0
    assert one.pixels[0] == 2 * 1024 * 1176 * 4


def test_a_learning_projector_keeps_what_its_products_read() -> None:
    """The norm's input and float32 copy under autocast, both inputs of products, and what the activation reads."""
    one = kept_of_images(asked(train__freeze=["vision"]), layouts())
    merged = 2 * 256
    assert one.kept[0] == 2048 * 1280 * 4 + 3 * merged * 5120 * 2


def test_recomputation_drives_gradients_through_a_frozen_encoder() -> None:
    """What each of the 32 layers is given stays: 2 x 1,024 patches x 1,280 x 2 bytes."""
    full = layouts(recompute=2)
    one = asked(job="lora", train__freeze=["vision", "projector"])
    kept = kept_of_images(one, full)
    before = kept_of_images(asked(job="lora", train__freeze=["vision", "projector"], stack="hf-trainer@4.57"), full)
    assert kept.kept[0] >= 32 * 2048 * 1280 * 2
    assert before.kept[0] == 0


def test_the_flops_of_a_frozen_encoder_are_those_of_its_forward() -> None:
    """2 x patches x matrices of 32 layers and 4 x patches^2 x 1,280 of attention; the projector sees a quarter."""
    frozen, learning = asked(train__freeze=["vision", "projector"]), asked()
    matrices = 32 * (4 * 1280**2 + 2 * 1280 * 5120) + 1176 * 1280
    products = 2 * (2048 * matrices + 512 * (5120 * 5120 + 5120 * 1536))
    attention = 2 * 32 * 4 * 1024**2 * 1280
    assert encoder_flops(Evaluation(frozen, layouts()).encoder, layouts())[0] == pytest.approx(products + attention)
    assert encoder_flops(Evaluation(learning, layouts()).encoder, layouts())[0] == pytest.approx(
        3 * (products + attention)
    )


def test_more_that_learns_is_never_less_memory_or_time() -> None:
    choices = (["vision", "projector"], ["vision"], ["none"])
    jobs = [asked(train__freeze=frozen, train__seq_len=2048) for frozen in choices]
    peaks = [memory_ledger(one, layouts()).peak_bytes[0] for one in jobs]
    seconds = [timeline(one, layouts()).step_s[0] for one in jobs]
    assert peaks == sorted(peaks)
    assert seconds == sorted(seconds)
    text = ask({"model": "qwen2-vl-2b", "stack": "hf-trainer", "train.seq_len": 2048}).job
    assert memory_ledger(text, layouts()).peak_bytes[0] < peaks[0]
    assert timeline(text, layouts()).step_s[0] < seconds[0]


@pytest.mark.parametrize(("quantiser", "each"), [("bitsandbytes", 0.5161), ("auto-gptq", 2.0)])
def test_only_some_quantisers_hold_the_encoder_in_few_bits(quantiser: str, each: float) -> None:
    """Of the 32 layers' matrices, the patches' and the projector's; biases, norms and vectors stay as they are."""
    still = {"train__freeze": ["vision", "projector"], "stack": "llama-factory"}
    one = asked(job="qlora", train__quantiser=quantiser, **still)
    text = ask({"model": "qwen2-vl-2b", "stack": "llama-factory", "job": "qlora", "train.quantiser": quantiser}).job
    weights = [memory_ledger(each_job, layouts()).components["weights"].max() for each_job in (one, text)]
    matrices = 32 * (4 * 1280**2 + 2 * 1280 * 5120 + 9 * 1280 + 1280) + 1176 * 1280 + 5120 * 5120 + 5120 * 1536 + 6656
    assert weights[0] - weights[1] == pytest.approx(matrices * each + (TOWER - matrices) * 2.0, rel=0.01)


def test_no_images_are_the_language_model_alone() -> None:
    assert replace(asked(data__images=0, data__image_size=None).method, kind=job().method.kind).parts == ()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"model": "llama-2-7b", "data.images": 1}, "takes no images"),
        ({"model": "qwen2-vl-2b", "data.image_size": "448x448"}, "an image size needs a number of images"),
        ({"model": "qwen2-vl-2b", "train.freeze": ["vision"]}, "only where samples have images"),
        ({**SEEING, "train.seq_len": 512}, "do not leave room for text"),
        ({**SEEING, "train.freeze": ["vision", "projector", "language"]}, "nothing is left that learns"),
        ({**SEEING, "train.freeze": ["ears"]}, "ears"),
    ],
)
def test_what_cannot_be(flags: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ask(flags)
