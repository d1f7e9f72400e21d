// Audit log: who changed what, here or on the command line.

import { get, query } from "../api.js";
import { foreign, h } from "../dom.js";
import { preview, time } from "../format.js";
import { empty, heading } from "../parts.js";
import { jobLink, queueLink } from "../router.js";
import { table } from "../table.js";

const COLUMNS = [{ title: "When" }, { title: "Who" }, { title: "Through" }, { title: "Change" }, { title: "Queue" }, { title: "Of" }, { title: "Detail", className: "grow clip" }];

export async function open({ signal, show, fail }) {
  const rows = table({ label: "Changes", columns: COLUMNS });
  const holder = h("div");
  const more = h("button", { type: "button", onclick: () => load().catch(fail) }, "Load more");
  let cursor = "";

  async function load() {
    const page = await get(`/v1/audit${query({ cursor, limit: 100 })}`, signal);
    for (const one of page.entries) {
      const where = { protocol: one.protocol, queue: one.queue };
      rows.put(one.id, [time(one.at), foreign(one.actor), one.via, foreign(one.action), one.queue ? h("a", { href: queueLink(where) }, foreign(one.queue)) : "–",
        one.subject && one.queue ? h("a", { href: jobLink(where, one.subject) }, foreign(preview(one.subject, 40))) : foreign(one.subject || "–"), h("bdi.is-soft", { title: preview(one.detail, 2000) }, preview(one.detail))]);
    }
    cursor = page.next || "";
    more.hidden = !cursor;
    holder.replaceChildren(rows.size ? rows.element : empty("Nothing was changed yet.", "Changes by HTTP and by the command line are recorded here."));
  }

  const reload = h("button.quiet", { type: "button", data: { reload: "" }, onclick: () => { rows.clear(); cursor = ""; load().catch(fail); } }, "Reload");
  await load();
  show(h("div.page", {}, heading("Audit log", reload), holder, h("p.more", {}, more)), "Audit log");
}
