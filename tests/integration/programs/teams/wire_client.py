"""Bare HTTP for the test programs: no framework, standard library."""

import http.client
import json
import os
import urllib.parse


def ask(system, user, *, timeout=60.0, headers=None, path="/chat/completions", **more):
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    document = post(path, {"model": "any", "messages": messages, **more}, timeout, headers)
    return document["choices"][0]["message"]


def say(system, user, **more):
    return ask(system, user, **more)["content"] or ""


def post(path, body, timeout=60.0, headers=None):
    url = urllib.parse.urlsplit(os.environ["OPENAI_BASE_URL"])
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=timeout)
    try:
        sent = {"content-type": "application/json", **(headers or {})}
        connection.request("POST", url.path + path, json.dumps(body), sent)
        response = connection.getresponse()
        data = response.read()
        if response.status != 200:
            raise RuntimeError(f"{response.status}: {data[:500].decode()}")
        return json.loads(data)
    finally:
        connection.close()
