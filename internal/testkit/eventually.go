package testkit

import (
	"testing"
	"time"
)

// Eventually waits until ok returns true and fails the test at once if it has
// not within timeout. It calls ok from the test's goroutine, often at first
// and then every few milliseconds.
func Eventually(t testing.TB, timeout time.Duration, ok func() bool) {
	t.Helper()
	if !Within(timeout, ok) {
		t.Fatalf("condition is still false after %v", timeout)
	}
}

// Within waits until ok returns true and reports whether it has within timeout, for tests that need
// a more detailed failure than Eventually's.
func Within(timeout time.Duration, ok func() bool) bool {
	deadline := time.Now().Add(timeout)
	for wait := 50 * time.Microsecond; !ok(); wait = min(2*wait, 10*time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(wait)
	}
	return true
}
