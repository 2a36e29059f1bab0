// Policies with their versions, and the replicas that serve them.
import { withQuery } from "../api.js";
import { number, plural } from "../format.js";
import { html } from "../html.js";
import { Digest, Empty, Loaded, Panel, Tag } from "../parts.js";
import { ReplicaTable } from "../replica_table.js";
import { useResource } from "../resource.js";

export function Policies({ jobId }) {
  const policies = useResource(withQuery("/v1/policies", { job_id: jobId }), { everyMs: 2000 });
  const replicas = useResource(withQuery("/v1/replicas", { job_id: jobId }), { everyMs: 2000 });
  return html`<div class="column"><${Loaded} resource=${policies} what="Loading policies">${(data) => html`<div class="policy-cards">${data.policies.map((one) => html`<${PolicyCard} key=${one.policy} policy=${one} />`)}</div>`}<//>
    <h2>Replicas</h2>
    <${Loaded} resource=${replicas} what="Loading replicas">${(data) => (data.replicas.length ? html`<${ReplicaTable} replicas=${data.replicas} />` : html`<${Empty} title="No process of this job is alive">Replicas show here while the job runs.<//>`)}<//></div>`;
}

export function PolicyCard({ policy, showsJob }) {
  const lag = policy.lag_max;
  return html`<${Panel} className="policy" data-policy=${policy.policy}>
    <div class="policy-head"><h2>${policy.policy}</h2>${policy.trains ? html`<${Tag} color="indigo">${policy.train === "lora" ? `LoRA, rank ${policy.rank}` : "full weights"}<//>` : html`<${Tag}>not trained<//>`}</div>
    <dl class="facts">
      ${showsJob && html`<dt>Job</dt><dd>${policy.job_id}</dd>`}
      <dt>Version</dt><dd class="strong">${policy.version ?? "–"}</dd>
      <dt>Digest</dt><dd><${Digest} value=${policy.tensor_digest} /></dd>
      <dt>Model</dt><dd class="path" title=${policy.model}>${policy.model.split("/").slice(-2).join("/")}</dd>
      <dt>Agents</dt><dd>${policy.agents.join(", ")}</dd>
      <dt>Pool</dt><dd title="Policies of one pool share its replicas">${policy.pool}</dd>
      <dt>Replicas</dt><dd>${number(policy.replicas.length)} of ${number(policy.replicas_wanted)}${lag > 0 ? html` <${Tag} color="orange">${plural(lag, "version")} behind<//>` : policy.replicas.length ? html` <${Tag} color="teal">up to date<//>` : null}</dd>
    </dl>
  <//>`;
}
