"""The processes beside `benchmarks.token_path`: a stand-in for SGLang, and a real sidecar of it.

The stand-in answers as SGLang 0.5.23 does, from one answer that it made beforehand: it computes
nothing. The sidecar is the real engine behind the real gRPC service. Owns no numbers.
"""

import argparse
import asyncio
import contextlib
import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from benchmarks.random_model import CHAT_TEMPLATE, save_random_model
from benchmarks.rollout_fleet import TinyTrainer, sidecar
from troupe.runtime.serving.memory import settle_heap
from troupe.spec.policy import LoraSpec, PolicySpec
from troupe_rollout.engines.sglang import SglangEngine
from troupe_rollout.engines.sglang.settings import SglangSettings

POLICY = "p"
VOCABULARY = 32_000
TEXTS = sorted(Path(__file__).parents[1].glob("docs/**/*.md"))
SPECIAL = ("<|im_end|>", "<|im_start|>")


def save_model(folder: Path) -> Path:
    """A tiny model whose tokenizer is a byte-level BPE of this repository's pages."""
    save_random_model(folder, num_words=VOCABULARY, hidden=96, context=65_536)
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=alphabet,
        show_progress=False,
    )
    inner.train([str(path) for path in TEXTS], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=SPECIAL[0])
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


def completion(ids: list[int], rng: random.Random) -> dict[str, Any]:
    """One entry of SGLang's answer: it names each token twice and each log probability once."""
    logprobs = [float(np.float32(-rng.expovariate(3.0))) for _ in ids]
    meta = {
        "id": f"{rng.getrandbits(128):032x}",
        "finish_reason": {"type": "length", "length": len(ids)},
        "prompt_tokens": 256,
        "weight_version": "default",
        "input_token_logprobs": [],
        "output_token_logprobs": [[p, i, None] for p, i in zip(logprobs, ids, strict=True)],
        "output_token_logprobs_length": len(ids),
        "completion_tokens": len(ids),
        "cached_tokens": 255,
        "e2e_latency": 1.0,
        "queue_time": 0.0,
    }
    return {"text": "", "output_ids": ids, "meta_info": meta}


def answer(folder: Path, num_candidates: int, num_tokens: int) -> bytes:
    """An answer to a call: pieces of this repository's pages in the model's tokens."""
    rng = random.Random(1)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = tokenizer.encode("".join(path.read_text() for path in TEXTS)).ids
    begins = [rng.randrange(len(ids) - num_tokens) for _ in range(num_candidates)]
    items = [completion(ids[i : i + num_tokens], rng) for i in begins]
    for item in items:
        item["text"] = tokenizer.decode(item["output_ids"])
    return json.dumps(items, ensure_ascii=False, separators=(",", ":")).encode()


class StandIn:
    """SGLang's HTTP shapes: a batch gets the answer, anything else what it needs to go on."""

    def __init__(self, whole: bytes) -> None:
        meta = {"finish_reason": {"type": "length"}, "cached_tokens": 0, "e2e_latency": 0.1}
        self._single = json.dumps({"output_ids": [], "meta_info": meta}).encode()
        self._whole = whole

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, as long as it is kept."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                size = 0
                for line in head.split(b"\r\n"):
                    if line.startswith(b"content-length:"):
                        size = int(line.split(b":")[1])
                body = await reader.readexactly(size)
                data = self._answer(head.split(b" ")[1], body)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
                writer.write(b"content-length: %d\r\n\r\n" % len(data))
                writer.write(data)
                await writer.drain()
        writer.close()

    def _answer(self, path: bytes, body: bytes) -> bytes:
        if path == b"/generate":
            return self._whole if b'"sampling_params":[' in body else self._single
        return b'{"data":[]}' if path == b"/v1/models" else b'{"success":true}'


async def stand_in(whole: bytes, port: int) -> None:
    """Serve until this process is ended."""
    server = await asyncio.start_server(StandIn(whole).serve, "127.0.0.1", port)
    await server.serve_forever()


async def serve(folder: Path, python: Path) -> None:
    """The sidecar until its input ends; its address is printed."""
    transformers_logging.disable_progress_bar()
    policy = PolicySpec(model=str(folder / "model"), train=LoraSpec(rank=2, alpha=4))
    work = str(folder / "work")
    engine = SglangEngine(SglangSettings(python=str(python), device="cpu", work_dir=work))
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(engine.stop)
        await engine.start({POLICY: policy})
        await engine.stage(TinyTrainer(POLICY, policy, folder / "out").staged(0))
        await engine.activate(POLICY, 0)
        item = await stack.enter_async_context(sidecar(engine, folder / "in"))
        settle_heap()  # as every service does
        print(json.dumps(item.address), flush=True)
        await asyncio.to_thread(sys.stdin.read)


def main() -> None:
    """Run as one of the two; the engine starts the first with ``-c`` and then with ``--port``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-c", dest="probe")
    parser.add_argument("--port", type=int)
    parser.add_argument("--answer", type=Path)
    parser.add_argument("--sidecar", type=Path)
    parser.add_argument("--python", type=Path)
    args, _ = parser.parse_known_args()
    if args.probe:
        print(json.dumps({"version": "0.5.23", "free": [], "total": []}))
    elif args.port:
        asyncio.run(stand_in(args.answer.read_bytes(), args.port))
    else:
        asyncio.run(serve(args.sidecar, args.python))


if __name__ == "__main__":
    main()
