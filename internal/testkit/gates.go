package testkit

import (
	"os"
	"testing"
)

const (
	// completeVariable is set by the Makefile, which makes everything that tests
	// need: there a test that misses something must not look like one that passed.
	completeVariable = "NEREID_TEST_COMPLETE"

	// longVariable is set by "make test-long".
	longVariable = "NEREID_TEST_LONG"
)

// Missing ends a test that needs something which "make test" would have made. Under make the test
// fails, else it is skipped.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv(completeVariable) != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// Long reports whether tests that search at random, or repeat, do so for as long
// as "make test-long" wants. If not, they take a second or two.
func Long() bool { return os.Getenv(longVariable) != "" }
