// Dialogs: confirmations, typed where nothing brings the jobs back, forms, and short messages.

import { byId, h } from "./dom.js";
import { problemsOf } from "./schema.js";

export function toast(text, kind = "good") {
  const element = h(`p.toast.is-${kind}`, {}, h("span", {}, text),
    h("button.quiet.small", { type: "button", "aria-label": "Dismiss", onclick: () => element.remove() }, "×"));
  byId("toasts").append(element);
  setTimeout(() => element.remove(), kind === "bad" ? 12000 : 5000);
}

export function openDialog(title, content, buttons) {
  const titleId = `dialog-${Math.random().toString(36).slice(2)}`;
  const dialog = h("dialog", { "aria-labelledby": titleId });
  const form = h("form", { method: "dialog" }, h("h2", { id: titleId }, title), content, h("div.dialog-buttons", {}, buttons(dialog)));
  dialog.append(form);
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.showModal();
  return dialog;
}

// asks; `word`: it has to be typed first. `act` runs while the dialog stays, and its error is shown inside it
export function confirm({ title, text, verb, word, isDangerous = false, fields = [], act }) {
  const problem = h("p.field-error", { role: "alert", hidden: true });
  const typed = word ? h("input", { autocomplete: "off", spellcheck: "false", "aria-label": `Type ${word}` }) : null;
  const button = h(`button.${isDangerous ? "danger" : "primary"}`, { type: "submit", disabled: Boolean(word) }, verb);
  typed?.addEventListener("input", () => { button.disabled = typed.value.trim() !== word; });
  const content = h("div.dialog-content", {}, h("p", {}, text), ...fields,
    word ? h("label.field", {}, h("span", {}, "Nothing brings them back. Type ", h("code", {}, word), " to confirm."), typed) : null, problem);
  const dialog = openDialog(title, content, (self) => [
    h("button.quiet", { type: "button", onclick: () => self.close() }, "Cancel"), button]);
  dialog.querySelector("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    if (button.disabled) return;
    button.disabled = true;
    try {
      const message = await act();
      dialog.close();
      if (message) toast(message);
    } catch (error) {
      problem.hidden = false;
      problem.textContent = error.message;
      button.disabled = false;
    }
  });
  (typed || dialog.querySelector("input, textarea, select") || button).focus();
  return dialog;
}

export function field(label, input, hint) {
  return h("label.field", {}, h("span", {}, label), input, hint ? h("small", {}, hint) : null);
}

export function jsonInput(value = {}, rows = 8, label = "JSON") {
  const area = h("textarea.code", { rows: String(rows), spellcheck: "false", autocomplete: "off", "aria-label": label, value: JSON.stringify(value, null, 2) });
  const note = h("small.field-error", { role: "alert" });
  let schema = null;
  const check = () => {
    try {
      const parsed = JSON.parse(area.value || "null");
      note.textContent = schema ? problemsOf(schema, parsed).join("; ") : "";
    } catch (error) { note.textContent = error.message; }
  };
  area.addEventListener("input", check);
  return {
    element: h("div", {}, area, note), area, read: () => JSON.parse(area.value || "null"),
    write: (next) => { area.value = JSON.stringify(next, null, 2); check(); },
    // what does not fit a schema is said while one writes
    setSchema: (next) => { schema = next; check(); },
  };
}
