package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

// bareSocket is the baseline of delivery: frames of the same size at the same
// rate over a WebSocket on the loopback, read and decoded. It gives the
// milliseconds from write to read of each.
func bareSocket(b *bench) ([]float64, error) {
	type frame struct {
		Event string `json:"event"`
		Sent  int64  `json:"sent"`
		Text  string `json:"text"`
	}
	n := wireRate * b.rounds(4, 1)
	arrived := make(chan float64, n)
	var up websocket.Upgrader
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(arrived)
		conn, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		for {
			_, text, err := conn.ReadMessage()
			if err != nil {
				return
			}
			at := time.Now()
			var f frame
			if json.Unmarshal(text, &f) == nil {
				arrived <- ms(at.Sub(time.Unix(0, f.Sent)))
			}
		}
	}))
	defer srv.Close()
	conn, resp, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(srv.URL, "http"), nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	defer conn.Close()
	began := time.Now()
	for i := range n {
		if wait := time.Until(began.Add(time.Duration(i) * time.Second / wireRate)); wait > 0 {
			time.Sleep(wait)
		}
		if b.ctx.Err() != nil {
			return nil, b.ctx.Err()
		}
		if err := conn.WriteJSON(frame{"mission.progress", time.Now().UnixNano(), strings.Repeat("x", 350)}); err != nil {
			return nil, err
		}
	}
	if err := conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(1000, ""), time.Now().Add(time.Second)); err != nil {
		return nil, err
	}
	var took []float64
	for t := range arrived {
		took = append(took, t)
	}
	return took, nil
}
