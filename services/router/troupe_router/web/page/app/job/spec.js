// The spec that the job runs, complete with defaults.
import { Button, CopyButton } from "../../vendor/ui.js";
import { html } from "../html.js";

export function SpecView({ job }) {
  const text = JSON.stringify(job.spec, null, 2);
  const link = `data:application/json;charset=utf-8,${encodeURIComponent(text)}`;
  return html`<div class="filters"><${CopyButton} value=${text}>${({ copied, copy }) => html`<${Button} size="xs" variant="default" onClick=${copy}>${copied ? "Copied" : "Copy"}<//>`}<//>
    <${Button} size="xs" variant="default" component="a" href=${link} download=${`${job.name}.json`}>Download<//></div>
    <pre class="code" tabIndex="0" aria-label="Job spec">${text}</pre>`;
}
