package testkit

import (
	"os"
	"os/exec"
	"testing"
)

const (
	// completeVariable is set by the Makefile, which creates everything that tests need. A test
	// that lacks something must then not look like a passed one.
	completeVariable = "NEREID_TEST_COMPLETE"

	// longVariable is set by "make test-long" and by CI.
	longVariable = "NEREID_TEST_LONG"
)

// Missing ends a test that needs something that "make test" would have created. Under make the test
// fails, otherwise it is skipped.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv(completeVariable) != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// NotCompiled ends a test that needs the stub's accelerator. If this machine has a C compiler, the
// test Misses it, because "make build" would have compiled it.
func NotCompiled(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("this machine has no C compiler (cc) for the stub's accelerator")
	}
	Missing(t, "the stub's accelerator is not compiled: run \"make build\"")
}

// Long reports whether random and repeating tests should run as long as in "make test-long".
// Otherwise they take a second or two.
func Long() bool { return os.Getenv(longVariable) != "" }

// Story skips a test that takes long with the flag -short, which "make test" sets.
func Story(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("a long story, which make test-long runs")
	}
}
