// What runs now, over all jobs.
import { useDocumentTitle } from "../../vendor/ui.js";
import { number } from "../format.js";
import { html } from "../html.js";
import { PolicyCard } from "../job/policies.js";
import { Empty, Loaded, PageHead, Stat } from "../parts.js";
import { ReplicaTable } from "../replica_table.js";
import { useResource } from "../resource.js";

export function ClusterPage() {
  useDocumentTitle("Cluster · Troupe");
  const quota = useResource("/v1/quota", { everyMs: 3000 });
  const replicas = useResource("/v1/replicas", { everyMs: 2000 });
  const policies = useResource("/v1/policies", { everyMs: 2000 });
  return html`<${PageHead} title="Cluster" />
    <div class="column"><${Loaded} resource=${quota} what="Loading the quota">${(data) => html`<${QuotaStats} quota=${data} replicas=${replicas.data?.replicas || []} />`}<//>
    <h2>Replicas</h2>
    <${Loaded} resource=${replicas} what="Loading replicas">${(data) => (data.replicas.length ? html`<${ReplicaTable} replicas=${data.replicas} showsJob />` : html`<${Empty} title="Nothing runs now">Replicas register when a job is launched.<//>`)}<//>
    <h2>Policies</h2>
    <${Loaded} resource=${policies} what="Loading policies">${(data) => (data.policies.length ? html`<div class="policy-cards">${data.policies.map((one) => html`<${PolicyCard} key=${`${one.job_id}/${one.policy}`} policy=${one} showsJob />`)}</div>` : html`<${Empty} title="No policy is in training">Policies of active jobs show here.<//>`)}<//></div>`;
}

function QuotaStats({ quota, replicas }) {
  const busy = replicas.reduce((sum, replica) => sum + replica.num_in_flight, 0);
  const limit = quota.max_replicas;
  return html`<div class="stats">
    <${Stat} label="Active jobs" value=${number(quota.active_jobs)} note=${quota.max_jobs ? `at most ${quota.max_jobs} at once` : "no limit"} />
    <${Stat} label="Queued jobs" value=${number(quota.queued.length)} note=${quota.queued[0]?.waits_for || "none waits"} />
    <${Stat} label="Rollout replicas" value=${number(quota.in_use)} note=${limit ? `of ${limit} in the quota` : "no limit"} />
    <${Stat} label="Requests in flight" value=${number(busy)} note=${`${number(replicas.length)} processes alive`} />
  </div>`;
}
