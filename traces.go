package nereid

import (
	"context"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/server/recording"
	"github.com/nereid-serving/nereid/server/tracing"
)

// tracesGrace bounds the wait for a collector of traces that is not there, at the end.
const tracesGrace = 3 * time.Second

// makeTraces makes what decides which requests are traced.
func (s *Server) makeTraces() (err error) {
	c := s.options.Trace
	if c.Mode == "" {
		return nil
	}
	c.Now, c.Log, c.Memory = backend.Now, s.log, s.account
	s.traces, err = tracing.New(c)
	return err
}

// closeTraces writes or sends the traces that are left.
func (s *Server) closeTraces() {
	ctx, cancel := context.WithTimeout(context.Background(), tracesGrace)
	defer cancel()
	if err := s.traces.Close(ctx); err != nil {
		s.log.Error().Err(err).Msg("traces are lost")
	}
}

// makeRecorder makes what records requests.
func (s *Server) makeRecorder() (err error) {
	c := s.options.Record
	c.Memory, c.Log = s.account, s.log
	s.recorder, err = recording.New(c)
	return err
}
