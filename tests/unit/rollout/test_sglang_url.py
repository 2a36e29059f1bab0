"""An engine's server is on this machine, whatever its URL looks like."""

import pytest
from pydantic import ValidationError

from troupe_rollout.engines.sglang.settings import SglangSettings


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:30000", "http://localhost:1/", "http://[::1]:30000", ""]
)
def test_url_when_on_loopback_then_is_taken(url: str) -> None:
    assert SglangSettings(url=url).url == url


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:x@evil.example",
        "http://localhost:1@evil.example:2",
        "http://127.0.0.1:@evil.example/",
        "http://127.0.0.1.evil.example:1",
        "http://10.0.0.1:30000",
        "https://127.0.0.1:30000",
        "http://127.0.0.1:99999",
        "http://[::1",
        "http://localhost",
    ],
)
def test_url_when_it_only_begins_like_loopback_then_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="loopback"):
        SglangSettings(url=url)
