"""Broadcasts into the versions of a full-weight policy on SGLang, on a server that only records."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from troupe.errors import UnavailableError, VersionNotLoadedError, WeightsRejectedError
from troupe.runtime.engines.broadcast import BroadcastWeights
from troupe.runtime.weights import TensorSum
from troupe.runtime.weights.group import WeightGroup
from troupe_rollout.engines.sglang.files import WorkFolder
from troupe_rollout.engines.sglang.full import FullVersions

SHAPE = (2, 2)


@dataclass
class RecordingServer:
    """Supervisor and client of a server; refuses the call that ``refuses`` names."""

    refuses: str = ""
    calls: list[str] = field(default_factory=list[str])
    checksums: int = 0

    def client(self) -> Any:
        return self

    def distrust(self, why: str) -> None:
        self.calls.append("distrust")

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if call.split()[0] == self.refuses:
            raise WeightsRejectedError(f"SGLang refuses {call}.")

    async def join_group(self, group: WeightGroup) -> None:
        self._note(f"join {group.name}")

    async def leave_group(self, group: WeightGroup) -> None:
        self._note(f"leave {group.name}")

    async def begin_update(self) -> None:
        self._note("begin")

    async def receive_weights(self, group: WeightGroup, tensors: Any, tag: str) -> None:
        self._note(f"receive {len(tensors)}")

    async def end_update(self) -> None:
        self._note("end")

    async def checksum(self) -> str:
        self.checksums += 1
        return str(self.checksums)


def versions_on(server: RecordingServer, folder: Path) -> FullVersions:
    base: Any = SimpleNamespace(
        tensors={"a": SHAPE, "b": SHAPE}, shape=SimpleNamespace(is_tied=False)
    )
    supervisor: Any = server
    return FullVersions("p", base, supervisor, WorkFolder(str(folder)), drain_timeout_s=1.0)


def pushed(version: int, group: str, *, is_formed: bool) -> BroadcastWeights:
    tensors = [TensorSum(name, "F32", SHAPE, f"{name}{version}") for name in "ab"]
    place = WeightGroup("127.0.0.1", 1, group, 2, 1, "gloo", is_formed)
    return BroadcastWeights("p", version, tensors, place, timeout_s=5, bucket_bytes=16)


async def test_server_when_its_group_stands_then_joins_once_and_each_version_replaces_the_last(
    tmp_path: Path,
) -> None:
    server = RecordingServer()
    versions = versions_on(server, tmp_path)
    for number in range(3):
        await versions.receive(pushed(number, "one", is_formed=number > 0))
        assert versions.state().loaded_versions == (), "the one before is lost"
        await versions.activate(number)
        assert versions.state().active_version == number
    assert server.calls == ["join one", *["begin", "receive 1", "receive 1", "end"] * 3]


@pytest.mark.parametrize("call", ["begin", "receive", "end"])
async def test_push_when_it_breaks_off_then_nothing_is_held_until_a_new_group_brings_it_whole(
    tmp_path: Path, call: str
) -> None:
    server = RecordingServer()
    versions = versions_on(server, tmp_path)
    await versions.receive(pushed(0, "one", is_formed=False))
    await versions.activate(0)
    server.refuses = call
    with pytest.raises(UnavailableError if call == "receive" else WeightsRejectedError):
        await versions.receive(pushed(1, "one", is_formed=True))
    server.refuses = ""
    state = versions.state()
    assert (state.active_version, state.loaded_versions, state.staged_versions) == (None, (), ())
    for number in (0, 1):
        with pytest.raises(VersionNotLoadedError):
            async with versions.use(number, staged_too=True):
                pass
    assert "leave one" in server.calls, "nobody waits for it"
    with pytest.raises(UnavailableError, match="not in the weight group 'one'"):
        await versions.receive(pushed(1, "one", is_formed=True))
    await versions.receive(pushed(1, "two", is_formed=False))
    await versions.activate(1)
    assert versions.state().active_version == 1
    assert "distrust" not in server.calls


async def test_group_when_it_does_not_form_then_the_old_version_is_still_held(
    tmp_path: Path,
) -> None:
    server = RecordingServer()
    versions = versions_on(server, tmp_path)
    await versions.receive(pushed(0, "one", is_formed=False))
    await versions.activate(0)
    server.refuses = "join"
    with pytest.raises(UnavailableError, match="Form a new group"):
        await versions.receive(pushed(1, "two", is_formed=False))
    assert versions.state().active_version == 0
