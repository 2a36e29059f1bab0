"""Redis' limits of memory and of disk."""

import json

import pytest
from chart_world import Refuse, Render


@pytest.mark.parametrize(
    ("sets", "limit"),
    [
        (('redis.resources.limits.memory="8Gi"',), str(8 * 2**30 * 7 // 10)),
        (('redis.resources.limits.memory="1500M"',), str(1_050_000_000)),
        (('redis.resources.limits.memory="1.5Gi"', 'redis.maxmemory="1gb"'), "1gb"),
    ],
)
def test_redis_when_it_has_a_memory_limit_then_refuses_writes_before_it(
    render: Render, sets: tuple[str, ...], limit: str
) -> None:
    found = render([], *sets).one("StatefulSet", "t-troupe-redis")
    [container] = found["spec"]["template"]["spec"]["containers"]
    args = container["args"]
    assert args[args.index("--maxmemory") + 1] == limit
    assert args[args.index("--maxmemory-policy") + 1] == "noeviction"


@pytest.mark.parametrize(
    ("is_kept", "size", "limit"),
    [("true", "8Gi", "256Mi"), ("false", "8Gi", str(2**33 + 2**28)), ("false", "1G", "1268435456")],
)
def test_redis_when_it_has_no_volume_then_its_pods_limit_has_room_for_its_data(
    render: Render, is_kept: str, size: str, limit: str
) -> None:
    sets = (f"redis.persistence.enabled={is_kept}", f'redis.persistence.size="{size}"')
    found = render([], *sets).one("StatefulSet", "t-troupe-redis")
    [container] = found["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["ephemeral-storage"] == limit


def test_redis_when_its_size_cannot_be_added_to_its_limit_then_refused_in_words(
    refuse: Refuse,
) -> None:
    words = refuse("redis.persistence.enabled=false", 'redis.persistence.size="1.5Gi"')
    assert "whole units" in words


def test_redis_when_no_part_of_its_limit_can_be_taken_then_refused_in_words(
    refuse: Refuse,
) -> None:
    words = refuse('redis.resources.limits.memory="1.5Gi"')
    assert 'redis.resources.limits.memory is "1.5Gi"' in words
    assert "set redis.maxmemory" in words


def test_redis_when_external_with_an_authority_of_its_own_then_those_who_ask_it_mount_that(
    render: Render,
) -> None:
    external = {
        "url": "rediss://cache.example:6379/0?ssl_ca_certs=/etc/troupe/redis-ca/ca.crt",
        "caSecret": {"name": "redis-ca", "key": "ca.crt"},
        "egressTo": [{"podSelector": {}}],
    }
    given = f"redis={json.dumps({'enabled': False, 'external': external})}"
    manifests = render([], given, "play.replicas=1")
    folders: dict[str, str] = {}
    for _, container, pod in manifests.containers():
        urls = [v for v in container.get("env", []) if v["name"].endswith("_REDIS_URL")]
        mounts = [m for m in container["volumeMounts"] if m["name"] == "redis-ca"]
        assert len(urls) == len(mounts), container["name"]
        if mounts:
            folders[container["name"]] = mounts[0]["mountPath"]
            [secret] = [v["secret"] for v in pod["volumes"] if v["name"] == "redis-ca"]
            assert secret == {"secretName": "redis-ca", "defaultMode": 0o440}
    assert folders == dict.fromkeys(["router", "play", "trainer"], "/etc/troupe/redis-ca")
