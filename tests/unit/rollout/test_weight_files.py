import json
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

from troupe.errors import WeightsRejectedError
from troupe.runtime.weights import (
    TensorView,
    adapter_scale,
    build_manifest,
    check_declared,
    file_tensors,
    header_bytes_of,
    iter_chunks,
    read_layout,
    tensor_digest,
    verify_file,
)

TENSORS = {
    "b": torch.arange(12, dtype=torch.float32).reshape(3, 4),
    "a": torch.ones(5, dtype=torch.bfloat16),
    "scalar": torch.tensor(1, dtype=torch.int64),
    "empty": torch.zeros(0, 3),
}


def saved(folder: Path, name: str = "w", **metadata: str) -> Path:
    path = folder / name
    save_file(TENSORS, path, metadata=metadata or None)
    return path


def manifest_of(path: Path):
    return build_manifest(path, policy="shared", policy_version=3, kind="full")


def raw(path: Path, header: object, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def test_read_layout_finds_what_safetensors_wrote(tmp_path: Path):
    found = {t.name: (t.dtype, t.shape) for t in read_layout(saved(tmp_path))}
    assert found == {
        "b": ("F32", (3, 4)),
        "a": ("BF16", (5,)),
        "scalar": ("I64", ()),
        "empty": ("F32", (0, 3)),
    }


def test_tensor_digest_when_only_the_file_differs_is_equal(tmp_path: Path):
    one, two = saved(tmp_path, "1"), saved(tmp_path, "2", note="another header")
    assert one.read_bytes() != two.read_bytes()
    assert tensor_digest(file_tensors(one)) == tensor_digest(file_tensors(two))


@given(st.permutations(["a", "b", "c"]))
def test_tensor_digest_in_any_order_is_equal(order: list[str]):
    views = [TensorView(name, "U8", (1,), name.encode()) for name in order]
    expected = [TensorView(name, "U8", (1,), name.encode()) for name in "abc"]
    assert tensor_digest(views) == tensor_digest(expected)


@pytest.mark.parametrize(
    "other",
    [
        TensorView("y", "U8", (4,), b"abcd"),
        TensorView("x", "I8", (4,), b"abcd"),
        TensorView("x", "U8", (2, 2), b"abcd"),
        TensorView("x", "U8", (4,), b"abce"),
    ],
)
def test_tensor_digest_when_anything_differs_differs(other: TensorView):
    assert tensor_digest([TensorView("x", "U8", (4,), b"abcd")]) != tensor_digest([other])


def test_chunks_put_together_are_the_file(tmp_path: Path):
    path = saved(tmp_path)
    chunks = list(iter_chunks(path, chunk_bytes=7))
    assert b"".join(chunk.data for chunk in chunks) == path.read_bytes()
    assert [chunk.offset_bytes for chunk in chunks] == [7 * i for i in range(len(chunks))]


def test_verify_when_a_byte_flipped_is_rejected(tmp_path: Path):
    path = saved(tmp_path)
    manifest = manifest_of(path)
    verify_file(path, manifest)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    last = max(read_layout(path), key=lambda tensor: tensor.end).name
    with pytest.raises(WeightsRejectedError, match=f"bytes of tensor '{last}'") as caught:
        verify_file(path, manifest)
    assert caught.value.pointer == f"/tensors/{last}"


def test_verify_when_only_the_header_differs_is_rejected(tmp_path: Path):
    path = saved(tmp_path)
    manifest = manifest_of(path)
    manifest.sha256 = "0" * 64
    with pytest.raises(WeightsRejectedError, match="header's SHA-256"):
        verify_file(path, manifest)


def test_manifest_that_contradicts_itself_is_refused_before_any_byte(tmp_path: Path):
    manifest = manifest_of(saved(tmp_path))
    check_declared(manifest, max_bytes=2**20)
    manifest.tensors[0].digest = "0" * 64
    with pytest.raises(WeightsRejectedError, match="its tensors have digest"):
        check_declared(manifest, max_bytes=2**20)


def test_header_that_we_write_is_one_that_safetensors_reads(tmp_path: Path):
    path = tmp_path / "w"
    header = header_bytes_of([("a", "F32", (2, 1)), ("b", "BF16", (3,)), ("c", "I64", ())])
    assert len(header) % 8 == 0
    path.write_bytes(header + struct.pack("<2f", 1.5, -2.0) + bytes(6) + struct.pack("<q", 7))
    with safe_open(path, framework="pt") as file:
        assert file.get_tensor("a").tolist() == [[1.5], [-2.0]]
        assert file.get_tensor("b").tolist() == [0, 0, 0]
    assert [(t.name, t.begin - len(header)) for t in read_layout(path)] == [
        ("a", 0),
        ("b", 8),
        ("c", 14),
    ]


def test_verify_when_a_tensor_is_another_names_it(tmp_path: Path):
    path = saved(tmp_path)
    manifest = manifest_of(path)
    next(entry for entry in manifest.tensors if entry.name == "b").shape[0] = 4
    with pytest.raises(WeightsRejectedError, match=r"'b' is F32\[3, 4\] .* F32\[4, 4\]"):
        verify_file(path, manifest)


ENTRY = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    ("header", "data", "why"),
    [
        (b"not json", b"", "not JSON"),
        ([1], b"", "not a JSON object"),
        (b'{"a":{},"a":{}}', b"", "twice"),
        ({"a": {"dtype": "F32"}}, b"", "'a' is malformed"),
        ({"a": ENTRY | {"dtype": "Q7"}}, b"1234", "unknown dtype"),
        ({"a": ENTRY | {"shape": [-1]}}, b"1234", "'a' is malformed"),
        ({"a": ENTRY | {"shape": [2]}}, b"1234", "does not fit"),
        ({"a": ENTRY, "b": ENTRY}, b"1234", "overlaps"),
        ({"a": ENTRY | {"data_offsets": [4, 8]}}, b"12345678", "gap"),
        ({"a": ENTRY}, b"12345", "end at byte"),
    ],
)
def test_read_layout_when_malformed_says_why(tmp_path: Path, header: object, data: bytes, why: str):
    with pytest.raises(WeightsRejectedError, match=why):
        read_layout(raw(tmp_path / "w", header, data))


@pytest.mark.parametrize("content", [b"", b"1234567", struct.pack("<Q", 2**60) + b"{}"])
def test_read_layout_when_the_length_lies_is_rejected(tmp_path: Path, content: bytes):
    path = tmp_path / "w"
    path.write_bytes(content)
    with pytest.raises(WeightsRejectedError, match="header length"):
        read_layout(path)


def test_adapter_scale_with_and_without_rslora():
    assert adapter_scale('{"r": 4, "lora_alpha": 8}') == 2.0
    assert adapter_scale('{"r": 4, "lora_alpha": 8, "use_rslora": true}') == 4.0


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"r": 0, "lora_alpha": 1}', '{"r": 4}'])
def test_adapter_scale_when_not_a_lora_config_is_rejected(text: str):
    with pytest.raises(WeightsRejectedError):
        adapter_scale(text)
