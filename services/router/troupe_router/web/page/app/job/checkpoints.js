// A job's checkpoints, and its exported policies, to download.
import { Button, IconDownload, Table } from "../../vendor/ui.js";
import { jobPath, withQuery } from "../api.js";
import { ago, bytes } from "../format.js";
import { html } from "../html.js";
import { Empty, Loaded, Tag } from "../parts.js";
import { useResource } from "../resource.js";

const FORMATS = { peft: "Adapter (PEFT)", merged: "Merged model", state: "Trainer state", full: "Model" };

export function Checkpoints({ jobId }) {
  const resource = useResource(jobPath(jobId, "/checkpoints"), { everyMs: 5000 });
  return html`<${Loaded} resource=${resource} what="Loading checkpoints">${({ checkpoints }) =>
    checkpoints.length
      ? html`<div class="table-box"><${Table} className="stacking" verticalSpacing="sm"><${Table.Thead}><${Table.Tr}>
          <${Table.Th}>Checkpoint<//><${Table.Th}>Policy<//><${Table.Th}>Version<//><${Table.Th}>Size<//><${Table.Th}>Made<//><${Table.Th}>Download<//><//><//>
          <${Table.Tbody}>${checkpoints.flatMap((checkpoint) => checkpoint.policies.map((policy) => html`<${Row} key=${`${checkpoint.id}/${policy.policy}`} jobId=${jobId} checkpoint=${checkpoint} policy=${policy} />`))}<//><//></div>`
      : html`<${Empty} title="No checkpoint yet">The first is written after the first training step.<//>`}<//>`;
}

function Row({ jobId, checkpoint, policy }) {
  const path = jobPath(jobId, `/checkpoints/${encodeURIComponent(checkpoint.id)}/${encodeURIComponent(policy.policy)}`);
  return html`<${Table.Tr}>
    <${Table.Td}>${checkpoint.id === "final" ? html`<${Tag} color="teal">exported<//>` : html`<span class="strong">Step ${checkpoint.step}</span>`}<//>
    <${Table.Td} data-label="Policy">${policy.policy}<//>
    <${Table.Td} data-label="Version">${policy.version ?? "–"}<//>
    <${Table.Td} data-label="Size">${bytes(policy.size_bytes ?? checkpoint.size_bytes)}<//>
    <${Table.Td} data-label="Made">${ago(checkpoint.created_at)}<//>
    <${Table.Td} data-label="Download"><div class="downloads">${policy.formats.map((format) => html`<${Button} key=${format} component="a" href=${withQuery(path, { format })} download size="compact-sm" variant="default" leftSection=${html`<${IconDownload} size=${13} />`}>${FORMATS[format] || format}<//>`)}</div><//>
  <//>`;
}
