// Requests to the gateway. The session is a cookie that scripts cannot read; changes carry its CSRF token.

const BASE = new URL("../../", import.meta.url);

export class ResponseError extends Error {
  constructor(status, type, detail) {
    super(detail);
    this.status = status;
    this.type = type;
  }
}

export const session = { name: "", roles: [], csrf: "", has_session: false, read_only: false, has_lake: false };
const lockedListeners = new Set();
export const onLocked = (listener) => lockedListeners.add(listener);
const outcomeListeners = new Set();
// called after every request: with null, or with the error where the gateway or Redis does not answer
export const onOutcome = (listener) => outcomeListeners.add(listener);
const tellOutcome = (error) => { for (const listener of outcomeListeners) listener(error); };

export const may = (role) => session.roles.includes(role) && (role === "read" || !session.read_only);
export const whyNot = (role) => (session.read_only ? "this gateway is read-only" : `this needs the role '${role}', which your key lacks`);

export const urlOf = (path) => new URL(path.replace(/^\//, ""), BASE);

export async function request(method, path, body, signal) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (method !== "GET") headers["X-CSRF-Token"] = session.csrf || "-";
  const text = body === undefined ? undefined : JSON.stringify(body);
  let response;
  try {
    response = await fetch(urlOf(path), { method, headers, body: text, cache: "no-store", credentials: "same-origin", signal });
  } catch (error) {
    if (error.name !== "AbortError") tellOutcome(new ResponseError(0, "", "the gateway does not answer"));
    throw error;
  }
  if (response.status < 500) tellOutcome(null);
  if (response.ok) return response.status === 204 ? null : response.json();
  let problem = {};
  try { problem = await response.json(); } catch { /* not a problem document */ }
  const error = new ResponseError(response.status, String(problem.type || "").split(":").pop(), problem.detail || `${response.status} ${response.statusText}`);
  if (response.status === 401 && path !== "/v1/session") for (const listener of lockedListeners) listener(error);
  if (response.status >= 500) tellOutcome(error);
  throw error;
}

export const get = (path, signal) => request("GET", path, undefined, signal);
export const post = (path, body = {}) => request("POST", path, body);
export const put = (path, body) => request("PUT", path, body);
export const patch = (path, body) => request("PATCH", path, body);
export const remove = (path) => request("DELETE", path);

export async function loadSession() {
  Object.assign(session, await get("/v1/session"));
  return session;
}

export async function signIn(key) {
  Object.assign(session, await post("/v1/session", { key }));
}

export async function signOut() {
  Object.assign(session, await remove("/v1/session"));
}

const part = encodeURIComponent;
export const queuePath = (queue) => `/v1/queues/${part(queue.protocol)}/${part(queue.queue)}`;
export const jobPath = (queue, id) => `${queuePath(queue)}/jobs/${part(id)}`;
export const query = (values) => {
  const kept = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return kept.length ? `?${new URLSearchParams(kept)}` : "";
};
