package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// canaryServer is the least of an MCP server over HTTP: one tool, whose calls
// are counted.
type canaryServer struct {
	url    string
	http   *http.Server
	poked  atomic.Int64
	served sync.WaitGroup
}

func serveCanary() (*canaryServer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &canaryServer{url: "http://" + l.Addr().String() + "/mcp"}
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	s.served.Go(func() { _ = s.http.Serve(l) })
	return s, nil
}

func (s *canaryServer) close() {
	_ = s.http.Close()
	s.served.Wait()
}

func (s *canaryServer) pokes() int64 { return s.poked.Load() }

// ServeHTTP is http.Handler's.
func (s *canaryServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	var in struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Protocol string `json:"protocolVersion"`
		} `json:"params"`
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&in); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if len(in.ID) == 0 {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	answer := object{"jsonrpc": "2.0", "id": in.ID}
	switch in.Method {
	case "initialize":
		answer["result"] = object{"protocolVersion": in.Params.Protocol, "capabilities": object{"tools": object{}}, "serverInfo": object{"name": "canary", "version": "1"}}
	case "tools/list":
		answer["result"] = object{"tools": []object{{"name": "poke", "description": "Pokes.", "inputSchema": object{"type": "object", "properties": object{}}}}}
	case "tools/call":
		s.poked.Add(1)
		answer["result"] = object{"content": []object{{"type": "text", "text": "poked"}}}
	default:
		answer["error"] = object{"code": -32601, "message": "method not found"}
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(line(answer))
}
