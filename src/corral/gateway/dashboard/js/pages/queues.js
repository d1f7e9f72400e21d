// Queues: every queue of every protocol, with counts, rates, waits, runs and workers.

import { queueControls } from "../actions.js";
import { get, query, queuePath, session } from "../api.js";
import { spark } from "../charts.js";
import { openDialog } from "../dialog.js";
import { foreign, h } from "../dom.js";
import { onFrame, refreshOn } from "../feed.js";
import { age, compact, duration, number, rate, time } from "../format.js";
import { cards, empty, heading, protocolBadge } from "../parts.js";
import { queueLink, setParams } from "../router.js";
import { table } from "../table.js";

const STATES = ["waiting", "delayed", "active", "completed", "dead"];
const RECENT_MIN = 5;
const COLUMNS = [
  { title: "Queue", key: "name", className: "grow" },
  ...STATES.map((state) => ({ title: state[0].toUpperCase() + state.slice(1), key: state, className: "number" })),
  { title: "Done/min", key: "rate", className: "number", hint: "completed a minute, over the last five" },
  { title: "Failed/min", key: "failed", className: "number wide", hint: "attempts that failed a minute, over the last five" },
  { title: "Wait", key: "wait", className: "number wide", hint: "from due to active: median, and 95 % are faster than" },
  { title: "Run", key: "run", className: "number wide", hint: "from active to the end: median, and 95 % are faster than" },
  { title: "Oldest", key: "oldest", className: "number wide", hint: "age of the next job to run" },
  { title: "Workers", key: "workers", className: "number" },
  { title: "Trend", className: "spark-cell wide", hint: "jobs completed" },
  { title: "", className: "menu" },
];
const HOUR = 3600000;
const SPANS = { 1: "Last hour", 168: "Last 7 days", 720: "Last 30 days" };

const sum = (list) => list.reduce((total, one) => total + one, 0);
// whole minutes and the one that runs
const recent = (points) => sum(points.slice(-RECENT_MIN - 1)) / (RECENT_MIN + (Date.now() % 60000) / 60000);

function measure(queue, hour, workers) {
  const key = `${queue.protocol}/${queue.queue}`;
  return { ...queue, key, hour, workers: workers.get(key), name: queue.queue, ...queue.counts, rate: hour ? recent(hour.completed) : 0,
    failed: hour ? recent(hour.dead) + recent(hour.retry) : 0, wait: hour?.wait_ms?.p50, run: hour?.run_ms?.p50, oldest: queue.oldest_at ? -queue.oldest_at : undefined };
}

export async function open({ params, signal, show, fail }) {
  let queues = [];
  let sorted = { key: params.get("sort") || "name", isUp: params.get("up") !== "0" };
  const sparks = new Map();
  const looks = new Map();
  const filter = h("input", { type: "search", placeholder: "Filter queues", "aria-label": "Filter queues by name or protocol", autocomplete: "off", spellcheck: "false", value: params.get("filter") || "" });
  const totals = h("div");
  const holder = h("div");
  let rows = null;
  let span = session.has_lake && params.get("span") in SPANS ? params.get("span") : "1";
  let history = {};
  const spans = session.has_lake ? h("select", { "aria-label": "Time of the lines", onchange: () => { span = spans.value; setParams({ span: span === "1" ? undefined : span }); makeTable(); loadHistory().catch(fail); } },
    Object.entries(SPANS).map(([value, text]) => h("option", { value, selected: value === span }, text))) : null;

  // with a lake, the lines are of days
  async function loadHistory() {
    if (span !== "1") history = (await get(`/v1/history/rates${query({ since: Date.now() - Number(span) * HOUR })}`, signal)).queues;
    draw();
  }

  function makeTable() {
    sparks.clear();
    looks.clear();
    rows = table({ label: "Queues", columns: COLUMNS, className: "dense", sorted, onSort: (key) => {
      sorted = { key, isUp: sorted.key === key ? !sorted.isUp : key === "name" };
      setParams({ sort: key, up: sorted.isUp ? undefined : "0" });
      makeTable();
      draw();
    } });
  }

  function cellsOf(queue) {
    const name = h("a.row-link", { href: queueLink(queue), title: queue.queue }, foreign(queue.queue));
    const counts = STATES.map((state) => {
      const count = queue.counts[state];
      if (count === undefined) return h("span.is-zero", { title: "the protocol does not count these" }, "–");
      if (!count) return h("span.is-zero", {}, "0");
      return h(`a.count.is-${state}`, { href: queueLink(queue, { state }), "aria-label": `${number(count)} ${state} jobs of ${queue.queue}` }, compact(count));
    });
    const pair = (values) => (values ? h("span", {}, duration(values.p50), h("span.is-soft", {}, ` / ${duration(values.p95)}`)) : h("span.is-zero", {}, "–"));
    const workers = queue.workers ?? null;
    const isUnattended = workers === 0 && (queue.counts.waiting || queue.counts.active);
    if (!sparks.has(queue.key)) sparks.set(queue.key, spark(`jobs completed in ${queue.queue}, ${SPANS[span].toLowerCase()}`));
    const long = span === "1" ? queue.hour : history[queue.key];
    sparks.get(queue.key).draw(long?.completed || [0]);
    return [
      h("span.queue-name", {}, name, protocolBadge(queue.protocol), queue.is_paused ? h("span.badge.is-warn", {}, "paused") : null),
      ...counts,
      queue.rate ? rate(queue.rate) : h("span.is-zero", {}, "0"),
      queue.failed ? h("span.is-bad", {}, rate(queue.failed)) : h("span.is-zero", {}, "0"),
      pair(queue.hour?.wait_ms), pair(queue.hour?.run_ms),
      queue.oldest_at ? time(queue.oldest_at, (at, now = Date.now()) => age(now - at)) : h("span.is-zero", {}, "–"),
      workers === null ? "…" : isUnattended ? h("span.is-warn", { title: "jobs wait, and no worker is alive" }, "none") : number(workers),
      sparks.get(queue.key).element,
      h("button.quiet.small", { type: "button", "aria-label": `Actions of ${queue.queue}`, title: "pause, drain, clean, retry …", onclick: () => openActions(queue).catch(fail) }, "…"),
    ];
  }

  async function openActions(queue) {
    const one = await get(queuePath(queue), signal);
    const dialog = openDialog(queue.queue, h("div.tools", {}, queueControls(one, () => { dialog.close(); loadQueues().catch(fail); })),
      (self) => [h("button.quiet", { type: "button", onclick: () => self.close() }, "Close")]);
  }

  function draw() {
    const words = filter.value.trim().toLowerCase();
    const shown = queues.filter((queue) => !words || queue.key.toLowerCase().includes(words));
    const by = (queue) => (sorted.key === "name" ? queue.key : queue[sorted.key] ?? -Infinity);
    shown.sort((a, b) => { const order = by(a) < by(b) ? -1 : by(a) > by(b) ? 1 : a.key < b.key ? -1 : 1; return sorted.isUp ? order : -order; });
    const keys = new Set(shown.map((queue) => queue.key));
    for (const key of rows.keys()) if (!keys.has(key)) rows.drop(key);
    for (const queue of shown) {
      // a row that looks as before is left alone: there may be hundreds
      const look = JSON.stringify([queue.counts, queue.is_paused, queue.oldest_at, queue.workers, queue.hour, span, history[queue.key]]);
      if (looks.get(queue.key) === look && rows.has(queue.key)) continue;
      looks.set(queue.key, look);
      rows.put(queue.key, cellsOf(queue));
    }
    rows.order(shown.map((queue) => queue.key));
    const total = (state) => sum(queues.map((queue) => queue.counts[state] || 0));
    totals.replaceChildren(cards([
      ["Queues", number(queues.length)], ["Waiting", compact(total("waiting"))], ["Active", compact(total("active"))],
      ["Completed a minute", rate(sum(queues.map((queue) => queue.rate)))],
      ["Dead", compact(total("dead")), total("dead") ? "is-bad" : ""], ["Workers", number(workerNames.size)]]));
    if (!queues.length) holder.replaceChildren(empty("No queues yet.", h("code", {}, "corral queue add mail send-email '{}'"), " creates one."));
    else if (!shown.length) holder.replaceChildren(empty("No queue matches the filter."));
    else if (holder.firstChild !== rows.element) holder.replaceChildren(rows.element);
  }

  let workers = new Map();
  let workerNames = new Set();
  let hours = {};
  async function loadQueues() {
    const answer = await get("/v1/queues", signal);
    queues = answer.queues.map((queue) => measure(queue, hours[`${queue.protocol}/${queue.queue}`], workers));
    draw();
  }
  async function loadSlow() {
    const [rates, list] = await Promise.all([get("/v1/rates", signal), get("/v1/workers", signal)]);
    hours = rates.queues;
    workers = new Map();
    for (const queue of queues) workers.set(queue.key, 0);
    for (const worker of list.workers) for (const name of worker.queues) {
      const key = `${worker.protocol}/${name}`;
      workers.set(key, (workers.get(key) || 0) + 1);
    }
    workerNames = new Set(list.workers.map((worker) => `${worker.protocol}/${worker.name || worker.address}`));
    queues = queues.map((queue) => measure(queue, hours[queue.key], workers));
    draw();
  }

  filter.addEventListener("input", () => { setParams({ filter: filter.value }); draw(); });
  makeTable();
  await loadQueues();
  show(h("div.page", {}, heading("Queues", spans, filter), totals, holder), "Queues");
  loadSlow().catch(fail);
  loadHistory().catch(fail);
  refreshOn(signal, () => true, loadQueues, 1000, 10000);
  refreshOn(signal, () => true, loadSlow, 5000, 10000);
  onFrame((frame) => {
    for (const key of Object.keys(frame.queues)) {
      const row = rows.row(key);
      // the animation starts again by the other of its two names, without a layout
      if (row) row.classList.replace("pulse", "pulse-again") || row.classList.replace("pulse-again", "pulse") || row.classList.add("pulse");
    }
  }, signal);
}
