// Small parts that several pages share.
import {
  Alert, Badge, Button, CopyButton, IconAlertTriangle, Link, Loader, Paper, Text, Title, Tooltip, UnstyledButton,
} from "../vendor/ui.js";
import { shortDigest } from "./format.js";
import { html } from "./html.js";

const MOVING = ["launching", "running", "pausing", "cancelling"];

export function StateBadge({ state, size = "md" }) {
  return html`<span class=${`state state-${state} state-${size}`} data-state=${state}>
    <span class=${MOVING.includes(state) ? "dot dot-live" : "dot"}></span>${state}
  </span>`;
}

export function Tag({ children, color = "gray", hint, ...rest }) {
  const badge = html`<${Badge} variant="light" color=${color} radius="sm" tt="none" fw=${550} ...${rest}>${children}<//>`;
  return hint ? html`<${Tooltip} label=${hint} multiline maw=${320}>${badge}<//>` : badge;
}

export function Panel({ title, aside, children, className = "", heading = "h2", ...rest }) {
  return html`<${Paper} withBorder className=${`panel ${className}`} ...${rest}>
    ${(title || aside) && html`<div class="panel-head"><${heading}>${title}<//><div class="panel-aside">${aside}</div></div>`}
    ${children}
  <//>`;
}

export function Fault({ error, retry, title = "This could not be loaded" }) {
  return html`<${Alert} color="red" variant="light" role="alert" title=${title} icon=${html`<${IconAlertTriangle} size=${18} />`}>
    <${Text} size="sm">${error.message}<//>
    ${error.errors?.length > 0 && html`<ul class="faults">${error.errors.map((fault, i) => html`<li key=${i}><code>${fault.pointer || "/"}</code> ${fault.message}</li>`)}</ul>`}
    ${retry && html`<${Button} size="compact-sm" variant="light" color="red" mt="xs" onClick=${retry}>Try again<//>`}
  <//>`;
}

export function Waiting({ what = "Loading" }) {
  return html`<div class="waiting" role="status"><${Loader} size="xs" color="gray" /><span>${what}…</span></div>`;
}

export function Empty({ title, children, action }) {
  return html`<div class="empty"><strong>${title}</strong><span>${children}</span>${action}</div>`;
}

// A resource's three states in one place: the fault, the wait, or the children.
export function Loaded({ resource, what, children }) {
  if (resource.data !== undefined) return children(resource.data);
  if (resource.error) return html`<${Fault} error=${resource.error} retry=${resource.reload} />`;
  return html`<${Waiting} what=${what} />`;
}

// The end of a list of useList: a button for more rows, or why there is none.
export function More({ list, children }) {
  if (!list.data.next_cursor) return null;
  if (!list.showMore) return html`<p class="faint">The page shows no more rows than these; the filters or the REST API find the others.</p>`;
  return html`<${Button} variant="subtle" mt="md" loading=${list.isLoading} onClick=${list.showMore}>${children}<//>`;
}

export function Stat({ label, value, note, tone }) {
  return html`<div class="stat"><span class="stat-label">${label}</span>
    <span class=${`stat-value ${tone || ""}`}>${value}</span>${note && html`<span class="stat-note">${note}</span>`}</div>`;
}

export function Digest({ value }) {
  if (!value) return html`<span class="faint">–</span>`;
  return html`<${CopyButton} value=${value}>${({ copied, copy }) => html`<${Tooltip} label=${copied ? "Copied" : value}>
    <${UnstyledButton} className="digest" onClick=${copy} aria-label=${`Copy digest ${value}`}>${shortDigest(value)}<//><//>`}<//>`;
}

export function PageHead({ title, note, actions, back }) {
  return html`<div class="page-head"><div class="page-head-text">${back}
    <${Title} order=${1}>${title}<//>${note && html`<div class="page-note">${note}</div>`}</div>
    ${actions && html`<div class="page-actions">${actions}</div>`}</div>`;
}

export function BackLink({ href, children }) {
  return html`<${Link} href=${href} className="back">← ${children}<//>`;
}
