// Dead letters: jobs that failed alike, in groups, of every queue that has some.

import { control, startTask, whyAbsent } from "../actions.js";
import { get, queuePath } from "../api.js";
import { foreign, h } from "../dom.js";
import { refreshOn } from "../feed.js";
import { number, plural, preview, time } from "../format.js";
import { empty, heading, protocolBadge } from "../parts.js";
import { jobLink, link, queueLink, setParams } from "../router.js";

export async function open({ params, signal, show, fail }) {
  const holder = h("div.groups");
  const choice = h("select", { "aria-label": "Queue", onchange: () => { setParams({ queue: choice.value }); load().catch(fail); } });
  const summary = h("p.is-soft");

  async function load() {
    const { queues } = await get("/v1/queues", signal);
    // a protocol without a list of dead jobs may have some all the same
    const some = queues.filter((queue) => queue.counts.dead || queue.counts.dead === undefined);
    const wanted = params.get("queue") && !choice.options.length ? params.get("queue") : choice.value;
    choice.replaceChildren(h("option", { value: "" }, "All queues"), ...some.map((queue) => h("option", { value: `${queue.protocol}/${queue.queue}` }, `${queue.queue} (${queue.protocol})`)));
    choice.value = [...choice.options].some((one) => one.value === wanted) ? wanted : "";
    const chosen = some.filter((queue) => !choice.value || `${queue.protocol}/${queue.queue}` === choice.value).slice(0, 50);
    const answers = await Promise.all(chosen.map(async (queue) => ({ queue, ...(await get(`${queuePath(queue)}/dead-letters/groups`, signal)) })));
    const groups = answers.flatMap(({ queue, groups: list }) => list.map((group) => ({ queue, group })));
    groups.sort((a, b) => b.group.count - a.group.count || (b.group.last_at || 0) - (a.group.last_at || 0));
    const scanned = answers.reduce((total, one) => total + one.scanned, 0);
    const isCut = answers.some((one) => !one.is_complete);
    summary.textContent = groups.length ? `${plural(scanned, "dead job")} in ${plural(groups.length, "group")}${isCut ? "; only the latest 20,000 of each queue were looked at" : ""}.` : "";
    holder.replaceChildren(...(groups.length ? groups.map(draw) : [empty("No dead jobs.", "A job is dead when its last attempt failed, or when its error said that no other would help.")]));
  }

  function draw({ queue, group }) {
    const search = `state = dead and group = ${group.id}`;
    const act = (verb, text) => control(text, { why: whyAbsent(queue, verb), className: verb === "remove" ? "risky" : "",
      onclick: () => startTask(queue, verb, search, undefined, true).catch(fail) });
    return h("article.group", { data: { group: group.id } },
      h("div", {}, h("p.group-count", {}, number(group.count)), h("p.is-soft", {}, group.count === 1 ? "job" : "jobs")),
      h("div", {},
        h("p.group-shape", {}, group.error ? h("bdi.group-error", {}, group.error) : null, group.error && group.shape ? ": " : "", foreign(group.shape || (group.error ? "" : "(no reason)"))),
        h("p.group-meta", {}, h("a", { href: queueLink(queue, { state: "dead" }) }, foreign(queue.queue)), protocolBadge(queue.protocol), foreign(preview(group.names.join(", "), 120)),
          h("span", {}, "first ", time(group.first_at)), h("span", {}, "last ", time(group.last_at)),
          h("a", { href: jobLink(queue, group.sample_id) }, "latest job"), h("a", { href: link("search", [], { queue: `${queue.protocol}/${queue.queue}`, q: search }) }, "all jobs"))),
      h("div.tools", {}, act("replay", "Replay"), act("retry", "Retry"), act("remove", "Discard")));
  }

  await load();
  show(h("div.page", {}, heading("Dead letters", choice), summary, holder), "Dead letters");
  refreshOn(signal, (frame) => Object.values(frame.queues).some((part) => part.kinds.dead || part.kinds.waiting), load, 3000, 30000);
}
