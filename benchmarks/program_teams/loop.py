"""A program of the standard library that asks until it is told to stop. It knows nothing of Troupe.

It returns the seconds of each of its calls as JSON.
"""

import http.client
import json
import os
import time
import urllib.parse


def run(task: dict[str, str]) -> str:
    """One connection that is kept, as SDKs keep theirs."""
    url = urllib.parse.urlsplit(os.environ["OPENAI_BASE_URL"])
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=60)
    seconds: list[float] = []
    said = ""
    while said != "stop":
        began = time.perf_counter()
        said = ask(connection, url.path, f"{task['question']} {len(seconds)}")
        seconds.append(time.perf_counter() - began)
    return json.dumps(seconds)


def ask(connection: http.client.HTTPConnection, path: str, text: str) -> str:
    """The answer to one chat completion."""
    messages = [{"role": "system", "content": "You count."}, {"role": "user", "content": text}]
    body = json.dumps({"model": "any", "messages": messages}).encode()
    headers = {"content-type": "application/json"}
    connection.request("POST", f"{path}/chat/completions", body, headers)
    return json.loads(connection.getresponse().read())["choices"][0]["message"]["content"]
