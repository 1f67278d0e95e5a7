package server

import (
	"context"
	"sync"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models"
)

// grpcSequences keeps the requests of a sequence in the order in which one
// stream brought them. Infer returns with the last response and does not tell
// when a request has its place in the scheduler, so the next request of the same
// sequence is handed over when the one before it has been answered; a model of
// sequences takes one at a time anyway.
type grpcSequences struct {
	mu   sync.Mutex
	last map[grpcSequence]*grpcPlace // whom the next request waits for
}

type grpcSequence struct {
	model       string
	version     int64
	correlation infer.CorrelationID
}

// grpcPlace is a request's place in its sequence. Nil is that of one without.
type grpcPlace struct {
	all    *grpcSequences
	key    grpcSequence
	before *grpcPlace
	left   chan struct{} // closed by leave
}

// join takes the next place. Requests join in the order of the stream.
func (s *grpcSequences) join(info *models.Info, correlation infer.CorrelationID) *grpcPlace {
	if info.Config.GetSequenceBatching() == nil || correlation.IsZero() {
		return nil
	}
	p := &grpcPlace{all: s, key: grpcSequence{info.Name, info.Version, correlation}, left: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	p.before = s.last[p.key]
	if s.last == nil {
		s.last = map[grpcSequence]*grpcPlace{}
	}
	s.last[p.key] = p
	return p
}

// wait returns when it is p's turn, or ctx ends.
func (p *grpcPlace) wait(ctx context.Context) {
	if p == nil || p.before == nil {
		return
	}
	select {
	case <-p.before.left:
	case <-ctx.Done():
	}
	p.before = nil
}

// leave lets the next request go.
func (p *grpcPlace) leave() {
	if p == nil {
		return
	}
	close(p.left)
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	if p.all.last[p.key] == p {
		delete(p.all.last, p.key)
	}
}
