// What the form library asks of a validator, by a library that interprets schemas instead of
// compiling them (the page's policy forbids eval). It only tells which option of a union fits.
import { Validator } from "../../vendor/form.js";

const known = new WeakMap();

function validatorOf(schema, root) {
  let compiled = known.get(schema);
  if (!compiled) {
    compiled = new Validator({ ...schema, $defs: root?.$defs || schema.$defs || {} }, "2020-12", true);
    known.set(schema, compiled);
  }
  return compiled;
}

export const validator = {
  validateFormData: () => ({ errors: [], errorSchema: {} }),
  isValid: (schema, data, root) => {
    try {
      return validatorOf(schema, root).validate(data === undefined ? null : data).valid;
    } catch {
      return false;
    }
  },
  rawValidation: (schema, data) => ({ errors: validatorOf(schema, schema).validate(data).errors }),
};

// The router's faults as the tree that the form shows beside its fields.
export function errorTree(errors) {
  const root = {};
  for (const { pointer, message } of errors) {
    let node = root;
    for (const part of pointer.split("/").slice(1)) node = childOf(node, part.replaceAll("~1", "/").replaceAll("~0", "~"));
    (node.__errors ??= []).push(message);
  }
  return root;
}

// A part may be called as something that every object of the language has.
function childOf(node, name) {
  if (!Object.hasOwn(node, name)) Object.defineProperty(node, name, { value: {}, configurable: true, enumerable: true, writable: true });
  return node[name];
}
