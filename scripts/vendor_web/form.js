// What the submit form imports from vendor/form.js: forms made of a JSON schema. Its validator
// interprets the schema; one that compiles it would need eval, which the page's policy forbids.
export { default as Form } from "@rjsf/mantine";
export { ADDITIONAL_PROPERTY_FLAG } from "@rjsf/utils";
export { Validator } from "@cfworker/json-schema";
