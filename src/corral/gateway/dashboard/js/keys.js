// The keyboard: / searches, j and k walk rows, Enter opens, x selects, g and a letter changes the page, ? helps.

import { h } from "./dom.js";
import { openDialog } from "./dialog.js";
import { go, link } from "./router.js";

const PAGES = { q: "queues", d: "dead", h: "history", s: "schedules", f: "flows", w: "workers", r: "server", b: "tasks", a: "audit" };
const HELP = [
  ["/", "the page's filter, or search"], ["j  k", "next and previous row"], ["Enter", "open the row"], ["x", "select the row"],
  ["r", "reload the list"], ["g q", "queues"], ["g d", "dead letters"], ["g h", "history"], ["g s", "schedules"], ["g f", "flows"], ["g w", "workers"],
  ["g b", "bulk changes"], ["g r", "server"], ["g a", "audit log"], ["?", "this help"],
];

export function showHelp() {
  if (document.querySelector("dialog[open]")) return;
  const rows = HELP.map(([keys, text]) => h("div", {}, h("dt", {}, keys.split(" ").filter(Boolean).map((key) => h("kbd", {}, key))), h("dd", {}, text)));
  openDialog("Keyboard", h("dl.keys", {}, rows), (self) => [h("button.primary", { type: "button", onclick: () => self.close() }, "Close")]);
}

function walk(step) {
  const rows = [...document.querySelectorAll("#page .rows tbody tr")];
  if (!rows.length) return;
  const current = rows.findIndex((row) => row.classList.contains("is-current"));
  const next = rows[Math.min(Math.max(current + step, 0), rows.length - 1)];
  rows[current]?.classList.remove("is-current");
  next.classList.add("is-current");
  next.scrollIntoView({ block: "nearest" });
  next.querySelector("a[href], button")?.focus({ preventScroll: true });
}

let prefix = "";
export function installKeys() {
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]");
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping || document.querySelector("dialog[open]")) return;
    const key = event.key;
    if (prefix === "g" && PAGES[key]) {
      prefix = "";
      go(link(PAGES[key]));
      event.preventDefault();
      return;
    }
    prefix = key === "g" ? "g" : "";
    const row = document.querySelector("#page tr.is-current");
    if (key === "/") {
      const input = document.querySelector("#page input[type=search]");
      if (input) input.focus(); else go(link("search"));
    } else if (key === "j" || key === "k") walk(key === "j" ? 1 : -1);
    else if (key === "x") row?.querySelector("input[type=checkbox]")?.click();
    else if (key === "r") document.querySelector("#page [data-reload]")?.click();
    else if (key === "?") showHelp();
    else return;
    event.preventDefault();
  });
}
