package servertest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

// Patience is the timeout of waits in tests.
const Patience = time.Minute

// FrontEnd is the interface of all front ends.
type FrontEnd interface {
	Listen() error
	Run(ctx context.Context) error
}

// Run has a front end listen and run. cancel ends Run's context. stop does too, and returns Run's
// result.
func Run(t testing.TB, f FrontEnd) (cancel context.CancelFunc, stop func() error) {
	t.Helper()
	if err := f.Listen(); err != nil {
		t.Fatalf("Listen: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1) // the result of Run
	go func() { done <- f.Run(ctx) }()
	return cancel, sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(Patience):
			return fmt.Errorf("Run has not returned after %v", Patience)
		}
	})
}
