"""Programs that show their agent an image, in each of the three formats."""

import base64
import struct
import zlib

from wire_client import post

SIDE = 28


def _chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_of(red):
    """A square of one colour."""
    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    rows = (b"\0" + bytes((red, 0, 0)) * SIDE) * SIDE
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks)


def _base64(red):
    return base64.b64encode(png_of(red)).decode()


def _url(red):
    return f"data:image/png;base64,{_base64(red)}"


def _chat(*parts):
    messages = [
        {"role": "system", "content": "You are the solver."},
        {"role": "user", "content": list(parts)},
    ]
    answer = post("/chat/completions", {"model": "any", "messages": messages})
    return answer["choices"][0]["message"]["content"]


def _part(url):
    return {"type": "image_url", "image_url": {"url": url}}


def by_chat(task):
    text = {"type": "text", "text": task["question"]}
    return _chat(_part(_url(len(task["question"]))), text, _part(_url(9)))


def by_responses(task):
    content = [
        {"type": "input_image", "image_url": _url(len(task["question"])), "detail": "auto"},
        {"type": "input_text", "text": task["question"]},
        {"type": "input_image", "image_url": _url(9), "detail": "high"},
    ]
    asked = [{"role": "user", "content": content}]
    body = {"model": "any", "instructions": "You are the solver.", "input": asked}
    return post("/responses", body)["output"][0]["content"][0]["text"]


def _source(red):
    return {"type": "base64", "media_type": "image/png", "data": _base64(red)}


def by_messages(task):
    content = [
        {"type": "image", "source": _source(len(task["question"]))},
        {"type": "text", "text": task["question"]},
        {"type": "image", "source": _source(9)},
    ]
    asked = [{"role": "user", "content": content}]
    body = {"model": "any", "max_tokens": 50, "system": "You are the solver.", "messages": asked}
    return post("/messages", body)["content"][0]["text"]


def asks_a_server(task):
    return _chat(_part("https://example.org/cat.png"))


def asks_too_much(task):
    return _chat(*[_part(_url(red)) for red in range(9)])
