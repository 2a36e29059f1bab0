// Asks how many steps a job that succeeded shall have; answers with its spec, or with nothing.
import { Button, Group, NumberInput, Text } from "../../vendor/ui.js";
import { html, useState } from "../html.js";
import { Fault } from "../parts.js";
import { inexact } from "../whole_numbers.js";

export function MoreSteps({ job, isBusy, onAnswer }) {
  const [steps, setSteps] = useState(2 * job.steps);
  const errors = inexact(job.spec);
  if (errors.length) return html`<${Fault} error=${{ message: "Give it more steps by the command line (`troupe train --resume`) or over REST.", errors }} title="This page would change the spec" />`;
  return html`<${Text} size="sm" mb="sm">It goes on from its last checkpoint.<//>
    <${NumberInput} label="Steps in all" min=${job.steps + 1} allowDecimal=${false} value=${steps} onChange=${setSteps} />
    <${Group} justify="flex-end" mt="lg"><${Button} variant="default" onClick=${() => onAnswer(null)}>Leave it<//><${Button} disabled=${!(steps > job.steps)} loading=${isBusy} onClick=${() => onAnswer({ ...job.spec, steps })}>Train on<//><//>`;
}
