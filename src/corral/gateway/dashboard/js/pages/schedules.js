// Schedules: when each fires next, in the viewer's zone and its own; run now, pause, change, remove.

import { control } from "../actions.js";
import { get, may, post, put, queuePath, remove, whyNot } from "../api.js";
import { confirm, field, jsonInput, openDialog, toast } from "../dialog.js";
import { foreign, h } from "../dom.js";
import { refreshOn } from "../feed.js";
import { absoluteTime, duration, preview, time, timeInZone } from "../format.js";
import { empty, heading, json, protocolBadge } from "../parts.js";
import { jobLink, queueLink } from "../router.js";
import { table } from "../table.js";

const COLUMNS = [{ title: "Schedule", className: "id" }, { title: "Queue" }, { title: "Job", className: "name" }, { title: "Rule", className: "grow" }, { title: "Last", className: "number", hint: "past firings, the last at the right" }, { title: "Next", className: "number" }, { title: "Actions" }];

const ruleText = (rule) => (rule.every_ms ? `every ${duration(rule.every_ms)}` : `${rule.cron} (${rule.timezone || "UTC"})`);

export async function open({ signal, show, fail }) {
  const holder = h("div");
  const pathOf = (one) => `${queuePath(one)}/schedules/${encodeURIComponent(one.id)}`;
  const why = (one, verb) => (verb && one.lacks[verb]) || (may("operate") ? "" : whyNot("operate"));
  const reload = () => load().catch(fail);

  function firings(one) {
    const zone = one.rule.timezone || "UTC";
    const rows = one.firings.map((at) => h("tr", {}, h("td", {}, time(at)), h("td.number", {}, absoluteTime(at)), h("td.number", {}, timeInZone(at, zone))));
    openDialog(one.id, h("div.dialog-content", {}, h("p", {}, `${ruleText(one.rule)}, catch-up ${one.rule.catch_up}`),
      rows.length ? h("table.rows.plain", {}, h("thead", {}, h("tr", {}, ["In", "Your time", zone].map((title) => h("th", { scope: "col" }, title)))), h("tbody", {}, rows)) : h("p", {}, "It is paused."),
      h("h3", {}, "Data"), json(one.job.data, "data")), (self) => [h("button.primary", { type: "button", onclick: () => self.close() }, "Close")]);
  }

  // past firings: a mark for each, with its job where that is known
  function marks(one) {
    if (!one.past.length) return h("span.is-zero", {}, "–");
    const known = one.past.filter((firing) => firing.state);
    return h("span.marks-box", {}, h("span.marks", {}, one.past.map((firing) => {
      const text = `${absoluteTime(firing.at)}: ${firing.state || "nothing is known any more"}`;
      return firing.state ? h(`a.mark.is-${firing.state}`, { href: jobLink(one, firing.job_id), title: text, "aria-label": text }) : h("i.mark.is-unknown", { title: text });
    })), known.length ? time(known[known.length - 1].at) : h("span.is-zero", {}, "–"));
  }

  function actions(one) {
    const isPaused = one.next_at === null;
    return h("span.tools", {},
      control("Run now", { why: why(one), onclick: async () => { try { toast(`job ${(await post(`${pathOf(one)}/run`)).job_id} was added`); reload(); } catch (error) { fail(error); } } }),
      control(isPaused ? "Resume" : "Pause", { why: why(one, "pause-schedule"), onclick: async () => { try { await post(`${pathOf(one)}/${isPaused ? "resume" : "pause"}`); reload(); } catch (error) { fail(error); } } }),
      control("Change", { why: why(one), onclick: () => edit(one) }),
      control("Remove", { why: why(one), className: "risky", onclick: () => confirm({ title: `Remove ${one.id}`, verb: "Remove", isDangerous: true, word: one.id, text: "It fires no more; jobs that it has added stay.",
        act: async () => { await remove(pathOf(one)); reload(); return `${one.id} is removed`; } }) }));
  }

  function edit(one, queues = []) {
    const target = one ? null : h("select", {}, queues.map((queue) => h("option", { value: JSON.stringify([queue.protocol, queue.queue]) }, `${queue.queue} (${queue.protocol})`)));
    const id = h("input", { value: one?.id || "", required: true, readOnly: Boolean(one) });
    const name = h("input", { value: one?.job.name || "", required: true });
    const cron = h("input", { value: one?.rule.cron || "", placeholder: "0 3 * * *" });
    const zone = h("input", { value: one?.rule.timezone || Intl.DateTimeFormat().resolvedOptions().timeZone });
    const every = h("input", { type: "number", min: "0.001", step: "any", value: one?.rule.every_ms ? one.rule.every_ms / 1000 : "" });
    const data = jsonInput(one?.job.data ?? {}, 5, "Data");
    confirm({ title: one ? `Change ${one.id}` : "Add a schedule", verb: "Save", text: "By a cron expression in a time zone, or every so many seconds.",
      fields: [target ? field("Queue", target) : null, field("Id", id), field("Job's name", name), field("Cron", cron), field("Time zone", zone), field("or every, seconds", every), field("Data, JSON", data.element)],
      act: async () => {
        const [protocol, queue] = one ? [one.protocol, one.queue] : JSON.parse(target.value);
        const rule = every.value ? { every_ms: Math.round(Number(every.value) * 1000) } : { cron: cron.value, timezone: zone.value };
        await put(pathOf({ protocol, queue, id: id.value }), { name: name.value, data: data.read(), ...rule });
        reload();
        return `${id.value} is saved`;
      } });
  }

  async function load() {
    const { schedules } = await get("/v1/schedules", signal);
    const rows = table({ label: "Schedules", columns: COLUMNS });
    for (const one of schedules) {
      rows.put(`${one.protocol}/${one.queue}/${one.id}`, [
        h("button.sort.row-link", { type: "button", onclick: () => firings(one), title: "the next ten firings" }, foreign(one.id)),
        h("span.queue-name", {}, h("a", { href: queueLink(one) }, foreign(one.queue)), protocolBadge(one.protocol)), foreign(preview(one.job.name, 60)), foreign(ruleText(one.rule)),
        marks(one), one.next_at === null ? h("span.badge.is-warn", {}, "paused") : time(one.next_at), actions(one)]);
    }
    holder.replaceChildren(schedules.length ? rows.element : empty("No schedules.", h("code", {}, "app.schedule(\"report\", cron=\"0 3 * * *\")"), " declares one, or add one here."));
  }

  const add = control("Add schedule", { why: may("operate") ? "" : whyNot("operate"), className: "strong", onclick: async () => {
    const { queues } = await get("/v1/queues", signal);
    edit(null, queues.filter((queue) => !queue.lacks.schedules));
  } });
  await load();
  show(h("div.page", {}, heading("Schedules", add), holder), "Schedules");
  refreshOn(signal, () => false, load, 5000, 10000);
}
