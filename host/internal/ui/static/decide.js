// What waits for a human: approvals of the gate, with their five answers, and
// questions of an agent.

import { post, seg } from "./api.js";
import { button, dialog, fill, h } from "./dom.js";
import * as f from "./format.js";
import { editor } from "./intent.js";

function left(at) {
  if (!at) return null;
  return h("span", { class: "muted" }, " · Unanswered, it is turned down in ", h("span", { data: { until: at }, text: f.age(new Date(), at) }));
}

export const findings = (list) => list?.length > 0 && h("ul", { class: "findings" }, list.map((x) =>
  h("li", {}, f.pill(x.outcome || "note", f.VERDICTS[x.outcome]?.[1] || "calm"), " ", h("span", { class: "muted", text: (x.stage || "") + (x.id ? " · " + x.id : "") }), " ", x.reason || "")));

// approvalCard is one decision that waits. intent is the one in force.
export function approvalCard({ task, approval: a, intent, ctx, after, link }) {
  const said = h("input", { type: "text", placeholder: "Why (optional, goes into the journal)", "aria-label": "Explanation" });
  const slot = h("div", {});
  const answer = async (action, more) => {
    await post(`/tasks/${seg(task)}/approval`, { decision_id: a.decision_id, action, explanation: said.value, fingerprint: a.fingerprint || undefined, ...more });
    after();
  };
  const modify = () => {
    const e = editor({ intent, me: ctx.host.me.operator, objective: "", label: "Modify the intent and judge again", cancel: () => fill(slot),
      submit: (modified_intent) => answer("modify_intent", { modified_intent }) });
    fill(slot, e);
    e.querySelector("input").focus();
  };
  const stop = async () => {
    const yes = await dialog("Stop the agent?", (done) => [
      h("p", { text: "The call is not made, and everything of this task is stopped: no further call, its cell ended, its access taken back." }),
      h("div", { class: "actions" }, h("button", { type: "button", class: "danger", on: { click: () => done(true) } }, "Stop the agent"), h("button", { type: "button", on: { click: () => done() } }, "Go back"))]);
    if (yes) await answer("stop_agent");
  };
  return h("article", { class: "ask card", "aria-label": "Approval of " + a.tool_name, data: { errors: "", decision: a.decision_id } },
    h("h3", {}, "May it run ", h("code", { text: a.tool_name }), "?"),
    h("p", { class: "reason" }, a.reason),
    h("p", {}, a.risk && [f.pill("risk " + a.risk, a.risk === "HIGH" ? "bad" : a.risk === "MEDIUM" ? "ask" : "calm"), " "],
      h("span", { class: "muted" }, "Asked ", f.when(a.since)), left(a.expires_at), link && [" · ", link]),
    h("h4", { text: "With exactly these arguments" }),
    a.tool_args === null ? h("p", { class: "muted", text: "They are not kept: a rule redacts them." }) : h("pre", { class: "args", tabindex: "0", text: f.pretty(a.tool_args) }),
    // One finding that says what the reason says already is named, not told again.
    a.findings?.length === 1 && a.findings[0].reason === a.reason && a.findings[0].id ? h("p", { class: "muted" }, "By the rule ", h("code", { text: a.findings[0].id }), ".") : findings(a.findings),
    ctx.host.mayWrite() ? [said,
      h("div", { class: "actions" },
        button("Approve once", "primary", () => answer("approve_once"), { title: "This call, with these arguments, one time" }),
        button("Reject", "danger", () => answer("reject"), { title: "It does not run; the agent is told why" }),
        button("Ask to replan", "", () => answer("ask_agent_to_replan"), { title: "It does not run; the agent is asked for another way" }),
        button("Modify intent…", "", async () => modify(), { title: "Change what the task is for, and judge the call again" }),
        button("Stop agent…", "danger", stop, { title: "The call does not run and the whole task is stopped" })),
      slot] : h("p", { class: "muted", text: "Your role may only read." }));
}

const SOURCES = { ask: "Asked by a process in the cell", runtime: "Its agent waits for input since" };

// questionCard is one question of an agent.
export function questionCard({ question: q, ctx, after, link }) {
  const field = h("input", { type: "text", "aria-label": "Answer", placeholder: "Your answer", autocomplete: "off" });
  const send = async (text) => {
    await post(`/api/v1/hitl/${seg(q.hitl_id)}/respond`, { text });
    after();
  };
  const go = button("Send answer", "primary", () => send(field.value));
  field.addEventListener("keydown", (ev) => { if (ev.key === "Enter") { ev.preventDefault(); go.click(); } });
  return h("article", { class: "ask card", "aria-label": "Question", data: { errors: "", hitl: q.hitl_id } },
    h("h3", { class: "prompt", text: q.prompt }),
    q.context && h("pre", { class: "args", tabindex: "0", text: q.context }),
    h("p", {}, h("span", { class: "muted" }, SOURCES[q.source] || "", " ", f.when(q.asked_at)),
      q.expires_at && h("span", { class: "muted" }, " · The question is closed in ", h("span", { data: { until: q.expires_at }, text: f.age(new Date(), q.expires_at) })), link && [" · ", link]),
    ctx.host.mayWrite() ? [
      q.options?.length > 0 && h("div", { class: "actions" }, q.options.map((o) => button(o, "", () => send(o)))),
      h("div", { class: "answer" }, field, go)] : h("p", { class: "muted", text: "Your role may only read." }));
}

// countdown keeps the times that are left true, as long as the view is shown.
export function countdown(root, signal) {
  const t = setInterval(() => {
    for (const el of root.querySelectorAll("[data-until]")) el.textContent = f.age(new Date(), el.dataset.until);
  }, 1000);
  signal.addEventListener("abort", () => clearInterval(t));
}
