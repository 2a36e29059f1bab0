// The job spec as a form, made of its schema.
import { Form } from "../../vendor/form.js";
import { html, useMemo } from "../html.js";
import { ArrayTitle } from "./array_title.js";
import { ObjectTemplate } from "./object_template.js";
import { shape } from "./shape.js";
import { errorTree, validator } from "./validator.js";
import { WrapTemplate } from "./wrap_template.js";

const TEMPLATES = { ArrayFieldTitleTemplate: ArrayTitle, ObjectFieldTemplate: ObjectTemplate, WrapIfAdditionalTemplate: WrapTemplate, ButtonTemplates: { SubmitButton: () => null } };
const DEFAULTS = { emptyObjectFields: "skipDefaults" };

export function SpecForm({ schema, tasks, algorithms, spec, errors, onChange }) {
  const family = spec?.task?.name;
  const shaped = useMemo(() => shape(schema, { tasks, algorithms, family }), [schema, tasks, algorithms, family]);
  const extraErrors = useMemo(() => errorTree(errors), [errors]);
  return html`<${Form} schema=${shaped.schema} uiSchema=${shaped.uiSchema} formData=${spec} validator=${validator} templates=${TEMPLATES}
    extraErrors=${extraErrors} showErrorList=${false} noHtml5Validate noValidate experimental_defaultFormStateBehavior=${DEFAULTS}
    idPrefix="spec" onChange=${(event) => onChange(event.formData)} tagName="div" />`;
}
