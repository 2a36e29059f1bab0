// One entry of a map: its name, a way to remove it, and what it holds.
import { ActionIcon, IconTrash, TextInput } from "../../vendor/ui.js";
import { ADDITIONAL_PROPERTY_FLAG } from "../../vendor/form.js";
import { html } from "../html.js";

export function WrapTemplate({ classNames, label, id, schema, children, onKeyRenameBlur, onRemoveProperty, readonly }) {
  if (!(ADDITIONAL_PROPERTY_FLAG in schema)) return html`<div className=${classNames}>${children}</div>`;
  return html`<div className="entry"><div className="entry-head">
      <${TextInput} aria-label=${`Name of ${label}`} defaultValue=${label} key=${label} id=${`${id}-key`} size="xs" className="entry-name" onBlur=${readonly ? undefined : onKeyRenameBlur} />
      <${ActionIcon} variant="subtle" color="gray" onClick=${onRemoveProperty} aria-label=${`Remove ${label}`}><${IconTrash} size=${15} /><//></div>${children}</div>`;
}
