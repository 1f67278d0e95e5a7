package servertest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

// Patience is how long a test waits for what must happen.
const Patience = time.Minute

// FrontEnd is what the front ends have in common.
type FrontEnd interface {
	Listen() error
	Run(ctx context.Context) error
}

// Run has a front end listen and run. cancel ends Run's context; stop does
// too, and returns what Run has.
func Run(t testing.TB, f FrontEnd) (cancel context.CancelFunc, stop func() error) {
	t.Helper()
	if err := f.Listen(); err != nil {
		t.Fatalf("Listen: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1) // one value, from Run
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
