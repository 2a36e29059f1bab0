"""What a bundle's list of packages may say."""

import pytest

from troupe.bundles.requirements import check_requirements
from troupe.errors import InvalidArgumentError

HASH = "--hash=sha256:" + "a" * 64


@pytest.mark.parametrize(
    "text",
    [
        f"tiny==1.0 {HASH}",
        f"# made by uv\ntiny==1.0 \\\n    {HASH} \\\n    {HASH}\n    # via other\n",
        f"tiny[extra,more]==1.0.post1+cu121 ; python_version >= '3.11' {HASH}",
        f"tiny == 1.0 {HASH}\r\nlarge==2 {HASH}\r\n",
    ],
)
def test_list_when_it_is_locked_then_gives_the_names(text: str) -> None:
    assert check_requirements(text.encode())[0] == "tiny"


@pytest.mark.parametrize(
    "text",
    [
        "tiny",
        "tiny==1.0",
        f"tiny>=1.0 {HASH}",
        f"tiny==1.* {HASH}",
        f"--index-url https://evil.example/simple\ntiny==1.0 {HASH}",
        "--extra-index-url https://evil.example/simple",
        "-r other.txt",
        "-e .",
        "--find-links /etc",
        f"tiny @ https://evil.example/tiny.whl {HASH}",
        f"https://evil.example/tiny.whl {HASH}",
        f"./tiny.whl {HASH}",
        f"tiny==1.0 ; os_name @ x {HASH}",
        f"tiny==1.0 --config-settings=x=y {HASH}",
        f"tiny==1.0 ; x --index-url=https://evil.example {HASH}",
        f"tiny==1.0 --hash=md5:{'a' * 64}",
        "${HOME}",
        "\xff\xfe",
    ],
)
def test_list_when_it_says_anything_else_then_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"requirements\.lock"):
        check_requirements(text.encode("latin-1"))
