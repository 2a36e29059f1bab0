"""Exits with 0 when a URL answers 200: ``python -m troupe.cli.probe http://127.0.0.1:9090/readyz``.

For container health checks, so it uses the standard library alone.
"""

import sys
import urllib.request

TIMEOUT_S = 3.0


def probe(url: str, *, timeout_s: float = TIMEOUT_S) -> str | None:
    """Why ``url`` is not healthy, or None when it is."""
    if not url.startswith(("http://", "https://")):
        return f"{url} is not an http URL"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=timeout_s) as response:
            return None if response.status == 200 else f"{url} answers {response.status}"
    except OSError as error:
        return f"{url}: {error}"


def main() -> int:
    """Probe the URL in the first argument."""
    fault = probe(sys.argv[1])
    if fault is not None:
        print(fault, file=sys.stderr)
    return 0 if fault is None else 1


if __name__ == "__main__":
    sys.exit(main())
