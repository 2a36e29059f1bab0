"""What goes to SGLang and what may come back, without a server."""

import base64
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from troupe.candidates import GenerateRequest
from troupe.errors import InvalidArgumentError, UnavailableError
from troupe.runtime.engines.presets import ModelShape
from troupe.spec.job import SamplingSpec
from troupe.tasks.content import MAX_PNG_BYTES, ImagePart
from troupe.vision.data_url import image_of_url
from troupe.vision.model import VisionModel
from troupe.vision.patches import patches_of
from troupe.vision.png import read_png
from troupe_rollout.engines.chat import ChatTemplate
from troupe_rollout.engines.sglang.images import sent_prompt
from troupe_rollout.engines.sglang.model import SglangModel
from troupe_rollout.engines.sglang.translate import (
    cached_tokens,
    candidate_from,
    completion_scores,
    completions_body,
    engine_seconds,
    generate_body,
    prefill_body,
    score_body,
    scores_from,
)


class Words:
    """A tokenizer whose token i is the word wi."""

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool) -> str:
        return " ".join(f"w{token}" for token in token_ids if token != 2 or not skip_special_tokens)


BASE = SglangModel(
    name="m",
    folder=None,  # pyright: ignore[reportArgumentType]
    tokenizer=Words(),
    shape=ModelShape(8, 2, 2, 1, 4, 16, 10, True),
    context_length=64,
    end_token_ids=(2,),
    tensors={},
)

CHAT = ChatTemplate(BASE.tokenizer, BASE.name)


def request(**sampling: Any) -> GenerateRequest[Sequence[int]]:
    return GenerateRequest("p", 3, [1, 5], 2, SamplingSpec(**sampling), seed=7)


def answer(**changes: Any) -> dict[str, Any]:
    meta = {
        "finish_reason": {"type": "stop", "matched": 2},
        "output_token_logprobs": [[-0.5, 4, None], [-0.25, 2, None]],
        "e2e_latency": 0.5,
        "queue_time": 0.2,
    }
    return {"output_ids": changes.pop("output_ids", [4, 2]), "meta_info": {**meta, **changes}}


def body(item: GenerateRequest[Sequence[int]], *, adapter: str | None = "p@3-x-1"):
    return generate_body(BASE, item, limit=9, adapter=adapter, salt="p@3-x-1")


def test_candidates_are_entries_of_one_call_and_carry_the_versions_name():
    found = body(request(temperature=0.7, stop=["w9", ""]))
    assert found["input_ids"] == [[1, 5], [1, 5]]
    assert found["lora_path"] == ["p@3-x-1", "p@3-x-1"]
    assert found["extra_key"] == "p@3-x-1"
    params = [dict(entry) for entry in found["sampling_params"]]
    seeds = [entry.pop("sampling_seed") for entry in params]
    expected = {
        "max_new_tokens": 9,
        "temperature": 0.7,
        "top_p": 1.0,
        "top_k": -1,
        "stop": ["w9"],
        "stop_token_ids": [2],
    }
    assert params == [expected, expected]
    assert len(set(seeds)) == 2
    assert seeds == [p["sampling_seed"] for p in body(request())["sampling_params"]]
    assert "lora_path" not in body(request(), adapter=None)


def test_prefill_computes_the_prompt_under_the_same_key_and_samples_nothing():
    assert prefill_body(body(request())) == {
        "input_ids": [1, 5],
        "sampling_params": {"max_new_tokens": 0},
        "extra_key": "p@3-x-1",
        "lora_path": "p@3-x-1",
    }
    assert "lora_path" not in prefill_body(body(request(), adapter=None))


@pytest.mark.parametrize(
    ("prefill", "items", "cached"),
    [
        ([0], [9, 9, 9, 9], 26),  # 10 computed once, then the last token of each: 14 of 40
        ([9], [9, 9, 9, 9], 35),  # known before: the last token five times
        ([0], [0, 0, 0, 0], 0),  # nothing was found: more was computed than asked for
        ([], [4], 4),  # a single candidate has no prefill
        ([0], [9, None, 9, 9], None),
    ],
)
def test_cached_tokens_count_the_prefill_against_what_the_candidates_found(
    prefill: list[int], items: list[int | None], cached: int | None
):
    prompt = GenerateRequest("p", 3, list(range(10)), len(items), SamplingSpec(), seed=7)
    found = [answer(cached_tokens=count) for count in items]
    assert cached_tokens(prompt, [answer(cached_tokens=c) for c in prefill], found) == cached


@pytest.mark.parametrize(
    ("sampling", "sent"),
    [({"top_p": 0.9}, 4096), ({"top_p": 0.9, "top_k": 50}, 50), ({"top_k": 4096}, 4096)],
)
def test_body_when_the_distribution_is_cut_then_its_top_k_is_one_that_sglang_takes(
    sampling: dict[str, Any], sent: int
):
    found = body(request(**sampling))
    assert found["return_sampling_mask"] is True
    assert {entry["top_k"] for entry in found["sampling_params"]} == {sent}


def test_body_when_top_k_is_beyond_what_sglang_takes_then_refused_by_name():
    with pytest.raises(InvalidArgumentError, match=r"top_k 5000.* at most 4096"):
        body(request(top_k=5000))
    assert body(request(top_k=5000, temperature=0.0))["sampling_params"][0]["top_k"] == 5000


def test_filtered_sampling_asks_for_the_distribution_that_was_sampled():
    found = body(request(top_k=3))
    assert found["return_sampling_mask"] is True
    assert "return_sampling_mask" not in body(request(top_k=3, temperature=0.0))
    candidate = candidate_from(
        CHAT, request(top_k=3), answer(output_token_sampling_logprobs=[-0.1, -0.2]), tag=None
    )
    assert candidate.logprobs == [-0.1, -0.2]


def test_completion_is_translated_with_its_end_token():
    candidate = candidate_from(CHAT, request(), answer(), tag=None)
    assert candidate.token_ids == [4, 2]
    assert candidate.logprobs == [-0.5, -0.25]
    assert (candidate.text, candidate.finish_reason) == ("w4", "stop")


def test_text_is_cut_before_a_stop_string():
    item = answer(output_ids=[4, 9], output_token_logprobs=[[-1.0, 4, None], [-1.0, 9, None]])
    assert candidate_from(CHAT, request(stop=["w9"]), item, tag=None).text == "w4 "


@pytest.mark.parametrize(
    "changes",
    [
        {"output_token_logprobs": [[-0.5, 4, None]]},
        {"output_token_logprobs": [[-0.5, 4, None], [-0.5, 5, None]]},
        {"output_token_logprobs": [[-0.5, 4, None], [math.nan, 2, None]]},
        {"finish_reason": {"type": "abort", "message": "gone"}},
        {"finish_reason": None},
    ],
)
def test_answer_that_cannot_be_trained_on_is_a_retryable_error(changes: dict[str, Any]):
    with pytest.raises(UnavailableError):
        candidate_from(CHAT, request(), answer(**changes), tag=None)


def test_abort_because_of_the_request_is_the_callers_fault():
    reason = {"type": "abort", "message": "too long", "status_code": 400}
    with pytest.raises(InvalidArgumentError, match="too long"):
        candidate_from(CHAT, request(), answer(finish_reason=reason), tag=None)


def test_time_in_the_engine_leaves_out_the_queue():
    assert engine_seconds([answer(), answer(e2e_latency=0.9, queue_time=0.8)]) == pytest.approx(0.3)


def test_scores_are_of_every_token_but_the_first():
    body = score_body(BASE, [1, 5, 6], adapter=None, salt="s")
    assert body["sampling_params"]["max_new_tokens"] == 0
    meta = {
        "finish_reason": {"type": "length"},
        "input_token_logprobs": [[None, 1, None], [-2.0, 5, None], [-3.0, 6, None]],
    }
    assert scores_from([1, 5, 6], {"meta_info": meta}) == [-2.0, -3.0]
    with pytest.raises(UnavailableError, match="other tokens"):
        scores_from([1, 5, 7], {"meta_info": meta})


@pytest.mark.parametrize(
    ("meta", "is_right"),
    [
        ({"weight_version": "p@3-x-1"}, True),
        ({"weight_version": "p@3-x-1", "weight_versions": [{"version": "p@3-x-1"}]}, True),
        ({"weight_version": "p@2-x-0"}, False),
        ({"weight_version": "p@3-x-1", "weight_versions": [{"version": "p@2-x-0"}]}, False),
        ({}, False),
    ],
)
def test_completion_of_full_weights_must_be_of_the_version_alone(
    meta: dict[str, Any], is_right: bool
):
    if is_right:
        assert candidate_from(CHAT, request(), answer(**meta), tag="p@3-x-1").token_ids == [4, 2]
    else:
        with pytest.raises(UnavailableError, match="its tokens are of weights"):
            candidate_from(CHAT, request(), answer(**meta), tag="p@3-x-1")


VISION = VisionModel(
    7,
    frozenset({6, 7, 8}),
    14,
    2,
    2,
    784,
    50176,
    1 / 255,
    (0.5, 0.5, 0.5),
    (0.5, 0.5, 0.5),
)
SEEING = replace(BASE, vision=VISION)
WIDE = ImagePart(56, 28, bytes(3 * 56 * 28))  # two tokens
SQUARE = ImagePart(28, 28, bytes(3 * 28 * 28))  # one


def seeing_request(
    *images: ImagePart, prompt: Sequence[int] = (1, 7, 7, 5)
) -> GenerateRequest[Sequence[int]]:
    return GenerateRequest("p", 3, list(prompt), 2, SamplingSpec(), seed=7, images=images)


def seeing_body(
    item: GenerateRequest[Sequence[int]], *, adapter: str | None, salt: str
) -> dict[str, Any]:
    return generate_body(SEEING, item, limit=9, adapter=adapter, salt=salt)


def test_body_when_a_prompt_has_images_then_each_is_one_placeholder_and_a_png():
    found = seeing_body(
        seeing_request(WIDE, SQUARE, prompt=(1, 7, 7, 5, 7)), adapter=None, salt="v1"
    )
    assert found["input_ids"] == [[1, 7, 5, 7]] * 2
    assert [len(images) for images in found["image_data"]] == [2, 2]
    assert image_of_url(found["image_data"][0][0]) == WIDE
    alone = prefill_body(seeing_body(seeing_request(WIDE), adapter=None, salt="v1"))
    assert alone["input_ids"] == [1, 7, 5]
    assert alone["image_data"] == found["image_data"][0][:1]
    scored = score_body(SEEING, [1, 7, 7, 5], [WIDE], adapter=None, salt="v1")
    assert (scored["input_ids"], scored["image_data"]) == ([1, 7, 5], alone["image_data"])
    assert "image_data" not in seeing_body(seeing_request(prompt=(1, 5)), adapter=None, salt="v1")


def test_body_when_an_image_does_not_fill_its_patches_then_it_is_sent_resized():
    odd = ImagePart(50, 30, random.Random(0).randbytes(3 * 1500))
    sent = seeing_body(seeing_request(odd), adapter=None, salt="v")["image_data"][0][0]
    image = image_of_url(sent)
    assert (image.width, image.height) == (56, 28)
    assert np.array_equal(patches_of(image, VISION), patches_of(odd, VISION))


def test_body_when_a_resized_image_is_larger_than_a_request_may_hold_then_it_is_sent():
    large = replace(VISION, max_pixels=1_000_000)
    page = ImagePart(620, 620, random.Random(0).randbytes(3 * 620 * 620))
    base = replace(SEEING, vision=large)
    prompt, fields = sent_prompt(base, [1, *[7] * 22 * 22, 5], [page])
    assert prompt == [1, 7, 5]
    png = base64.b64decode(fields["image_data"][0].partition(",")[2])
    assert len(png) > MAX_PNG_BYTES
    image = ImagePart(*read_png(png, 2 * MAX_PNG_BYTES, lambda *_: None))
    assert (image.width, image.height) == (616, 616)
    assert np.array_equal(patches_of(image, large), patches_of(page, large))


@pytest.mark.parametrize(
    ("base", "item"),
    [
        (SEEING, seeing_request()),
        (SEEING, seeing_request(WIDE, WIDE)),
        (SEEING, seeing_request(SQUARE)),
        (SEEING, seeing_request(WIDE, prompt=(1, 5))),
        (BASE, seeing_request(WIDE)),
    ],
)
def test_body_when_images_are_not_those_of_the_placeholders_then_refused(
    base: SglangModel, item: GenerateRequest[Sequence[int]]
):
    with pytest.raises(InvalidArgumentError, match=r"image tokens of a prompt|as a text model"):
        generate_body(base, item, limit=9, adapter=None, salt="v")


@pytest.mark.parametrize(("count", "is_right"), [(4, True), (3, False), (None, False)])
def test_completion_when_the_server_read_another_prompt_than_was_sent_then_not_taken(
    count: int | None, is_right: bool
):
    item = answer(prompt_tokens=count)
    if is_right:
        assert candidate_from(CHAT, seeing_request(WIDE), item, tag=None).token_ids == [4, 2]
        return
    with pytest.raises(UnavailableError, match="with its 1 images the prompt has 4"):
        candidate_from(CHAT, seeing_request(WIDE), item, tag=None)


def test_scores_when_tokens_are_images_then_they_are_zero_and_their_ids_are_the_servers():
    meta = {
        "finish_reason": {"type": "length"},
        "input_token_logprobs": [[None, 1], [-9.0, 0], [-9.0, 0], [-3.0, 5]],
    }
    assert scores_from([1, 7, 7, 5], {"meta_info": meta}, 7) == [0.0, 0.0, -3.0]
    for wrong in ([1, 7, 7, 6], [1, 7, 5]):
        with pytest.raises(UnavailableError, match="other tokens"):
            scores_from(wrong, {"meta_info": meta}, 7)


def test_completions_when_scored_then_the_prompt_may_come_from_the_cache():
    found = completions_body([1, 5, 3], [[4, 2], [7]], adapter="t@0-x", salt="t@0-x")
    assert found["input_ids"] == [[1, 5, 3, 4, 2], [1, 5, 3, 7]]
    assert found["logprob_start_len"] == [2, 2]
    assert found["lora_path"] == ["t@0-x", "t@0-x"]
    assert [p["max_new_tokens"] for p in found["sampling_params"]] == [0, 0]
    assert "lora_path" not in completions_body([1], [[4]], adapter=None, salt="s")


def scored(*tokens: int) -> dict[str, Any]:
    entries = [[None if i == 0 else -float(t), t, None] for i, t in enumerate(tokens)]
    return {"meta_info": {"finish_reason": {"type": "length"}, "input_token_logprobs": entries}}


def test_scores_of_completions_when_the_answer_is_odd_then_are_not_taken():
    both = [scored(3, 4, 2), scored(3, 7)]
    assert completion_scores([1, 3], [[4, 2], [7]], both) == [[-4.0, -2.0], [-7.0]]
    with pytest.raises(UnavailableError, match="scored 1 of 2 completions"):
        completion_scores([1, 3], [[4, 2], [7]], both[:1])
    with pytest.raises(UnavailableError, match="other tokens than it was given"):
        completion_scores([1, 3], [[4, 2], [7]], [both[0], scored(3, 8)])
    for worth in (None, math.nan, -math.inf):  # NaN in a model's output is null in the JSON
        odd = scored(3, 7)
        odd["meta_info"]["input_token_logprobs"][1][0] = worth
        with pytest.raises(UnavailableError, match="some of its scores are no numbers"):
            completion_scores([1, 3], [[4, 2], [7]], [both[0], odd])
