"""Runs a script beside the page's modules in node, with a browser's clock and streams made here."""

import json
import shutil
import subprocess
from typing import Any

import pytest

from troupe_router.web.files import PAGE

BROWSER = """
globalThis.window = { dispatchEvent() {} };
const clock = { now: 0, timers: new Set() };
globalThis.setTimeout = (act, ms = 0) => {
  const timer = { act, at: clock.now + ms };
  clock.timers.add(timer);
  return timer;
};
globalThis.clearTimeout = (timer) => clock.timers.delete(timer);
const settle = async () => { for (let i = 0; i < 100; i++) await null; };
async function pass(ms) {
  const until = clock.now + ms;
  const next = () => [...clock.timers].filter((t) => t.at <= until).sort((a, b) => a.at - b.at)[0];
  for (let timer = next(); timer; timer = next()) {
    clock.timers.delete(timer);
    clock.now = timer.at;
    timer.act();
    await settle();
  }
  clock.now = until;
  await settle();
}

// What a router knows of one job. Its paths in `down` cannot be reached.
const job = { state: "running", life: 1 };
const series = { train: { steps: [], series: {} }, eval: { steps: [], series: {} } };
const events = [];
const asked = [];
const opened = [];
const down = new Set();
let ahead = 0; // milliseconds that this browser's clock is ahead of the router's
globalThis.fetch = async (path) => {
  const what = path.includes("/metrics") ? "metrics" : "job";
  asked.push(what);
  if (down.has(what)) throw new TypeError("fetch failed");
  const answer = what === "job" ? { ...job } : { ...series, fields: [1], panels: [1] };
  const headers = new Headers({ Date: new Date(Date.now() - ahead).toUTCString() });
  return { ok: true, status: 200, headers, json: async () => answer };
};
globalThis.EventSource = class {
  constructor(url) {
    this.heard = new Map();
    opened.push(new URL(url, "http://here").searchParams.get("after"));
    globalThis.stream = this;
  }
  addEventListener(type, act) { this.heard.set(type, act); }
  close() {}
};
function say(type, data) {
  const id = `${events.length + 1}-0`;
  events.push({ id, type, occurred_at: (Date.now() - ahead) / 1000 + 60, data });
}
// What the present stream brings: all events after its place.
async function bring() {
  stream.onopen();
  for (const event of events.slice(parseInt(opened.at(-1)))) {
    stream.heard.get(event.type)({ lastEventId: event.id, data: JSON.stringify(event) });
  }
  await settle();
}
async function breakOff() {
  stream.onerror();
  await settle();
}
const steps = (feed) => feed.tables.train.steps;
const take = (name) => import(APP + name);
"""


def said_by_page(script: str) -> Any:
    """What ``script`` says by ``tell(...)``; skips where there is no node."""
    return said_by_node(f"const APP = {json.dumps(f'{PAGE}/app/')};\n{BROWSER}{script}")


def said_by_node(script: str) -> Any:
    """The same of a script that needs neither the page nor a browser."""
    if shutil.which("node") is None:
        pytest.skip("node is not here; tests/browser looks at the real page")
    tell = "const tell = (what) => console.log(JSON.stringify(what));\n"
    done = subprocess.run(
        ["node", "--no-warnings", "--experimental-default-type=module", "-e", tell + script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
