// Search: jobs of one queue or of all by conditions, page after page, until all is looked at or one stops it.

import { startTask, whyAbsent } from "../actions.js";
import { get, query, queuePath, session } from "../api.js";
import { foreign, h } from "../dom.js";
import { number, plural, preview, time } from "../format.js";
import { empty, heading, stateBadge } from "../parts.js";
import { jobLink, setParams } from "../router.js";
import { table } from "../table.js";

const MAX_FOUND = 500;
const EXAMPLES = ["state = dead", "name = send-email", "data.user.id = 17", 'data ~ "ada@"', "reason ~ timeout", "created > -1h and attempts > 1", "worker = mailer-1"];
const COLUMNS = [{ title: "Id", className: "id" }, { title: "State" }, { title: "Name", className: "name" }, { title: "Queue" }, { title: "Data or reason", className: "grow clip" }, { title: "Attempts", className: "number wide" }, { title: "Added", className: "number" }];

const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

export async function open({ params, signal, show, fail }) {
  const { queues } = await get("/v1/queues", signal);
  const keyOf = (queue) => `${queue.protocol}/${queue.queue}`;
  const choice = h("select", {}, h("option", { value: "" }, "All queues"), queues.map((queue) => h("option", { value: keyOf(queue) }, `${queue.queue} (${queue.protocol})`)));
  choice.value = params.get("queue") || "";
  if (choice.selectedIndex < 0) choice.value = "";
  const input = h("input", { type: "search", value: params.get("q") || "", autocomplete: "off", spellcheck: "false", placeholder: "state = dead and data.user.id = 17" });
  const form = h("form.search-form", { role: "search" }, h("label.field", {}, h("span", {}, "Queue"), choice), h("label.field", {}, h("span", {}, "Conditions"), input), h("button.primary", { type: "submit" }, "Search"));
  const examples = h("p.syntax", {}, "For example ", EXAMPLES.map((text) => [h("button.quiet.small", { type: "button", onclick: () => { input.value = text; run(); } }, text), " "]));
  const progress = h("div.search-progress", { role: "status" });
  const problem = h("p.field-error", { role: "alert" });
  const results = h("div");
  let number_ = 0;

  async function run() {
    const own = (number_ += 1);
    const search = input.value.trim();
    setParams({ q: search, queue: choice.value }, true);
    problem.textContent = "";
    const rows = table({ label: "Jobs found", columns: COLUMNS });
    const chosen = queues.filter((queue) => !choice.value || keyOf(queue) === choice.value);
    const times = new Map();
    let [found, scanned, isStopped, note] = [0, 0, false, ""];
    const bar = h("progress", { max: "100", value: "0", "aria-label": "Share of the jobs looked at" });
    const text = h("span");
    const stop = h("button.quiet.small", { type: "button", onclick: () => { isStopped = true; } }, "Stop");
    progress.replaceChildren(bar, text, stop);
    results.replaceChildren();
    const tell = (end) => {
      text.textContent = `${plural(found, "match", "matches")} in ${plural(scanned, "record")} looked at${end}`;
    };
    try {
      for (const [index, queue] of chosen.entries()) {
        let cursor = "";
        let inQueue = 0;
        do {
          const page = await get(`${queuePath(queue)}/search${query({ query: search, cursor, limit: 100 })}`, signal);
          if (own !== number_) return;
          scanned += page.scanned;
          inQueue += page.scanned;
          for (const job of page.jobs) {
            const key = `${keyOf(queue)}/${job.id}`;
            if (rows.has(key)) continue;
            found += 1;
            times.set(key, job.created_at);
            rows.put(key, cellsOf(queue, job));
          }
          // the newest first, whatever the order in which the server finds them
          rows.order(rows.keys().sort((a, b) => times.get(b) - times.get(a)));
          if (found && !results.firstChild) results.append(rows.element);
          bar.value = ((index + Math.min(inQueue / Math.max(page.total, inQueue, 1), 1)) / chosen.length) * 100;
          tell("…");
          cursor = page.next;
          if (cursor) await sleep(20);
        } while (cursor && !isStopped && found < MAX_FOUND && !signal.aborted);
        if (isStopped || found >= MAX_FOUND || signal.aborted) break;
      }
      if (session.has_lake && !isStopped && found < MAX_FOUND) note = await searchLake(own, search, (job) => {
        const key = `${keyOf(job)}/${job.id}`;
        if (rows.has(key)) return;
        found += 1;
        times.set(key, job.created_at);
        rows.put(key, cellsOf(job, job, true));
        if (!results.firstChild) results.append(rows.element);
      });
      rows.order(rows.keys().sort((a, b) => times.get(b) - times.get(a)));
      if (own !== number_) return;
    } catch (error) {
      progress.replaceChildren();
      if (error.status === 422) { problem.textContent = error.message; return; }
      throw error;
    }
    stop.remove();
    bar.value = isStopped || found >= MAX_FOUND ? bar.value : 100;
    tell(isStopped ? "; stopped" : found >= MAX_FOUND ? `; the first ${number(MAX_FOUND)} are shown` : note);
    if (!found) results.replaceChildren(empty("No job matches.", "Jobs that ended may have been removed by their retention."));
    else if (chosen.length === 1) progress.append(...["retry", "replay", "promote", "cancel", "remove"].filter((verb) => !whyAbsent(chosen[0], verb)).map((verb) => (
      h(`button.quiet.small${verb === "remove" ? ".risky" : ""}`, { type: "button", onclick: () => startTask(chosen[0], verb, search).catch(fail) }, `${verb} all that match`))));
  }

  // what the server has forgotten; returns what the lake cannot tell
  async function searchLake(own, search, add) {
    let cursor = "";
    let count = 0;
    try {
      do {
        const page = await get(`/v1/history/jobs${query({ query: search, queue: choice.value, cursor, limit: 100 })}`, signal);
        if (own !== number_) return "";
        page.jobs.forEach(add);
        count += page.jobs.length;
        cursor = page.next;
      } while (cursor && count < MAX_FOUND);
    } catch (error) {
      if (error.status === 422 || error.status === 404 || error.status === 503) return `; not in the lake: ${error.message}`;
      throw error;
    }
    return cursor ? "; the lake has more" : " and in the lake";
  }

  const cellsOf = (queue, job, isPast = false) => [h("a.row-link", { href: jobLink(queue, job.id) }, foreign(job.id)), isPast ? h("span", { title: "only the lake has it" }, stateBadge(job.state || job.outcome), h("span.is-soft", {}, " lake")) : stateBadge(job.state), foreign(preview(job.name, 80)), foreign(queue.queue),
    job.reason ? h("bdi.is-bad", {}, preview(job.reason)) : h("bdi.is-soft", {}, preview(job.data)), number(job.attempts_made), time(job.created_at)];

  form.addEventListener("submit", (event) => { event.preventDefault(); run().catch(fail); });
  signal.addEventListener("abort", () => { number_ += 1; });
  show(h("div.page", {}, heading("Search"), form, examples, problem, progress, results), "Search");
  input.focus();
  if (input.value) run().catch(fail);
}
