package failpoint_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/failpoint"
	"github.com/airlock-host/airlock/host/internal/journal"
)

func TestWithoutAFileEveryHookIsNil(t *testing.T) {
	t.Parallel()
	c, err := failpoint.New("")
	if err != nil || c.Hook() != nil || c.Now() != nil {
		t.Errorf("%v, %v", c, err)
	}
	if err := failpoint.Hook(nil).At(failpoint.StoreBegun); err != nil {
		t.Error(err)
	}
}

func TestOrdersAreReadAsTheyAreNow(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "orders")
	order := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	order("")
	c, err := failpoint.New(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Hook().At(failpoint.StoreBegun); err != nil {
		t.Errorf("without an order: %v", err)
	}
	order("store.begun fail\nclock 61m\n")
	if err := c.Hook().At(failpoint.StoreBegun); !errors.Is(err, failpoint.ErrFailed) {
		t.Errorf("with an order: %v", err)
	}
	if err := c.Hook().At(failpoint.StoreApplied); err != nil {
		t.Errorf("at another point: %v", err)
	}
	if ahead := time.Until(c.Now()()); ahead < 60*time.Minute || ahead > 61*time.Minute {
		t.Errorf("the clock is %v ahead", ahead)
	}
}

func TestAnOrderThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"store.begun", "store.begun explode", "store.nowhere kill", "clock soon", "engine.before_nothing fail"} {
		file := filepath.Join(t.TempDir(), "orders")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := failpoint.New(file); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := failpoint.New(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there is taken")
	}
}

func TestTheTableNamesEachPointOnce(t *testing.T) {
	t.Parallel()
	all := failpoint.Table()
	for _, owner := range []string{"store", "heads", "retention", "engine"} {
		all = slices.DeleteFunc(all, func(p failpoint.Point) bool { return slices.Contains(failpoint.Of(owner), p) })
	}
	if len(all) > 0 {
		t.Errorf("points without an owner: %v", all)
	}
	seen := map[failpoint.Point]bool{}
	for _, p := range failpoint.Table() {
		if seen[p] {
			t.Errorf("%s is there twice", p)
		}
		seen[p] = true
	}
	if n := len(failpoint.Of("engine")); n != 2*len(journal.Kinds()) {
		t.Errorf("%d points of the engine", n)
	}
}
