// Flows: the jobs that wait for their children, in every queue whose protocol has flows.

import { get, queuePath } from "../api.js";
import { foreign, h } from "../dom.js";
import { refreshOn } from "../feed.js";
import { preview, time } from "../format.js";
import { empty, heading, protocolBadge } from "../parts.js";
import { go, link, queueLink } from "../router.js";
import { table } from "../table.js";

const COLUMNS = [{ title: "Parent", className: "id" }, { title: "Name", className: "name" }, { title: "Queue" }, { title: "Data", className: "grow clip" }, { title: "Added", className: "number" }];

export async function open({ params, signal, show }) {
  const holder = h("div");
  const note = h("p.is-soft");
  const wanted = params.get("queue");

  async function load() {
    const { queues } = await get("/v1/queues", signal);
    const able = queues.filter((queue) => !queue.lacks.flows && (!wanted || `${queue.protocol}/${queue.queue}` === wanted));
    const without = [...new Set(queues.filter((queue) => queue.lacks.flows).map((queue) => queue.lacks.flows))];
    note.textContent = without.join(" · ");
    const lists = await Promise.all(able.slice(0, 100).map(async (queue) => (await get(`${queuePath(queue)}/flows`, signal)).jobs.map((job) => ({ queue, job }))));
    const rows = table({ label: "Flows", columns: COLUMNS });
    const parents = lists.flat().sort((a, b) => b.job.created_at - a.job.created_at);
    for (const { queue, job } of parents) {
      rows.put(`${queue.protocol}/${queue.queue}/${job.id}`, [h("a.row-link", { href: link("flow", [queue.protocol, queue.queue, job.id]) }, foreign(job.id)), foreign(preview(job.name, 80)),
        h("span.queue-name", {}, h("a", { href: queueLink(queue) }, foreign(queue.queue)), protocolBadge(queue.protocol)), h("bdi.is-soft", {}, preview(job.data)), time(job.created_at)]);
    }
    holder.replaceChildren(parents.length ? rows.element : empty("No job waits for children.", "Flows that have ended are found from any of their jobs, by its page."));
  }

  const form = h("form.tools", {}, h("input", { type: "search", placeholder: "queue/job id", "aria-label": "Open the flow of queue/job id" }), h("button", { type: "submit" }, "Open"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const [queue, ...id] = form.querySelector("input").value.trim().split("/");
    if (queue && id.length) go(link("flow", ["bullmq", queue, id.join("/")]));
  });
  await load();
  show(h("div.page", {}, heading("Flows", form), holder, note), "Flows");
  refreshOn(signal, () => true, load, 3000, 15000);
}
