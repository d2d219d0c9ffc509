package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// keys presses keys, wherever the focus is.
func (b *browser) keys(keys string) {
	b.t.Helper()
	b.do("press keys", chromedp.KeyEvent(keys))
}

// tabTo presses Tab until the focus is on an element of a selector with a text,
// its label or what it says.
func (b *browser) tabTo(selector, text string) {
	b.t.Helper()
	there := fmt.Sprintf(`((e) => e.matches(%q) && (e.getAttribute("aria-label") === %[2]q || e.innerText?.trim() === %[2]q || %[2]q === ""))(document.activeElement)`, selector, text)
	b.until(selector+" "+text+" is in the page", fmt.Sprintf(`[...document.querySelectorAll(%q)].some((e) => e.getAttribute("aria-label") === %[2]q || e.innerText?.trim() === %[2]q || %[2]q === "")`, selector, text))
	for range 120 {
		if eval[bool](b, there) {
			if !eval[bool](b, `document.activeElement.matches(":focus-visible")`) {
				b.t.Errorf("the focus on %s cannot be seen", text)
			}
			return
		}
		b.keys(kb.Tab)
	}
	b.t.Fatalf("Tab does not come to %s %s", selector, text)
}

// Everything that an operator does is done with the keyboard alone, and the focus
// is always somewhere that helps.
func TestControlRoomByKeyboard(t *testing.T) {
	t.Parallel()
	key := filepath.Join(t.TempDir(), "issuer.key")
	write(t, key, issuerSecret, 0o600)
	bank := newIssuer(t)
	r := newRig(t, settings{governance: harnessRules, policy: harnessPolicy, runtime: `prompts = ["\\(y/n\\)\\s*$"]`,
		extra: revokers(filepath.Dir(key), map[string]*issuer{"bank": bank})})
	_, token := r.harnessTask("order-task")
	r.callAs(token, "POST", "/tasks/order-task/access", map[string]any{"kind": "session", "issuer": "bank", "ref": "s-1"}, nil)
	for i, amount := range []int{900, 700} {
		r.callAs(token, "POST", "/tasks/order-task/proposals", map[string]any{"proposal_id": fmt.Sprint("p", i), "tool_name": "refund", "tool_args": map[string]any{"amount": amount}}, nil)
	}
	b := newBrowser(t, r.restBase())
	b.do("open the address", chromedp.Navigate(b.base+"/"))
	b.until("the focus is where the token goes", `document.activeElement.id === "token"`)
	b.keys(strings.Repeat("k3y-", 10) + kb.Enter)
	b.until("it is signed in", `document.getElementById("whoami").innerText === "e2e"`)
	b.until("the focus is on the content", `document.activeElement.id === "main"`)

	// Reject one call, change what the task is for because of the other one.
	b.keys("gi")
	b.says(".card", "900")
	b.says(".card", "700")
	b.tabTo(".card button", "Reject")
	b.keys(kb.Enter)
	b.until("the card is gone", `document.querySelectorAll(".card").length === 1`)
	b.until("the focus is on the next card", `document.activeElement.matches(".card, .card *")`)
	b.tabTo(".card button", "Modify intent…")
	b.keys(kb.Enter)
	b.until("the focus is in the editor", `document.activeElement.closest(".editor")`)
	b.tabTo(".editor [data-field=goal]", "")
	b.keys("refund at most 800") // Tab has marked what was there
	b.tabTo(".editor input", "Name of another constraint")
	b.keys("max_refund" + kb.Tab + "500")
	b.tabTo(".editor button", "Add")
	b.keys(kb.Enter)
	b.until("the constraint has a field", `document.querySelector(".editor [data-constraint=max_refund]")`)
	eval[bool](b, `document.querySelector(".editor [data-field=goal]").focus() === undefined`)
	b.tabTo(".editor [data-constraint=max_refund]", "")
	b.keys("800")
	b.says(".diff .plus", `"max_refund": 800`)
	b.tabTo(".editor button", "Modify the intent and judge again")
	b.keys(kb.Enter)
	b.says("main", "Nothing waits for a human.")
	b.until("the focus is on the content", `document.activeElement.id === "main"`)

	// Answer a question.
	r.call("POST", "/api/v1/missions", map[string]any{"mission_id": "asks", "objective": `printf 'Go on? (y/n) '; read a; echo "answer: $a"; sleep 600`}, nil)
	b.says(".card", "Go on? (y/n)")
	b.tabTo(".card input", "Answer")
	b.keys("yes" + kb.Enter)
	b.says("main", "Nothing waits for a human.")

	// Find a mission, stop it, and read what became of its access.
	b.keys("gm")
	b.until("there are two", `document.querySelectorAll(".mission").length === 2`)
	b.keys("/")
	b.until("the focus is on the filter", `document.activeElement.id === "filter"`)
	b.keys("order-task")
	b.until("the filter leaves one", `document.querySelectorAll(".mission").length === 1`)
	b.keys(kb.ArrowDown)
	b.until("the focus is on it", `document.activeElement.matches(".mission")`)
	b.keys(kb.Enter)
	b.says("[data-credentials]", "In use")
	b.until("the focus is on the content", `document.activeElement.id === "main"`)
	b.keys("s")
	b.until("the dialog asks for a reason", `document.activeElement.id === "stopreason"`)
	b.keys("enough" + kb.Enter)
	b.says("[data-credentials=done]", "Yes, revoked")
	b.says(".receipt", "enough")
	if !bank.denies("s-1") {
		t.Error("the page says that access is revoked, the issuer does not")
	}
	b.keys("?")
	b.says("dialog", "Keyboard shortcuts")
	b.keys(kb.Escape)
	b.until("the dialog is closed", `!document.querySelector("dialog")`)
	b.keys("u")
	b.until("it is back at the list", `document.querySelector(".missions")`)
}
