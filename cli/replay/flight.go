package replay

import (
	"context"
	"errors"
	"sync"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/server/recording"
)

// flight sends several records at a time. One goroutine calls all of its methods except over.
type flight struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	// slots has room for the records that may be in flight. A record that waits for its predecessor
	// in a sequence holds a slot. Its predecessor also has one, so there is no deadlock.
	slots   chan struct{}
	last    map[string]chan struct{} // by sequence: closed when its latest record is done
	running sync.WaitGroup
}

func newFlight(ctx context.Context, concurrency int) *flight {
	f := &flight{slots: make(chan struct{}, concurrency), last: make(map[string]chan struct{})}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	return f
}

// start runs send when a slot is free and the previous record of the sequence is done. It returns
// false after an error of send, which wait returns; no more records can be started then.
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

// order returns two channels: the record waits for before, and closes mine when it is done. Both
// are nil outside sequences.
func (f *flight) order(r *recording.Record) (before, mine chan struct{}) {
	sequence := sequenceOf(r)
	if sequence == "" {
		return nil, nil
	}
	before, mine = f.last[sequence], make(chan struct{})
	f.last[sequence] = mine
	return before, mine
}

// wait waits for all records in flight and returns the error of send or of the context.
func (f *flight) wait() error {
	f.running.Wait()
	err := context.Cause(f.ctx)
	f.cancel(errors.New("the replay is over"))
	return err
}

// sequenceOf returns a name for a record's sequence that is unique among all models, or "".
// Sequences with redacted ids count as one.
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
