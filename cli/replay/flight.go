package replay

import (
	"context"
	"errors"
	"sync"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/server/recording"
)

// flight has several records under way at a time. Its methods but over are called by one goroutine.
type flight struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	// slots has room for as many records as may be under way. A record that waits for the one before it in its
	// sequence has a slot: that one has one too, so it goes on.
	slots   chan struct{}
	last    map[string]chan struct{} // by sequence: closed when the last record so far is over
	running sync.WaitGroup
}

func newFlight(ctx context.Context, concurrency int) *flight {
	f := &flight{slots: make(chan struct{}, concurrency), last: make(map[string]chan struct{})}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	return f
}

// start runs send when there is a slot and the record before it in its sequence is over. It reports whether more can be
// started: not so after an error of send, which wait returns.
func (f *flight) start(r *recording.Record, send func(ctx context.Context) error) bool {
	select {
	case f.slots <- struct{}{}:
	case <-f.ctx.Done():
		return false
	}
	before, mine := f.order(r)
	f.running.Go(panics.Guard(zerolog.Nop(), panics.Request, func() {
		defer func() {
			if mine != nil {
				close(mine)
			}
			<-f.slots
		}()
		if before != nil {
			select {
			case <-before:
			case <-f.ctx.Done():
			}
		}
		if f.ctx.Err() != nil {
			return
		}
		if err := send(f.ctx); err != nil {
			f.cancel(err)
		}
	}, f.cancel))
	return f.ctx.Err() == nil
}

// order returns the channel that a record waits for and the one that it closes when it is done; nil outside sequences.
func (f *flight) order(r *recording.Record) (before, mine chan struct{}) {
	sequence := sequenceOf(r)
	if sequence == "" {
		return nil, nil
	}
	before, mine = f.last[sequence], make(chan struct{})
	f.last[sequence] = mine
	return before, mine
}

// wait returns when no record is under way, with the error of send or that of the context.
func (f *flight) wait() error {
	f.running.Wait()
	err := context.Cause(f.ctx)
	f.cancel(errors.New("the replay is over"))
	return err
}

// sequenceOf names the sequence of a record among those of all models, "" if it is in none. Sequences whose id was redacted
// count as one.
func sequenceOf(r *recording.Record) string {
	const id = "sequence_id"
	for _, p := range r.Request.Parameters {
		if p.Name == id {
			return r.Model + "\n" + valueOf(p)
		}
	}
	for _, name := range r.Request.Redacted {
		if name == id {
			return r.Model + "\n"
		}
	}
	return ""
}
