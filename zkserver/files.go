package zkserver

import "errors"

func (s *Server) recover() error { return errors.New("no files yet") }

func (s *Server) purge() {}

func (s *Server) closeFiles() error { return nil }
