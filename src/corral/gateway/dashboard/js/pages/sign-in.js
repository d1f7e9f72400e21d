// Sign in: the key is sent once, and a cookie that scripts cannot read stays.

import { signIn } from "../api.js";
import { h } from "../dom.js";
import { enter, setNotice } from "../main.js";

export async function open({ show }) {
  const key = h("input", { id: "key", type: "password", autocomplete: "current-password", spellcheck: "false", required: true });
  const form = h("form.panel.sign-in", { id: "key-form" }, h("h1", {}, "Sign in"),
    h("p.is-soft", {}, "This gateway requires a key with the role ", h("em", {}, "read"), "."),
    h("label.field", {}, h("span", {}, "Key"), key), h("button.primary", { type: "submit" }, "Sign in"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await signIn(key.value.trim());
      key.value = "";
      await enter();
    } catch (error) {
      key.value = "";
      setNotice(error.message);
      key.focus();
    }
  });
  show(form, "Sign in");
  key.focus();
}
