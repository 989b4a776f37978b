"""Images of requests: their tokens by the rules of each family, and what the encoder takes, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
from cases import REGISTRY
from serving_cases import asked, problems, served

from xe_sizer.graph.vision import Seen, largest_image, seen_image
from xe_sizer.report.answers.serve import serve_points
from xe_sizer.serving.job import ReplicaLayouts
from xe_sizer.serving.memory import activations, rank_weight_bytes, serving_memory
from xe_sizer.serving.resolve import images_in
from xe_sizer.serving.step_time import Work, step_time
from xe_sizer.serving.summary import summarise

ONE = ReplicaLayouts.of()


@pytest.mark.parametrize(
    ("name", "size", "pieces", "patches", "tokens"),
    [
        ("qwen2.5-vl-7b", (1024, 1024), 1, 74 * 74, 37 * 37 + 2),  # 36.57 units of 28 pixels
        ("qwen2.5-vl-7b", (1920, 1080), 1, 138 * 78, 69 * 39 + 2),
        ("qwen2.5-vl-7b", (28, 28), 1, 4 * 4, 2 * 2 + 2),  # no fewer than 56 x 56 pixels
        ("qwen2.5-vl-7b", (8000, 6000), 1, 294 * 220, 147 * 110 + 2),  # no more than 16,384 units
        ("qwen3-vl-8b", (1024, 1024), 1, 64 * 64, 32 * 32 + 2),
        ("gemma-3-27b", (1920, 1080), 1, 64 * 64, 16 * 16 + 2),
        ("llava-1.5-7b", (100, 2000), 1, 24 * 24 + 1, 24 * 24),
        ("pixtral-12b", (1024, 1024), 1, 64 * 64, 64 * 65),
        ("pixtral-12b", (2048, 1024), 1, 64 * 32, 32 * 65),  # halved
        ("mistral-small-3.1-24b", (1024, 512), 1, 74 * 38, 19 * 38),
        ("internvl3-8b", (448, 448), 1, 32 * 32 + 1, 256 + 2),
        ("internvl3-8b", (1024, 1024), 10, 32 * 32 + 1, 10 * 256 + 2),  # 3 x 3 and a thumbnail
        ("internvl3-8b", (1920, 1080), 9, 32 * 32 + 1, 9 * 256 + 2),  # 4 x 2
        ("llama-4-scout-17b-16e", (336, 336), 1, 24 * 24 + 1, 145 + 2),
        ("llama-4-scout-17b-16e", (1024, 1024), 17, 24 * 24 + 1, 17 * 145 + 2),  # 4 x 4
        ("llama-4-scout-17b-16e", (1000, 300), 4, 24 * 24 + 1, 4 * 145 + 2),  # 3 x 1
        ("llama-4-scout-17b-16e", (9000, 9000), 17, 24 * 24 + 1, 17 * 145 + 2),  # shrunk to 4 x 4
    ],
)
def test_an_image_becomes_the_patches_and_tokens_of_its_family(
    name: str, size: tuple[int, int], pieces: int, patches: int, tokens: int
) -> None:
    tower = REGISTRY.model(name).vision
    assert tower is not None
    assert seen_image(tower, *size) == Seen(pieces, patches, tokens)


@pytest.mark.parametrize(
    ("name", "patches"),
    [
        ("qwen2.5-vl-7b", 65536),
        ("pixtral-12b", 4096),
        ("gemma-3-4b", 4096),
        ("llama-4-scout-17b-16e", 17 * 577),
        ("internvl3-8b", 13 * 1025),
    ],
)
def test_the_largest_image_has_the_most_patches(name: str, patches: int) -> None:
    tower = REGISTRY.model(name).vision
    assert tower is not None
    most = largest_image(tower)
    assert most.pieces * most.patches == patches


def test_tokens_of_images_lengthen_the_prompt_and_do_not_vary() -> None:
    service = asked("qwen2.5-vl-7b", serve__images=2, serve__input_tokens=258, serve__input_spread=0.5)
    assert service.traffic.inputs == 258 + 2 * 1371
    assert service.traffic.input_spread == pytest.approx(0.5 * 258 / 3000)
    assert asked("qwen2.5-vl-7b", serve__input_tokens=258).traffic.inputs == 258


def test_flops_of_the_encoder_are_two_for_every_weight_of_a_layer_and_the_pairs_of_its_attention() -> None:
    """Qwen2.5-VL: 28 of 32 layers attend within windows of 64 patches."""
    job = asked("qwen2.5-vl-7b", serve__images=1).job
    assert job.images is not None
    step = step_time(job, ONE, Work(prefills=1.0, prefill_tokens=job.images.prompt_tokens)).step
    flops = sum(
        float(np.ravel(operator.forward_flops)[0]) * operator.layers
        for operator in step.ends
        if operator.module == "vision" and hasattr(operator, "forward_flops")
    )
    patches, width = 5476, 1280
    layers = 2 * patches * 32 * (4 * width**2 + 3 * width * 3420)
    pairs = patches * (28 * 64 + 4 * patches)
    around = 2 * patches * 1176 * width + 2 * patches / 4 * (5120 * 5120 + 5120 * 3584)
    assert flops == pytest.approx(layers + 4 * width * pairs + around, rel=1e-12)


def test_the_encoder_takes_time_with_prompts_alone_and_as_much_for_each_image() -> None:
    one, four = (asked("qwen2.5-vl-7b", serve__images=count, serve__input_tokens=100).job for count in (1, 4))
    assert one.images is not None
    assert four.images is not None
    each = step_time(one, ONE, Work(prefills=1.0, prefill_tokens=one.images.prompt_tokens)).parts["vision encoder"][0]
    all_four = step_time(four, ONE, Work(prefills=1.0, prefill_tokens=four.images.prompt_tokens))
    assert 3.5 * each < all_four.parts["vision encoder"][0] < 4.0 * each
    decodes = step_time(one, ONE, Work(decodes=np.array([8.0]), decode_past=2000.0))
    assert decodes.parts["vision encoder"][0] == 0.0
    both = Work(decodes=np.array([8.0, 8.0]), decode_past=2000.0, prefills=np.array([0.0, 1.0]), prefill_tokens=1500.0)
    mixed = step_time(one, ONE, both)
    assert mixed.parts["vision encoder"][0] == 0.0
    assert mixed.total_s[0] == pytest.approx(decodes.total_s[0], rel=1e-9)
    assert mixed.parts["vision encoder"][1] > 0.0


def test_the_peak_bounds_the_encoder_from_below() -> None:
    """5,476 patches through 632 million weights of the layers at 989 TFLOP/s, and no more than three times that."""
    job = asked("qwen2.5-vl-7b", serve__images=1).job
    assert job.images is not None
    step = step_time(job, ONE, Work(prefills=1.0, prefill_tokens=job.images.prompt_tokens))
    least_s = 2 * 5476 * 32 * (4 * 1280**2 + 3 * 1280 * 3420) / 989e12
    assert least_s < step.parts["vision encoder"][0] < 4 * least_s


def test_tensor_parallel_ranks_share_the_encoder() -> None:
    """Biases of row-parallel products, norms, patches and positions are on every rank."""
    model = REGISTRY.model("gemma-3-27b")
    assert model.vision is not None
    blind = asked("gemma-3-27b", serve__images=0).job
    scheme = blind.scheme
    whole, shared = (
        float(rank_weight_bytes(model, scheme, placement)[0] - rank_weight_bytes(blind.model, scheme, placement)[0])
        for placement in (ONE, ReplicaLayouts.of(tp=8))
    )
    assert whole == 2 * 423_060_336
    layer = 27 * (4 * 1152**2 + 2 * 1152 * 4304 + 3 * 1152 + 4304) + 1152 * 5376
    assert shared == pytest.approx(2 * (423_060_336 - layer * 7 / 8))


def test_the_first_stage_has_the_encoder() -> None:
    """Two stages of Llama 4 Scout: the embedding and the encoder on the one, the head as large on the other."""
    model = REGISTRY.model("llama-4-scout-17b-16e")
    seeing, blind = (asked("llama-4-scout-17b-16e", **extra).job for extra in ({}, {"serve__images": 0}))
    placement = ReplicaLayouts.of(pp=2)
    added = rank_weight_bytes(seeing.model, seeing.scheme, placement)
    added = added - rank_weight_bytes(blind.model, blind.scheme, placement)
    assert added[0] == pytest.approx(2 * 871_932_416 - 2 * 5120)  # the head's stage has the final norm
    assert model.vision is not None


def test_an_engine_with_a_pool_has_room_for_the_largest_image() -> None:
    """65,536 patches of Qwen2.5-VL: three hidden tensors beside gate, up and their product, in 16 bit."""
    job = asked("qwen2.5-vl-7b").job
    memory = serving_memory(job, ONE, 1024.0)
    assert memory.fixed[activations.name][0] == 65536 * (3 * 1280 + 3 * 3420) * 2
    blind = asked("qwen2.5-vl-7b", serve__images=0).job
    assert serving_memory(blind, ONE, 1024.0).fixed[activations.name][0] < memory.fixed[activations.name][0]


def test_a_cache_that_grows_has_room_for_the_images_of_its_batch() -> None:
    service = served("qwen2.5-vl-7b", serve__engine="hf-transformers", serve__batch=1, serve__images=1)
    assert service.resolved.job.images is not None
    text = served("qwen2.5-vl-7b", serve__engine="hf-transformers", serve__batch=1)
    assert service.peak_bytes > text.peak_bytes


def test_more_and_larger_images_are_never_faster() -> None:
    times = [served("gemma-3-4b", serve__concurrency=8, serve__images=images).ttft_s for images in (0, 1, 2, 4)]
    assert times == sorted(times)
    small, large = (
        served("qwen3-vl-8b", serve__concurrency=8, serve__images=1, serve__image_size=size).ttft_s
        for size in ("512x512", "1024x1024")
    )
    assert small < large


def test_the_answer_names_the_images() -> None:
    service = served("qwen2.5-vl-7b", serve__concurrency=4, serve__images=2, serve__image_size="640x480")
    result = summarise(service)
    assert result.images is not None
    assert result.images == images_in(service)
    assert (result.images.tokens_each, result.images.tokens) == (23 * 17 + 2, 2 * (23 * 17 + 2))
    assert result.images.patches_each == 46 * 34
    said = {point.label: point.text for point in serve_points(result)}
    assert said["Images"].startswith("2 images of 640x480 in each prompt: 786 tokens, ")
    assert summarise(served("qwen2.5-vl-7b", serve__concurrency=4)).images is None


def test_images_that_cannot_be_are_refused() -> None:
    assert "takes no images" in problems(serve__images=1)[0]
    assert "an image size needs a number of images" in problems(model="gemma-3-4b", serve__image_size="10x10")[0]
    assert "width x height" in problems(model="gemma-3-4b", serve__images=1, serve__image_size="1024")[0]


def test_tokens_of_images_are_not_called_assumed() -> None:
    said = summarise(served("qwen2.5-vl-7b", serve__images=2, serve__concurrency=2)).warnings
    assert any(one.startswith("prompts of 1,024 and answers of 256 tokens are assumed") for one in said)
