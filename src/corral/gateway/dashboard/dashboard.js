// The dashboard: counts by polling, rates from /v1/events. Everything that comes from a queue is inserted as text only.

const COUNTS_MS = 1000;          // the shortest time between requests for counts, made only after events
const IDLE_MS = 10000;           // the longest: not every change has an event
const WORKER_QUEUES = 8;         // queues whose workers are requested at a time
const WORKERS_MS = 2000;
const MINUTE = 60;
const RATE_S = 10;               // rates are averages over this time
const MAX_DEAD_JOBS = 8;
const DEAD_JOBS_MS = 2000;       // the shortest time between requests for one queue's dead jobs
const MAX_LINE = 1 << 20;        // characters of one event; longer ones are skipped
const KEY = "corral.key";
const THEME = "corral.theme";
const STATES = ["waiting", "delayed", "active", "completed", "dead"];

const byId = (id) => document.getElementById(id);
const queues = new Map();        // "protocol/queue" -> its data and its table row
const deadJobs = [];
let hasChanged = true;
let countedAt = 0;

class ResponseError extends Error {
  constructor(status, detail) { super(detail); this.status = status; }
}

// -- requests -----------------------------------------------------------------------------------------------

async function request(path, options = {}) {
  const key = sessionStorage.getItem(KEY);
  const headers = { Accept: "application/json", ...(options.headers || {}) };
  if (key) headers.Authorization = `Bearer ${key}`;
  const response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
  if (response.ok) return response;
  let detail = `${response.status} ${response.statusText}`;
  try { detail = (await response.json()).detail || detail; } catch { /* not a problem document */ }
  throw new ResponseError(response.status, detail);
}

const requestJson = async (path) => (await request(path)).json();
const pathOf = (queue) => `/v1/queues/${encodeURIComponent(queue.protocol)}/${encodeURIComponent(queue.name)}`;

async function refreshCounts() {
  countedAt = Date.now();
  hasChanged = false;
  const present = new Set();
  for (const view of (await requestJson("/v1/queues")).queues) {
    const queue = queueOf(view.protocol, view.queue);
    present.add(queue.key);
    queue.counts = view.counts;
    queue.isPaused = view.is_paused;
  }
  for (const [key, queue] of queues) {
    if (!present.has(key)) { queue.row?.element.remove(); queues.delete(key); }
  }
}

let nextWorkers = 0;
async function refreshWorkers() {
  const all = [...queues.values()].filter((queue) => !queue.isUnreachable);
  const some = Array.from({ length: Math.min(WORKER_QUEUES, all.length) }, (_, n) => all[(nextWorkers + n) % all.length]);
  nextWorkers = all.length ? (nextWorkers + some.length) % all.length : 0;
  await Promise.all(some.map(async (queue) => {
    try {
      queue.workers = (await requestJson(`${pathOf(queue)}/workers`)).workers.map((worker) => worker.name);
    } catch (error) {
      if (!(error instanceof ResponseError) || error.status === 401) throw error;
      if (error.status === 404) queue.isUnreachable = true;  // a name that no path can contain
    }
  }));
}

async function refreshDeadJobs(some) {
  const lists = await Promise.all(some.map(async (queue) => {
    queue.hasNewDead = false;
    queue.deadListedAt = Date.now();
    try {
      const { jobs } = await requestJson(`${pathOf(queue)}/dead-letters?limit=${MAX_DEAD_JOBS}`);
      return jobs.map((job) => deadJob(queue, job));
    } catch (error) {
      if (error instanceof ResponseError && error.status !== 401) return [];
      throw error;
    }
  }));
  keepLatest(lists.flat());
}

const deadJob = (queue, job) => ({ queue, id: job.id, name: job.name, at: job.finished_at, reason: job.reason });

function keepLatest(added) {
  const all = new Map([...deadJobs, ...added].map((job) => [JSON.stringify([job.queue.key, job.id, job.at]), job]));
  const latest = [...all.values()].sort((a, b) => (b.at || 0) - (a.at || 0)).slice(0, MAX_DEAD_JOBS);
  deadJobs.splice(0, deadJobs.length, ...latest);
}

const loading = new Set();
async function loadDeadJob(queue, id) {
  // for protocols that keep no list of dead jobs
  try {
    keepLatest([deadJob(queue, await requestJson(`${pathOf(queue)}/jobs/${encodeURIComponent(id)}`))]);
  } catch { /* it is gone already */ }
}

// -- data ---------------------------------------------------------------------------------------------------

function queueOf(protocol, name) {
  const key = `${protocol}/${name}`;
  if (!queues.has(key)) {
    queues.set(key, { key, protocol, name, counts: {}, isPaused: false, workers: null, row: null, seconds: new Map(),
      hasNewDead: false, deadListedAt: 0, isUnreachable: false });
  }
  return queues.get(key);
}

function record(event) {
  const queue = queueOf(event.protocol, event.queue);
  const second = Math.floor(Date.now() / 1000);
  const bucket = queue.seconds.get(second) || { added: 0, completed: 0, dead: 0 };
  if (event.kind in bucket) bucket[event.kind] += 1;
  queue.seconds.set(second, bucket);
  hasChanged = true;
  if (event.kind !== "dead" || !event.job_id) return;
  if ("dead" in queue.counts) {
    queue.hasNewDead = true;
  } else if (loading.size < 4) {
    const load = loadDeadJob(queue, event.job_id).finally(() => loading.delete(load));
    loading.add(load);
  }
}

function rateOf(queue, kind) {
  const now = Math.floor(Date.now() / 1000);
  let sum = 0;
  for (let ago = 1; ago <= RATE_S; ago += 1) sum += queue.seconds.get(now - ago)?.[kind] || 0;
  return sum / RATE_S;
}

function dropOldSeconds() {
  const oldest = Math.floor(Date.now() / 1000) - MINUTE - 5;
  for (const queue of queues.values()) {
    for (const second of queue.seconds.keys()) if (second < oldest) queue.seconds.delete(second);
  }
}

// -- events: EventSource cannot send a key, so the stream is parsed here --------------------------------------

let isFollowing = false;
async function follow(signal) {
  isFollowing = false;
  const response = await request("/v1/events", { headers: { Accept: "text/event-stream" }, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let data = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const lines = rest.split("\n");
    rest = lines.pop();
    if (rest.length > MAX_LINE) rest = "";
    for (const line of lines) {
      if (line === "") {
        parse(data.join("\n"));
        data = [];
      } else if (line.startsWith("data: ")) {
        data.push(line.slice(6));
      }
    }
    isFollowing = true;
    setStatus("live", "live");
  }
}

function parse(text) {
  if (!text) return;
  let event;
  try { event = JSON.parse(text); } catch { return; }
  if (typeof event?.protocol === "string" && typeof event.queue === "string") record(event);
}

// -- drawing ------------------------------------------------------------------------------------------------

function create(name, className, parent) {
  const element = document.createElement(name);
  if (className) element.className = className;
  parent?.append(element);
  return element;
}

function write(element, text, className) {
  if (element.textContent !== text) element.textContent = text;
  if (className !== undefined && element.className !== className) element.className = className;
}

const number = new Intl.NumberFormat();
const rateText = (value) => (value >= 100 ? number.format(Math.round(value)) : value.toFixed(1));

function createRow(queue) {
  const element = create("tr");
  const head = create("th", "", element);
  head.scope = "row";
  head.title = queue.name;
  create("span", "foreign", head).textContent = queue.name;
  const badge = create("span", "badge", head);
  badge.textContent = "paused";
  create("td", "protocol", element).textContent = queue.protocol;
  const columns = [...STATES, "workers", "added/s", "completed/s", "dead/s"];
  const cells = Object.fromEntries(columns.map((column) => [column, create("td", "number", element)]));
  const spark = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  spark.setAttribute("class", "spark");
  spark.setAttribute("viewBox", `0 0 ${MINUTE - 1} 26`);
  spark.setAttribute("preserveAspectRatio", "none");
  spark.setAttribute("aria-hidden", "true");
  const [area, curve] = ["area", "curve"].map((className) => {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("class", className);
    spark.append(path);
    return path;
  });
  create("td", "", element).append(spark);
  return { element, badge, cells, area, curve };
}

function drawRow(queue) {
  queue.row ??= createRow(queue);
  const { badge, cells, element } = queue.row;
  badge.hidden = !queue.isPaused;
  for (const state of STATES) {
    const count = queue.counts[state];
    const style = state === "dead" && count ? " is-bad" : count ? "" : " is-zero";
    write(cells[state], count === undefined ? "–" : number.format(count), `number${style}`);
  }
  const workers = queue.workers === null ? (queue.isUnreachable ? "–" : "…") : number.format(queue.workers.length);
  const isUnattended = queue.workers?.length === 0 && queue.counts.waiting > 0;
  write(cells.workers, workers, `number${isUnattended ? " is-warn" : ""}`);
  cells.workers.title = (queue.workers || []).join(", ");
  for (const kind of ["added", "completed", "dead"]) {
    const value = rateOf(queue, kind);
    write(cells[`${kind}/s`], rateText(value), `number${!value ? " is-zero" : kind === "dead" ? " is-bad" : ""}`);
  }
  drawSpark(queue);
  const filter = byId("filter").value.trim().toLowerCase();
  element.hidden = filter !== "" && !queue.key.toLowerCase().includes(filter);
}

function drawSpark(queue) {
  const now = Math.floor(Date.now() / 1000);
  const points = Array.from({ length: MINUTE }, (_, x) => queue.seconds.get(now - MINUTE + x)?.completed || 0);
  const highest = Math.max(1, ...points);
  const line = points.map((value, x) => `${x ? "L" : "M"}${x} ${(25 - (value / highest) * 23).toFixed(1)}`).join("");
  queue.row.curve.setAttribute("d", line);
  queue.row.area.setAttribute("d", `${line}L${MINUTE - 1} 26L0 26Z`);
}

function draw() {
  dropOldSeconds();
  const all = [...queues.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
  const rows = byId("rows");
  all.forEach((queue, index) => {
    drawRow(queue);
    if (rows.children[index] !== queue.row.element) rows.insertBefore(queue.row.element, rows.children[index] || null);
  });
  byId("empty").hidden = all.length > 0;
  byId("unmatched").hidden = all.length === 0 || all.some((queue) => !queue.row.element.hidden);
  const sum = (read) => all.reduce((total, queue) => total + read(queue), 0);
  write(byId("sum-queues"), number.format(all.length));
  write(byId("sum-waiting"), number.format(sum((queue) => queue.counts.waiting || 0)));
  write(byId("sum-active"), number.format(sum((queue) => queue.counts.active || 0)));
  write(byId("sum-completed"), rateText(sum((queue) => rateOf(queue, "completed"))));
  const dead = sum((queue) => queue.counts.dead || 0);
  write(byId("sum-dead"), number.format(dead), dead ? "is-bad" : "");
  const workers = all.flatMap((queue) => (
    (queue.workers || []).map((name, index) => `${queue.protocol}/${name || queue.key + index}`)));
  write(byId("sum-workers"), number.format(new Set(workers).size));
  drawDeadJobs();
}

let drawnDeadJobs = "";
function drawDeadJobs() {
  const content = JSON.stringify(deadJobs.map((job) => [job.queue.key, job.id, job.at, job.reason]));
  if (content === drawnDeadJobs) return;
  drawnDeadJobs = content;
  const items = deadJobs.map((job) => {
    const item = create("li");
    const time = create("time", "", item);
    const at = new Date(job.at || 0);
    time.textContent = job.at ? at.toLocaleTimeString([], { hour12: false }) : "";
    if (job.at) { time.dateTime = at.toISOString(); time.title = at.toLocaleString(); }
    create("span", "foreign", item).textContent = `${job.queue.name} (${job.queue.protocol})`;
    create("span", "foreign id", item).textContent = [job.name, job.id].filter(Boolean).join(" ");
    create("span", "foreign reason", item).textContent = (job.reason || "").slice(0, 500);
    return item;
  });
  byId("dead-jobs").replaceChildren(...items);
  byId("no-dead-jobs").hidden = deadJobs.length > 0;
}

function setStatus(state, text) {
  const status = byId("status");
  if (status.dataset.state !== state) status.dataset.state = state;
  write(status, text);
}

function setNotice(text) {
  byId("notice").hidden = !text;
  write(byId("notice"), text || "");
}

// -- sessions: from one key to the next ----------------------------------------------------------------------

const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

let session = 0;
let abort = new AbortController();
async function start() {
  const own = (session += 1);
  abort.abort();
  abort = new AbortController();
  const { signal } = abort;
  byId("forget-key").hidden = !sessionStorage.getItem(KEY);
  const isCurrent = () => session === own;
  const fail = (error) => {
    if (!isCurrent()) return;
    if (error instanceof ResponseError && error.status === 401) {
      requireKey(sessionStorage.getItem(KEY) ? error.message : "");
      return;
    }
    const isRefused = error instanceof ResponseError && error.status < 500;
    setNotice(error instanceof ResponseError ? error.message : "");
    setStatus(isRefused ? "refused" : "lost", isRefused ? "refused" : "no response; trying again");
  };

  const pollCounts = async () => {
    let isFirst = true;
    while (isCurrent()) {
      const all = [...queues.values()];
      if (isFirst || hasChanged || all.some((queue) => queue.hasNewDead) || Date.now() - countedAt > IDLE_MS) {
        try {
          await refreshCounts();
          const some = [...queues.values()].filter((queue) => (
            isFirst ? queue.counts.dead !== 0 : queue.hasNewDead && Date.now() - queue.deadListedAt > DEAD_JOBS_MS));
          await refreshDeadJobs(some.slice(0, 20));
          isFirst = false;
          if (!isCurrent()) return;
          byId("board").hidden = false;
          byId("key-form").hidden = true;
          setNotice("");
          if (isFollowing) setStatus("live", "live");
        } catch (error) {
          hasChanged = true;
          fail(error);
        }
      }
      await sleep(COUNTS_MS);
    }
  };
  const pollWorkers = async () => {
    while (isCurrent()) {
      try { await refreshWorkers(); } catch (error) { fail(error); }
      await sleep(queues.size ? WORKERS_MS : 200);
    }
  };
  const followEvents = async () => {
    while (isCurrent()) {
      try {
        await follow(signal);
        if (isCurrent()) setStatus("connecting", "connecting");
      } catch (error) { fail(error); }
      isFollowing = false;
      await sleep(2000);
    }
  };
  const redraw = async () => {
    while (isCurrent()) {
      if (!byId("board").hidden && !document.hidden) draw();
      await sleep(500);
    }
  };
  await Promise.all([pollCounts(), pollWorkers(), followEvents(), redraw()]);
}

function requireKey(detail) {
  session += 1;
  abort.abort();
  sessionStorage.removeItem(KEY);
  for (const queue of queues.values()) queue.row?.element.remove();
  queues.clear();
  deadJobs.length = 0;
  byId("board").hidden = true;
  byId("forget-key").hidden = true;
  byId("key-form").hidden = false;
  setNotice(detail);
  setStatus("refused", "locked");
  byId("key").focus();
}

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, byId("key").value.trim());
  byId("key").value = "";
  setNotice("");
  setStatus("connecting", "connecting");
  start();
});
byId("forget-key").addEventListener("click", () => requireKey(""));
byId("filter").addEventListener("input", draw);

const THEMES = { auto: "Auto", light: "Light", dark: "Dark" };
function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  write(byId("theme"), THEMES[theme]);
  byId("theme").setAttribute("aria-label", `Colour scheme: ${theme === "auto" ? "automatic" : theme}`);
}
byId("theme").addEventListener("click", () => {
  const names = Object.keys(THEMES);
  const next = names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length];
  sessionStorage.setItem(THEME, next);
  setTheme(next);
});
setTheme(Object.hasOwn(THEMES, sessionStorage.getItem(THEME) || "") ? sessionStorage.getItem(THEME) : "auto");
start();
