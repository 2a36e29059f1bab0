"""Weights as files: what replicas are sent, and what the user keeps.

Owns file formats and folders. Never talks to replicas.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from peft import PeftModel
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from services.trainer.learner import Learner
from services.trainer.model import quiet_peft
from troupe.api.records.v1.records_pb2 import WeightsManifest
from troupe.spec.job import PolicySpec
from troupe.weights import build_manifest

CANARY_LENGTH = 16


@dataclass(frozen=True, slots=True)
class Export:
    """One version of one policy, ready to be sent.

    ``canary_logprobs`` are the trainer's own for ``canary_token_ids``, every token but the first.
    """

    manifest: WeightsManifest
    path: Path
    canary_token_ids: list[int]
    canary_logprobs: list[float]


def export_version(learner: Learner, version: int, folder: Path, *, job_id: str) -> Export:
    """Write the policy's weights as they are now, with their manifest and canary."""
    model = learner.model
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{learner.policy}-v{version:05d}.safetensors"
    draft = path.with_suffix(".draft")
    save_file(model.weights(), draft, metadata={"format": "pt"})
    draft.replace(path)
    kind: Literal["lora", "full"] = "lora" if model.is_lora else "full"
    manifest = build_manifest(
        path,
        policy=learner.policy,
        policy_version=version,
        kind=kind,
        adapter_config_json=model.adapter_config_json,
        job_id=job_id,
    )
    tokens = [(7 * i + 1) % model.vocabulary_size for i in range(CANARY_LENGTH)]
    return Export(manifest, path, tokens, model.score(tokens))


def export_artifacts(learner: Learner, spec: PolicySpec, folder: Path) -> dict[str, str]:
    """Write ``adapter`` (LoRA only) and ``merged``; their paths by name.

    The merged model is made from the written adapter, so that what the user gets was read once.
    """
    paths: dict[str, str] = {}
    folder.mkdir(parents=True, exist_ok=True)
    module: Any = learner.model.module
    if learner.model.is_lora:
        adapter = _replace(folder / "adapter", module.save_pretrained)
        paths["adapter"] = str(adapter)
        base = AutoModelForCausalLM.from_pretrained(spec.model, dtype=spec.dtype)
        with quiet_peft():
            module = PeftModel.from_pretrained(base, str(adapter)).merge_and_unload()
    merged = _replace(folder / "merged", lambda path: _save_merged(module, spec, path))
    return paths | {"merged": str(merged)}


def _save_merged(module: Any, spec: PolicySpec, path: Path) -> None:
    module.save_pretrained(path)
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(spec.model)
    except (OSError, ValueError):
        return
    tokenizer.save_pretrained(path)


def _replace(target: Path, write: Any) -> Path:
    """Let ``write`` fill a new folder, then put it in the place of ``target``."""
    draft = target.with_name(f".{target.name}-draft")
    shutil.rmtree(draft, ignore_errors=True)
    write(draft)
    shutil.rmtree(target, ignore_errors=True)
    return draft.rename(target)
