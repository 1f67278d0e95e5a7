package cache

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"
)

// TestACacheHasABoundedNumberOfEnvironments fills a cache with one environment more than it may
// have, all of them empty. It is internal because 10,000 real environments take minutes.
func TestACacheHasABoundedNumberOfEnvironments(t *testing.T) {
	c, err := Open(Options{Directory: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.written()
	if err != nil {
		t.Fatal(err)
	}
	for i := range mostEnvironments + 1 {
		r := record{Name: fmt.Sprintf("%012x-%08x", i, i), Digest: fmt.Sprintf("%064x", i), Created: time.Unix(int64(i), 0)}
		text, err := json.Marshal(r)
		if err == nil {
			err = os.WriteFile(s.path(recordsDir, s.recordKey(r.Digest)), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c.limit(t.Context(), s)
	records, err := s.records()
	if err != nil || len(records) != mostEnvironments {
		t.Errorf("got %d environments (%v), want %d", len(records), err, mostEnvironments)
	}
	if oldest, err := s.record(fmt.Sprintf("%064x", 0)); err != nil || oldest != nil {
		t.Errorf("got %v, %v for the oldest environment, want that it is removed", oldest, err)
	}
}
