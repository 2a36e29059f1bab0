"""A process that speaks SGLang's HTTP shapes without its weights: for tests of its supervision.

Run as the engine's interpreter: answers the environment's probe, or serves on ``--port``. Files in
the folder of ``FAKE_SGLANG_DIR`` steer it: ``refuse-start``, ``mute``, ``die-on`` (a path; it
dies there once), ``hang-on`` (never answers there), ``slow-on`` (takes half a second there),
``odd-on`` (answers nothing useful there), ``fail-unload`` (an adapter leaves the list, not the
memory), ``pool`` (tokens of its key/value cache) and ``other-base`` (its weights change in its
sleep); ``calls`` records.
"""

import contextlib
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ["FAKE_SGLANG_DIR"])
adapters: set[str] = set()
half_unloaded: set[str] = set()
memory: dict[str, Any] = {"is_released": False, "base": 1, "weights": ""}
lock = threading.Lock()


def answer(path: str, body: dict[str, Any]) -> tuple[int, Any]:
    """Status and JSON of one call."""
    with lock:
        if path == "/v1/models":
            names = [{"id": name, "parent": "base"} for name in sorted(adapters)]
            return 200, {"data": [{"id": "base", "parent": None}, *names]}
        if path == "/server_info":  # as for a context that is longer than the pool
            if (FOLDER / "other-release").exists():
                return 200, {"version": "0.4"}
            pool = int((FOLDER / "pool").read_text()) if (FOLDER / "pool").exists() else 4096
            room = {"max_total_num_tokens": pool, "max_req_input_len": pool - 6, "page_size": 1}
            return 200, room
        if path == "/load_lora_adapter":
            if body["lora_name"] in adapters:
                return 400, {"success": False, "error_message": "already loaded"}
            adapters.add(body["lora_name"])
            return 200, {"success": True}
        if path == "/unload_lora_adapter":
            return unload(body["lora_name"])
        if path == "/release_memory_occupation":
            memory["is_released"] = True
            return 200, None
        if path == "/resume_memory_occupation":
            memory["is_released"] = False
            memory["base"] += (FOLDER / "other-base").exists()
            return 200, None
    if memory["is_released"] and path not in ("/health", "/v1/models"):
        return 500, {"error": {"message": f"{path} while its memory is released"}}
    if path == "/weights_checker":
        return 200, {"success": True, "per_engine_checksum": [f"{memory}"]}
    if path == "/update_weights_from_disk":
        memory["weights"] = body["model_path"]
        return 200, {"success": True}
    if path == "/generate":
        return generate(body)
    return 200, {}


def unload(name: str) -> tuple[int, Any]:
    """As SGLang 0.5.23: a name is off the list first, and kept until the scheduler has done it."""
    if name not in adapters | half_unloaded:
        return 400, {"success": False, "error_message": f"LoRA with name {name} does not exist."}
    adapters.discard(name)
    half_unloaded.add(name)
    if (FOLDER / "fail-unload").exists():
        return 400, {"success": False, "error_message": "the scheduler failed"}
    half_unloaded.discard(name)
    return 200, {"success": True}


def generate(body: dict[str, Any]) -> tuple[int, Any]:
    """A single request has a dict of sampling parameters, a batch a list, as with SGLang."""
    is_batch = isinstance(body["sampling_params"], list)
    prompts = body["input_ids"] if is_batch else [body["input_ids"]]
    params = body["sampling_params"] if is_batch else [body["sampling_params"]]
    names = body.get("lora_path") or ""
    for name in names if isinstance(names, list) else [names]:
        if name and name not in adapters:
            return 400, {"error": {"message": f"{name} is not loaded"}}
    time.sleep(max(p["max_new_tokens"] for p in params) / 1000)  # a token takes a millisecond
    starts = body.get("logprob_start_len", 0)
    starts = starts if isinstance(starts, list) else [starts] * len(prompts)
    items = [
        complete(ids, p["max_new_tokens"], start)
        for ids, p, start in zip(prompts, params, starts, strict=True)
    ]
    return 200, items if is_batch else items[0]


def complete(prompt: list[int], count: int, start: int = 0) -> dict[str, Any]:
    """One completion of nines; the whole prompt but its last token was in the cache."""
    meta: dict[str, Any] = {
        "finish_reason": {"type": "length"},
        "output_token_logprobs": [[-1.0, 9, None]] * count,
        "input_token_logprobs": [
            [None if i == 0 else -2.0, t] for i, t in enumerate(prompt[start:])
        ],
        "cached_tokens": len(prompt) - 1,
        "e2e_latency": count / 1000,
        "queue_time": 0.0,
    }
    return {"output_ids": [9] * count, "meta_info": meta}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.serve({})

    def do_POST(self) -> None:
        self.serve(json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}"))

    def serve(self, body: dict[str, Any]) -> None:
        if (FOLDER / "mute").exists() and self.path == "/health":
            time.sleep(60)
        if self.path not in ("/health", "/v1/models"):
            with (FOLDER / "calls").open("a") as calls:
                calls.write(json.dumps([os.getpid(), self.path, body.get("lora_name")]) + "\n")
        with contextlib.suppress(FileNotFoundError):
            if (FOLDER / "die-on").read_text() == self.path:
                (FOLDER / "die-on").unlink()
                os._exit(9)
        if is_steered("hang-on", self.path):
            time.sleep(60)
        if is_steered("slow-on", self.path):
            time.sleep(0.5)
        is_odd = is_steered("odd-on", self.path)
        status, found = (200, {}) if is_odd else answer(self.path, body)
        data = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


def is_steered(how: str, path: str) -> bool:
    """Whether the file of that name holds the path of this call."""
    file = FOLDER / how
    return file.exists() and file.read_text() == path


def main() -> None:
    if sys.argv[1] == "-c":
        print(json.dumps({"version": "0.5.23", "free": [], "total": []}))
        return
    if (FOLDER / "refuse-start").exists():
        sys.exit("the fake refuses to start")
    port = int(sys.argv[sys.argv.index("--port") + 1])
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    server.serve_forever()


if __name__ == "__main__":
    main()
