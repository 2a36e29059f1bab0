// Living processes: what they serve, how busy they are, how far behind.
import { Table } from "../vendor/ui.js";
import { ago } from "./format.js";
import { html } from "./html.js";
import { Digest, Tag } from "./parts.js";

export function ReplicaTable({ replicas, showsJob }) {
  const heads = ["Replica", "Kind", ...(showsJob ? ["Job"] : []), "State", "In flight", "Policy", "Version", "Digest", "Heard of"];
  return html`<div class="table-box"><${Table} className="stacking" verticalSpacing="sm"><${Table.Thead}><${Table.Tr}>${heads.map((head) => html`<${Table.Th} key=${head}>${head}<//>`)}<//><//>
    <${Table.Tbody}>${replicas.flatMap((replica) => rows(replica).map((policy, i) => html`<${Row} key=${`${replica.replica_id}/${i}`} replica=${replica} policy=${policy} showsJob=${showsJob} />`))}<//><//></div>`;
}

const rows = (replica) => (replica.policies.length ? replica.policies : [null]);

function Row({ replica, policy, showsJob }) {
  const lag = policy?.lag || 0;
  return html`<${Table.Tr} data-replica=${replica.replica_id}>
    <${Table.Td}><span class="mono">${replica.replica_id}</span><//>
    <${Table.Td} data-label="Kind">${replica.kind}<//>
    ${showsJob && html`<${Table.Td} data-label="Job">${replica.job_id || "–"}<//>`}
    <${Table.Td} data-label="State"><${Tag} color=${replica.is_serving ? "teal" : "gray"}>${replica.is_serving ? "serving" : "not serving"}<//><//>
    <${Table.Td} data-label="In flight">${replica.num_in_flight}<//>
    <${Table.Td} data-label="Policy">${policy?.policy || html`<span class="faint">–</span>`}<//>
    <${Table.Td} data-label="Version">${policy ? policy.version : html`<span class="faint">–</span>`} ${lag > 0 && html`<${Tag} color="orange">lag ${lag}<//>`}<//>
    <${Table.Td} data-label="Digest"><${Digest} value=${policy?.tensor_digest} /><//>
    <${Table.Td} data-label="Heard of">${ago(replica.seen_at)}<//>
  <//>`;
}
