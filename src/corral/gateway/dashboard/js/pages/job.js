// One job: its data, result, log, attempts and events, live, and what one can do to it.

import { jobControls } from "../actions.js";
import { get, jobPath, queuePath, session, urlOf } from "../api.js";
import { copyButton, foreign, h } from "../dom.js";
import { refreshOn } from "../feed.js";
import { absoluteTime, duration, number, preview, time } from "../format.js";
import { crumbs, empty, facts, json, section, stateBadge } from "../parts.js";
import { go, jobLink, link, queueLink } from "../router.js";
import { attemptsOf, timeline } from "../timeline.js";

const MAX_EVENTS = 200;

export async function open({ parts, signal, show, fail }) {
  const [protocol, name, id] = parts;
  const where = { protocol, queue: name };
  let [queue, first] = [null, null];
  try {
    [queue, first] = await Promise.all([get(queuePath(where), signal), get(jobPath(where, id), signal)]);
  } catch (error) {
    if (error.status !== 404 || !session.has_lake) throw error;
    const past = await get(`/v1/history/jobs/${[protocol, name, id].map(encodeURIComponent).join("/")}`, signal).catch(() => { throw error; });
    show(h("div.page", {}, ...pastContent(where, past)), `${past.name} ${id}`);
    return;
  }
  const body = h("div.page");
  let shown = "";

  async function reload() {
    let job;
    try {
      job = await get(jobPath(where, id), signal);
    } catch (error) {
      if (error.status !== 404) throw error;
      body.querySelector(".heading")?.after(h("p.notice", { role: "alert" }, "This job was removed, or its time to live is over."));
      return;
    }
    draw(job);
  }

  function draw(job) {
    const text = JSON.stringify(job);
    if (text === shown) return;
    shown = text;
    const openSections = new Set([...body.querySelectorAll("details[data-name][open]")].map((one) => one.dataset.name));
    body.replaceChildren(...content(job));
    for (const one of body.querySelectorAll("details[data-name]")) if (openSections.has(one.dataset.name)) one.open = true;
  }

  function content(job) {
    const wait = job.started_at ? job.started_at - job.created_at - (job.options?.delay || 0) : null;
    const run = job.finished_at && job.started_at ? job.finished_at - job.started_at : null;
    const command = `corral job show ${name} ${job.id} --protocol ${protocol}`;
    return [
      crumbs(["Queues", link("queues")], [name, queueLink(where)], [job.id]),
      h("div.heading", {}, h("h1", {}, foreign(preview(job.name, 200)), " ", stateBadge(job.state)), h("div.tools", {}, jobControls(queue, job, () => reload().catch(fail), () => go(queueLink(where))))),
      job.reason ? h("p.reason", {}, foreign(preview(job.reason, 4000))) : null,
      facts([
        ["Id", h("span", {}, foreign(job.id), " ", copyButton(() => job.id, "Copy id"))],
        ["Queue", h("a", { href: queueLink(where) }, foreign(name))],
        ["Attempts", `${number(job.attempts_made)} of ${number(Math.max(job.options?.attempts ?? 1, 1))}${job.stalls ? `, stalled ${number(job.stalls)}×` : ""}`],
        ["Added", time(job.created_at)], ["Started", job.started_at ? time(job.started_at) : null], ["Ended", job.finished_at ? time(job.finished_at) : null],
        ["Waited", wait === null ? null : duration(Math.max(wait, 0))], ["Ran", run === null ? null : duration(run)],
        ["Worker", job.worker ? foreign(job.worker) : null], ["Priority", job.options?.priority || null], ["Delay", job.options?.delay ? duration(job.options.delay) : null],
        ...relations(job),
      ]),
      progress(job.progress),
      section("Timeline", timeline(attemptsOf(job))),
      h("div.columns", {},
        section("Data", json(job.data, "data")),
        job.state === "completed" || job.result !== null ? section("Result", json(job.result, "result")) : null,
        section("Options", json(job.options, "options"))),
      section("Log", job.logs.length ? h("ol.log", { tabindex: "0" }, job.logs.map((line) => h("li", {}, foreign(line)))) : empty("Nothing was logged.", "A handler writes with ", h("code", {}, "await job.log(…)"), ".")),
      section("Events", events(job)),
      h("details.panel.raw", { data: { name: "raw" } }, h("summary", {}, "Raw JSON"), h("p", {}, copyButton(() => JSON.stringify(job, null, 2))), h("pre", { tabindex: "0" }, rawText(job))),
      h("p.commands", {}, h("code", {}, command), " ", copyButton(() => command, "Copy command"), " ",
        copyButton(() => location.href, "Copy link"), " ", copyButton(() => `curl ${urlOf(jobPath(where, id))}`, "Copy as curl")),
    ].filter(Boolean);
  }

  function relations(job) {
    const parent = job.extra?.parentKey;
    const rows = [];
    if (parent) {
      const pieces = parent.split(":");
      const [parentId, parentQueue] = [pieces.pop(), pieces.pop()];
      rows.push(["Parent", h("a", { href: jobLink({ protocol, queue: parentQueue }, parentId) }, foreign(`${parentQueue} / ${parentId}`))]);
    }
    if (!queue.lacks.flows) rows.push(["Flow", h("a", { href: link("flow", [protocol, name, job.id]) }, "what it waits for")]);
    return rows;
  }

  draw(first);
  show(body, `${first.name} ${id}`);
  const key = `${protocol}/${name}`;
  refreshOn(signal, (frame) => frame.queues[key] && (id in frame.queues[key].jobs || frame.queues[key].has_more), reload, 500, 10000);
}

// a job that only the lake knows
function pastContent(where, job) {
  const spans = job.attempts.flatMap((one) => [
    { kind: "wait", from: one.queued_at ?? one.started_at, to: one.started_at, state: "waiting", text: "waited" },
    { kind: "run", from: one.started_at, to: one.ended_at, state: one.outcome === "completed" ? "completed" : "dead", text: `attempt ${one.attempt}`, worker: one.worker, detail: one.reason }]);
  return [
    crumbs(["Queues", link("queues")], [where.queue, queueLink(where)], [job.id]),
    h("div.heading", {}, h("h1", {}, foreign(preview(job.name, 200)), " ", stateBadge(job.state || job.outcome))),
    h("p.notice", {}, "The server has forgotten this job; this is what the lake knows of it. It keeps no data and no result."),
    job.reason ? h("p.reason", {}, foreign(preview(job.reason, 4000))) : null,
    facts([["Id", foreign(job.id)], ["Queue", h("a", { href: queueLink(where) }, foreign(where.queue))], ["Attempts", number(job.attempts_made)], ["Added", time(job.created_at)],
      ["Started", job.started_at ? time(job.started_at) : null], ["Ended", job.finished_at ? time(job.finished_at) : null], ["Worker", job.worker ? foreign(job.worker) : null]]),
    section("Timeline", timeline(spans)),
    section("Events", events(job)),
    h("p.commands", {}, copyButton(() => location.href, "Copy link")),
  ].filter(Boolean);
}

const rawText = (job) => { const text = JSON.stringify(job, null, 2); return text.length > 200000 ? `${text.slice(0, 200000)}\n… ${number(text.length - 200000)} more characters; copy has all` : text; };

function progress(value) {
  if (value === null || value === undefined || value === 0) return null;
  const share = typeof value === "number" ? value : typeof value === "object" && typeof value.percent === "number" ? value.percent : null;
  if (share === null) return section("Progress", json(value, "progress"));
  return section("Progress", h("p.progress", {}, h("progress", { max: "100", value: Math.min(share, 100), "aria-label": "Progress" }), ` ${number(share)} %`));
}

function events(job) {
  if (!job.events.length) return empty("No events are kept of this job any more.");
  const shown = job.events.slice(-MAX_EVENTS).reverse();
  return h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Events" }, h("table.rows.plain", {}, h("thead", {}, h("tr", {}, ["When", "Kind", "Attempt", "Worker", "Data"].map((title) => h("th", { scope: "col" }, title)))),
    h("tbody", {}, shown.map((event) => h("tr", {}, h("td.number", { title: absoluteTime(event.at) }, new Date(event.at).toISOString().slice(11, 23)), h("td", {}, foreign(event.kind)),
      h("td.number", {}, event.attempt ?? ""), h("td", {}, foreign(event.worker || "")), h("td.clip.grow", {}, h("bdi.is-soft", {}, preview(event.data, 200))))))));
}
