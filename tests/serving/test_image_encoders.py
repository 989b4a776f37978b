"""GPUs that only encode images, in front of replicas that have the model without its encoder."""

from __future__ import annotations

import math

import pytest
from serving_cases import asked, problems, served

from xe_sizer.profiles.catalogue import Registry
from xe_sizer.serving.advice import advise
from xe_sizer.serving.disaggregation import encoders, images_s
from xe_sizer.serving.summary import summarise

REGISTRY = Registry()
SEEING = {"model": "qwen2.5-vl-7b", "serve__images": 2, "serve__input_tokens": 500}


def test_encoders_are_as_many_as_the_images_need() -> None:
    """Work of rate x each seconds a second on encoders that are busy 0.7 of the time at most."""
    job = asked(**SEEING).job
    assert job.images is not None
    tokens = 2 * job.images.seen.tokens
    together = job.engine.batching.max_step_tokens // tokens
    each_s = images_s(job, together) / together
    found = encoders(job, 50.0, None, True)
    assert found.replicas == math.ceil(50.0 * each_s / 0.7)
    assert found.utilisation == pytest.approx(50.0 * each_s / found.replicas)
    assert found.embedding_bytes == tokens * 3584 * 2  # hidden states in 16 bit
    assert found.sent_s < encoders(job, 50.0, None, False).sent_s  # the link inside a node, a NIC between nodes


def test_requests_wait_for_their_images_and_replicas_have_no_encoder() -> None:
    apart, whole = (served(serve__request_rate=5, gpus=gpus, **SEEING, **more)
                    for gpus, more in ((2, {"serve__encode_replicas": 1}), (1, {})))  # fmt: skip
    front = apart.choice.encoders
    assert front is not None
    assert apart.gpus == apart.replicas + front.replicas == 2
    lighter = whole.memory.fixed["weights"][0] - apart.memory.fixed["weights"][0]
    assert lighter == pytest.approx(2 * 676.6e6, rel=0.05)  # the encoder and its merger, in 16 bit
    assert apart.point.ttft_s > front.total_s
    assert apart.point.tpot_s < whole.point.tpot_s
    result = summarise(apart).encoders
    assert result is not None
    assert result.otherwise_gpus == 2


def test_no_more_is_answered_than_encoders_let_through() -> None:
    """One encoder in front of seven replicas, under a rate, at full load, and with users who wait for each other."""
    found = served(serve__request_rate=60, gpus=8, serve__encode_replicas=1, **SEEING)
    front = found.choice.encoders
    assert front is not None
    assert found.overloaded
    assert found.taken_per_s == pytest.approx(front.top_rate, rel=0.01)
    assert served(gpus=8, serve__encode_replicas=1, **SEEING).taken_per_s == pytest.approx(front.top_rate)
    users = served(serve__users=5000, gpus=8, serve__encode_replicas=1, serve__think_time_s=30, **SEEING)
    assert users.taken_per_s * (users.point.request_s + 30) == pytest.approx(5000, rel=0.01)


def test_three_pools_stand_behind_each_other() -> None:
    found = served(serve__request_rate=20, serve__encode_replicas="auto", serve__prefill_replicas="auto", **SEEING)
    front, readers = found.choice.encoders, found.choice.prefills
    assert front is not None
    assert readers is not None
    assert found.gpus == front.replicas + readers.gpus + found.replicas * int(found.placement.gpus[0])
    assert sum(readers.stages_s.values()) == pytest.approx(found.point.ttft_s)
    assert readers.stages_s["prefill"] > front.total_s


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"model": "llama-3.1-8b", "serve__encode_replicas": 1}, "'encode_replicas' 1 needs images"),
        (
            {**SEEING, "serve__encode_replicas": 1, "serve__batch": 4},
            "'encode_replicas' and 'batch' do not go together",
        ),
        (
            {**SEEING, "serve__encode_replicas": 1, "serve__engine": "tgi"},
            "encodes no images on GPUs of their own",
        ),
        ({**SEEING, "serve__encode_replicas": 2, "gpus": 2}, "leave none of 2 for the model"),
    ],
)
def test_encoders_that_cannot_be_are_refused(flags: dict[str, object], words: str) -> None:
    assert any(words in told for told in problems(**flags))


def test_a_gpu_for_images_holds_the_encoder_and_its_largest_step() -> None:
    """676.6 million elements in 16 bit; 4,096 tokens of 4 patches, each 3 x 1,280 and 3 x 3,420 wide; their states."""
    found = served(serve__request_rate=5, gpus=2, serve__encode_replicas=1, serve__max_step_tokens=4096, **SEEING)
    front = found.choice.encoders
    assert front is not None
    assert front.memory["weights"] == pytest.approx(2 * 676.6e6, rel=0.05)
    assert front.memory["embeddings"] == 4096 * 3584 * 2
    assert front.memory["activations"] >= 4096 * 4 * (3 * 1280 + 3 * 3420) * 2
    result = summarise(found).encoders
    assert result is not None
    assert sum(part.bytes for part in result.memory.components) == result.memory.peak_bytes
    assert result.memory.peak_bytes == pytest.approx(sum(front.memory.values()), abs=8)


LARGE = {
    "model": "internvl3-78b", "gpu": "rtx-3060-12gb", "gpus": 25, "serve__weights": "awq", "serve__images": 4,
    "serve__request_rate": 0.01,
}  # fmt: skip


def test_an_encoder_that_is_too_large_for_one_gpu_is_refused_and_put_into_the_replicas() -> None:
    """InternViT-6B takes 10.6 GiB of 11.8, and its largest step 2.7: eight GPUs of a replica share it."""
    apart, whole = (served(serve__encode_replicas=count, **LARGE) for count in (1, 0))
    assert apart.short == "images"
    assert not apart.fits
    assert whole.fits
    assert whole.choice.encoders is None
    result = summarise(apart)
    assert "GiB per GPU of images" in result.verdict.reasons[0].message
    assert result.memory.gpu == "those of images alike"
    assert any(one.change == "the encoder of images in every replica" for one in advise(apart, REGISTRY))
