"""Images of recorded episodes: named in lines and transcripts, kept once, never by another path."""

from pathlib import Path

import pytest

from troupe.api.records.v1 import records_pb2 as pb
from troupe.episodes.images import image_file, keep_images
from troupe.episodes.lines import episode_line
from troupe.errors import InvalidArgumentError
from troupe.evaluation.transcripts import transcript
from troupe.tasks.content import Content, ImagePart, TextPart, images_of, text_of
from troupe.vision.png import decode_png
from troupe.vision.wire import image_table, parts_to_proto

BLACK = ImagePart(28, 32, bytes(3 * 28 * 32))
WHITE = ImagePart(28, 28, b"\xff" * (3 * 28 * 28))


def _episode(*contents: Content) -> pb.Episode:
    images = {image.digest: image for content in contents for image in images_of(content)}
    messages = [
        pb.PromptMessage(role="user", content=text_of(content), parts=parts_to_proto(content))
        for content in contents
    ]
    group = pb.Group(
        agent="scout",
        prompts=[pb.Prompt(digest="d", messages=messages)],
        candidates=[pb.Candidate(text="b3", prompt_digest="d", is_chosen=True)],
    )
    return pb.Episode(episode_id="e", groups=[group], images=image_table(images.values()))


def test_line_when_a_message_has_images_then_names_each_in_its_place_with_digest_and_size() -> None:
    line = episode_line(_episode("all text", (TextPart("a "), BLACK, TextPart(" b"), WHITE)))
    plain, seen = line["groups"][0]["prompt"]
    assert plain == {"role": "user", "content": "all text"}
    names = (
        f"[image {BLACK.digest[:12]} 28x32]",
        f"[image {WHITE.digest[:12]} 28x28]",
    )
    assert seen["content"] == f"a {names[0]} b{names[1]}"
    assert seen["parts"] == [
        {"text": "a "},
        {"digest": BLACK.digest, "width": 28, "height": 32},
        {"text": " b"},
        {"digest": WHITE.digest, "width": 28, "height": 28},
    ]
    shown = transcript({**line, "failure": None})
    assert all(name in shown for name in names)


def test_keep_images_when_given_twice_then_each_is_written_once(tmp_path: Path) -> None:
    episode = _episode((BLACK,), (BLACK, WHITE))
    keep_images(tmp_path, [episode, episode])
    folder = tmp_path / "episodes" / "images"
    assert {path.name for path in folder.iterdir()} == {f"{i.digest}.png" for i in (BLACK, WHITE)}
    assert decode_png(image_file(tmp_path, BLACK.digest).read_bytes()) == BLACK
    written = image_file(tmp_path, BLACK.digest).stat().st_mtime_ns
    keep_images(tmp_path, [_episode((BLACK,))])
    assert image_file(tmp_path, BLACK.digest).stat().st_mtime_ns == written


def test_keep_images_when_no_episode_has_any_then_makes_no_folder(tmp_path: Path) -> None:
    keep_images(tmp_path, [_episode("text")])
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("digest", ["", "../../x", "a" * 63, "A" * 64, "a" * 64 + "\n"])
def test_file_when_it_is_no_digest_then_is_refused(tmp_path: Path, digest: str) -> None:
    with pytest.raises(InvalidArgumentError, match="no digest"):
        image_file(tmp_path, digest)


def test_keep_images_when_an_image_is_not_what_its_digest_says_then_nothing_is_written(
    tmp_path: Path,
) -> None:
    episode = _episode((BLACK,))
    for digest in ("../escaped", WHITE.digest):
        episode.images[0].digest = digest
        with pytest.raises(InvalidArgumentError):
            keep_images(tmp_path, [episode])
    assert not [*tmp_path.rglob("*.png")]


def test_keep_images_when_links_lie_in_the_way_then_are_not_followed(tmp_path: Path) -> None:
    run_dir, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    elsewhere.mkdir()
    path = image_file(run_dir, BLACK.digest)
    path.parent.mkdir(parents=True)
    path.symlink_to(elsewhere / "target.png")
    keep_images(run_dir, [_episode((BLACK,))])
    assert not path.is_symlink()
    other = tmp_path / "other"
    other.mkdir()
    (other / "episodes").symlink_to(elsewhere)
    with pytest.raises(OSError, match="remove the link"):
        keep_images(other, [_episode((BLACK,))])
    assert not [*elsewhere.iterdir()]
