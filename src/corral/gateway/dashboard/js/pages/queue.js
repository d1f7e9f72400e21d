// One queue: its last hour, its limits, and its jobs by state.

import { actOnIds, control, queueControls, startTask, whyAbsent } from "../actions.js";
import { get, query, queuePath } from "../api.js";
import { bars } from "../charts.js";
import { confirm } from "../dialog.js";
import { foreign, h, write } from "../dom.js";
import { onFrame, refreshOn } from "../feed.js";
import { compact, duration, number, plural, preview, time } from "../format.js";
import { crumbs, empty, facts, protocolBadge } from "../parts.js";
import { jobLink, link, queueLink, setParams } from "../router.js";
import { table } from "../table.js";

const STATES = ["waiting", "delayed", "active", "completed", "dead", "cancelled"];
const PAGE = 50;
const COLUMNS = [
  { title: "Id", className: "id" }, { title: "Name", className: "name" }, { title: "Data", className: "grow clip" },
  { title: "Attempts", className: "number" }, { title: "Added", className: "number" }, { title: "Took", className: "number wide" }, { title: "Worker", className: "clip wide" },
];

export async function open({ parts, params, signal, show, fail }) {
  const [protocol, name] = parts;
  const where = { protocol, queue: name };
  let queue = await get(queuePath(where), signal);
  let state = STATES.includes(params.get("state")) ? params.get("state") : firstState(queue);
  let cursor = "";
  let changes = 0;

  const tabs = h("div.tabs", { role: "tablist", "aria-label": "Jobs by state" });
  const tools = h("div.tools");
  const about = h("div");
  const chart = h("div");
  const list = h("div", { role: "tabpanel", "aria-label": "Jobs" });
  const more = h("button", { type: "button", onclick: () => load(false).catch(fail) }, "Load more");
  const fresh = h("button.quiet.reload", { type: "button", data: { reload: "" }, onclick: () => load(true).catch(fail) }, "Reload");
  const picked = h("div.picked", { hidden: true });
  const rows = table({ label: `Jobs of ${name}`, columns: COLUMNS, selectable: true, onSelect: drawPicked });

  const reload = (id) => { refresh().catch(fail); if (typeof id === "string") load(true).catch(fail); };

  function drawHead() {
    tools.replaceChildren(...queueControls(queue, reload));
    const counted = STATES.filter((one) => one in queue.counts || one === state || (one === "dead" && !queue.lacks.schedules) || ["completed", "dead"].includes(one));
    tabs.replaceChildren(...counted.map((one) => h("a.tab", { href: queueLink(where, { state: one }), role: "tab", "aria-selected": String(one === state),
      onclick: (event) => { if (!event.ctrlKey && !event.metaKey) { event.preventDefault(); choose(one); } } },
    one, h(`span.tab-count${one === "dead" && queue.counts.dead ? ".is-bad" : ""}`, {}, queue.counts[one] === undefined ? "" : compact(queue.counts[one])))));
    const { concurrency, rate } = queue.limits;
    about.replaceChildren(facts([
      ["State", queue.is_paused ? h("span.badge.is-warn", {}, "paused") : "running"],
      ["Next job added", queue.oldest_at ? time(queue.oldest_at) : "–"],
      ["Concurrency", queue.lacks.limits ? h("span.is-soft", { title: queue.lacks.limits }, "no limits") : concurrency ? number(concurrency) : "no limit"],
      ["Rate", queue.lacks.limits ? null : rate ? `${number(rate.count)} in ${duration(rate.duration)}` : "no limit"],
      ["Flows", queue.lacks.flows ? null : h("a", { href: link("flows", [], { queue: `${protocol}/${name}` }) }, "parents and children")],
      ["Command", h("code", {}, `corral queue show ${name} --protocol ${protocol}`)],
    ]));
  }

  function choose(next) {
    state = next;
    setParams({ state }, true);
    drawHead();
    load(true).catch(fail);
  }

  function drawPicked() {
    const ids = [...rows.selected];
    picked.hidden = !ids.length;
    const act = (verb) => control(verb, { why: whyAbsent(queue, verb), className: verb === "remove" ? "risky" : "", onclick: () => confirm({
      title: `${verb} ${plural(ids.length, "job")}`, verb, isDangerous: verb === "remove", text: `${plural(ids.length, "selected job")} of ${name}.`,
      word: verb === "remove" && ids.length > 1 ? name : undefined,
      act: async () => { const text = await actOnIds(where, verb, ids); await load(true); reload(); return text; } }) });
    const verbs = { waiting: ["cancel", "remove"], delayed: ["promote", "cancel", "remove"], active: ["cancel"], completed: ["retry", "remove"], dead: ["retry", "replay", "remove"], cancelled: ["remove"] }[state];
    const total = queue.counts[state] ?? 0;
    picked.replaceChildren(h("strong", {}, `${number(ids.length)} selected`), ...verbs.map(act),
      total > ids.length ? h("span.is-soft", {}, "or all ", number(total), ": ", ...verbs.map((verb) => h("button.quiet.small", { type: "button", disabled: Boolean(whyAbsent(queue, verb)), title: whyAbsent(queue, verb),
        onclick: () => startTask(where, verb, `state = ${state}`).catch(fail) }, `${verb} all`))) : null,
      h("button.quiet.small", { type: "button", onclick: () => rows.unselect() }, "Clear"));
  }

  function cellsOf(job) {
    const text = job.reason !== null && job.reason !== undefined && job.state !== "completed" ? h("bdi.is-bad", { title: preview(job.reason, 2000) }, preview(job.reason)) : h("bdi.is-soft", { title: preview(job.data, 2000) }, preview(job.data));
    const took = job.finished_at && job.started_at ? duration(job.finished_at - job.started_at) : job.started_at && job.state === "active" ? time(job.started_at, (at, now = Date.now()) => duration(now - at)) : "–";
    return [h("a.row-link", { href: jobLink(where, job.id) }, foreign(job.id)), foreign(preview(job.name, 80)), text,
      `${number(job.attempts_made)} / ${number(Math.max(job.options?.attempts ?? 1, 1))}`, time(job.created_at), took, foreign(job.worker || "–")];
  }

  async function load(isFirst) {
    if (isFirst) cursor = "";
    const jobs = [];
    do {
      // a page without jobs has looked at many of other queues
      const page = await get(`${queuePath(where)}/jobs${query({ state, limit: PAGE, cursor })}`, signal);
      jobs.push(...page.jobs);
      cursor = page.next || "";
    } while (!jobs.length && cursor);
    if (isFirst) rows.clear();
    // a job that was done and came back is shown where it was
    for (const job of jobs) if (!rows.has(job.id)) rows.put(job.id, cellsOf(job));
    changes = 0;
    drawChanges();
    more.hidden = !cursor;
    const nothing = queue.counts[state] === undefined && state !== "active" && state !== "waiting" ? "The protocol keeps no list of these; what its events still tell is shown." : "";
    list.replaceChildren(rows.size ? rows.element : empty(`No ${state} jobs.`, nothing));
  }

  const drawChanges = () => write(fresh, changes ? `Reload, ${plural(changes, "change")}` : "Reload", changes ? "quiet reload is-fresh" : "quiet reload");

  async function refresh() {
    queue = await get(queuePath(where), signal);
    drawHead();
  }

  async function loadHour() {
    const hour = (await get("/v1/rates", signal)).queues[`${protocol}/${name}`];
    if (!hour) return;
    chart.replaceChildren(h("div.hour", {}, bars({ title: `Jobs of ${name} in the last hour`, unit: "jobs a minute", from: hour.from, stepMs: 60000,
      series: [{ name: "completed", className: "is-completed", points: hour.completed }, { name: "retried", className: "is-delayed", points: hour.retry }, { name: "dead", className: "is-dead", points: hour.dead }] }),
    facts([["Wait, median", hour.wait_ms ? duration(hour.wait_ms.p50) : "–"], ["Wait, 95 %", hour.wait_ms ? duration(hour.wait_ms.p95) : "–"],
      ["Run, median", hour.run_ms ? duration(hour.run_ms.p50) : "–"], ["Run, 95 %", hour.run_ms ? duration(hour.run_ms.p95) : "–"]])));
  }

  drawHead();
  await load(true);
  show(h("div.page", {}, crumbs(["Queues", link("queues")], [name]), h("div.heading", {}, h("h1", {}, foreign(name), " ", protocolBadge(protocol)), tools), about, chart,
    h("div.tab-row", {}, tabs, h("div.tools", {}, h("a.button.quiet", { href: link("search", [], { queue: `${protocol}/${name}`, q: `state = ${state}` }) }, "Filter"), fresh)),
    picked, list, h("p.more", {}, more)), name);
  loadHour().catch(fail);
  const key = `${protocol}/${name}`;
  refreshOn(signal, (frame) => key in frame.queues, refresh, 1000, 10000);
  refreshOn(signal, (frame) => key in frame.queues, loadHour, 10000, 30000);
  onFrame((frame) => {
    const part = frame.queues[key];
    if (!part) return;
    changes += Object.values(part.kinds).reduce((sum, one) => sum + one, 0);
    drawChanges();
    for (const [id, kind] of Object.entries(part.jobs)) rows.row(id)?.classList.toggle("is-moved", kind !== state);
  }, signal);
}

function firstState(queue) {
  return ["active", "waiting", "dead", "delayed", "completed"].find((state) => queue.counts[state]) || "waiting";
}
