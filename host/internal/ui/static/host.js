// The host: whether it takes missions, its agents and its plugins, each with the
// exact reason where it is not well.

import { get, post, seg } from "./api.js";
import { button, fill, h, memo, section } from "./dom.js";
import * as f from "./format.js";

const LOOKS = { healthy: "ok", degraded: "ask", quarantined: "bad", starting: "calm", stopped: "calm" };

export async function hostView(main, { signal, host }) {
  const at = () => h("div", {});
  const ready = at();
  const agents = at();
  const plugins = at();
  const link = at();
  fill(main, h("h1", { text: "Host" }), section("Readiness", "", ready), section("Agents", "", agents), section("Plugins", "", plugins), section("Orchestrator", "", link));

  const showReady = memo(ready, (r) => [
    h("p", {}, r.ready ? f.pill("ready", "ok") : f.pill("not ready", "bad"), " ", r.ready ? "The host takes missions." : "The host takes no missions."),
    [["Store", r.store], ["Run directory", r.run_dir], ["Trusted heads", r.heads], ...(r.trouble || []).map((t) => ["Trouble", t])].filter(([, t]) => t).map(([k, t]) =>
      h("p", { class: "reason" }, h("strong", { text: k + ": " }), t))]);

  const showAgents = memo(agents, ([list, all]) => list.length === 0 ? h("p", { class: "muted", text: "No agent block is configured: the host runs tasks of harnesses only." }) : h("ul", { class: "things" }, list.map((a) => h("li", { data: { agent: a.name } },
    h("div", { class: "thingline" }, f.pill(a.healthy ? "healthy" : "not usable", a.healthy ? "ok" : "bad"), h("strong", { text: a.name }),
      h("span", { class: "muted", text: `${f.driverOf(a.isolation)}${f.levelOf(a.isolation, all) ? " (" + f.levelOf(a.isolation, all) + ")" : ""} · ${f.driverOf(a.runtime)}` })),
    a.reason && h("p", { class: "reason", text: a.reason }),
    h("p", { class: "muted", text: `${a.running} of ${a.slots} slots in use · ${a.queued} of ${a.queue_limit} waiting${a.warm ? ` · ${a.warm} warm` : ""}` }),
    a.notes?.length > 0 && h("ul", { class: "plain" }, a.notes.map((n) => h("li", {}, f.pill("note", "ask"), " ", n)))))));

  const showPlugins = memo(plugins, (list) => list.length === 0 ? h("p", { class: "muted", text: "No plugin is configured." }) : h("ul", { class: "things" }, list.map((p) => h("li", { data: { plugin: p.ref, errors: "" } },
    h("div", { class: "thingline" }, f.pill(p.state, LOOKS[p.state] || "calm"), h("strong", { class: "mono", text: p.ref }), h("span", { class: "muted", text: p.version || "" }),
      host.mayWrite() && !host.me.agents && button("Reload", "quiet", async () => { await post(`/api/v1/plugins/${seg(p.ref)}/reload`, {}); await refresh(); })),
    p.reason && h("p", { class: "reason" }, p.code ? h("strong", { text: p.code + ": " }) : "", p.reason),
    p.last_exit && h("p", { class: "muted", text: "Last end: " + p.last_exit }),
    h("details", {}, h("summary", {}, "Details"), h("dl", { class: "facts" }, [["What it is", p.summary], ["File", p.file], ["SHA-256", p.sha256], ["Process", p.pid && String(p.pid)], ["Restarts", String(p.restarts)],
      ["Since", new Date(p.since).toLocaleString()], ["Provides", (p.capabilities || []).join(", ")], ["Features", (p.features || []).join(", ")],
      ...(p.needs || []).map((n) => ["Needs " + n.what, `${n.value}: ${n.reason}`]), ...Object.entries(p.attributes || {})].filter(([, v]) => v).map(([k, v]) => [h("dt", { text: k }), h("dd", { text: v })])))))));

  const showLink = memo(link, (s) => s === null ? h("p", { class: "muted", text: "Unknown." }) : [
    h("p", {}, s.configured === false ? [f.pill("off", "calm"), " No orchestrator is configured."] : s.connected ? [f.pill("connected", "ok")] : [f.pill("not connected", "bad")]),
    h("dl", { class: "facts" }, Object.entries(s).filter(([, v]) => v !== null && v !== "" && typeof v !== "object").map(([k, v]) => [h("dt", { text: k.replaceAll("_", " ") }), h("dd", { text: String(v) })]))]);

  async function refresh() {
    const soft = (p) => p.catch((err) => { if (signal.aborted) throw err; return null; });
    const [r, a, p, s] = await Promise.all([ready503(signal), get("/api/v1/agents", { signal }), get("/api/v1/plugins", { signal }), soft(get("/api/v1/aiwg/status", { signal }))]);
    host.plugins = p.plugins || [];
    showReady(r);
    showAgents([a.agents, host.plugins]);
    showPlugins(host.plugins);
    showLink(s);
  }
  const t = setInterval(() => { if (!document.hidden) refresh().catch(() => {}); }, 2000);
  signal.addEventListener("abort", () => clearInterval(t));
  await refresh();
}

// /readyz says with 503 why the host is not ready; that is an answer too.
async function ready503(signal) {
  const resp = await fetch("/readyz", { signal, cache: "no-store", credentials: "omit" });
  return resp.json();
}
