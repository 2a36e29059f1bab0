"""Translates between Troupe's requests and SGLang's JSON. Pure: no I/O, no versions.

Owns the checks of an answer before it may be trained on: as many logprobs as tokens, all of them
numbers, and a finish reason other than abort.
"""

import math
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from troupe.candidates import Candidate, GenerateRequest
from troupe.errors import InvalidArgumentError, TroupeError, UnavailableError
from troupe.seeds import derive_seed
from troupe.tasks.content import ImagePart
from troupe_rollout.engines.chat import ChatTemplate
from troupe_rollout.engines.sglang.command import MAX_TOP_K
from troupe_rollout.engines.sglang.images import sent_prompt
from troupe_rollout.engines.sglang.model import SglangModel

SEED_MASK = 2**31 - 1
_LOGPROB, _TOKEN = itemgetter(0), itemgetter(1)
"""Of a token's entry in SGLang's answer: [log probability, id, text or null]."""


def generate_body(
    base: SglangModel,
    request: GenerateRequest[Sequence[int]],
    *,
    limit: int,
    adapter: str | None,
    salt: str,
) -> dict[str, Any]:
    """One /generate call for all candidates, an entry for each.

    ``salt`` keys the prefix cache, so that no version ever meets another's cache. Only the
    deterministic mode looks at the seeds. SGLang's own ``n`` is left alone: it fails with filtered
    sampling, and it hides what its warm-up of the prompt found in the cache.
    """
    sampling = request.sampling
    prompt, images = sent_prompt(base, request.prompt, request.images)
    params: dict[str, Any] = {
        "max_new_tokens": limit,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": _top_k(request),
        "stop": [text for text in sampling.stop if text],
        "stop_token_ids": list(base.end_token_ids),
    }
    count = request.num_candidates
    seeds = [derive_seed(request.seed, i) & SEED_MASK for i in range(count)]
    body: dict[str, Any] = {
        "input_ids": [prompt] * count,
        "sampling_params": [params | {"sampling_seed": seed} for seed in seeds],
        "return_logprob": True,
        "extra_key": salt,
        **{field: [values] * count for field, values in images.items()},
    }
    if is_filtered(request):
        body["return_sampling_mask"] = True
    if adapter:
        body["lora_path"] = [adapter] * count
    return body


def _top_k(request: GenerateRequest[Sequence[int]]) -> int:
    """SGLang gives a filtered request's log probabilities only where its top-k is bounded."""
    asked = request.sampling.top_k
    if not is_filtered(request):
        return asked or -1
    if asked > MAX_TOP_K:
        raise InvalidArgumentError(
            f"The request samples with top_k {asked}, and SGLang gives the log probabilities of at "
            f"most {MAX_TOP_K} tokens. Lower top_k, or leave it out (0)."
        )
    return asked or MAX_TOP_K


def prefill_body(body: dict[str, Any]) -> dict[str, Any]:
    """Compute the prompt of a ``generate_body`` into the prefix cache, where candidates find it."""
    each = ("input_ids", "image_data", "lora_path")
    first = {field: body[field][0] for field in each if field in body}
    return {"sampling_params": {"max_new_tokens": 0}, "extra_key": body["extra_key"], **first}


def check_speculation(request: GenerateRequest[Sequence[int]]) -> None:
    """Raises InvalidArgumentError for sampling whose logprobs SGLang withholds with drafts."""
    if is_filtered(request):
        raise InvalidArgumentError(
            f"The request samples with top_p {request.sampling.top_p} and top_k "
            f"{request.sampling.top_k}, whose log probabilities SGLang does not give with "
            "TROUPE_ROLLOUT_SGLANG_SPECULATION. Leave them out, or switch speculation off."
        )


def is_filtered(request: GenerateRequest[Sequence[int]]) -> bool:
    """Top-p or top-k cut the distribution: the plain logprob is then not the sampled one's."""
    sampling = request.sampling
    return sampling.temperature > 0.0 and (sampling.top_p < 1.0 or sampling.top_k > 0)


def score_body(
    base: SglangModel,
    token_ids: Sequence[int],
    images: Sequence[ImagePart] = (),
    *,
    adapter: str | None,
    salt: str,
) -> dict[str, Any]:
    """Logprobs of the given tokens; nothing is sampled."""
    prompt, fields = sent_prompt(base, token_ids, images)
    body: dict[str, Any] = {
        "input_ids": prompt,
        "sampling_params": {"max_new_tokens": 0, "temperature": 1.0},
        "return_logprob": True,
        "logprob_start_len": 0,
        "extra_key": salt,
        **fields,
    }
    if adapter:
        body["lora_path"] = adapter
    return body


def completions_body(
    prompt: Sequence[int],
    completions: Sequence[Sequence[int]],
    *,
    adapter: str | None,
    salt: str,
) -> dict[str, Any]:
    """Logprobs of each completion's tokens; the prompt but its last token may come from the cache.

    SGLang divides no logits of given tokens by the temperature: it is 1.
    """
    count = len(completions)
    body: dict[str, Any] = {
        "input_ids": [[*prompt, *completion] for completion in completions],
        "sampling_params": [{"max_new_tokens": 0, "temperature": 1.0}] * count,
        "return_logprob": True,
        "logprob_start_len": [len(prompt) - 1] * count,
        "extra_key": salt,
    }
    if adapter:
        body["lora_path"] = [adapter] * count
    return body


def completion_scores(
    prompt: Sequence[int], completions: Sequence[Sequence[int]], items: Sequence[dict[str, Any]]
) -> list[list[float]]:
    """Logprob of every token of each completion."""
    if len(items) != len(completions):
        raise _malformed(f"it scored {len(items)} of {len(completions)} completions")
    return [
        scores_from([prompt[-1], *completion], item)
        for completion, item in zip(completions, items, strict=True)
    ]


def candidate_from(
    chat: ChatTemplate,
    request: GenerateRequest[Sequence[int]],
    item: dict[str, Any],
    *,
    tag: str | None,
) -> Candidate:
    """One completion; raises UnavailableError when it can't be trusted.

    ``tag`` is what the full weights were loaded under: every token must carry it.
    """
    meta = item["meta_info"]
    if tag is not None and _tags(meta) != {tag}:
        raise _malformed(f"its tokens are of weights {sorted(_tags(meta))} and not of {tag}")
    reason = meta["finish_reason"] or {}
    if request.images and meta.get("prompt_tokens") != len(request.prompt):
        raise _malformed(
            f"it read a prompt of {meta.get('prompt_tokens')} tokens, and with its "
            f"{len(request.images)} images the prompt has {len(request.prompt)}"
        )
    if reason.get("type") not in ("stop", "length"):
        raise _aborted(reason)
    token_ids: list[int] = item["output_ids"]  # numbers as the JSON has them: none is touched here
    logprobs: list[float]
    if is_filtered(request):
        logprobs = meta["output_token_sampling_logprobs"]
    else:
        entries = meta["output_token_logprobs"]
        logprobs = list(map(_LOGPROB, entries))
        if list(map(_TOKEN, entries)) != token_ids:
            raise _malformed("its logprobs are of other tokens than it sampled")
    if len(logprobs) != len(token_ids) or not _are_finite(logprobs):
        raise _malformed(f"{len(token_ids)} tokens came with {len(logprobs)} usable logprobs")
    text = chat.answer_text(token_ids, request.sampling.stop, calls=request.may_call)
    return Candidate(token_ids, logprobs, text, reason["type"])


def _are_finite(logprobs: Sequence[float]) -> bool:
    """Whether all are numbers, and finite ones: a sum of them is finite only then."""
    try:
        return math.isfinite(sum(logprobs))
    except TypeError:  # JSON knows no NaN: it is null
        return False


def _tags(meta: dict[str, Any]) -> set[str]:
    spans: list[dict[str, Any]] = meta.get("weight_versions") or []
    return {str(meta.get("weight_version")), *(str(span["version"]) for span in spans)}


def engine_seconds(items: Sequence[dict[str, Any]]) -> float:
    """Time that the slowest candidate was computed on, queueing left out."""
    return max(
        max(0.0, meta.get("e2e_latency", 0.0) - (meta.get("queue_time") or 0.0))
        for meta in (item["meta_info"] for item in items)
    )


def cached_tokens(
    request: GenerateRequest[Sequence[int]],
    prefill: Sequence[dict[str, Any]],
    items: Sequence[dict[str, Any]],
) -> int | None:
    """Prompt tokens over all candidates that were not computed, the prefill's share included.

    Example: an uncached prompt of 10 tokens, computed once and then read from the cache by four
    candidates except for its last token, gives 10 + 4 computed of 40: 26.
    """
    counts = [item["meta_info"].get("cached_tokens") for item in (*prefill, *items)]
    if None in counts:
        return None
    size = len(request.prompt)
    computed = sum(size - count for count in counts)
    return max(0, size * len(items) - computed)


def scores_from(
    token_ids: Sequence[int], item: dict[str, Any], image_token_id: int | None = None
) -> list[float]:
    """Logprob of every token but the first; 0 for an image's, where SGLang has its own ids."""
    meta = item["meta_info"]
    if (meta["finish_reason"] or {}).get("type") == "abort":
        raise _aborted(meta["finish_reason"])
    entries = meta["input_token_logprobs"]
    scored = [int(entry[1]) for entry in entries]
    if len(scored) != len(token_ids) or any(
        theirs != ours
        for theirs, ours in zip(scored, token_ids, strict=True)
        if ours != image_token_id
    ):
        raise _malformed("it scored other tokens than it was given")
    scores = [
        0.0 if token == image_token_id else _LOGPROB(entry)
        for token, entry in zip(token_ids[1:], entries[1:], strict=True)
    ]
    if not _are_finite(scores):
        raise _malformed("some of its scores are no numbers")
    return scores


def _aborted(reason: dict[str, Any]) -> TroupeError:
    message = str(reason.get("message") or reason)[:400]
    if reason.get("status_code") in (400, 422):
        return InvalidArgumentError(f"SGLang refuses the request: {message}")
    return UnavailableError(f"SGLang aborted the request ({message}). Try again.")


def _malformed(why: str) -> UnavailableError:
    return UnavailableError(
        f"SGLang's answer can't be trained on: {why}. Try again; if it stays so, the server runs "
        "another release than the engine is written for."
    )
