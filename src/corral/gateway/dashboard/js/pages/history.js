// History, from the lake: throughput, failures, waits and runs over days; by queue, name and worker; and the spikes.

import { get, query, session } from "../api.js";
import { bars, lines } from "../charts.js";
import { foreign, h } from "../dom.js";
import { refreshOn } from "../feed.js";
import { compact, duration, number, percent, preview, time } from "../format.js";
import { cards, empty, heading, protocolBadge, section } from "../parts.js";
import { link, setParams } from "../router.js";
import { table } from "../table.js";

const DAY = 86400000;
const SPANS = { 1: "Last day", 7: "Last 7 days", 30: "Last 30 days", 90: "Last 90 days" };
const SPIKES = 5;
const sum = (list) => list.reduce((total, one) => total + one, 0);

const COUNTS = [
  { title: "Completed", className: "number" }, { title: "Retried", className: "number" }, { title: "Dead", className: "number" }, { title: "Failed", className: "number wide", hint: "share of all attempts" },
  { title: "Wait", className: "number wide", hint: "median, and 95 % are faster than" }, { title: "Run", className: "number", hint: "median, and 95 % are faster than" },
];

function labelOf(stepMs) {
  const words = new Intl.DateTimeFormat(undefined, stepMs >= DAY ? { day: "numeric", month: "short" } : { weekday: "short", hour: "2-digit", minute: "2-digit", hour12: false });
  return (at) => words.format(new Date(at));
}

const pair = (values) => (values ? h("span", {}, duration(values.p50), h("span.is-soft", {}, ` / ${duration(values.p95)}`)) : "–");

export async function open({ params, signal, show, fail }) {
  if (!session.has_lake) {
    show(h("div.page", {}, heading("History"), empty("This gateway has no lake.", "The history of jobs over days comes from a lake: ", h("code", {}, "corral lake run PATH"),
      " keeps one, and ", h("code", {}, "corral gateway --lake PATH"), " shows it here.")), "History");
    return;
  }
  const { queues } = await get("/v1/queues", signal);
  const chosen = { days: params.get("days") in SPANS ? params.get("days") : "7", queue: params.get("queue") || "", name: params.get("name") || "", worker: params.get("worker") || "" };
  const body = h("div.history");
  const days = h("select", { "aria-label": "Time" }, Object.entries(SPANS).map(([value, text]) => h("option", { value }, text)));
  const choice = h("select", { "aria-label": "Queue" });
  const chips = h("span.tools");

  function drawChoices(known) {
    const keys = [...new Set([...known, ...queues.map((one) => `${one.protocol}/${one.queue}`), chosen.queue].filter(Boolean))].sort();
    choice.replaceChildren(h("option", { value: "" }, "All queues"), ...keys.map((key) => h("option", { value: key }, key)));
    choice.value = chosen.queue;
    days.value = chosen.days;
    chips.replaceChildren(...["name", "worker"].filter((what) => chosen[what]).map((what) => (
      h("button.quiet.small", { type: "button", title: `of all ${what}s`, onclick: () => select({ [what]: "" }) }, `${what}: `, foreign(preview(chosen[what], 60)), " ×"))));
  }

  function select(values) {
    Object.assign(chosen, values);
    setParams(chosen, true);
    load().catch(fail);
  }

  // the jobs that ended in a time, on the server and in the lake
  function jobsLink(from, until, { state, queue = chosen.queue, name = chosen.name, worker = chosen.worker } = {}) {
    const conditions = [state ? `state = ${state}` : "", name ? `name = ${JSON.stringify(name)}` : "", worker ? `worker = ${JSON.stringify(worker)}` : "",
      `finished >= ${new Date(from).toISOString()}`, `finished < ${new Date(until).toISOString()}`];
    return link("search", [], { queue, q: conditions.filter(Boolean).join(" and ") });
  }

  function spikes(view) {
    const { series, from, step_ms: step } = view;
    const label = labelOf(step);
    const failed = series.dead.map((dead, n) => dead + series.retry[n]);
    const worst = failed.map((count, n) => [count, n]).filter(([count]) => count).sort((a, b) => b[0] - a[0]).slice(0, SPIKES);
    if (!worst.length) return empty("Nothing failed in this time.");
    return h("ol.spikes", {}, worst.map(([count, n]) => {
      const [start, end] = [from + n * step, from + (n + 1) * step];
      return h("li", {}, h("span", { title: new Date(start).toISOString() }, label(start)), h("span.is-bad", {}, `${number(count)} failed`), h("span.is-soft", {}, ` of ${number(count + series.completed[n])} attempts`),
        h("a", { href: jobsLink(start, end, { state: series.dead[n] ? "dead" : "" }) }, series.dead[n] ? `${number(series.dead[n])} dead jobs` : "its jobs"), h("a", { href: jobsLink(start, end) }, "all that ended"));
    }));
  }

  function rowsOf(label, list, first, cellOf, view) {
    if (!list.length) return empty(`No ${label.toLowerCase()} in this time.`);
    const rows = table({ label, columns: [{ title: first, className: "grow" }, ...COUNTS] });
    list.forEach((one, n) => {
      const attempts = one.completed + one.dead + one.retry;
      const where = { name: one.name || chosen.name, worker: one.worker || chosen.worker, queue: one.queue ? `${one.protocol}/${one.queue}` : chosen.queue };
      const dead = one.dead ? h("a.count.is-dead", { href: jobsLink(view.from, view.until, { ...where, state: "dead" }), "aria-label": `${number(one.dead)} dead jobs` }, compact(one.dead)) : h("span.is-zero", {}, "0");
      rows.put(`${n}`, [cellOf(one), compact(one.completed), one.retry ? compact(one.retry) : h("span.is-zero", {}, "0"), dead, percent((one.dead + one.retry) / attempts), pair(one.wait_ms), pair(one.run_ms)]);
    });
    return rows.element;
  }

  const pick = (text, values) => h("button.sort.row-link", { type: "button", onclick: () => select(values) }, foreign(preview(text || "(no name)", 80)));
  const nameCell = (one) => h("span.queue-name", {}, pick(one.name, { name: one.name || "", queue: `${one.protocol}/${one.queue}` }), h("span.is-soft", {}, foreign(one.queue)), one.reason ? h("span.is-soft.last-reason", { title: "the latest failure" }, foreign(preview(one.reason, 90))) : null);
  const queueCell = (one) => h("span.queue-name", {}, pick(one.queue, { queue: `${one.protocol}/${one.queue}` }), protocolBadge(one.protocol));
  const workerCell = (one) => h("span.queue-name", {}, pick(one.worker, { worker: one.worker }), protocolBadge(one.protocol));

  function draw(view) {
    const { series, from, step_ms: stepMs } = view;
    const label = labelOf(stepMs);
    const common = { from, stepMs, label, pick: (n) => { location.hash = jobsLink(from + n * stepMs, from + (n + 1) * stepMs); } };
    const failed = sum(series.dead) + sum(series.retry);
    const total = sum(series.completed) + failed;
    drawChoices(view.queues.map((one) => `${one.protocol}/${one.queue}`));
    const quantiles = (what, className) => lines({ ...common, columns: 2, title: what === "wait" ? "Waits" : "Runs", unit: "median and 95 %", format: (value) => duration(value),
      series: [{ name: "median", className, points: series[`${what}_p50`] }, { name: "95 % are faster", className: "is-delayed", points: series[`${what}_p95`] }] });
    body.replaceChildren(
      cards([["Added", series.added ? compact(sum(series.added)) : "–"], ["Completed", compact(sum(series.completed))], ["Retried", compact(sum(series.retry))], ["Dead", compact(sum(series.dead)), sum(series.dead) ? "is-bad" : ""],
        ["Attempts that failed", total ? percent(failed / total) : "–"], ["In the lake up to", view.reaches_to ? time(view.reaches_to) : "–"]]),
      total ? h("div.history", {},
        section("Throughput", bars({ ...common, title: "Attempts that ended", unit: `in ${duration(stepMs)}; a click shows the jobs`,
          series: [{ name: "completed", className: "is-completed", points: series.completed }, { name: "retried", className: "is-delayed", points: series.retry }, { name: "dead", className: "is-dead", points: series.dead }] })),
        section("Most failures", spikes(view)),
        h("div.columns.charts", {}, section("Waits", quantiles("wait", "is-waiting")), section("Runs", quantiles("run", "is-completed"))),
        section("Queues", rowsOf("Queues", view.queues, "Queue", queueCell, view)),
        section("Names", rowsOf("Names", view.names, "Name", nameCell, view)),
        section("Slowest names", rowsOf("Slowest names", view.slowest, "Name", nameCell, view)),
        section("Most failing names", rowsOf("Most failing names", view.failing, "Name", nameCell, view)),
        section("Workers", rowsOf("Workers", view.workers, "Worker", workerCell, view)))
        : empty("The lake has nothing of this time.", h("code", {}, "corral lake run"), " brings it up to date."));
  }

  async function load() {
    const until = Date.now();
    const { days: span, ...scope } = chosen;
    draw(await get(`/v1/history${query({ since: until - Number(span) * DAY, until, ...scope })}`, signal));
  }

  days.addEventListener("change", () => select({ days: days.value }));
  choice.addEventListener("change", () => select({ queue: choice.value, name: "", worker: "" }));
  drawChoices([]);
  show(h("div.page", {}, heading("History", chips, choice, days), body), "History");
  await load();
  refreshOn(signal, () => false, load, 60000, 60000);
}
