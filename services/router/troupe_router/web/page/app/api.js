// Talks to the router's REST API. Every failure is an ApiError whose message is for people.
const TIMEOUT_MS = 30_000;
const RETRY_MS = 3_000;
let aheadMs = 0; // this browser's clock ahead of the router's, as its last answer says to a second or two

export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail || `the router answered ${status}`);
    this.status = status;
    this.reason = problem.reason || "";
    this.errors = problem.errors || [];
  }
}

// What the router's clock says at an instant of Date.now(), in seconds.
export const routerTime = (nowMs) => (nowMs - aheadMs) / 1000;

// Whether the same request may be answered a moment later.
export const mayPass = ({ status }) => status === 0 || status === 429 || status >= 500;

export async function request(path, { method = "GET", body, headers = {}, timeoutMs = TIMEOUT_MS } = {}) {
  const options = { method, headers: { Accept: "application/json", ...headers }, signal: AbortSignal.timeout(timeoutMs) };
  if (body !== undefined) {
    options.body = typeof body === "string" ? body : JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (error) {
    const late = error.name === "TimeoutError";
    throw new ApiError(0, {
      detail: late ? `the router did not answer within ${timeoutMs / 1000} s` : "the router cannot be reached; it may be restarting",
      reason: "UNREACHABLE",
    });
  }
  const answeredAt = Date.parse(answer.headers.get("Date"));
  if (answeredAt) aheadMs = Date.now() - answeredAt;
  const document = await readJson(answer);
  if (!answer.ok) {
    if (answer.status === 401) window.dispatchEvent(new Event("troupe:unauthenticated"));
    throw new ApiError(answer.status, document || {});
  }
  return document;
}

// Calls take({ data }) or take({ error }), and asks again after a failure that may pass; answers a function that ends it.
export function ask(path, options, take) {
  let timer;
  let isEnded = false;
  const once = async () => {
    const result = await request(path, options).then((data) => ({ data }), (error) => ({ error }));
    if (isEnded) return;
    if (result.error && mayPass(result.error)) timer = setTimeout(once, RETRY_MS);
    take(result);
  };
  once();
  return () => {
    isEnded = true;
    clearTimeout(timer);
  };
}

async function readJson(answer) {
  if (answer.status === 204) return null;
  try {
    return await answer.json();
  } catch {
    return null;
  }
}

export const jobPath = (id, rest = "") => `/v1/jobs/${encodeURIComponent(id)}${rest}`;

// A path with the parameters that are set; an array becomes a repeated parameter.
export function withQuery(path, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const item of Array.isArray(value) ? value : [value]) {
      if (item !== undefined && item !== null && item !== "") query.append(name, item);
    }
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}
