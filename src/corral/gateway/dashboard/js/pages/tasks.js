// Bulk changes: their progress while they run, and their failures afterwards.

import { get, remove } from "../api.js";
import { foreign, h } from "../dom.js";
import { refreshOn } from "../feed.js";
import { duration, number, time } from "../format.js";
import { empty, heading, protocolBadge } from "../parts.js";
import { queueLink } from "../router.js";
import { table } from "../table.js";

const COLUMNS = [{ title: "Change" }, { title: "Queue" }, { title: "Conditions", className: "grow clip" }, { title: "Progress" }, { title: "Done", className: "number" }, { title: "Not done", className: "number" }, { title: "By", className: "wide" }, { title: "Started", className: "number" }, { title: "Took", className: "number wide" }, { title: "State" }];

export async function open({ params, signal, show, fail }) {
  const holder = h("div");

  function progress(task) {
    const share = task.state === "completed" ? 100 : task.total ? Math.min((task.scanned / task.total) * 100, 100) : 0;
    return h("progress", { max: "100", value: share, "aria-label": `${number(share)} % of ${number(task.total)} jobs looked at`, title: `${number(task.scanned)} of ${number(task.total)} jobs looked at` });
  }

  function stateOf(task) {
    if (task.state !== "running") return h("span", { class: task.state === "completed" ? "" : "is-bad", title: task.errors.join("\n") }, task.state, task.errors.length ? `: ${task.errors[task.errors.length - 1]}` : "");
    return h("button.quiet.small.risky", { type: "button", onclick: () => remove(`/v1/tasks/${task.id}`).then(load).catch(fail) }, "Stop");
  }

  async function load() {
    const { tasks } = await get("/v1/tasks", signal);
    const rows = table({ label: "Bulk changes", columns: COLUMNS });
    for (const task of tasks) {
      const row = rows.put(task.id, [h("strong", {}, task.verb), h("span.queue-name", {}, h("a", { href: queueLink(task) }, foreign(task.queue)), protocolBadge(task.protocol)), foreign(task.query || "everything"),
        progress(task), number(task.done), task.not_done ? h("span.is-bad", {}, number(task.not_done)) : "0", foreign(task.actor), time(task.started_at), duration(task.updated_at - task.started_at), stateOf(task)]);
      row.element.classList.toggle("is-current", task.id === params.get("id"));
    }
    holder.replaceChildren(tasks.length ? rows.element : empty("No bulk changes in the last day.", "They start from a search, a queue's state, or a group of dead letters."));
  }

  await load();
  show(h("div.page", {}, heading("Bulk changes"), holder), "Bulk changes");
  refreshOn(signal, () => true, load, 700, 2000);
}
