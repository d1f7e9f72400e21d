// The JSON schema of a handler's data, as its workers tell it: a first value, and what does not fit.

const MAX_PROBLEMS = 5;
const MAX_DEPTH = 12;

// anybody may write a worker's record: whatever is no schema says nothing
function resolve(schema, root) {
  const name = typeof schema?.$ref === "string" ? schema.$ref.split("/").pop() : "";
  const found = name ? root.$defs?.[name] ?? root.definitions?.[name] : schema;
  return typeof found === "object" && found !== null ? found : {};
}

const optionsOf = (schema) => [schema.anyOf, schema.oneOf].find((one) => Array.isArray(one) && one.length);
const namesOf = (schema) => (Array.isArray(schema.required) ? schema.required : []);
const propertiesOf = (schema) => (typeof schema.properties === "object" && schema.properties ? schema.properties : {});

// the smallest value that fits: what is required, and defaults
export function firstValue(given, root = given, depth = 0) {
  const schema = resolve(given, root);
  if ("default" in schema) return schema.default;
  if ("const" in schema) return schema.const;
  if (Array.isArray(schema.enum)) return schema.enum[0] ?? null;
  if (depth > MAX_DEPTH) return null;
  const options = optionsOf(schema);
  if (options) return firstValue(options[0], root, depth + 1);
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  if (type === "object") {
    const properties = propertiesOf(schema);
    const names = Object.keys(properties).filter((name) => namesOf(schema).includes(name) || "default" in resolve(properties[name], root));
    return Object.fromEntries(names.map((name) => [name, firstValue(properties[name], root, depth + 1)]));
  }
  return { string: "", integer: schema.minimum ?? 0, number: schema.minimum ?? 0, boolean: false, array: [], object: {} }[type] ?? null;
}

const TYPES = {
  string: (value) => typeof value === "string", boolean: (value) => typeof value === "boolean", null: (value) => value === null,
  number: (value) => typeof value === "number", integer: (value) => Number.isInteger(value), array: Array.isArray,
  object: (value) => typeof value === "object" && value !== null && !Array.isArray(value),
};

// what does not fit, as sentences with the place of each; the usual words of JSON Schema, others are ignored
export function problemsOf(given, value, root = given, place = "data", depth = 0) {
  const schema = resolve(given, root);
  if (depth > MAX_DEPTH) return [];
  const options = optionsOf(schema);
  if (options) {
    const tries = options.map((one) => problemsOf(one, value, root, place, depth + 1));
    if (tries.some((problems) => !problems.length)) return [];
    return tries.sort((a, b) => a.length - b.length)[0];
  }
  const types = [schema.type ?? []].flat();
  if (types.length && !types.some((type) => TYPES[type]?.(value))) return [`${place} must be ${types.join(" or ")}`];
  if (Array.isArray(schema.enum) && !schema.enum.some((one) => JSON.stringify(one) === JSON.stringify(value))) return [`${place} must be one of ${schema.enum.map((one) => JSON.stringify(one)).join(", ")}`];
  const problems = [];
  if (typeof value === "number") {
    if (value < schema.minimum) problems.push(`${place} must be at least ${schema.minimum}`);
    if (value > schema.maximum) problems.push(`${place} must be at most ${schema.maximum}`);
  }
  if (typeof value === "string") {
    if (value.length < schema.minLength) problems.push(`${place} must have at least ${schema.minLength} characters`);
    if (value.length > schema.maxLength) problems.push(`${place} must have at most ${schema.maxLength} characters`);
  }
  if (Array.isArray(value) && schema.items) value.forEach((one, index) => problems.push(...problemsOf(schema.items, one, root, `${place}[${index}]`, depth + 1)));
  if (TYPES.object(value)) {
    const properties = propertiesOf(schema);
    for (const name of namesOf(schema)) if (!(name in value)) problems.push(`${place}.${name} is missing`);
    for (const [name, one] of Object.entries(value)) {
      if (Object.hasOwn(properties, name)) problems.push(...problemsOf(properties[name], one, root, `${place}.${name}`, depth + 1));
      else if (schema.additionalProperties === false) problems.push(`${place}.${name} is unknown`);
    }
  }
  return problems.slice(0, MAX_PROBLEMS);
}
