// The stop receipt, as it fills, and what it means for credentials, in words that
// need no manual.

import { h } from "./dom.js";
import * as f from "./format.js";

const RUNGS = {
  latch: "No further call is let through", tombstone: "The stop is written down where it survives a crash",
  cell_latch: "The cell takes no new work", cut: "Model access and network through the host are cut",
  freeze: "Everything in the cell is frozen", kill: "Every process of the cell is killed", revoke: "Issuers take the access back",
};

const PROOFS = {
  cgroup_empty: "Nothing of it runs: its control group is empty.", pid_namespace_gone: "Nothing of it runs: its process namespace is gone.",
  engine_exited: "Nothing of it runs: the container engine reports its end.", vm_gone: "Nothing of it runs: its virtual machine is gone.",
  subreaper_sweep: "Nothing of it was found running by the sweep of its process tree.", unproven: "The driver could not prove that nothing of it runs.",
  nothing_started: "Nothing of it ran: no cell had been made.", outside: "Its process runs outside of any cell and was not ended; it is granted no call any more.",
};

// credentials says whether what a mission could use is revoked: [look, short
// answer, explanation]. The task's own state is newer than a receipt.
export function credentials(rev, receipt) {
  const names = (want) => Object.entries(rev.issuers || {}).filter(([, r]) => want(r)).map(([ref]) => ref);
  const open = names((r) => r.result !== "acknowledged" && r.result !== "waived");
  const waived = names((r) => r.result === "waived"), said = names((r) => r.result === "acknowledged");
  switch (rev.state) {
    case "done":
      if (waived.length) {
        return ["bad", "NOT confirmed by all", `An operator does without the confirmation of ${waived.join(", ")}: nothing is known to be revoked there.` + (said.length ? ` Confirmed by ${said.join(", ")}.` : "")];
      }
      return ["ok", "Yes, revoked", names(() => true).length ? "Confirmed by every issuer: " + names(() => true).join(", ") + "." : "Every issuer has confirmed."];
    case "partial":
      return ["bad", "NOT all revoked", `Not confirmed by ${open.join(", ") || "an issuer"}: treat that access as still working. Airlock asks again; a second stop asks again at once.`];
    case "in_flight":
      return ["ask", "Not yet revoked", `Waiting for ${open.join(", ") || "an issuer"}.`];
    case "granted":
      return ["calm", "In use", "The mission holds access. A stop, and the mission's end, take it back."];
  }
  if (receipt?.access_revocation === "acknowledged") return ["ok", "Yes, revoked", "Every issuer has confirmed."];
  if (receipt?.access_revocation === "partial_failure") return ["bad", "NOT all revoked", "The receipt names the issuers that did not confirm."];
  if (receipt?.final) return ["ask", "Nothing to revoke is known", "No issuer is configured for it: Airlock has given it no credential, and has cut what goes through the host. Whatever the agent got elsewhere, Airlock cannot say."];
  return ["calm", "None recorded", "Airlock has given it no credential, and its agent has recorded none."];
}

export function accessBody(rev, receipt) {
  const [look, short, long] = credentials(rev, receipt);
  const issuers = Object.entries(rev.issuers || {});
  return [
    h("p", { class: "answerline", data: { credentials: rev.state } }, "Are its credentials revoked? ", f.pill(short, look)),
    h("p", { text: long }),
    issuers.length > 0 && h("ul", { class: "plain" }, issuers.map(([ref, r]) => h("li", {},
      f.pill(r.result === "acknowledged" ? "confirmed" : r.result === "in_flight" ? "asking…" : r.result, r.result === "acknowledged" ? "ok" : r.result === "in_flight" ? "ask" : "bad"), " ",
      h("strong", { text: ref }), r.detail ? " — " + r.detail : "", h("span", { class: "muted" }, r.attempts > 1 ? ` (${r.attempts} attempts)` : "")))),
    rev.grants?.length > 0 && h("p", { class: "muted" }, "Grants: ", rev.grants.map((g) => `${g.issuer} (${g.state})`).join(", ")),
    rev.access?.length > 0 && h("p", { class: "muted" }, "Recorded by the agent: ", rev.access.map((a) => `${a.kind} ${a.ref} at ${a.issuer}`).join(", "))];
}

function rung(r) {
  const bad = r.result.startsWith("failed") || r.result === "partial_failure" || r.result === "unproven";
  const running = r.result === "running";
  const none = r.name === "revoke" && r.result === "not_configured";
  return h("li", { class: running ? "now" : bad ? "bad" : "done", data: { rung: r.name } },
    h("span", { class: "mark", "aria-hidden": "true" }, running ? "…" : bad ? "!" : none ? "–" : "✓"),
    h("span", {}, RUNGS[r.name] || r.name, bad ? ": " + r.result : none ? ": no issuer is configured" : running ? " (under way)" : ""),
    h("span", { class: "muted took" }, running ? "" : r.took_ms >= 1 ? Math.round(r.took_ms) + " ms" : ""));
}

// receiptBody shows a receipt, final or as far as the stop has come.
export function receiptBody(r) {
  const at = new Date(r.effective_at);
  return [
    h("p", { class: "answerline" }, f.pill(r.final ? "stopped" : "stopping…", r.final ? "bad" : "ask"), " ",
      "Since ", f.when(r.effective_at), " no call is let through.", r.actor ? ` Stopped by ${r.actor}.` : "", r.reason ? ` “${r.reason}”` : ""),
    h("ol", { class: "ladder", "aria-label": "What the stop did" }, (r.rungs || []).map(rung)),
    r.final && r.isolation && h("p", {}, f.pill(r.isolation.result === "unproven" ? "not proven" : r.isolation.result === "outside" ? "outside" : "proof", r.isolation.result === "unproven" ? "bad" : r.isolation.result === "outside" ? "ask" : "ok"), " ",
      PROOFS[r.isolation.result] || r.isolation.result, h("span", { class: "muted" }, r.isolation.driver ? ` ${r.isolation.driver}, ${new Date(r.isolation.at) - at} ms after the stop.` : "")),
    r.running?.length > 0 && h("p", {}, f.pill(r.running.length + " running", "ask"), ` call${r.running.length > 1 ? "s were" : " was"} let through before the stop and not over` + (["outside", "unproven"].includes(r.isolation?.result)
        ? ". A request to cancel is no proof that it did not take effect." : "; what ran in the cell was killed with it. What it had done by then stays done.")),
    r.audit_error && h("p", {}, f.pill("record incomplete", "bad"), " ", r.audit_error)];
}
