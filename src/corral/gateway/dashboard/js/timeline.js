// The attempts of a job as bars: how long it waited, how long each attempt ran, where, and how it ended, with its trace.

import { foreign, h } from "./dom.js";
import { absoluteTime, duration, preview } from "./format.js";

const ENDS = new Set(["completed", "dead", "retry", "cancelled", "stalled"]);

// number -> { from, to, worker, state, detail }: from the events that are kept, and the records of attempts that failed
function attemptsByNumber(job) {
  const attempts = new Map();
  let running = null;
  for (const event of job.events) {
    if (event.kind === "active") {
      const number = event.attempt || Math.max(0, ...attempts.keys()) + 1;
      running = { from: event.at, to: null, state: "active", worker: event.worker };
      attempts.set(number, running);
    } else if (ENDS.has(event.kind) && running) {
      const reason = event.data?.failedReason ?? event.data?.reason ?? event.data?.error ?? event.kind;
      Object.assign(running, { to: event.at, state: event.kind === "completed" ? "completed" : "dead", detail: event.kind === "completed" ? "" : preview(reason, 300), worker: running.worker || event.worker });
      running = null;
    }
  }
  for (const one of job.failed_attempts || []) {
    const detail = preview([one.error, one.message].filter(Boolean).join(": "), 400);
    attempts.set(one.number, { ...attempts.get(one.number), from: one.started_at ?? one.ended_at, to: one.ended_at, state: "dead", detail, worker: one.worker });
  }
  const latest = Math.max(0, ...[...attempts.values()].map((one) => one.from));
  const isOver = job.state === "completed" || job.state === "dead" || job.state === "cancelled";
  // what neither events nor records tell of the last attempt, the job itself does
  if (job.started_at > latest && (isOver || job.state === "active")) {
    const number = Math.max(job.attempts_made + (isOver ? 0 : 1), ...[...attempts.keys()].map((one) => one + 1), 1);
    attempts.set(number, { from: job.started_at, to: job.finished_at, state: job.state === "completed" ? "completed" : isOver ? "dead" : "active", worker: job.worker, detail: isOver && job.reason ? preview(job.reason, 300) : "" });
  }
  return new Map([...attempts].sort((a, b) => a[1].from - b[1].from || a[0] - b[0]));
}

// [{ kind: "wait" | "run", from, to, text, state, worker, detail, trace }], oldest first
export function attemptsOf(job) {
  const attempts = attemptsByNumber(job);
  const spans = [];
  let since = job.created_at;
  for (const [number, attempt] of attempts) {
    if (attempt.from >= since) spans.push({ kind: "wait", from: since, to: attempt.from, state: "waiting", text: "waited" });
    // the last traces are kept, one for each attempt that failed
    const trace = job.trace?.[job.trace.length - 1 - (job.attempts_made - number)];
    spans.push({ kind: "run", ...attempt, text: `attempt ${number}`, trace: attempt.state === "dead" ? trace : undefined });
    since = attempt.to ?? since;
  }
  const last = [...spans].reverse().find((span) => span.kind === "run");
  if (last) last.worker ||= job.worker;
  if (job.state === "waiting" || job.state === "delayed") spans.push({ kind: "wait", from: since, to: null, state: job.state, text: job.state });
  return spans;
}

export function timeline(spans) {
  if (!spans.length) return h("p.is-soft", {}, "It has not started.");
  const now = Date.now();
  const start = spans[0].from;
  const end = Math.max(...spans.map((span) => span.to ?? now), start + 1);
  const lastTrace = [...spans].reverse().find((span) => span.trace);
  const rows = spans.map((span) => {
    const to = span.to ?? now;
    const bar = h(`span.span.is-${span.state}`);
    bar.style.marginInlineStart = `${Math.min(((span.from - start) / (end - start)) * 100, 99.4)}%`;
    bar.style.width = `max(3px, ${((to - span.from) / (end - start)) * 100}%)`;
    return h("li", { title: `${absoluteTime(span.from)} to ${span.to ? absoluteTime(span.to) : "now"}` },
      h("span.span-text", {}, span.text, span.worker ? h("span.is-soft", {}, " by ", foreign(span.worker)) : null),
      h("span.span-track", {}, bar), h("span.span-time", {}, duration(to - span.from), span.to ? "" : "…"),
      span.detail ? h("span.span-detail.is-bad", {}, foreign(span.detail)) : null,
      span.trace ? h("details.trace.span-detail", { open: span === lastTrace, data: { name: `trace of ${span.text}` } }, h("summary", {}, "trace"), h("pre", { tabindex: "0" }, foreign(span.trace))) : null);
  });
  return h("ol.timeline", {}, rows);
}
