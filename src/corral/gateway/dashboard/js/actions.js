// What one can do to queues and jobs. What a protocol or a role does not allow is left out, with the reason on hover.

import { get, jobPath, may, patch, post, put, query, queuePath, whyNot } from "./api.js";
import { confirm, field, jsonInput } from "./dialog.js";
import { h } from "./dom.js";
import { number, plural } from "./format.js";
import { firstValue } from "./schema.js";
import { go, jobLink, link } from "./router.js";

// a button, or where it is not possible a disabled one that says why
export function control(text, { why, className = "", onclick }) {
  if (!why) return h(`button.${["quiet", className].filter(Boolean).join(".")}`, { type: "button", onclick }, text);
  return h("span.absent", { title: why, tabindex: "0", role: "note", "aria-label": `${text} is not possible: ${why}` }, text);
}

// what cannot be undone needs more than the role of an operator
const ADMIN = new Set(["remove", "drain", "clean", "obliterate"]);
export function whyAbsent(queue, verb) {
  const role = ADMIN.has(verb) ? "admin" : "operate";
  return queue.lacks[verb] || (may(role) ? "" : whyNot(role));
}

export function queueControls(queue, reload) {
  const path = queuePath(queue);
  const name = queue.queue;
  const ask = (options) => confirm({ ...options, act: async () => { const text = await options.act(); reload(); return text; } });
  const count = (state) => queue.counts[state] ?? 0;
  const bulk = (verb, search) => startTask(queue, verb, search);
  const pause = queue.is_paused
    ? control("Resume", { why: whyAbsent(queue, "resume"), onclick: async () => { await post(`${path}/resume`); reload(); } })
    : control("Pause", { why: whyAbsent(queue, "pause"), onclick: () => ask({
      title: `Pause ${name}`, verb: "Pause", text: `Workers claim no more jobs; ${plural(count("active"), "active job")} go on. ${plural(count("waiting"), "job")} will wait.`,
      act: async () => { await post(`${path}/pause`); return `${name} is paused`; } }) });
  return [
    control("Add job", { why: may("submit") ? "" : whyNot("submit"), className: "strong", onclick: () => addJob(queue, reload) }),
    pause,
    control("Retry dead", { why: whyAbsent(queue, "retry") || (count("dead") ? "" : "there are no dead jobs"), onclick: () => bulk("retry", "state = dead") }),
    control("Replay dead", { why: whyAbsent(queue, "replay") || (count("dead") ? "" : "there are no dead jobs"), onclick: () => bulk("replay", "state = dead") }),
    control("Drain", { why: whyAbsent(queue, "drain") || (count("waiting") + count("delayed") ? "" : "no job waits"), className: "risky", onclick: () => drain(queue, ask) }),
    control("Clean", { why: whyAbsent(queue, "clean"), className: "risky", onclick: () => clean(queue, ask) }),
    control("Limits", { why: whyAbsent(queue, "limits"), onclick: () => limits(queue, ask) }),
    control("Obliterate", { why: whyAbsent(queue, "obliterate"), className: "risky", onclick: () => obliterate(queue) }),
  ];
}

function drain(queue, ask) {
  const delayed = h("input", { type: "checkbox" });
  const { waiting = 0, delayed: later = 0 } = queue.counts;
  ask({ title: `Drain ${queue.queue}`, verb: "Drain", isDangerous: true, word: queue.queue,
    text: `Deletes ${plural(waiting, "waiting job")}. Active and ended jobs stay.`,
    fields: queue.lacks.promote ? [] : [h("label.check-field", {}, delayed, `and ${plural(later, "delayed job")}`)],
    act: async () => { await post(`${queuePath(queue)}/drain`, { delayed: delayed.checked }); return `${queue.queue} is drained`; } });
}

function clean(queue, ask) {
  const state = h("select", {}, ["completed", "dead"].map((one) => h("option", { value: one }, `${one} (${number(queue.counts[one])})`)));
  const hours = h("input", { type: "number", min: "0", step: "any", value: "24" });
  const limit = h("input", { type: "number", min: "1", max: "100000", value: "1000" });
  ask({ title: `Clean ${queue.queue}`, verb: "Delete", isDangerous: true, word: queue.queue, text: "Deletes jobs that ended long ago.",
    fields: [field("State", state), field("Older than, hours", hours), field("At most", limit)],
    act: async () => {
      const body = { state: state.value, older_than_s: Math.round(Number(hours.value) * 3600), limit: Number(limit.value) };
      return `${plural((await post(`${queuePath(queue)}/clean`, body)).done.length, "job")} deleted`;
    } });
}

function limits(queue, ask) {
  const { concurrency, rate } = queue.limits;
  const inputs = [concurrency, rate?.count, rate ? rate.duration / 1000 : undefined].map((value) => h("input", { type: "number", min: "0", step: "any", value: value ?? "" }));
  const [active, claims, seconds] = inputs;
  ask({ title: `Limits of ${queue.queue}`, verb: "Set", text: "For the whole queue, whatever workers it has. Empty: no limit.",
    fields: [field("Active jobs at a time", active), field("Claims", claims), field("in seconds", seconds)],
    act: async () => {
      const body = { concurrency: active.value ? Number(active.value) : null, rate: claims.value ? { count: Number(claims.value), duration: Math.round(Number(seconds.value || 1) * 1000) } : null };
      await put(`${queuePath(queue)}/limits`, body);
      return "limits are set";
    } });
}

function obliterate(queue) {
  const force = h("input", { type: "checkbox" });
  const total = Object.values(queue.counts).reduce((sum, one) => sum + one, 0);
  confirm({ title: `Obliterate ${queue.queue}`, verb: "Delete the queue", isDangerous: true, word: queue.queue,
    text: `Deletes the queue with all its ${plural(total, "job")}, its schedules and its events.`,
    fields: [h("label.check-field", {}, force, `also while ${plural(queue.counts.active ?? 0, "job")} are active`)],
    act: async () => { await post(`${queuePath(queue)}/obliterate`, { force: force.checked }); go(link("queues")); return `${queue.queue} is deleted`; } });
}

// the names that the queue's workers handle, each with the schema of its data
async function handlersOf(queue) {
  try {
    const { workers } = await get(`${queuePath(queue)}/workers`);
    return Object.assign({}, ...workers.map((worker) => worker.record?.handlers || {}));
  } catch { return {}; }
}

export async function addJob(queue, reload, job = {}) {
  const handlers = await handlersOf(queue);
  const names = h("datalist", { id: "handler-names" }, Object.keys(handlers).map((one) => h("option", { value: one })));
  const name = h("input", { required: true, autocomplete: "off", value: job.name || "", list: "handler-names" });
  const data = jsonInput(job.data ?? {}, 8, "Data");
  const options = jsonInput(job.options ?? {}, 3, "Options");
  const about = h("div");
  let offered = data.area.value;
  const look = () => {
    const schema = Object.hasOwn(handlers, name.value) ? handlers[name.value] : null;
    data.setSchema(schema);
    // data that nobody has written is replaced
    if (schema && !job.data && data.area.value === offered) {
      data.write(firstValue(schema));
      offered = data.area.value;
    }
    about.replaceChildren(schema ? h("details", {}, h("summary", {}, "Parameters of the handler, as its workers tell them"), h("pre", { tabindex: "0" }, JSON.stringify(schema, null, 2))) : "");
  };
  name.addEventListener("input", look);
  look();
  confirm({ title: `Add a job to ${queue.queue}`, verb: "Add", text: "A handler of this name runs it.",
    fields: [field("Name", name), names, about, field("Data, JSON", data.element), field("Options, JSON", options.element, "delay, priority, attempts, backoff, id …")],
    act: async () => {
      const { id, ...rest } = options.read() || {};
      const added = await post(`${queuePath(queue)}/jobs`, { name: name.value, data: data.read(), id, options: rest });
      reload(added.id);
      return `job ${added.id} was added`;
    } });
}

// a verb over all jobs that match; the number is shown before it starts
export async function startTask(queue, verb, search, onStart = (task) => go(link("tasks", [], { id: task.id })), perSecond = false) {
  const { count, is_complete: isComplete } = await get(`${queuePath(queue)}/matches${query({ verb, query: search })}`);
  const speed = h("input", { type: "number", min: "0", step: "any", placeholder: "no limit" });
  const isDangerous = verb === "remove" || verb === "cancel";
  confirm({
    title: `${verb} ${isComplete ? number(count) : `more than ${number(count)}`} jobs of ${queue.queue}`, verb: `${verb} ${isComplete ? number(count) : "all"}`, isDangerous,
    word: verb === "remove" ? queue.queue : undefined, text: `All jobs that match: ${search || "everything"}. It runs in the background, with its progress under Bulk changes.`,
    fields: perSecond || count > 100 ? [field("At most per second", speed)] : [],
    act: async () => {
      const task = await post(`${queuePath(queue)}/tasks`, { verb, query: search, per_second: speed.value ? Number(speed.value) : null });
      onStart(task);
      return null;
    } });
}

const JOB_VERBS = [
  ["Retry", "retry", ["dead", "completed"], "it keeps the attempts it has made"],
  ["Replay", "replay", ["dead", "completed"], "with all attempts anew"],
  ["Promote", "promote", ["delayed"], "it may run now"],
  ["Cancel", "cancel", ["waiting", "delayed", "active"], "a running handler is asked to end"],
  ["Remove", "remove", ["waiting", "delayed", "completed", "dead", "cancelled"], "nothing brings it back"],
];

export function jobControls(queue, job, reload, gone) {
  const controls = JOB_VERBS.map(([text, verb, states, hint]) => {
    const why = whyAbsent(queue, verb) || (states.includes(job.state) ? "" : `the job is ${job.state}`);
    return control(text, { why, className: verb === "remove" || verb === "cancel" ? "risky" : "", onclick: () => confirm({
      title: `${text} job ${job.id}`, verb: text, isDangerous: verb === "remove" || verb === "cancel", text: `${job.name} of ${queue.queue}: ${hint}.`,
      act: async () => { await post(`${jobPath(queue, job.id)}/${verb}`); if (verb === "remove") gone(); else reload(); return `${text}: done`; } }) });
  });
  const isOpen = job.state === "waiting" || job.state === "delayed";
  return [...controls,
    control("Edit", { why: whyAbsent(queue, "update") || (isOpen ? "" : `the job is ${job.state}`), onclick: () => editJob(queue, job, reload) }),
    control("Duplicate", { why: may("submit") ? "" : whyNot("submit"), onclick: () => addJob(queue, (id) => go(jobLink(queue, id)), { name: job.name, data: job.data }) })];
}

function editJob(queue, job, reload) {
  const data = jsonInput(job.data, 10, "Data");
  const priority = h("input", { type: "number", min: "0", value: String(job.options?.priority ?? 0) });
  const delay = h("input", { type: "number", min: "0", step: "any", placeholder: "unchanged" });
  confirm({ title: `Edit job ${job.id}`, verb: "Save", text: "A worker that claims it meanwhile runs it as it was.",
    fields: [field("Data, JSON", data.element), field("Priority", priority), job.state === "delayed" ? field("Run in, seconds from now", delay) : null],
    act: async () => {
      const body = {};
      if (JSON.stringify(data.read()) !== JSON.stringify(job.data)) body.data = data.read();
      if (Number(priority.value) !== (job.options?.priority ?? 0)) body.priority = Number(priority.value);
      if (delay.value) body.delay = Math.round(Number(delay.value) * 1000);
      await patch(jobPath(queue, job.id), body);
      reload();
      return "saved";
    } });
}

export async function actOnIds(queue, verb, ids) {
  const { done, not_done: notDone } = await post(`${queuePath(queue)}/${verb}`, { ids });
  return notDone.length ? `${verb}: ${number(done.length)} done, ${number(notDone.length)} not (their state does not allow it)` : `${verb}: ${number(done.length)} done`;
}
