package main

import (
	"strings"
	"testing"
	"time"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

const twoQuestions = `{"questions":[` +
	`{"question":"Which color?","header":"Color","multiSelect":false,"options":[{"label":"Red","description":"warm"},{"label":"Blue","description":"cool"}]},` +
	`{"question":"Which parts?","header":"Parts","multiSelect":true,"options":[{"label":"A"},{"label":"B"},{"label":"C"}]}]}`

// asks brings a call to the point at which its first question is put.
func asks(t *testing.T) *bench {
	t.Helper()
	b := begin(t)
	b.pre("q", "AskUserQuestion", twoQuestions, "")
	b.want("propose(q)")
	b.verdict("q", allow, "")
	b.want("question(q/0)")
	return b
}

func (b *bench) answer(id string, a *pluginv1.Answer) {
	b.t.Helper()
	a.HitlId = id
	b.host(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Answer{Answer: a}})
}

func TestQuestionsArePutOneByOneAndTheirAnswersGoBack(t *testing.T) {
	t.Parallel()
	b := asks(t)
	q := b.all[len(b.all)-1].GetQuestion()
	if q.GetPrompt() != "Which color? [Red / Blue]" || len(q.GetOptions()) != 2 || !strings.Contains(q.GetContext(), "2) Blue: cool") || !strings.Contains(q.GetContext(), "question 1 of 2") {
		t.Errorf("question %v", q)
	}
	b.answer("q/1", &pluginv1.Answer{Text: "A"}) // it was not put yet, but whoever answers is right
	b.want("")
	b.answer("q/0", &pluginv1.Answer{Text: " blue "})
	b.want("allow(pre-q)")
	b.answer("q/0", &pluginv1.Answer{Text: "red"})
	b.want("")
	b.can("q", "AskUserQuestion", twoQuestions)
	b.want("admit(q,fp-q)")
	b.admitted("q")
	b.want("run(can-q)")
	if w := b.writes["answer/can-q"]; !strings.Contains(w, `"answers":{"Which color?":"Blue","Which parts?":"A"}`) || !strings.Contains(w, `"questions":[`) {
		t.Errorf("answer %s", w)
	}
}

func TestAnAnswerMayBeALabelANumberOrWords(t *testing.T) {
	t.Parallel()
	all := readQuestions([]byte(twoQuestions))
	for _, c := range []struct {
		q                      int
		text, structured, want string
	}{
		{0, "Blue", "", "Blue"}, {0, "BLUE", "", "Blue"}, {0, "2", "", "Blue"}, {0, "1)", "", "Red"}, {0, "3", "", "3"},
		{0, "green, but not too much", "", "green, but not too much"}, {0, "", `{"answer":"blue"}`, "Blue"}, {0, "x", `{"other":1}`, "x"},
		{1, "a, c", "", "A, C"}, {1, "1,3", "", "A, C"}, {1, "A, or rather not", "", "A, or rather not"}, {1, "", `{"answer":["a","3"]}`, "A, C"},
	} {
		if got := all[c.q].choose(&pluginv1.Answer{Text: c.text, Structured: []byte(c.structured)}); got != c.want {
			t.Errorf("%q %s: %q, want %q", c.text, c.structured, got, c.want)
		}
	}
}

func TestAQuestionThatNobodyAnswersGoesOnWithout(t *testing.T) {
	t.Parallel()
	b := asks(t)
	b.answer("q/0", &pluginv1.Answer{None: "expired"})
	b.want("question(q/1)")
	b.answer("q/1", &pluginv1.Answer{None: "expired"})
	b.want("allow(pre-q)")
	b.can("q", "AskUserQuestion", twoQuestions)
	b.admitted("q")
	if w := b.writes["answer/can-q"]; strings.Contains(w, "answers") || !strings.Contains(w, "allow") {
		t.Errorf("answer %s", w)
	}
}

func TestAQuestionIsPutAgainAfterARestart(t *testing.T) {
	t.Parallel()
	b := asks(t)
	b.answer("q/0", &pluginv1.Answer{Text: "Red"})
	b.want("question(q/1)")
	b.restart()
	b.want("question(q/1)")
	b.answer("q/1", &pluginv1.Answer{Text: "C"})
	b.want("allow(pre-q)")
	b.can("q", "AskUserQuestion", twoQuestions)
	b.want("admit(q,fp-q)")
	b.admitted("q")
	if w := b.writes["answer/can-q"]; !strings.Contains(w, `"answers":{"Which color?":"Red","Which parts?":"C"}`) {
		t.Errorf("answer %s", w)
	}
}

func TestAQuestionThatWaitsForLongIsLetGo(t *testing.T) {
	t.Parallel()
	b := begin(t)
	b.m.opts.hold = 10 * time.Minute
	b.pre("q", "AskUserQuestion", twoQuestions, "")
	b.verdict("q", allow, "")
	b.out = nil
	if at := b.m.wake(); at.Sub(b.now) > 10*time.Minute || at.IsZero() {
		t.Errorf("wakes at %v", at)
	}
	b.tick(9 * time.Minute)
	b.want("")
	b.tick(time.Minute)
	b.want("defer(pre-q) deferred(q)")
	b.result(`,"stop_reason":"tool_deferred"`)
	if r := b.exit(&pluginv1.Exit{}); r.GetContinuation() != pluginv1.Continuation_CONTINUATION_RESUME_WHEN_DECIDED {
		t.Errorf("result %v", r)
	}
}
