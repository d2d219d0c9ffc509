package store_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/airlock-host/airlock/host/internal/store"
)

// rssChild opens a store and prints how much memory that took, in KiB.
func rssChild(dir string) error {
	before, err := rss()
	if err != nil {
		return err
	}
	t := time.Now()
	s, err := store.Open(store.Options{Dir: filepath.Join(dir, "data")})
	if err != nil {
		return err
	}
	took := time.Since(t)
	if _, _, err := s.Missions(ctx, store.MissionFilter{}); err != nil {
		return err
	}
	if _, err := s.LiveMissions(ctx); err != nil {
		return err
	}
	debug.FreeOSMemory()
	after, err := rss()
	if err != nil {
		return err
	}
	fmt.Println(after-before, took.Microseconds())
	return s.Close()
}

func rss() (kib int, err error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	_, err = fmt.Sscan(rest, &kib)
	return kib, err
}
