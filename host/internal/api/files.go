package api

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/airlock-host/airlock/host/internal/result"
)

// missionFiles answers what an ended mission changed in its workspace: a tar of
// what is kept, or with Accept: application/json the manifest. A client that
// takes gzip gets the tar as it is stored.
func (s *Server) missionFiles(w http.ResponseWriter, r *http.Request, op *Operator) error {
	id := r.PathValue("id")
	if _, err := s.visible(r.Context(), op, id); err != nil {
		return err
	}
	stored, err := s.opts.Engine.Files(r.Context(), id)
	if err != nil {
		return noFiles(err)
	}
	var body io.Reader
	var f *os.File
	h := w.Header()
	if strings.Contains(r.Header.Get("Accept"), "application/json") {
		if f, err = stored.OpenManifest(); err != nil {
			return noFiles(err)
		}
		defer f.Close()
		h.Set("Content-Type", "application/json")
		body = f
	} else {
		if f, err = stored.OpenTar(); err != nil {
			return noFiles(err)
		}
		defer f.Close()
		h.Set("Content-Type", "application/x-tar")
		h.Set("Content-Disposition", `attachment; filename="files.tar"`)
		h.Set("Vary", "Accept-Encoding")
		if body = f; takesGzip(r) {
			h.Set("Content-Encoding", "gzip")
		} else if body, err = gzip.NewReader(f); err != nil {
			return err
		}
	}
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	return s.pour(w, body)
}

// pour writes a stream. A reader that takes nothing is given up; an answer that
// breaks off is cut, so that it cannot be taken for a whole one.
func (s *Server) pour(w http.ResponseWriter, body io.Reader) error {
	rc := http.NewResponseController(w)
	buf := make([]byte, 256<<10)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			_ = rc.SetWriteDeadline(s.now().Add(s.opts.WriteTimeout))
			if _, werr := w.Write(buf[:n]); werr != nil {
				return nil
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			s.log.Error("the files of a mission cannot be read", "error", err)
			panic(http.ErrAbortHandler)
		}
	}
}

func takesGzip(r *http.Request) bool {
	for word := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		if name, weight, _ := strings.Cut(strings.TrimSpace(word), ";"); name == "gzip" && strings.ReplaceAll(weight, " ", "") != "q=0" {
			return true
		}
	}
	return false
}

func noFiles(err error) error {
	if errors.Is(err, result.ErrNone) {
		return coded(http.StatusNotFound, "no_files", err.Error())
	}
	return err
}
