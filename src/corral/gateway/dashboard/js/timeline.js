// The attempts of a job as bars: how long it waited, how long each attempt ran, and how it ended.

import { foreign, h } from "./dom.js";
import { absoluteTime, duration, preview } from "./format.js";

const STARTS = new Set(["added", "waiting", "delayed", "retry", "stalled"]);
const ENDS = new Set(["completed", "dead", "retry", "cancelled", "stalled"]);

// [{ kind: "wait" | "run", from, to, text, state }], oldest first
export function attemptsOf(job) {
  const spans = [];
  let since = job.created_at;
  let running = null;
  let number = 0;
  for (const event of job.events) {
    if (event.kind === "active") {
      if (event.at >= since && !running) spans.push({ kind: "wait", from: since, to: event.at, state: "waiting", text: "waited" });
      number = event.attempt || number + 1;
      running = { kind: "run", from: event.at, to: null, state: "active", text: `attempt ${number}`, worker: event.worker };
      spans.push(running);
    } else if (ENDS.has(event.kind) && running) {
      running.to = event.at;
      running.state = event.kind === "completed" ? "completed" : "dead";
      running.detail = event.kind === "completed" ? "" : preview(event.data?.failedReason ?? event.data?.reason ?? event.data?.error ?? event.kind, 300);
      since = event.at;
      running = null;
    } else if (STARTS.has(event.kind) && !running) {
      since = Math.max(since, event.kind === "added" ? job.created_at : since);
    }
  }
  if (!spans.length && job.started_at) {
    spans.push({ kind: "wait", from: job.created_at, to: job.started_at, state: "waiting", text: "waited" });
    spans.push({ kind: "run", from: job.started_at, to: job.finished_at, state: job.state === "completed" ? "completed" : job.state === "active" ? "active" : "dead", text: `attempt ${job.attempts_made || 1}`, worker: job.worker });
  } else if (!running && (job.state === "waiting" || job.state === "delayed")) {
    spans.push({ kind: "wait", from: since, to: null, state: job.state, text: job.state });
  }
  const last = [...spans].reverse().find((span) => span.kind === "run");
  if (last) last.worker ||= job.worker;
  return spans;
}

export function timeline(spans) {
  if (!spans.length) return h("p.is-soft", {}, "It has not started.");
  const now = Date.now();
  const start = spans[0].from;
  const end = Math.max(...spans.map((span) => span.to ?? now), start + 1);
  const rows = spans.map((span) => {
    const to = span.to ?? now;
    const bar = h(`span.span.is-${span.state}`);
    bar.style.marginInlineStart = `${Math.min(((span.from - start) / (end - start)) * 100, 99.4)}%`;
    bar.style.width = `max(3px, ${((to - span.from) / (end - start)) * 100}%)`;
    return h("li", { title: `${absoluteTime(span.from)} to ${span.to ? absoluteTime(span.to) : "now"}` },
      h("span.span-text", {}, span.text, span.worker ? h("span.is-soft", {}, " by ", foreign(span.worker)) : null),
      h("span.span-track", {}, bar), h("span.span-time", {}, duration(to - span.from), span.to ? "" : "…"),
      span.detail ? h("span.span-detail.is-bad", {}, foreign(span.detail)) : null);
  });
  return h("ol.timeline", {}, rows);
}
