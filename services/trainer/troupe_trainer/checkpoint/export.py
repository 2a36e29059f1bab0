"""Weights as files: versions sent to replicas, and artifacts that the user keeps.

Owns file formats and folders. Never talks to replicas.
"""

import json
import shutil
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import torch
from peft import PeftModel
from torch import Tensor
from transformers import AutoTokenizer
from transformers.utils.hub import cached_file

from troupe.api.records.v1.records_pb2 import WeightsManifest
from troupe.durable import make_folder, replace_folder
from troupe.errors import UnavailableError
from troupe.runtime.weights import TensorSum, build_manifest, data_digest, header_bytes_of
from troupe.runtime.weights.group import TORCH_DTYPES
from troupe.spec.policy import PolicySpec
from troupe_trainer.checkpoint.canary import Canary, canary_of
from troupe_trainer.checkpoint.live import LiveWeights, OnThread, live_manifest
from troupe_trainer.learn.learner import Learner
from troupe_trainer.model.loading import quiet_peft
from troupe_trainer.model.model import PolicyModel
from troupe_trainer.model.vision import auto_class

_PROCESSOR_FILES = (
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
)
"""How a model takes images. Copied, so that the export takes them as the trainer did."""
_DISK = ThreadPoolExecutor(1, "export")
"""Kept: where memory has run out, CPython waits for ever for a thread that could not start."""
_NAMES = {getattr(torch, name): short for short, name in TORCH_DTYPES.items()}


@dataclass(frozen=True, slots=True)
class Export:
    """One version of one policy, ready to be sent.

    ``canary_logprobs`` are the trainer's own for ``canary``, every token but the first;
    ``export_s`` is how long the export took. It is a file at ``path``, or the ``live`` weights of
    the learner, which are never a file.
    """

    manifest: WeightsManifest
    path: Path | None
    canary: Canary
    canary_logprobs: list[float]
    export_s: float = 0.0
    live: LiveWeights | None = None

    @property
    def file(self) -> Path:
        """The file of a version that has one."""
        if self.path is None:
            raise ValueError(f"version {self.manifest.policy_version} has no file")
        return self.path


def export_version(
    learner: Learner, version: int, folder: Path, *, job_id: str, adapter_dtype: str = "float32"
) -> Export:
    """Write the policy's weights as they are now, with their manifest and canary.

    An adapter is written in ``adapter_dtype``.
    """
    began = time.perf_counter()
    model = learner.model
    make_folder(folder)
    path = folder / file_name(learner.policy, version)
    sums = write_weights(model.weights(adapter_dtype), path)
    kind: Literal["lora", "full"] = "lora" if model.is_lora else "full"
    manifest = build_manifest(
        path,
        policy=learner.policy,
        policy_version=version,
        kind=kind,
        adapter_config_json=model.adapter_config_json,
        job_id=job_id,
        sums=sums,
    )
    canary = canary_of(model)
    scores = model.score(canary.token_ids, canary.images)
    return Export(manifest, path, canary, scores, time.perf_counter() - began)


def file_name(policy: str, version: int) -> str:
    """The name of a version's file."""
    return f"{policy}-v{version:05d}.safetensors"


def export_live(
    model: PolicyModel, policy: str, version: int, on_thread: OnThread, *, job_id: str
) -> Export:
    """Describe full weights as they are now: their digests and canary. Writes and copies nothing.

    Call it on the thread that ``on_thread`` runs work on.
    """
    began = time.perf_counter()
    sums = list[TensorSum]()

    def add(name: str, tensor: Tensor) -> None:
        here = tensor.cpu()
        digest = data_digest(_bytes(here))
        sums.append(TensorSum(name, _NAMES[here.dtype], tuple(here.shape), digest))

    live = LiveWeights(model, on_thread)
    live.each(add)
    manifest = live_manifest(sums, policy=policy, policy_version=version, job_id=job_id)
    canary = canary_of(model)
    scores = model.score(canary.token_ids, canary.images)
    return Export(manifest, None, canary, scores, time.perf_counter() - began, live)


def write_weights(tensors: Mapping[str, Tensor], path: Path) -> list[TensorSum]:
    """Write a safetensors file, completely or not at all; returns each tensor's digest.

    Bytes are written from the tensors' memory and hashed there meanwhile: no copy is made.

    Raises:
        UnavailableError: the disk is full or failing; nothing of the file is left.
    """
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))  # aligned
    items = [(name, tensors[name].detach().contiguous()) for name in names]
    header = [(name, _NAMES[t.dtype], tuple(t.shape)) for name, t in items]
    draft = path.with_suffix(".draft")
    try:
        with draft.open("wb", buffering=0) as file:
            file.write(header_bytes_of(header))
            writing = [_DISK.submit(_write_all, file, _bytes(tensor)) for _, tensor in items]
            try:
                sums = [
                    TensorSum(name, dtype, shape, data_digest(_bytes(tensor)))
                    for (name, dtype, shape), (_, tensor) in zip(header, items, strict=True)
                ]
            finally:
                wait(writing)  # the file is not closed under them
            for write in writing:
                write.result()
        draft.replace(path)
    except BaseException as error:
        with suppress(OSError):  # it would take the room that the next try needs
            draft.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise UnavailableError(
                f"The weights can't be written to {path} ({error}). Free space there."
            ) from error
        raise
    return sums


def _bytes(tensor: Tensor) -> memoryview:
    return memoryview(cast("Any", tensor.reshape(-1).view(torch.uint8).numpy()))


def _write_all(file: Any, data: memoryview) -> None:
    while data:
        data = data[file.write(data) :]


def export_artifacts(learner: Learner, spec: PolicySpec, folder: Path) -> dict[str, str]:
    """``export_model`` of a learner's present weights.

    Full weights of several ranks are gathered in the policy's dtype, without a copy of the learner.
    """
    skeleton = learner.model.skeleton()
    model = learner.model if skeleton is not None else learner.alone().model
    return export_model(model, spec, folder, skeleton)


def export_model(
    model: PolicyModel, spec: PolicySpec, folder: Path, skeleton: Any = None
) -> dict[str, str]:
    """Write ``adapter`` (LoRA only) and ``merged``; their paths by name.

    The merged model is made from the written adapter, which proves that the files can be read.
    ``skeleton``: saved with the model's weights, in place of a module that does not hold them.
    """
    paths: dict[str, str] = {}
    make_folder(folder)
    module = model.module if skeleton is None else skeleton
    weights: dict[str, Tensor] | None = None
    if model.is_lora:
        save = partial(module.save_pretrained, save_embedding_layers=False)  # as `published`
        adapter = replace_folder(folder / "adapter", save)
        paths["adapter"] = str(adapter)
        base = auto_class(spec.model).from_pretrained(
            spec.model, dtype=spec.dtype, use_safetensors=True
        )
        with quiet_peft():
            module = PeftModel.from_pretrained(base, str(adapter)).merge_and_unload()
    else:
        weights = model.weights()
    merged = replace_folder(
        folder / "merged", lambda path: _save_merged(module, weights, spec, path)
    )
    return paths | {"merged": str(merged)}


def _save_merged(
    module: Any, weights: dict[str, Tensor] | None, spec: PolicySpec, path: Path
) -> None:
    """``weights`` in the place of the module's own, which are a float32 master copy."""
    module.save_pretrained(path, state_dict=weights)
    if weights is not None:
        config = path / "config.json"
        config.write_text(json.dumps(_in_dtype(json.loads(config.read_text()), spec.dtype)))
    for name in _PROCESSOR_FILES:
        try:
            found = str(cached_file(spec.model, name))
        except OSError:  # not every model has each
            continue
        shutil.copyfile(found, path / name)
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(spec.model)
    except (OSError, ValueError):
        return
    tokenizer.save_pretrained(path)


def _in_dtype(config: dict[str, Any], dtype: str) -> dict[str, Any]:
    """``config`` of weights in ``dtype``, with the configs in it that name theirs."""
    parts = {
        key: _in_dtype(part, dtype)
        for key, part in config.items()
        if isinstance(part, dict) and "dtype" in part
    }
    return config | parts | {"dtype": dtype}
