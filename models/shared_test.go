package models

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/models/version"
)

// Patience is the time that a test waits for an event.
const Patience = time.Minute

var rewrites atomic.Int64

// Rewrite writes a file and gives it a new modification time. Two quick writes can otherwise have
// the same time and size, and the change is missed.
func Rewrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	changed := time.Now().Add(time.Duration(rewrites.Add(1)) * time.Second)
	if err := os.Chtimes(path, changed, changed); err != nil {
		t.Fatal(err)
	}
}

// Ends reports whether a version has begun to end.
func Ends(v *version.Version) bool {
	h, can := v.Hold()
	if can {
		h.Release()
	}
	return !can
}
