// A browser reads a whole number beyond 2^53 as its neighbour: a spec that goes through it would have another seed.
const MOST = 2 ** 63; // of a seed; floats above stay what they are

// Faults of a spec, each with its JSON pointer: the whole numbers that may be others than those that were written.
export function inexact(value, pointer = "") {
  if (typeof value === "number") {
    const isExact = !Number.isInteger(value) || Number.isSafeInteger(value) || Math.abs(value) > MOST;
    return isExact ? [] : [{ pointer, message: `a browser cannot hold whole numbers beyond ${Number.MAX_SAFE_INTEGER} exactly; choose a smaller one, or use the command line` }];
  }
  if (value === null || typeof value !== "object") return [];
  return Object.entries(value).flatMap(([name, part]) => inexact(part, `${pointer}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`));
}
