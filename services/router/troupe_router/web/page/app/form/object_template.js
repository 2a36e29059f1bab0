// How the fields of an object are laid out: the whole spec in sections, parts of it in grids.
import { ADDITIONAL_PROPERTY_FLAG } from "../../vendor/form.js";
import { Button, IconPlus } from "../../vendor/ui.js";
import { html } from "../html.js";
import { Panel } from "../parts.js";

const SECTIONS = [
  { title: "Job", names: ["name", "seed", "steps", "tasks_per_step"] },
  { title: "Task", names: ["task", "workflow"] },
  { title: "Agents and policies", names: ["agents", "policies"] },
  { title: "Learning", names: ["algorithm", "reward", "sampling"] },
  { title: "Evaluation and checkpoints", names: ["eval", "checkpoint"] },
];

export function ObjectTemplate(props) {
  const depth = props.fieldPathId.path.length;
  const fields = props.properties.filter((field) => !field.hidden && props.uiSchema?.[field.name]?.["ui:widget"] !== "hidden");
  if (depth === 0) return html`<${Sections} fields=${fields} />`;
  const isPart = (field) => isNested(field, props);
  const body = html`<div class="field-grid">${fields.filter((field) => !isPart(field)).map((field) => html`<div key=${field.name}>${field.content}</div>`)}</div>
    ${fields.filter(isPart).map((field) => html`<div key=${field.name} class="field-part">${field.content}</div>`)}
    ${canAdd(props) && html`<${Button} size="compact-sm" variant="light" leftSection=${html`<${IconPlus} size=${13} />`} onClick=${props.onAddProperty}>${addLabel(props)}<//>`}`;
  const note = props.description && html`<span class="field-note">${props.schema.description}</span>`;
  const control = props.optionalDataControl && html`<span class="optional">${props.optionalDataControl}</span>`;
  if (ADDITIONAL_PROPERTY_FLAG in props.schema) return html`<div class="column">${body}</div>`;
  const isAbsent = !fields.length && control;
  if (isAbsent) return html`<div class="field-absent"><span><strong>${props.title}</strong>${note}</span>${control}</div>`;
  if (depth === 1) return html`<fieldset class="field-set"><legend>${props.title}</legend>${note}${control}${body}</fieldset>`;
  return html`<details class="field-details" open=${hasFault(props.errorSchema) || undefined}><summary>${props.title}${note}</summary>${control}${body}</details>`;
}

function Sections({ fields }) {
  const named = new Set(SECTIONS.flatMap((section) => section.names));
  const rest = fields.filter((field) => !named.has(field.name));
  const take = (names) => names.map((name) => fields.find((field) => field.name === name)).filter(Boolean);
  return html`<div class="column">${SECTIONS.map((section) => html`<${Panel} key=${section.title} title=${section.title} className="form-section">
      <div class=${section.title === "Job" ? "field-grid" : "column"}>${take(section.names).map((field) => html`<div key=${field.name}>${field.content}</div>`)}</div><//>`)}
    ${rest.length > 0 && html`<details class="form-more"><summary>Limits, batches and the rest</summary><div class="column">${rest.map((field) => html`<${Panel} key=${field.name} className="form-section">${field.content}<//>`)}</div></details>`}</div>`;
}

// Whether a field is itself an object or a list, which takes the whole width.
function isNested(field, props) {
  const value = props.formData?.[field.name];
  const schema = props.schema.properties?.[field.name] || {};
  return Boolean(schema.$ref || schema.properties || schema.oneOf || schema.type === "object" || schema.type === "array" || schema.additionalProperties || schema.isOptional && schema.$ref || (value && typeof value === "object"));
}

const canAdd = (props) => Boolean(props.schema.additionalProperties) && !props.readonly;
const addLabel = (props) => ({ Agents: "Add an agent", Policies: "Add a policy" })[props.title] || "Add an entry";

function hasFault(errors) {
  return Boolean(errors) && Object.entries(errors).some(([name, part]) => (name === "__errors" ? part?.length > 0 : hasFault(part)));
}
