package nereid

import (
	"context"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/server/recording"
	"github.com/nereid-serving/nereid/server/tracing"
)

// tracesGrace limits the wait for an unreachable trace collector at shutdown.
const tracesGrace = 3 * time.Second

// makeTraces creates the tracer, which decides which requests are traced.
func (s *Server) makeTraces() (err error) {
	c := s.options.Trace
	if c.Mode == "" {
		return nil
	}
	c.Now, c.Log, c.Memory = backend.Now, s.log, s.account
	s.traces, err = tracing.New(c)
	return err
}

// closeTraces writes or sends the remaining traces.
func (s *Server) closeTraces() {
	ctx, cancel := context.WithTimeout(context.Background(), tracesGrace)
	defer cancel()
	if err := s.traces.Close(ctx); err != nil {
		s.log.Error().Err(err).Msg("traces are lost")
	}
}

// makeRecorder creates the recorder of requests, and its metrics.
func (s *Server) makeRecorder(counters *metrics.Registry) (err error) {
	c := s.options.Record
	c.Memory, c.Log = s.account, s.log
	if s.recorder, err = recording.New(c); err != nil || s.recorder == nil {
		return err
	}
	r := s.recorder
	counters.Counter("nereid_requests_recorded_total", "Requests that were written to the directory of records", func() float64 { return float64(r.Written()) })
	counters.Counter("nereid_requests_not_recorded_total", "Requests that were not recorded, because too much data was waiting to be written or writing failed", func() float64 { return float64(r.Lost()) })
	counters.Gauge("nereid_recording", "1 while requests are recorded, 0 once the directory of records is full or cannot be written", func() float64 {
		if r.Open() {
			return 1
		}
		return 0
	})
	return nil
}
