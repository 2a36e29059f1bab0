// The title of a list of fields, a heading below its section's.
import { html } from "../html.js";

export function ArrayTitle({ title, fieldPathId }) {
  if (!title) return null;
  return html`<h3 id=${`${fieldPathId?.$id || title}__title`}>${title}</h3>`;
}
