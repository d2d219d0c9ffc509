package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
)

// plan is the host's answer to what a dispatch would come to.
type plan struct {
	Would        string   `json:"would"`
	Agent        string   `json:"agent"`
	Isolation    string   `json:"isolation"`
	Runtime      string   `json:"runtime"`
	Capabilities []string `json:"capabilities"`
	Ahead        int      `json:"ahead"`
	Cell         *struct {
		Warm        bool     `json:"warm"`
		CPU         float64  `json:"cpu"`
		MemoryBytes uint64   `json:"memory_bytes"`
		Pids        uint64   `json:"pids"`
		DiskBytes   uint64   `json:"disk_bytes"`
		Network     string   `json:"network"`
		Allow       []string `json:"allow"`
		Workspace   string   `json:"workspace"`
		Source      string   `json:"source"`
	} `json:"cell"`
	Governance *struct {
		Mode      string     `json:"mode"`
		OnFailure string     `json:"on_failure"`
		Default   string     `json:"default"`
		Stages    []string   `json:"stages"`
		Policies  []planRule `json:"policies"`
		Approvals []planRule `json:"approvals"`
		Risk      []planRule `json:"risk"`
		Bindings  []planRule `json:"bindings"`
		Plugins   []string   `json:"plugins"`
		Timeout   string     `json:"approval_timeout"`
	} `json:"governance"`
	Budget *planBudget `json:"budget"`
	Intent *struct {
		Goal string `json:"goal"`
	} `json:"intent"`
	Gateways   []string `json:"gateways"`
	Revokers   []string `json:"revokers"`
	Revocation string   `json:"revocation"`
	Notes      []string `json:"notes"`
	Others     []struct {
		Agent string `json:"agent"`
		Why   string `json:"why"`
	} `json:"others"`
	Refusal *struct {
		Status int    `json:"status"`
		Code   string `json:"code"`
		Error  string `json:"error"`
	} `json:"refusal"`
}

type planRule struct {
	Name   string `json:"name"`
	Tool   string `json:"tool"`
	When   string `json:"when"`
	Effect string `json:"effect"`
}

func (a *app) planCommand() *cobra.Command {
	var o dispatchFlags
	cmd := &cobra.Command{
		Use: "plan [OBJECTIVE]", Short: "what a dispatch would come to, without making it", Args: cobra.MaximumNArgs(1),
		Long: `Say what a dispatch would come to if it were made now: which agent takes it, and
why the others do not; its cell, rules, approvals, budget, ways out and revokers.
Nothing is started. It takes what "mission dispatch" takes.

Exit code 0 if it would be taken; else what the dispatch would come back with.
--json prints the plan as the host gives it.`,
		Example: "  airlock mission plan \"make test\"\n  airlock mission plan -f mission.json --capability isolation:vm --json | jq .others",
	}
	asJSON := jsonFlag(cmd)
	o.bodyFlags(cmd.Flags())
	cmd.RunE = a.withHost(func(cmd *cobra.Command, args []string, c *client) error {
		body, err := o.body(cmd.InOrStdin(), args)
		if err != nil {
			return err
		}
		text, err := c.call(cmd.Context(), http.MethodPost, "/api/v1/missions/plan", body)
		if err != nil {
			return err
		}
		var p plan
		if err := json.Unmarshal(text, &p); err != nil {
			return err
		}
		if *asJSON {
			err = showJSON(cmd.OutOrStdout(), text)
		} else {
			p.show(cmd.OutOrStdout())
		}
		if err == nil && p.Refusal != nil {
			return failf(exitOf(p.Refusal.Status), "the dispatch would be refused: %s", printable(p.Refusal.Error))
		}
		return err
	})
	return cmd
}

// show words the plan.
func (p *plan) show(w io.Writer) {
	switch p.Would {
	case "start":
		line(w, "would", "start at once")
	case "queue":
		line(w, "would", fmt.Sprintf("wait for a slot, behind %d others", p.Ahead))
	case "duplicate":
		line(w, "would", "start nothing: the mission id is known")
	default:
		line(w, "would", "be refused")
	}
	line(w, "agent", p.Agent)
	line(w, "isolation", p.Isolation)
	line(w, "runtime", p.Runtime)
	p.showCell(w)
	if g := p.Governance; g != nil {
		line(w, "rules", fmt.Sprintf("%s, %s by default, %s; stages: %s", g.Mode, g.Default, g.OnFailure, strings.Join(g.Stages, ", ")))
		for _, group := range []struct {
			name  string
			rules []planRule
		}{{"policy", g.Policies}, {"approval", g.Approvals}, {"risk", g.Risk}, {"intent", g.Bindings}} {
			for _, r := range group.rules {
				text := fmt.Sprintf("%s: %s -> %s", r.Name, r.Tool, r.Effect)
				if r.When != "" {
					text += " when " + r.When
				}
				line(w, group.name, text)
			}
		}
		line(w, "judges", strings.Join(g.Plugins, ", "))
		line(w, "approvals", "answered within "+g.Timeout+", else it is to plan anew")
	}
	if b := p.Budget; b != nil {
		line(w, "budget", strings.Join(b.words(), ", "))
	}
	if p.Intent != nil {
		line(w, "intent", p.Intent.Goal)
	}
	line(w, "gateways", strings.Join(p.Gateways, ", "))
	switch {
	case len(p.Revokers) > 0:
		line(w, "revokers", strings.Join(p.Revokers, ", "))
	case p.Revocation == "none":
		line(w, "revokers", "none, and that is said: issuers outside of the host are waived")
	}
	for _, n := range p.Notes {
		if !unasked(n) {
			line(w, "note", n)
		}
	}
	for _, other := range p.Others {
		line(w, "not "+other.Agent, other.Why)
	}
}

func (p *plan) showCell(w io.Writer) {
	c := p.Cell
	if c == nil {
		return
	}
	limits := []string{}
	for _, l := range []struct {
		name string
		set  bool
		text string
	}{{"cpu", c.CPU > 0, fmt.Sprint(c.CPU)}, {"memory", c.MemoryBytes > 0, byteSize(c.MemoryBytes)}, {"pids", c.Pids > 0, fmt.Sprint(c.Pids)}, {"disk", c.DiskBytes > 0, byteSize(c.DiskBytes)}} {
		if l.set {
			limits = append(limits, l.name+" "+l.text)
		}
	}
	if len(limits) == 0 {
		limits = append(limits, "no limits")
	}
	if c.Warm {
		limits = append(limits, "ready (warm)")
	}
	line(w, "cell", strings.Join(limits, ", "))
	line(w, "network", strings.TrimSpace(c.Network+" "+strings.Join(c.Allow, " ")))
	line(w, "workspace", strings.TrimSpace(c.Workspace+" "+c.Source))
}

type planBudget struct {
	MaxCostUSD float64 `json:"max_cost_usd"`
	MaxTokens  int64   `json:"max_tokens"`
	Wall       string  `json:"wall"`
	Idle       string  `json:"idle"`
}

func (b *planBudget) words() []string {
	var words []string
	if b.MaxCostUSD > 0 {
		words = append(words, fmt.Sprintf("USD %g", b.MaxCostUSD))
	}
	if b.MaxTokens > 0 {
		words = append(words, fmt.Sprintf("%d tokens", b.MaxTokens))
	}
	if b.Wall != "" {
		words = append(words, b.Wall+" in all")
	}
	if b.Idle != "" {
		words = append(words, b.Idle+" idle")
	}
	if len(words) == 0 {
		words = append(words, "no limit")
	}
	return words
}

// byteSize words a size in bytes.
func byteSize(n uint64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	i, v := 0, float64(n)
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	return fmt.Sprintf("%.4g %s", v, units[i])
}
