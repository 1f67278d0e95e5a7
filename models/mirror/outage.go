package mirror

import (
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/objectstore"
)

// outage lasts from the first failed listing to the next successful one.
type outage struct {
	since    time.Time // zero: no outage
	failures int
	refused  string // the keys in the last warning
}

// counts are the counters behind Figures.
type counts struct {
	failures, bytes, taken, copies atomic.Uint64
	spent                          atomic.Int64 // nanoseconds
}

// Figures returns counts since the mirror was opened.
func (m *Mirror) Figures() metrics.RepositoryFigures {
	m.mu.Lock()
	listed := m.listed
	m.mu.Unlock()
	return metrics.RepositoryFigures{
		Failures: m.counts.failures.Load(), FetchedBytes: m.counts.bytes.Load(), TakenBytes: m.counts.taken.Load(),
		Copies: m.counts.copies.Load(), Copying: time.Duration(m.counts.spent.Load()), ListingAge: time.Since(listed),
	}
}

// failed records a failed listing and logs the first one of an outage.
func (m *Mirror) failed(err error) {
	m.counts.failures.Add(1)
	m.mu.Lock()
	m.outage.failures++
	first := m.outage.since.IsZero()
	if first {
		m.outage.since = time.Now()
	}
	m.mu.Unlock()
	if first {
		m.config.Log.Error().Msgf("failed to poll model repository '%s': %v; loaded models stay, and the log says when the store responds again", m.config.Location, err)
	}
}

// answered records a successful listing and logs the end of an outage.
func (m *Mirror) answered() {
	m.mu.Lock()
	was := m.outage
	m.outage.since, m.outage.failures = time.Time{}, 0
	m.mu.Unlock()
	if !was.since.IsZero() {
		m.config.Log.Info().Msgf("model repository '%s' responds again after %s and %d failed listings", m.config.Location, time.Since(was.since).Round(time.Second), was.failures)
	}
}

// warnOnce warns of refused keys, unless the last warning was the same.
func (m *Mirror) warnOnce(refused *objectstore.RefusedError) {
	text := refused.Error()
	m.mu.Lock()
	known := m.outage.refused == text
	m.outage.refused = text
	m.mu.Unlock()
	if !known {
		m.config.Log.Warn().Msgf("model repository '%s': the names of %d objects cannot be file names, so their models are not loaded: %s", m.config.Location, refused.Count, text)
	}
}
