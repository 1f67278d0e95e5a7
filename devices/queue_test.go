package devices

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/nereid-serving/nereid/infer"
)

// TestCommandsBehindOneWithoutAnswer checks that a command that times out also fails the waiting
// commands. Until a helper replies again, only one command at a time is tried.
func TestCommandsBehindOneWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		if err := q.enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		results := make(chan error, 16) // of enter, one per waiting command
		for range cap(results) {
			go func() { results <- q.enter(t.Context()) }()
		}
		drops := make(chan struct{}) // closed after the mandatory work's turn
		go func() {
			q.wait()
			q.leave()
			close(drops)
		}()
		synctest.Wait() // all are waiting
		q.answered(errSilent)
		if err := q.enter(t.Context()); !errors.Is(err, errDoubtful) {
			t.Errorf("while the one that had no answer ends: got %v, want %v", err, errDoubtful)
		}
		q.leave()
		for range cap(results) {
			if err := <-results; !errors.Is(err, errBehind) {
				t.Errorf("behind it: got %v, want %v", err, errBehind)
			}
		}
		<-drops

		for range 3 { // one command tries and times out, too
			if err := q.enter(t.Context()); err != nil {
				t.Fatalf("none tries: got %v, want a turn", err)
			}
			if err := q.enter(t.Context()); !errors.Is(err, errDoubtful) {
				t.Errorf("beside one that tries: got %v, want %v", err, errDoubtful)
			}
			q.answered(errSilent)
			q.leave()
		}
		if err := q.enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		q.answered(errors.New("the helper ended")) // says nothing about the driver
		if err := q.enter(t.Context()); !errors.Is(err, errDoubtful) {
			t.Errorf("before an answer: got %v, want %v", err, errDoubtful)
		}
		q.answered(nil)
		go func() { results <- q.enter(t.Context()) }()
		synctest.Wait()
		select {
		case err := <-results:
			t.Errorf("after an answer a command waits for its turn: got %v", err)
		default:
		}
		q.leave()
		if err := <-results; err != nil {
			t.Errorf("its turn: got %v", err)
		}
	})
}

// TestCommandThatIsCancelled checks that a cancelled command leaves the queue and the next one gets
// its turn.
func TestCommandThatIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancelled, next := make(chan error, 1), make(chan error, 1) // one command each
		go func() { cancelled <- q.enter(ctx) }()
		go func() { next <- q.enter(t.Context()) }()
		synctest.Wait()
		cancel()
		var e *infer.Error
		if err := <-cancelled; !errors.As(err, &e) || e.Code != infer.Cancelled {
			t.Errorf("got %v, want an error with the code Cancelled", err)
		}
		q.leave()
		if err := <-next; err != nil {
			t.Errorf("the next one: got %v, want its turn", err)
		}
	})
}
