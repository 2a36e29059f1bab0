// Makes the job spec's schema one that a form can show, and decides how. Nothing is validated here:
// the router does that, with the same code that takes the job.
const SAFE = Number.MAX_SAFE_INTEGER;

// {schema, uiSchema} for the form. tasks and algorithms are what the router offers.
export function shape(source, { tasks, algorithms, family }) {
  const root = structuredClone(source);
  const offered = tasks.find((task) => task.name === family);
  if (offered?.params) root.$defs = { ...root.$defs, ...hoisted(offered.params) };
  whole(root.properties.reward);
  for (const part of [root, ...Object.values(root.$defs)]) walk(part, root.$defs);
  offer(root.$defs.TaskSpec, "name", tasks.map((task) => task.name));
  offer(root.$defs.AlgorithmSpec, "kind", algorithms.map((algorithm) => algorithm.name));
  if (offered?.params) root.$defs.TaskSpec.properties.params = { $ref: "#/$defs/params", title: "Parameters" };
  delete root.description;
  delete root.title;
  return { schema: root, uiSchema: uiOf(root, root.$defs, 0) };
}

const offer = (part, name, values) => {
  if (values.length) part.properties[name] = { ...part.properties[name], enum: values };
};

// A text that stands for an object with one field: the form shows the object.
const whole = (part) => {
  if (!part?.anyOf) return;
  part.$ref = part.anyOf.find((option) => option.$ref).$ref;
  delete part.anyOf;
};

// A family's own schema as definitions of ours: "params" and "params.X".
function hoisted(params) {
  const text = JSON.stringify(params).replaceAll('"#/$defs/', '"#/$defs/params.');
  const { $defs = {}, ...schema } = JSON.parse(text);
  return { params: { ...schema, title: "Parameters" }, ...Object.fromEntries(Object.entries($defs).map(([name, part]) => [`params.${name}`, part])) };
}

function walk(node, defs) {
  if (!node || typeof node !== "object") return;
  if (Array.isArray(node)) {
    for (const item of node) walk(item, defs);
    return;
  }
  tidy(node, defs);
  for (const [name, value] of Object.entries(node)) {
    if (name !== "default" && name !== "enum" && name !== "$defs") walk(value, defs);
  }
}

function tidy(node, defs) {
  if (node.patternProperties) {
    node.additionalProperties = Object.values(node.patternProperties)[0];
    delete node.patternProperties;
  }
  const options = node.anyOf?.filter((option) => option.type !== "null");
  if (options && options.length < node.anyOf.length) {
    if (options.length === 1) {
      delete node.anyOf;
      Object.assign(node, { ...options[0], title: node.title ?? options[0].title, description: node.description ?? options[0].description });
    } else node.anyOf = options;
    if (node.default === null) delete node.default;
    node.isOptional = true;
  }
  if (typeof node.title === "string") node.title = sentence(node.title);
  for (const limit of ["maximum", "exclusiveMaximum"]) if (node[limit] > SAFE) delete node[limit];
  if (node.discriminator) {
    for (const option of node.oneOf) option.title = kindOf(option, defs);
    delete node.discriminator.mapping;
  }
  for (const [name, property] of Object.entries(node.properties || {})) property.title ??= sentence(name);
}

const kindOf = (option, defs) => option.title ?? defs[option.$ref?.split("/").at(-1)]?.properties?.kind?.const ?? "other";

const sentence = (title) => {
  const text = title.replaceAll("_", " ").trim();
  return /^[A-Z]{2,}/.test(text) ? text : text.charAt(0).toUpperCase() + text.slice(1).toLowerCase();
};

// How each field is shown: what an optional part looks like, and the default as a placeholder.
function uiOf(node, defs, depth) {
  if (!node || depth > 8) return {};
  const target = node.$ref ? { ...defs[node.$ref.split("/").at(-1)], ...node } : node;
  const ui = {};
  if (target.isOptional && (target.properties || node.$ref)) ui["ui:enableOptionalDataFieldForType"] = ["object"];
  if (["string", "number", "integer"].includes(target.type) && target.default !== undefined && target.default !== "") ui["ui:placeholder"] = String(target.default);
  if (target.const !== undefined) ui["ui:widget"] = "hidden";
  for (const [name, property] of Object.entries(target.properties || {})) ui[name] = uiOf(property, defs, depth + 1);
  if (target.additionalProperties && typeof target.additionalProperties === "object") ui.additionalProperties = uiOf(target.additionalProperties, defs, depth + 1);
  return ui;
}
