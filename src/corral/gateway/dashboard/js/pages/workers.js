// Workers: where they are, what they run right now and for how long; and the queues that have none.

import { get } from "../api.js";
import { foreign, h } from "../dom.js";
import { refreshOn } from "../feed.js";
import { duration, number, preview, time } from "../format.js";
import { empty, heading, protocolBadge, section } from "../parts.js";
import { jobLink, queueLink } from "../router.js";
import { table } from "../table.js";

const COLUMNS = [{ title: "Worker", className: "id" }, { title: "Where" }, { title: "Since", className: "number wide" }, { title: "Last seen", className: "number" }, { title: "Queues" }, { title: "Runs now", className: "grow" }, { title: "Capabilities", className: "wide clip roomy" }];

export async function open({ signal, show }) {
  const holder = h("div");
  const unattended = h("div");

  function cellsOf(worker) {
    const extra = worker.extra || {};
    const record = worker.record;
    const address = record ? `${record.host}, process ${record.process}` : extra.hostname ? `${extra.hostname}${extra.pid ? `, process ${extra.pid}` : ""}` : worker.address || "–";
    const since = record ? time(record.since) : extra.age ? time(Date.now() - Number(extra.age) * 1000) : extra.startedAt ? time(Number(extra.startedAt)) : "–";
    const seen = record ? time(record.at) : worker.seen_at ? time(worker.seen_at) : extra.idle !== undefined ? time(Date.now() - Number(extra.idle) * 1000) : "connected";
    const jobs = worker.jobs.slice(0, 10).map((job) => h("span", {}, h("a", { href: jobLink({ protocol: worker.protocol, queue: job.queue }, job.id) }, foreign(preview(job.name, 60))),
      h("span.is-soft", {}, " for ", job.started_at ? time(job.started_at, (at, now = Date.now()) => duration(now - at)) : "?")));
    if (worker.jobs.length > 10) jobs.push(h("span.is-soft", {}, `and ${number(worker.jobs.length - 10)} more`));
    const unhandled = record ? Object.keys(record.unhandled || {}) : [];
    const abilities = [record ? `${number(record.concurrency)} at a time` : null, record ? Object.keys(record.handlers).join(", ") : null, extra.stack, extra.region, ...(Array.isArray(extra.capabilities) ? extra.capabilities : [])].filter(Boolean).join(", ");
    return [h("span.queue-name", {}, foreign(worker.name || worker.address || "?"), protocolBadge(worker.protocol)), foreign(address), since, seen,
      h("span", {}, worker.queues.map((queue, n) => [n ? ", " : "", h("a", { href: queueLink({ protocol: worker.protocol, queue }) }, foreign(queue))])),
      jobs.length ? h("span.worker-jobs", {}, jobs) : h("span.is-zero", {}, "idle"), h("span", {}, foreign(abilities || "–"),
        unhandled.length ? h("span.is-warn", { title: "Jobs of these names are left to other workers." }, " no handler for ", foreign(preview(unhandled.join(", "), 120))) : null)];
  }

  async function load() {
    const list = await get("/v1/workers", signal);
    const rows = table({ label: "Workers", columns: COLUMNS });
    for (const worker of list.workers) rows.put(`${worker.protocol}/${worker.name || worker.address}`, cellsOf(worker));
    holder.replaceChildren(list.workers.length ? rows.element : empty("No worker is alive.", h("code", {}, "corral worker MODULE:APP"), " starts some."));
    unattended.replaceChildren(...(list.unattended.length ? [section("Queues without a worker", h("ul.facts", {}, list.unattended.map((queue) => (
      h("li", {}, h("a", { href: queueLink(queue) }, foreign(queue.queue)), " ", protocolBadge(queue.protocol), queue.counts?.waiting ? h("span.is-warn", {}, ` ${number(queue.counts.waiting)} waiting`) : null)))))] : []));
  }

  await load();
  show(h("div.page", {}, heading("Workers"), holder, unattended), "Workers");
  refreshOn(signal, () => true, load, 2000, 5000);
}
