// The intent of a task: what it is allowed to be for. An envelope is whole or it
// is refused, so it is edited whole, with what changes shown beside it.

import { post, seg } from "./api.js";
import { button, fill, h, say } from "./dom.js";
import { pretty } from "./format.js";

// diff compares two texts line by line (longest common subsequence; texts are
// small). It gives [" " | "-" | "+", line].
export function diff(a, b) {
  const x = a.split("\n");
  const y = b.split("\n");
  if (x.length * y.length > 1e6) return [...x.map((l) => ["-", l]), ...y.map((l) => ["+", l])];
  const n = Array.from({ length: x.length + 1 }, () => new Uint16Array(y.length + 1));
  for (let i = x.length - 1; i >= 0; i--) for (let j = y.length - 1; j >= 0; j--) n[i][j] = x[i] === y[j] ? n[i + 1][j + 1] + 1 : Math.max(n[i + 1][j], n[i][j + 1]);
  const out = [];
  let i = 0;
  let j = 0;
  while (i < x.length || j < y.length) {
    if (i < x.length && j < y.length && x[i] === y[j]) { out.push([" ", x[i++]]); j++; }
    else if (j >= y.length || (i < x.length && n[i + 1][j] >= n[i][j + 1])) out.push(["-", x[i++]]);
    else out.push(["+", y[j++]]);
  }
  return out;
}

const MEANS = { "-": "removed", "+": "added", " ": "" };

// showDiff draws the difference of two envelopes.
export function showDiff(before, after) {
  const lines = diff(pretty(before) || "(no intent)", pretty(after));
  if (!lines.some(([sign]) => sign !== " ")) return h("p", { class: "muted", text: "Nothing changes." });
  return h("div", { class: "diff mono", role: "group", "aria-label": "What changes" }, lines.map(([sign, line]) =>
    h("div", { class: sign === "+" ? "plus" : sign === "-" ? "minus" : "" }, h("span", { class: "sign", "aria-label": MEANS[sign] }, sign), line)));
}

// fresh is the envelope to begin with: the one in force under a new id, or an
// empty one.
function fresh(intent, me, objective) {
  const by = { type: "human", id: me };
  if (!intent) return { id: "intent-" + crypto.randomUUID().slice(0, 8), goal: objective || "", requested_by: by, constraints: {}, authority: {}, expires: null, metadata: {} };
  return { ...intent, id: "intent-" + crypto.randomUUID().slice(0, 8), requested_by: by };
}

// editor edits an envelope; submit is called with the new one.
export function editor({ intent, me, objective, label, submit, cancel }) {
  const area = h("textarea", { rows: 14, spellcheck: "false", class: "mono", "aria-label": "The whole intent envelope, as JSON", value: pretty(fresh(intent, me, objective)) });
  const changes = h("div", {});
  const read = () => {
    try {
      return JSON.parse(area.value);
    } catch (err) {
      throw new Error("This is not JSON yet: " + err.message);
    }
  };
  const look = () => {
    try {
      fill(changes, showDiff(intent, read()));
    } catch (err) {
      fill(changes, h("p", { class: "muted", text: err.message }));
    }
  };
  area.addEventListener("input", look);
  look();
  return h("div", { class: "editor", data: { errors: "" } },
    h("p", { class: "muted", text: "The envelope is replaced whole. Every verdict from before is void, and what waits is judged again under the new one." }),
    h("div", { class: "split" }, h("div", {}, h("h4", { text: "New envelope" }), area), h("div", {}, h("h4", { text: "What changes" }), changes)),
    h("div", { class: "actions" }, button(label, "primary", async () => submit(read())), h("button", { type: "button", on: { click: cancel } }, "Cancel")));
}

// intentPanel shows the intent in force, and lets an operator replace it.
export function intentPanel({ id, status, view, ctx, after }) {
  const i = status.intent;
  const box = h("div", {});
  const show = () => fill(box,
    i ? [h("p", { class: "goal", text: i.goal }),
      h("dl", { class: "facts" }, Object.entries(i.constraints || {}).map(([k, v]) => [h("dt", { class: "mono", text: k }), h("dd", { class: "mono", text: typeof v === "string" ? v : JSON.stringify(v) })])),
      Object.keys(i.authority || {}).length > 0 && h("p", { class: "muted" }, "Authority: ", Object.entries(i.authority).map(([k, v]) => `${k}: ${v ? "yes" : "no"}`).join(", ")),
      h("p", { class: "muted" }, `Asked for by ${i.requested_by?.type || "?"} ${i.requested_by?.id || ""}`, i.expires ? `, good until ${new Date(i.expires).toLocaleString()}` : "")]
      : h("p", { class: "muted", text: "No intent is set: rules that compare with it follow their on_missing." }),
    ctx.host.mayWrite() && !view.ended_at && h("button", { type: "button", on: { click: edit } }, i ? "Change the intent" : "Set an intent"));
  function edit() {
    const e = editor({ intent: i, me: ctx.host.me.operator, objective: status.objective, label: "Put it in force", cancel: show,
      submit: async (intent) => { await post(`/tasks/${seg(id)}/intent`, { intent }); say(box, null); show(); after(); } });
    fill(box, e);
    e.querySelector("textarea").focus();
  }
  show();
  return box;
}
