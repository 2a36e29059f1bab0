// Asks how many steps a job that succeeded shall have; answers with its spec, or with nothing.
import { Button, Group, NumberInput, Text } from "../../vendor/ui.js";
import { html, useState } from "../html.js";

export function MoreSteps({ job, isBusy, onAnswer }) {
  const [steps, setSteps] = useState(2 * job.steps);
  return html`<${Text} size="sm" mb="sm">It goes on from its last checkpoint.<//>
    <${NumberInput} label="Steps in all" min=${job.steps + 1} allowDecimal=${false} value=${steps} onChange=${setSteps} />
    <${Group} justify="flex-end" mt="lg"><${Button} variant="default" onClick=${() => onAnswer(null)}>Leave it<//><${Button} disabled=${!(steps > job.steps)} loading=${isBusy} onClick=${() => onAnswer({ ...job.spec, steps })}>Train on<//><//>`;
}
