// The frame of all pages: who the client is, which page is open, colours, status, keys.

import { loadSession, may, onLocked, onOutcome, session, signOut } from "./api.js";
import { byId, h, write } from "./dom.js";
import { connect, disconnect, feedState, onState } from "./feed.js";
import { installKeys, showHelp } from "./keys.js";
import { loading } from "./parts.js";
import { link, parse, start } from "./router.js";

const PAGES = {
  queues: ["Queues", () => import("./pages/queues.js")],
  dead: ["Dead letters", () => import("./pages/dead.js")],
  history: ["History", () => import("./pages/history.js")],
  search: ["Search", () => import("./pages/search.js")],
  schedules: ["Schedules", () => import("./pages/schedules.js")],
  flows: ["Flows", () => import("./pages/flows.js")],
  workers: ["Workers", () => import("./pages/workers.js")],
  tasks: ["Bulk changes", () => import("./pages/tasks.js"), "operate"],
  server: ["Server", () => import("./pages/server.js")],
  audit: ["Audit log", () => import("./pages/audit.js"), "operate"],
};
const INNER = {
  queue: [() => import("./pages/queue.js"), "queues"],
  job: [() => import("./pages/job.js"), "queues"],
  flow: [() => import("./pages/flow.js"), "flows"],
  "sign-in": [() => import("./pages/sign-in.js"), ""],
};

let closing = new AbortController();
let isSignedIn = false;
let openNumber = 0;

export function setNotice(text) {
  byId("notice").hidden = !text;
  write(byId("notice"), text || "");
}

function setStatus(state, text) {
  byId("status").dataset.state = state;
  write(byId("status"), text);
}

function drawNav(current) {
  const visible = Object.entries(PAGES).filter(([, [, , role]]) => !role || session.roles.includes(role));
  byId("nav").replaceChildren(h("ul", {}, visible.map(([name, [title]]) => (
    h("li", {}, h("a", { href: link(name), "aria-current": name === current ? "page" : undefined }, title))))));
  byId("nav").hidden = !isSignedIn;
  byId("nav").classList.remove("is-open");
  byId("menu").setAttribute("aria-expanded", "false");
}

async function open(route) {
  const number = (openNumber += 1);
  closing.abort();
  closing = new AbortController();
  const name = isSignedIn ? route.page : "sign-in";
  const load = PAGES[name]?.[1] || INNER[name]?.[0] || PAGES.queues[1];
  drawNav(PAGES[name] ? name : INNER[name]?.[1]);
  setNotice("");
  const holder = byId("page");
  holder.replaceChildren(loading());
  const { signal } = closing;
  const show = (element, title) => {
    if (number !== openNumber) return;
    document.title = title ? `${title} · Corral` : "Corral";
    holder.replaceChildren(element);
  };
  try {
    const page = await load();
    await page.open({ ...route, signal, show, fail });
  } catch (error) {
    if (number === openNumber && !signal.aborted) fail(error);
  }
  if (number === openNumber && document.activeElement === document.body) byId("main").focus({ preventScroll: true });
}

function fail(error) {
  if (error.name === "AbortError" || error.status === 401) return;
  setNotice(error.message);
  if (byId("page").querySelector(".loading")) byId("page").replaceChildren();
}

export async function enter() {
  try {
    await loadSession();
  } catch (error) {
    setNotice(error.message);
    setTimeout(enter, 2000);
    return;
  }
  isSignedIn = session.roles.includes("read");
  byId("sign-out").hidden = !session.has_session;
  byId("who").hidden = !isSignedIn || !session.name;
  write(byId("who"), `${session.name}${session.read_only ? " · read-only" : may("operate") ? "" : " · reader"}`);
  if (isSignedIn) connect();
  else { disconnect(); setStatus("locked", "locked"); }
  await open(parse());
  if (session.name && !isSignedIn) setNotice(`the key ${session.name} lacks the role 'read'; sign in with another`);
}

const THEMES = { auto: "Auto", light: "Light", dark: "Dark" };
function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  write(byId("theme"), THEMES[theme]);
  byId("theme").setAttribute("aria-label", `Colour scheme: ${THEMES[theme]}`);
}
function storedTheme() {
  const theme = localStorage.getItem("corral.theme") || "";
  return Object.hasOwn(THEMES, theme) ? theme : "auto";
}

byId("theme").addEventListener("click", () => {
  const names = Object.keys(THEMES);
  const next = names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length];
  localStorage.setItem("corral.theme", next);
  setTheme(next);
});
byId("menu").addEventListener("click", () => {
  const isOpen = byId("nav").classList.toggle("is-open");
  byId("menu").setAttribute("aria-expanded", String(isOpen));
});
byId("help").addEventListener("click", showHelp);
byId("sign-out").addEventListener("click", async () => {
  await signOut().catch((error) => setNotice(error.message));
  enter();
});
onLocked(() => { if (isSignedIn) enter(); });
let isOut = false;
onOutcome((error) => {
  if (error) {
    isOut = true;
    setNotice(error.message);
    setStatus("lost", "no response; trying again");
  } else if (isOut) {
    isOut = false;
    setNotice("");
    if (isSignedIn) setStatus(feedState(), feedState() === "live" ? "live" : "connecting");
  }
});
onState((state, text) => {
  setStatus(state, text);
  if (state === "live") setNotice("");
});
setTheme(storedTheme());
installKeys();
let isStarted = false;
start(() => { if (isStarted) open(parse()); });
isStarted = true;
enter();
