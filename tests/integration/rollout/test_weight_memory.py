"""1 GB of weights through a broadcast: the memory that it takes on both sides, and no file."""

from pathlib import Path

import pytest

from benchmarks.push_watch import watch_pushes
from benchmarks.random_model import save_random_model
from troupe.runtime.weights.group import BUCKET_BYTES

pytestmark = pytest.mark.timeout(1800)

FEW = 4 * BUCKET_BYTES
"""Two buckets under way, one that is put in place, and what an allocator keeps."""


@pytest.fixture(scope="module")
def large_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1 GB in float32, none of its tensors larger than a bucket."""
    folder = tmp_path_factory.mktemp("large") / "model"
    return save_random_model(folder, hidden=1024, layers=23, heads=16, kv_heads=8, sharpness=1.0)


@pytest.mark.parametrize("num_ranks", [1, 2])
async def test_broadcast_of_1_gb_when_it_is_watched_then_takes_two_buckets_and_no_file(
    large_model: Path, tmp_path: Path, num_ranks: int
):
    """No rank gathers more than a tensor at once, and none of the processes writes a file."""
    pushes = await watch_pushes(large_model, tmp_path / "in", num_ranks=num_ranks)
    for push in pushes:
        assert push.size_bytes >= 10**9
        print(
            f"{push.size_bytes} bytes: senders +{push.senders}, receiver +{push.replica} (VmHWM); "
            f"digests {push.digests_s / push.size_bytes * 1e9:.2f} s/GB, "
            f"push {push.push_s / push.size_bytes * 1e9:.2f} s/GB"
        )
        assert len(push.senders) == num_ranks
        assert max(push.senders) <= FEW
        assert push.replica <= push.size_bytes + FEW, "the version that it keeps, and no copy of it"
    assert list((tmp_path / "in").rglob("*.safetensors")) == []
