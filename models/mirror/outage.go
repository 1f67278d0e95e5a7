package mirror

import (
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/objectstore"
)

// outage is the time from the first listing that failed to the next that did not.
type outage struct {
	since    time.Time // zero: there is none
	failures int
	refused  string // the keys that were warned of last
}

// counts are what Figures shows.
type counts struct {
	failures, bytes, taken, copies atomic.Uint64
	spent                          atomic.Int64 // nanoseconds
}

// Figures returns what the mirror has done since it was opened.
func (m *Mirror) Figures() metrics.RepositoryFigures {
	m.mu.Lock()
	listed := m.listed
	m.mu.Unlock()
	return metrics.RepositoryFigures{
		Failures: m.counts.failures.Load(), FetchedBytes: m.counts.bytes.Load(), TakenBytes: m.counts.taken.Load(),
		Copies: m.counts.copies.Load(), Copying: time.Duration(m.counts.spent.Load()), ListingAge: time.Since(listed),
	}
}

// failed notes that a listing has failed; the first of an outage is logged.
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
		m.config.Log.Error().Msgf("failed to poll model repository '%s': %v; what is loaded stays, and the log says when the store answers again", m.config.Location, err)
	}
}

// answered notes that a listing has succeeded; the end of an outage is logged.
func (m *Mirror) answered() {
	m.mu.Lock()
	was := m.outage
	m.outage.since, m.outage.failures = time.Time{}, 0
	m.mu.Unlock()
	if !was.since.IsZero() {
		m.config.Log.Info().Msgf("model repository '%s' answers again, after %s and %d listings that failed", m.config.Location, time.Since(was.since).Round(time.Second), was.failures)
	}
}

// warnOnce warns of keys, unless they are those of the last warning.
func (m *Mirror) warnOnce(refused *objectstore.RefusedError) {
	text := refused.Error()
	m.mu.Lock()
	known := m.outage.refused == text
	m.outage.refused = text
	m.mu.Unlock()
	if !known {
		m.config.Log.Warn().Msgf("model repository '%s': %d objects cannot be files, and their models are not loaded: %s", m.config.Location, refused.Count, text)
	}
}
