// The log of one of a job's processes; new lines come in while it is seen.
import { NativeSelect, Switch } from "../../vendor/ui.js";
import { jobPath, request, withQuery } from "../api.js";
import { bytes } from "../format.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { Empty, Fault, Loaded } from "../parts.js";
import { useResource } from "../resource.js";

const TAIL = 400;
const MAX_LINES = 4000;
const WAIT_S = 15;
const RETRY_MS = 3000;

export function Logs({ jobId }) {
  const logs = useResource(jobPath(jobId, "/logs"), { everyMs: 5000 });
  const first = useRef(null); // one that starts later does not take its place
  const [name, setName] = useState(null);
  return html`<${Loaded} resource=${logs} what="Loading logs">${({ components }) => {
    if (!components.length) return html`<${Empty} title="No log yet">A process writes its log when it starts.<//>`;
    const shown = name || (first.current ??= components[0].component);
    return html`<${Log} key=${shown} jobId=${jobId} component=${shown} pick=${html`<${NativeSelect} aria-label="Component" value=${shown} onChange=${(event) => setName(event.currentTarget.value)}
      data=${components.map((log) => ({ value: log.component, label: `${log.component} (${bytes(log.size_bytes)})` }))} />`} />`;
  }}<//>`;
}

function Log({ jobId, component, pick }) {
  const [lines, setLines] = useState(null);
  const [error, setError] = useState(null);
  const [isFollowing, setFollowing] = useState(true);
  const box = useRef(null);
  useEffect(() => {
    let isGone = false;
    const path = jobPath(jobId, `/logs/${encodeURIComponent(component)}`);
    const run = async () => {
      let place = null;
      while (!isGone) {
        try {
          const query = place === null ? { tail: TAIL } : { after: place, wait_s: WAIT_S };
          const page = await request(withQuery(path, query));
          if (isGone) return;
          setError(null);
          if (place === null || page.lines.length) setLines((old) => [...(old || []), ...page.lines].slice(-MAX_LINES));
          place = page.next;
        } catch (failure) {
          if (isGone) return;
          setError(failure);
          await new Promise((done) => setTimeout(done, RETRY_MS));
        }
      }
    };
    run();
    return () => {
      isGone = true;
    };
  }, [jobId, component]);
  useEffect(() => {
    if (isFollowing && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines, isFollowing]);
  return html`<div class="filters">${pick}<${Switch} size="sm" label="Follow" checked=${isFollowing} onChange=${(event) => setFollowing(event.currentTarget.checked)} /></div>
    ${error && html`<${Fault} error=${error} />`}
    <pre class="log" ref=${box} tabIndex="0" aria-label=${`Log of ${component}`}>${lines === null ? "Loading…" : lines.length ? lines.map((line, i) => html`<span key=${i} class=${levelOf(line)}>${line}\n</span>`) : "It has written nothing."}</pre>`;
}

function levelOf(line) {
  if (/\b(error|critical)\b|Traceback/i.test(line.slice(0, 400))) return "log-error";
  return /\bwarning\b/i.test(line.slice(0, 400)) ? "log-warning" : undefined;
}
