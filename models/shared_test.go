package models

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/models/version"
)

// Patience is how long a test waits for an event.
const Patience = time.Minute

var rewrites atomic.Int64

// Rewrite writes a file that is another one than before also for who looks at
// sizes and times alone: those of a file system may stand still between two
// writes.
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

// Ends reports whether the end of a version has begun.
func Ends(v *version.Version) bool {
	h, can := v.Hold()
	if can {
		h.Release()
	}
	return !can
}
