package certificates

import (
	"bytes"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// Loaded returns a store, its log, and a function that advances its clock by more than lookEvery.
func Loaded(t *testing.T, files Files) (s *Store, log *bytes.Buffer, later func()) {
	t.Helper()
	log = &bytes.Buffer{}
	s, err := Load(files, zerolog.New(log), "http/1.1")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	s.now = func() time.Time { return now }
	return s, log, func() { now = now.Add(2 * lookEvery) }
}
