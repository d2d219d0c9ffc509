package main

// measureGateway measures what the way through cell link and gateway adds to
// the first byte of a stream, and how fast an open stream is cut.
func measureGateway(b *bench) error {
	const pkg = "github.com/airlock-host/airlock/host/internal/gateway"
	n := b.rounds(300, 20)
	if b.wanted("gateway_ttfb_p50_ms") {
		m, err := b.packageBench(pkg, "^BenchmarkFirstByte$", n)
		if err != nil {
			return err
		}
		direct, err := m.get("BenchmarkFirstByte/direct", "p50-ms")
		if err != nil {
			return err
		}
		through, err := m.get("BenchmarkFirstByte/gateway,_budget", "p50-ms")
		if err != nil {
			return err
		}
		b.emit("gateway_ttfb_p50_ms", "ms", through-direct, direct, n, 0)
	}
	if b.wanted("cutoff_p50_ms") {
		m, err := b.packageBench(pkg, "^BenchmarkCut$", n)
		if err != nil {
			return err
		}
		cell, err := m.get("BenchmarkCut", "cell-p50-ms")
		if err != nil {
			return err
		}
		up, err := m.get("BenchmarkCut", "upstream-p50-ms")
		if err != nil {
			return err
		}
		b.note("cutoff_p50_ms: the upstream's end after %.2f ms, the cell's after %.2f ms", up, cell)
		b.emit("cutoff_p50_ms", "ms", max(cell, up), 0, n, 0)
	}
	return nil
}
