package api

import "github.com/gorilla/mux"

// Router gives the router that the table makes, for a walk.
func (s *Server) Router() *mux.Router { return s.router(s.Routes()) }

// WSRouter is Router for the sockets.
func (s *Server) WSRouter() *mux.Router { return s.wsRouter(s.WSRoutes()) }
