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

// asText is a constraint as it stands in a field, asValue what a field means: a
// text stays a text, everything else is JSON.
const asText = (v) => (typeof v === "string" ? v : JSON.stringify(v));
function asValue(text, before) {
  if (typeof before === "string") return text;
  try { return JSON.parse(text); } catch { return text; }
}

// editor edits an envelope; submit is called with the new one. Goal and
// constraints have fields; the whole of it is there as JSON, and either changes
// the other.
export function editor({ intent, me, objective, label, submit, cancel }) {
  let envelope = fresh(intent, me, objective);
  let wrong = "";
  const area = h("textarea", { rows: 14, spellcheck: "false", class: "mono", "aria-label": "The whole intent envelope, as JSON", value: pretty(envelope) });
  const goal = h("input", { type: "text", "aria-label": "Goal", data: { field: "goal" } });
  const constraints = h("div", {});
  const name = h("input", { type: "text", class: "mono", "aria-label": "Name of another constraint", placeholder: "name, for example max_refund", spellcheck: "false" });
  const value = h("input", { type: "text", class: "mono", "aria-label": "Its value", placeholder: "value, for example 500", spellcheck: "false" });
  const changes = h("div", { "aria-live": "polite" });
  const look = () => fill(changes, wrong ? h("p", { class: "muted", text: wrong }) : showDiff(intent, envelope));
  const typed = () => { area.value = pretty(envelope); wrong = ""; look(); };
  const field = (key) => {
    const before = envelope.constraints[key];
    const input = h("input", { type: "text", class: "mono", "aria-label": "Constraint " + key, data: { constraint: key }, value: asText(before), spellcheck: "false" });
    input.addEventListener("input", () => { envelope.constraints[key] = asValue(input.value, before); typed(); });
    return [h("dt", { class: "mono", text: key }), h("dd", {}, input)];
  };
  const draw = () => {
    goal.value = typeof envelope.goal === "string" ? envelope.goal : "";
    const all = envelope.constraints && typeof envelope.constraints === "object" ? Object.keys(envelope.constraints) : [];
    fill(constraints, all.length > 0 && h("dl", { class: "facts" }, all.map(field)));
  };
  const more = button("Add", "", async () => {
    const key = name.value.trim();
    if (!key) throw new Error("A constraint needs a name: the one that a rule's binding compares with.");
    envelope.constraints = { ...envelope.constraints, [key]: asValue(value.value) };
    name.value = value.value = "";
    draw();
    typed();
    name.focus();
  });
  goal.addEventListener("input", () => { envelope.goal = goal.value; typed(); });
  area.addEventListener("input", () => {
    try {
      const got = JSON.parse(area.value);
      if (got === null || typeof got !== "object" || Array.isArray(got)) throw new Error("it must be an object");
      envelope = got;
      wrong = "";
      draw();
    } catch (err) {
      wrong = "This is not JSON yet: " + err.message;
    }
    look();
  });
  draw();
  look();
  return h("div", { class: "editor", data: { errors: "" } },
    h("p", { class: "muted", text: "What the task is for, from now on. Every verdict from before is void, and what waits is judged again." }),
    h("div", { class: "split" },
      h("div", {}, h("h4", { text: "Goal" }), goal, h("h4", { text: "Constraints, which rules compare calls with" }), constraints,
        h("div", { class: "answer", data: { errors: "" } }, name, value, more),
        h("details", {}, h("summary", {}, "The whole envelope, as JSON"), area)),
      h("div", {}, h("h4", { text: "What changes" }), changes)),
    h("div", { class: "actions" }, button(label, "primary", async () => { if (wrong) throw new Error(wrong); await submit(envelope); }), h("button", { type: "button", on: { click: cancel } }, "Cancel")));
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
      : h("p", { class: "muted", text: "No intent is set. Rules that compare calls with one do what their on_missing says." }),
    ctx.host.mayWrite() && !view.ended_at && h("button", { type: "button", on: { click: edit } }, i ? "Change the intent" : "Set an intent"));
  function edit() {
    const e = editor({ intent: i, me: ctx.host.me.operator, objective: status.objective, label: "Put it in force", cancel: show,
      submit: async (intent) => { await post(`/tasks/${seg(id)}/intent`, { intent }); say(box, null); show(); after(); } });
    fill(box, e);
    e.querySelector("input").focus();
  }
  show();
  return box;
}
