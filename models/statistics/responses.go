package statistics

import (
	"strconv"
	"sync"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/kserve"
)

// mostIndices bounds the rows: responses beyond that index are not counted.
const mostIndices = 10_000

// Responses counts a backend's reports of single responses, by their index within their request.
// Most backends, including Python's, report none.
type Responses struct {
	mu   sync.Mutex
	rows []responseStatistics // by the index
}

// responseStatistics are the responses with one index.
type responseStatistics struct{ infer, output, success, fail, empty, cancel duration }

// Report counts one response.
func (s *Responses) Report(r backend.ResponseReport) {
	if r.Index < 0 || r.Index >= mostIndices {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for r.Index >= len(s.rows) {
		s.rows = append(s.rows, responseStatistics{}) // bound: mostIndices
	}
	row := &s.rows[r.Index]
	whole := r.End - r.Start
	if r.Outcome == backend.ResponseCancelled {
		row.cancel.add(whole)
		return
	}
	switch {
	case r.OutputStart > 0:
		row.infer.add(r.OutputStart - r.Start)
		row.output.add(r.End - r.OutputStart)
	default:
		row.infer.add(whole)
	}
	switch {
	case r.Outcome == backend.ResponseFailed:
		row.fail.add(whole)
	case r.OutputStart > 0:
		row.success.add(whole)
	default:
		row.empty.add(whole)
	}
}

// proto returns the rows with reports, or nil.
func (s *Responses) proto() map[string]*kserve.InferResponseStatistics {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var shown map[string]*kserve.InferResponseStatistics
	for i := range s.rows {
		row := &s.rows[i]
		if row.infer.count+row.cancel.count == 0 {
			continue
		}
		if shown == nil {
			shown = make(map[string]*kserve.InferResponseStatistics)
		}
		shown[strconv.Itoa(i)] = &kserve.InferResponseStatistics{ // bound: mostIndices
			ComputeInfer: row.infer.proto(), ComputeOutput: row.output.proto(), Success: row.success.proto(), Fail: row.fail.proto(),
			EmptyResponse: row.empty.proto(), Cancel: row.cancel.proto(),
		}
	}
	return shown
}
