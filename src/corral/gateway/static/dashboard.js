// The dashboard: counts by asking, rates by the feed of events. Whatever comes from a queue is only ever text.

const COUNTS_MS = 1000;          // counts are asked for at most so often, and only where something happened
const QUIET_MS = 10000;          // and at least so often: not every change is told as an event
const WORKERS_AT_ONCE = 8;       // queues whose workers are asked for in one go
const WORKERS_MS = 2000;
const MINUTE = 60;
const RATE_S = 10;               // rates are those of the last so many seconds
const MOST_DEATHS = 8;
const DEATHS_MS = 2000;          // the dead of one queue are asked for at most so often
const LONGEST_LINE = 1 << 20;    // characters of one event; a longer one is passed over
const KEY = "corral.key";
const THEME = "corral.theme";
const STATES = ["waiting", "delayed", "active", "completed", "dead"];

const byId = (id) => document.getElementById(id);
const queues = new Map();        // "protocol/queue" -> what is known of it, and its row
const deaths = [];
let isDirty = true;
let askedAt = 0;

class Refused extends Error {
  constructor(status, detail) { super(detail); this.status = status; }
}

// -- asking -------------------------------------------------------------------------------------------------

async function ask(path, options = {}) {
  const key = sessionStorage.getItem(KEY);
  const headers = { Accept: "application/json", ...(options.headers || {}) };
  if (key) headers.Authorization = `Bearer ${key}`;
  const answer = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
  if (answer.ok) return answer;
  let detail = `${answer.status} ${answer.statusText}`;
  try { detail = (await answer.json()).detail || detail; } catch { /* no problem document */ }
  throw new Refused(answer.status, detail);
}

const pathOf = (one) => `/v1/queues/${encodeURIComponent(one.protocol)}/${encodeURIComponent(one.queue)}`;

async function refresh() {
  askedAt = Date.now();
  isDirty = false;
  const { queues: found } = await (await ask("/v1/queues")).json();
  const present = new Set();
  for (const view of found) {
    const one = known(view.protocol, view.queue);
    present.add(one.key);
    one.counts = view.counts;
    one.isPaused = view.is_paused;
  }
  for (const [key, one] of queues) {
    if (!present.has(key)) { one.row?.element.remove(); queues.delete(key); }
  }
}

let nextWorkers = 0;
async function refreshWorkers() {
  const all = [...queues.values()].filter((one) => !one.isNowhere);
  const some = Array.from({ length: Math.min(WORKERS_AT_ONCE, all.length) }, (_, n) => all[(nextWorkers + n) % all.length]);
  nextWorkers = all.length ? (nextWorkers + some.length) % all.length : 0;
  await Promise.all(some.map(async (one) => {
    try {
      one.workers = (await (await ask(`${pathOf(one)}/workers`)).json()).workers.map((worker) => worker.name);
    } catch (error) {
      if (!(error instanceof Refused) || error.status === 401) throw error;
      if (error.status === 404) one.isNowhere = true;  // a stranger's name that no address can hold
    }
  }));
}

async function listDeaths(some) {
  const lists = await Promise.all(some.map(async (one) => {
    one.hasDied = false;
    one.listedAt = Date.now();
    try {
      const { jobs } = await (await ask(`${pathOf(one)}/dead-letters?limit=${MOST_DEATHS}`)).json();
      return jobs.map((job) => ({ one, id: job.id, name: job.name, at: job.finished_at, reason: job.reason }));
    } catch (error) {
      if (error instanceof Refused && error.status !== 401) return [];
      throw error;
    }
  }));
  keepDeaths(lists.flat());
}

function keepDeaths(fresh) {
  const all = new Map([...deaths, ...fresh].map((death) => [JSON.stringify([death.one.key, death.id, death.at]), death]));
  const latest = [...all.values()].sort((a, b) => (b.at || 0) - (a.at || 0)).slice(0, MOST_DEATHS);
  deaths.splice(0, deaths.length, ...latest);
}

async function bury(one, id) {
  // where the contract keeps no list of the dead, the job itself tells what it died of
  try {
    const job = await (await ask(`${pathOf(one)}/jobs/${encodeURIComponent(id)}`)).json();
    keepDeaths([{ one, id, name: job.name, at: job.finished_at, reason: job.reason }]);
  } catch { /* it is gone already */ }
}

// -- what is known ------------------------------------------------------------------------------------------

function known(protocol, queue) {
  const key = `${protocol}/${queue}`;
  if (!queues.has(key)) {
    queues.set(key, { key, protocol, queue, counts: {}, isPaused: false, workers: null, row: null, seconds: new Map(),
      hasDied: false, listedAt: 0, isNowhere: false });
  }
  return queues.get(key);
}

function hear(event) {
  const one = known(event.protocol, event.queue);
  const second = Math.floor(Date.now() / 1000);
  const bucket = one.seconds.get(second) || { added: 0, completed: 0, dead: 0 };
  if (event.kind in bucket) bucket[event.kind] += 1;
  one.seconds.set(second, bucket);
  isDirty = true;
  if (event.kind !== "dead" || !event.job_id) return;
  if ("dead" in one.counts) {
    one.hasDied = true;
  } else if (burying.size < 4) {
    const under = bury(one, event.job_id).finally(() => burying.delete(under));
    burying.add(under);
  }
}
const burying = new Set();

function lately(one, kind, seconds) {
  const now = Math.floor(Date.now() / 1000);
  let sum = 0;
  for (let ago = 1; ago <= seconds; ago += 1) sum += one.seconds.get(now - ago)?.[kind] || 0;
  return sum / seconds;
}

function forget() {
  const oldest = Math.floor(Date.now() / 1000) - MINUTE - 5;
  for (const one of queues.values()) {
    for (const second of one.seconds.keys()) if (second < oldest) one.seconds.delete(second);
  }
}

// -- the feed: EventSource cannot send a key, so the stream is read by hand ----------------------------------

let isFollowing = false;
async function follow(signal) {
  isFollowing = false;
  const answer = await ask("/v1/events", { headers: { Accept: "text/event-stream" }, signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let data = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const lines = rest.split("\n");
    rest = lines.pop();
    if (rest.length > LONGEST_LINE) rest = "";
    for (const line of lines) {
      if (line === "") {
        take(data.join("\n"));
        data = [];
      } else if (line.startsWith("data: ")) {
        data.push(line.slice(6));
      }
    }
    isFollowing = true;
    say("live", "live");
  }
}

function take(text) {
  if (!text) return;
  let event;
  try { event = JSON.parse(text); } catch { return; }
  if (typeof event?.protocol === "string" && typeof event.queue === "string") hear(event);
}

// -- drawing ------------------------------------------------------------------------------------------------

function make(name, className, parent) {
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
const rate = (value) => (value >= 100 ? number.format(Math.round(value)) : value.toFixed(1));

function makeRow(one) {
  const element = make("tr");
  const head = make("th", "", element);
  head.scope = "row";
  const name = make("span", "foreign", head);
  name.textContent = one.queue;
  head.title = one.queue;
  const badge = make("span", "badge", head);
  badge.textContent = "paused";
  make("td", "protocol", element).textContent = one.protocol;
  const cells = Object.fromEntries(
    [...STATES, "workers", "added", "done", "failed"].map((word) => [word, make("td", "number", element)]));
  const spark = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  spark.setAttribute("class", "spark");
  spark.setAttribute("viewBox", `0 0 ${MINUTE - 1} 26`);
  spark.setAttribute("preserveAspectRatio", "none");
  spark.setAttribute("aria-hidden", "true");
  const [area, curve] = ["area", "curve"].map((word) => {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("class", word);
    spark.append(path);
    return path;
  });
  make("td", "", element).append(spark);
  return { element, badge, cells, area, curve };
}

function drawRow(one) {
  one.row ??= makeRow(one);
  const { badge, cells, element } = one.row;
  badge.hidden = !one.isPaused;
  for (const state of STATES) {
    const count = one.counts[state];
    const mood = state === "dead" && count ? " is-bad" : count ? "" : " is-zero";
    write(cells[state], count === undefined ? "–" : number.format(count), `number${mood}`);
  }
  const workers = one.workers === null ? (one.isNowhere ? "–" : "…") : number.format(one.workers.length);
  const isIdle = one.workers?.length === 0 && one.counts.waiting > 0;
  write(cells.workers, workers, `number${isIdle ? " is-warn" : ""}`);
  cells.workers.title = (one.workers || []).join(", ");
  const rates = { added: lately(one, "added", RATE_S), done: lately(one, "completed", RATE_S), failed: lately(one, "dead", RATE_S) };
  for (const [word, value] of Object.entries(rates)) {
    write(cells[word], rate(value), `number${!value ? " is-zero" : word === "failed" ? " is-bad" : ""}`);
  }
  drawSpark(one);
  const wanted = byId("filter").value.trim().toLowerCase();
  element.hidden = wanted !== "" && !one.key.toLowerCase().includes(wanted);
}

function drawSpark(one) {
  const now = Math.floor(Date.now() / 1000);
  const points = Array.from({ length: MINUTE }, (_, place) => one.seconds.get(now - MINUTE + place)?.completed || 0);
  const most = Math.max(1, ...points);
  const line = points.map((value, place) => `${place ? "L" : "M"}${place} ${(25 - (value / most) * 23).toFixed(1)}`).join("");
  one.row.curve.setAttribute("d", line);
  one.row.area.setAttribute("d", `${line}L${MINUTE - 1} 26L0 26Z`);
}

function draw() {
  forget();
  const all = [...queues.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
  const rows = byId("rows");
  all.forEach((one, place) => {
    drawRow(one);
    if (rows.children[place] !== one.row.element) rows.insertBefore(one.row.element, rows.children[place] || null);
  });
  byId("empty").hidden = all.length > 0;
  byId("unmatched").hidden = all.length === 0 || all.some((one) => !one.row.element.hidden);
  const sum = (read) => all.reduce((total, one) => total + read(one), 0);
  write(byId("sum-queues"), number.format(all.length));
  write(byId("sum-waiting"), number.format(sum((one) => one.counts.waiting || 0)));
  write(byId("sum-active"), number.format(sum((one) => one.counts.active || 0)));
  write(byId("sum-done"), rate(sum((one) => lately(one, "completed", RATE_S))));
  const dead = sum((one) => one.counts.dead || 0);
  write(byId("sum-dead"), number.format(dead), dead ? "is-bad" : "");
  const names = new Set(all.flatMap((one) => (one.workers || []).map((name, place) => `${one.protocol}/${name || one.key + place}`)));
  write(byId("sum-workers"), number.format(names.size));
  drawDeaths();
}

let drawnDeaths = "";
function drawDeaths() {
  const now = JSON.stringify(deaths.map((death) => [death.one.key, death.id, death.at, death.reason]));
  if (now === drawnDeaths) return;
  drawnDeaths = now;
  const items = deaths.map((death) => {
    const item = make("li");
    const time = make("time", "", item);
    const at = new Date(death.at || 0);
    time.textContent = death.at ? at.toLocaleTimeString([], { hour12: false }) : "";
    if (death.at) { time.dateTime = at.toISOString(); time.title = at.toLocaleString(); }
    make("span", "foreign", item).textContent = `${death.one.queue} (${death.one.protocol})`;
    make("span", "foreign id", item).textContent = [death.name, death.id].filter(Boolean).join(" ");
    make("span", "foreign reason", item).textContent = (death.reason || "").slice(0, 500);
    return item;
  });
  byId("deaths").replaceChildren(...items);
  byId("no-deaths").hidden = deaths.length > 0;
}

// -- the whole ----------------------------------------------------------------------------------------------

function say(state, text) {
  const status = byId("status");
  if (status.dataset.state !== state) status.dataset.state = state;
  write(status, text);
}

function complain(text) {
  byId("notice").hidden = !text;
  write(byId("notice"), text || "");
}

const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

let session = 0;
let stop = new AbortController();
async function open() {
  const mine = (session += 1);
  stop.abort();
  stop = new AbortController();
  const { signal } = stop;
  byId("forget").hidden = !sessionStorage.getItem(KEY);
  const isCurrent = () => session === mine;
  const failed = (error) => {
    if (!isCurrent()) return;
    if (error instanceof Refused && error.status === 401) {
      lock(sessionStorage.getItem(KEY) ? error.message : "");
      return;
    }
    const isRefused = error instanceof Refused && error.status < 500;
    complain(error instanceof Refused ? error.message : "");
    say(isRefused ? "refused" : "lost", isRefused ? "refused" : "no answer; trying again");
  };

  const counting = async () => {
    let isFirst = true;
    while (isCurrent()) {
      const isMourning = [...queues.values()].some((one) => one.hasDied);
      if (isFirst || isDirty || isMourning || Date.now() - askedAt > QUIET_MS) {
        try {
          await refresh();
          const some = [...queues.values()].filter((one) => (
            isFirst ? one.counts.dead !== 0 : one.hasDied && Date.now() - one.listedAt > DEATHS_MS));
          await listDeaths(some.slice(0, 20));
          isFirst = false;
          if (!isCurrent()) return;
          byId("board").hidden = false;
          byId("gate").hidden = true;
          complain("");
          if (isFollowing) say("live", "live");
        } catch (error) {
          isDirty = true;
          failed(error);
        }
      }
      await sleep(COUNTS_MS);
    }
  };
  const staffing = async () => {
    while (isCurrent()) {
      try { await refreshWorkers(); } catch (error) { failed(error); }
      await sleep(queues.size ? WORKERS_MS : 200);
    }
  };
  const listening = async () => {
    while (isCurrent()) {
      try {
        await follow(signal);
        if (isCurrent()) say("connecting", "connecting");
      } catch (error) { failed(error); }
      isFollowing = false;
      await sleep(2000);
    }
  };
  const drawing = async () => {
    while (isCurrent()) {
      if (!byId("board").hidden && !document.hidden) draw();
      await sleep(500);
    }
  };
  await Promise.all([counting(), staffing(), listening(), drawing()]);
}

function lock(detail) {
  session += 1;
  stop.abort();
  sessionStorage.removeItem(KEY);
  for (const one of queues.values()) one.row?.element.remove();
  queues.clear();
  deaths.length = 0;
  byId("board").hidden = true;
  byId("forget").hidden = true;
  byId("gate").hidden = false;
  complain(detail);
  say("refused", "locked");
  byId("key").focus();
}

byId("gate").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, byId("key").value.trim());
  byId("key").value = "";
  complain("");
  say("connecting", "connecting");
  open();
});
byId("forget").addEventListener("click", () => lock(""));
byId("filter").addEventListener("input", draw);

const THEMES = { auto: "Auto", light: "Light", dark: "Dark" };
function dress(theme) {
  document.documentElement.dataset.theme = theme;
  write(byId("theme"), THEMES[theme]);
  byId("theme").setAttribute("aria-label", `Colour scheme: ${theme === "auto" ? "automatic" : theme}`);
}
byId("theme").addEventListener("click", () => {
  const names = Object.keys(THEMES);
  const next = names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length];
  sessionStorage.setItem(THEME, next);
  dress(next);
});
dress(Object.hasOwn(THEMES, sessionStorage.getItem(THEME) || "") ? sessionStorage.getItem(THEME) : "auto");
open();
