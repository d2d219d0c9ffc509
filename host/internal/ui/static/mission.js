// One mission: what it is for, what it does, what waits, and what can be done.

import { ApiError, get, post, put, reachable, seg, stream } from "./api.js";
import { approvalCard, countdown, findings, questionCard } from "./decide.js";
import { button, dialog, drop, fill, h, later, memo, section } from "./dom.js";
import { Events, PAGE } from "./events.js";
import * as f from "./format.js";
import { intentPanel } from "./intent.js";
import { verify } from "./journals.js";
import { accessBody, credentials, receiptBody } from "./receipt.js";
import { terminal } from "./terminal.js";

export async function mission(main, id, ctx) {
  const { signal, host } = ctx;
  if (!reachable(id)) throw new Error("A browser cannot name this mission in an address. Use: airlock mission show " + id);
  const task = "/tasks/" + seg(id);
  const read = () => Promise.all([get("/api/v1/missions/" + seg(id), { signal }), get(task + "/status", { signal }), get("/api/v1/hitl", { signal })]);
  const first = await read();
  let [view, status] = first;
  document.title = f.titleOf(view) + " – Airlock";

  const at = (cls) => h("div", { class: cls || "" });
  const head = at("missionhead");
  const waiting = at("waiting");
  const stopped = at();
  const term = at();
  const calls = at();
  const facts = at();
  const budget = at();
  const access = at();
  const plan = at();
  const intent = at();
  const risk = at();
  const events = new Events(id, signal);
  const journal = at();
  const errors = h("div", { data: { errors: "" } });
  const stopPanel = section("Stop receipt", "receipt", stopped);
  stopPanel.hidden = true;
  const waitPanel = section("Waits for you", "urgent", waiting);
  waitPanel.hidden = true;
  fill(main, h("p", { class: "back" }, h("a", { href: "#/missions" }, "← Missions")), head, errors, waitPanel, stopPanel,
    h("div", { class: "columns" },
      h("div", { class: "wide" }, view.runtime === "harness" ? null : section("Terminal", "", term), section("Calls", "", calls), section("Journal", "", events.el, journal)),
      h("div", { class: "side" }, section("Mission", "", facts), section("Credentials", "access", access), section("Budget", "", budget),
        section("Plan", "", plan), section("Intent", "", intent), section("Risk and findings", "", risk))));
  countdown(main, signal);

  let receipt = null;
  let questions = [];

  // refresh reads what changes and shows it.
  const refresh = async () => took(await read());
  function took([v, s, q]) {
    view = v;
    status = s;
    questions = q.questions.filter((x) => x.mission_id === id && x.source !== "approval");
    if (!receipt?.final && (view.state === "aborted" || status.state === "STOPPED" || view.waiting_for === "stop")) followStop();
    if (receipt?.final && status.state !== "STOPPED" && status.state !== "ENDED" && view.waiting_for !== "stop") receipt = null; // restarted
    show();
    host.refresh();
  }
  const soon = later(150, () => refresh().catch((err) => { if (err instanceof ApiError) failed(err); }));
  const failed = (err) => fill(errors, h("p", { class: "error", role: "alert", text: err.message }));

  // followStop shows the receipt as it fills.
  let following = false;
  async function followStop() {
    if (following) return;
    following = true;
    try {
      while (!signal.aborted) {
        try {
          receipt = await get(task + "/stops/latest", { signal });
          show();
          if (receipt.final) break;
        } catch (err) {
          if (signal.aborted || (err instanceof ApiError && err.status === 404)) break;
        }
        await new Promise((r) => setTimeout(r, 200));
      }
    } finally {
      following = false;
    }
    soon();
  }

  const control = async (action, more) => {
    fill(errors);
    const got = await post(task + "/control" + (action === "stop" ? "?wait=0" : ""), { action, ...more });
    if (action === "stop") { receipt = { rungs: [], ...got }; show(); followStop(); }
    soon();
  };

  async function askStop() {
    const harness = view.runtime === "harness";
    if (f.ended(view) && view.state !== "aborted") return;
    if (!host.mayWrite()) return;
    const reason = h("input", { type: "text", id: "stopreason", placeholder: "Why (optional, goes into the journal)" });
    const yes = await dialog("Stop this mission?", (done) => {
      const form = h("form", {},
        h("p", { class: "objective", text: f.titleOf(view) }),
        h("p", { text: harness ? "Its agent runs elsewhere: from now on no call of it is let through, running calls are asked to cancel, and issuers are asked to take its access back. It can be restarted later."
          : "It ends for good: no further call, everything in its cell is frozen and killed, and issuers are asked to take its access back. It cannot be restarted." }),
        h("label", { for: "stopreason" }, "Reason"), reason,
        h("div", { class: "actions" }, h("button", { type: "submit", class: "danger" }, "Stop it now"), h("button", { type: "button", on: { click: () => done() } }, "Go back")));
      form.addEventListener("submit", (ev) => { ev.preventDefault(); done(true); });
      return form;
    });
    if (yes) await control("stop", reason.value ? { reason: reason.value } : {}).catch(failed);
  }

  function buttons(m, s) {
    if (!host.mayWrite()) return [h("span", { class: "muted", text: "Your role may only read." })];
    const out = [];
    const stopping = m.waiting_for === "stop";
    const harness = m.runtime === "harness";
    if (!f.ended(m) && s !== "STOPPED" && !stopping) {
      if (s === "PAUSED") out.push(button("Resume", "primary", () => control("resume")));
      else out.push(button("Pause", "", () => control("pause"), { title: "No call is let through, and the cell is frozen, until it is resumed" }),
        button("Replan", "", () => control("replan"), { title: "Hold every call until resume, so that the agent finds another plan" }));
      out.push(button("Stop…", "danger", askStop));
    } else if (m.waiting_for === "restart" || (harness && s === "STOPPED")) {
      out.push(button("Restart", "primary", () => control("restart"), { title: "Lets calls through again. Needs every outcome known and all access revoked" }),
        button("Stop again…", "", askStop, { title: "Asks every issuer again" }));
    }
    return out;
  }

  const showHead = memo(head, ([m, s, lock]) => [
    h("div", { class: "titleline" }, f.statePill(m), h("h1", { text: f.titleOf(m, 120) })),
    h("p", { class: "muted" }, f.why(m) ? f.why(m) + " · " : "", h("span", { class: "mono", text: m.mission_id })),
    m.objective.trim().includes("\n") || m.objective.length > 120 ? h("details", {}, h("summary", {}, "Whole objective"), h("pre", { class: "args", text: m.objective })) : null,
    lock && h("p", {}, "Credentials: ", f.pill(lock[1], lock[0])),
    h("div", { class: "actions", data: { errors: "" } }, buttons(m, s))]);

  const cards = new Map();
  function showWaiting() {
    const wanted = new Set();
    const list = f.ended(view) || status.state === "STOPPED" ? [] : [...(status.pending_approvals || []).map((a) => ["a" + a.decision_id, () => approvalCard({ task: id, approval: a, intent: status.intent, ctx, after: soon })]),
      ...questions.map((q) => ["q" + q.hitl_id, () => questionCard({ question: q, ctx, after: soon })])];
    for (const [key, make] of list) {
      wanted.add(key);
      if (cards.has(key)) continue;
      const el = make();
      cards.set(key, el);
      waiting.append(el);
    }
    for (const [key, el] of cards) if (!wanted.has(key)) { drop(el); cards.delete(key); }
    waitPanel.hidden = cards.size === 0;
  }

  const showStop = memo(stopped, ([rev, r]) => (r ? [receiptBody(r), h("div", { class: "answerbox" }, accessBody(rev, r))] : []));
  const showAccess = memo(access, ([rev, r]) => accessBody(rev, r));
  const showFacts = memo(facts, ([m, s, plugins]) => {
    const harness = m.runtime === "harness";
    const level = f.levelOf(m.isolation, plugins);
    const rows = [["Agent", harness ? "outside of any cell (harness)" : m.agent],
      ["Isolation", harness ? "none: Airlock governs its calls only" : f.driverOf(m.isolation) + (level ? `, ${level}` : "")],
      ["Runtime", harness ? "harness" : f.driverOf(m.runtime)],
      ["Calls are governed", { none: "not one by one: the launch is", protocol: "one by one, at the runtime's protocol", harness: "one by one, over HTTP" }[s.boundary] || s.boundary],
      ["Mode", s.mode === "observe" ? "observe: verdicts do not hold calls" : s.mode],
      ["From", m.origin === "local" ? "an operator here" : m.origin], ["Accepted", new Date(m.created_at).toLocaleString()],
      m.started_at && ["Started", new Date(m.started_at).toLocaleString()], m.ended_at && ["Ended", new Date(m.ended_at).toLocaleString()],
      m.exit_code !== null && ["Exit code", String(m.exit_code)], m.error && ["Error", m.error], ["Epoch", String(s.epoch)]];
    return h("dl", { class: "facts" }, rows.filter(Boolean).map(([k, v]) => [h("dt", { text: k }), h("dd", { text: v })]));
  });

  const bar = (label, now, most, say) => h("div", { class: "bar" }, h("span", {}, label), h("span", { class: "muted" }, most ? `${say(now)} of ${say(most)}` : `${say(now)}, no limit`),
    most ? h("meter", { min: 0, max: most, value: Math.min(now, most), high: most * 0.8, optimum: 0, "aria-label": `${label}: ${say(now)} of ${say(most)}` }) : null);
  const showBudget = memo(budget, (b) => [bar("Cost", b.current_cost, b.max_cost, f.usd), bar("Tokens", b.current_tokens, b.max_tokens, f.count),
    b.reserved > 0 && h("p", { class: "muted", text: `${f.usd(b.reserved)} reserved for calls under way` })]);

  const showPlan = memo(plan, ([p, actions, c, progress]) => [
    Array.isArray(p) && p.length ? h("ol", { class: "plan" }, p.map((step) => {
      const tool = step?.tool_name || step?.tool || "";
      const mine = actions.filter((a) => tool && a.tool_name === tool);
      const done = mine.filter((a) => a.lifecycle === "completed").length;
      return h("li", {}, h("span", {}, step?.description || tool || (typeof step === "string" ? step : JSON.stringify(step))), " ",
        mine.length > 0 && h("span", { class: done ? "okText" : "muted", text: `${done ? "✓ " : ""}${tool} completed ${done} of ${mine.length} proposed` }));
    })) : h("p", { class: "muted", text: "No plan was given." }),
    progress && h("p", {}, [progress.phase, progress.summary, progress.pct_complete !== undefined && Math.round(progress.pct_complete) + " %", progress.iteration !== undefined && "iteration " + progress.iteration].filter(Boolean).join(" · ")),
    h("p", { class: "muted", text: `${c.proposed} proposed · ${c.executed} dispatched · ${c.completed} completed · ${c.blocked} blocked · ${c.failed} failed` })]);

  const showRisk = memo(risk, ([r, list, none]) => [
    h("p", {}, "Risk of the last decision: ", r ? f.pill(r, r === "HIGH" ? "bad" : r === "MEDIUM" ? "ask" : "calm") : h("span", { class: "muted", text: "none" })),
    findings(list) || h("p", { class: "muted", text: "The last decision had no findings." }),
    none?.length > 0 && h("p", { class: "muted" }, "Not evaluated, since nothing configures it: ", none.join(", "), ".")]);

  const STEPS = ["proposal", "decision", "dispatch", "outcome"];
  // track is how far a call has come: [step → state].
  function track(a) {
    const life = a.lifecycle;
    const decided = { blocked: "bad", paused: "ask", suspended: "hold" }[life] || (life === "proposed" ? "now" : "ok");
    const out = { completed: "ok", failed: "bad" }[life];
    return ["ok", decided, ["executed", "completed", "failed"].includes(life) && a.invocation_id ? "ok" : "", out || (life === "executed" ? "now" : "")];
  }
  const showCalls = memo(calls, ([list, open, harness, mayWrite]) => [
    open.map((c) => h("div", { class: "ask card", data: { errors: "" } }, h("h3", {}, "How did ", h("code", { text: c.tool_name }), " end?"),
      h("p", { text: "The host went away while this call ran, so nobody knows. A restart waits for your word." }),
      mayWrite && h("div", { class: "actions" }, [["succeeded", "It succeeded"], ["failed", "It failed"], ["definitely_not_started", "It never started"], ["outcome_unknown", "It cannot be known"]].map(([o, label]) =>
        button(label, "", async () => { await post(task + "/resolve", { invocation_id: c.invocation_id, outcome: o, explanation: "said in the Control Room" }); soon(); }))))),
    list.length ? h("ul", { class: "calls" }, [...list].reverse().map((a) => h("li", { data: { proposal: a.proposal_id } },
      h("div", { class: "callline" }, h("code", { text: a.tool_name }), h("span", { class: "muted" }, f.when(a.at)), f.pill(a.lifecycle === "executed" ? "running" : a.lifecycle === "proposed" && (a.status === "ALLOW" || a.status === "WARN") ? "allowed" : a.lifecycle, f.VERDICTS[a.status] && a.lifecycle !== "completed" && a.lifecycle !== "failed" && a.lifecycle !== "executed" ? f.VERDICTS[a.status][1] : { completed: "ok", failed: "bad", executed: "go" }[a.lifecycle] || "calm")),
      h("ol", { class: "track" }, track(a).map((look, i) => h("li", { class: look || "off" }, h("span", { class: "dot", "aria-hidden": "true" }), STEPS[i], i === 1 ? ": " + a.status : ""))),
      h("button", { type: "button", class: "chip", on: { click: () => events.choose(a.proposal_id) } }, "its events"))))
      : h("p", { class: "muted", text: harness ? "No call has been proposed yet." : "No call has been proposed. A runtime without a boundary shows its launch only." })]);

  let shownSession = "";
  let session = new AbortController();
  signal.addEventListener("abort", () => session.abort());
  function showTerminal() {
    if (view.runtime === "harness") return;
    if (!view.pty_session_id) { if (!term.firstChild) fill(term, h("p", { class: "muted", text: f.ended(view) ? "It never had a session." : "There is no session yet." })); return; }
    if (view.pty_session_id === shownSession) return;
    session.abort();
    session = new AbortController();
    shownSession = view.pty_session_id;
    fill(term, terminal(shownSession, session.signal));
  }

  const showIntent = memo(intent, () => intentPanel({ id, status, view, ctx, after: soon }));
  const planB = host.mayWrite() && h("button", { type: "button", on: { click: editPlan } }, "Edit the plan");
  async function editPlan() {
    const area = h("textarea", { rows: 12, class: "mono", spellcheck: "false", "aria-label": "Plan, as a JSON array of steps", value: f.pretty(status.plan || [{ tool_name: "", description: "" }]) });
    await dialog("The plan", (done) => h("div", { data: { errors: "" } }, h("p", { class: "muted", text: "An array of steps; it is shown, and voids no verdict." }), area,
      h("div", { class: "actions" }, button("Save", "primary", async () => { await put(task + "/plan", { plan: JSON.parse(area.value) }); soon(); done(); }), h("button", { type: "button", on: { click: () => done() } }, "Cancel"))));
  }

  function show() {
    if (signal.aborted) return;
    showHead([view, status.state, !receipt && status.revocation.state !== "none" && credentials(status.revocation, null)]);
    showWaiting();
    stopPanel.hidden = !receipt;
    access.parentElement.hidden = Boolean(receipt); // the receipt says it
    showStop([status.revocation, receipt]);
    showAccess([status.revocation, receipt]);
    showFacts([view, { boundary: status.boundary, mode: status.mode, epoch: status.epoch }, host.plugins]);
    showBudget(status.budget);
    showPlan([status.plan, status.actions.map(({ tool_name, lifecycle }) => ({ tool_name, lifecycle })), status.counters, view.progress]);
    showIntent([status.intent, Boolean(view.ended_at), host.mayWrite()]);
    showRisk([status.risk, status.findings, status.not_evaluated]);
    showCalls([status.actions, status.unresolved, view.runtime === "harness", host.mayWrite()]);
    showTerminal();
    if (planB) { planB.hidden = Boolean(view.ended_at); if (!planB.isConnected) plan.parentElement.append(planB); }
    for (const e of status.audit_errors || []) if (!errors.textContent.includes(e)) errors.append(h("p", { class: "error", role: "alert", text: "The record is incomplete: " + e }));
  }

  fill(journal, verify(id, ctx));
  host.keys({ s: askStop, u: () => { location.hash = "#/missions"; } });
  events.head = status.head.sequence;
  took(first);
  host.changed.addEventListener("plugins", show, { signal });
  // The newest events come with the stream; those before them are read when
  // somebody asks for them, and so are those that a long absence has missed.
  let again = false;
  stream(async () => {
    if (again) {
      const s = await get(task + "/status", { signal });
      events.head = Math.max(events.head, s.head.sequence);
      soon();
    }
    again = true;
    return `${task}/events?after=${Math.max(events.live ? events.last : 0, events.head - PAGE, 0)}`;
  }, {
    event: (name, data) => {
      if (name === "error") return;
      const ev = JSON.parse(data);
      events.push(ev);
      if (ev.sequence > status.head.sequence) soon(); // it changes what is shown
    },
    error: failed,
  }, signal);
}
