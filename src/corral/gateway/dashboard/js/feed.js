// One feed for the whole tab: /v1/activity, a few frames a second. The browser resumes it after an interruption.

import { urlOf } from "./api.js";

const listeners = new Set();
const stateListeners = new Set();
let source = null;
let state = "connecting";
let retryTimer = 0;

function setState(next, text) {
  state = next;
  for (const listener of stateListeners) listener(next, text);
}

export function connect() {
  disconnect();
  source = new EventSource(urlOf("/v1/activity"));
  source.addEventListener("hello", () => setState("live", "live"));
  source.addEventListener("gateway.reconnected", () => setState("live", "live"));
  source.addEventListener("gateway.disconnected", () => setState("lost", "Redis is unavailable"));
  source.addEventListener("activity", (event) => {
    if (state !== "live") setState("live", "live");
    let frame;
    try { frame = JSON.parse(event.data); } catch { return; }
    for (const listener of listeners) listener(frame);
  });
  source.onerror = () => {
    setState("lost", "no response; trying again");
    // a refusal closes the source for good
    if (source?.readyState === EventSource.CLOSED) retryTimer = setTimeout(connect, 3000);
  };
}

export function disconnect() {
  clearTimeout(retryTimer);
  source?.close();
  source = null;
}

export const feedState = () => state;

export function onFrame(listener, signal) {
  listeners.add(listener);
  signal.addEventListener("abort", () => listeners.delete(listener));
}

export const onState = (listener) => stateListeners.add(listener);

// calls `load` soon after frames that `concerns` selects, at most once in `every` ms, and now and then without any
export function refreshOn(signal, concerns, load, every = 1000, idle = 15000) {
  let isDue = false;
  let last = Date.now();
  let isLoading = false;
  let took = 0;
  onFrame((frame) => { if (concerns(frame)) isDue = true; }, signal);
  const timer = setInterval(async () => {
    if (isLoading || document.hidden) return;
    const age = Date.now() - last;
    // what takes long is done less often: a quarter of the time at most
    if (!(isDue && age >= Math.max(every, took * 3)) && age < idle) return;
    isDue = false;
    isLoading = true;
    // after a failure the page shows what it has, the status shows the outage, and the next try is soon
    const began = Date.now();
    try { await load(); } catch { isDue = true; }
    last = Date.now();
    took = last - began;
    isLoading = false;
  }, Math.min(250, every));
  signal.addEventListener("abort", () => clearInterval(timer));
}
