// Server: memory, persistence, slow commands, and what the doctor finds with its remedy.

import { get } from "../api.js";
import { copyButton, foreign, h } from "../dom.js";
import { refreshOn } from "../feed.js";
import { bytes, compact, duration, number, time } from "../format.js";
import { cards, empty, facts, heading, section } from "../parts.js";

export async function open({ signal, show }) {
  const body = h("div.page");

  function findings(list) {
    const order = { mend: 0, note: 1, fine: 2 };
    const sorted = [...list].sort((a, b) => order[a.level] - order[b.level]);
    return h("ul.findings", {}, sorted.map((one) => h("li.finding", {}, h(`span.level-${one.level in order ? one.level : "note"}`, {}, one.level), h("span", {}, one.check), foreign(one.finding),
      one.mend ? h("span.mend", {}, "→ ", foreign(one.mend), " ", copyButton(() => one.mend)) : null)));
  }

  function slow(list) {
    if (!list.length) return empty("No slow commands.", "The server notes those that take longer than ", h("code", {}, "slowlog-log-slower-than"), ".");
    return h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Slow commands" }, h("table.rows.plain", {}, h("thead", {}, h("tr", {}, ["When", "Took", "Command", "Client"].map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, list.map((one) => h("tr", {}, h("td", {}, time(one.at)), h("td.number", {}, duration(one.duration_us / 1000)), h("td.grow.clip", {}, h("code", {}, foreign(one.command))), h("td", {}, foreign(one.client)))))));
  }

  async function load() {
    const server = await get("/v1/server", signal);
    const [node] = server.nodes;
    const mend = server.findings.filter((one) => one.level === "mend").length;
    body.replaceChildren(heading("Server"),
      cards([["Memory", bytes(node.used_memory)], ["Limit", node.max_memory ? bytes(node.max_memory) : "none"], ["Commands a second", compact(node.commands_per_second ?? 0)], ["Clients", number(node.clients)],
        ["Up", duration((node.uptime_s || 0) * 1000)], ["To mend", number(mend), mend ? "is-bad" : ""]]),
      section("Findings", findings(server.findings)),
      h("div.columns", {},
        section("Memory", facts([["Used", bytes(node.used_memory)], ["Peak", bytes(node.peak_memory)], ["Fragmentation", node.fragmentation], ["Evicted keys", number(node.evicted_keys)], ["Expired keys", number(node.expired_keys)]])),
        section("Persistence", facts([["Append-only file", node.aof_enabled ? "on" : "off"], ["Last snapshot", node.last_save_at_s ? time(node.last_save_at_s * 1000) : "never"], ["Changes since", number(node.unsaved_changes)]])),
        section("Replication and clients", facts([["Version", node.version], ["Role", node.role], ["Replicas", number(node.replicas)], ["Blocked clients", number(node.blocked_clients)], ["In", `${node.input_kbps ?? 0} KB/s`], ["Out", `${node.output_kbps ?? 0} KB/s`]]))),
      section("Slow commands", slow(server.slow)), h("p.commands", {}, h("code", {}, "corral doctor"), " finds the same."));
  }

  await load();
  show(body, "Server");
  refreshOn(signal, () => false, load, 5000, 5000);
}
