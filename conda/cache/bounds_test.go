package cache

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// TestFewArchivesAreUnpackedAtATime checks that an archive waits until another one has been
// unpacked.
func TestFewArchivesAreUnpackedAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "env.tar.gz")
	pack(t, path, aPython("a"))
	c, _ := open(t, Options{Directory: t.TempDir()})
	for range mostUnpacking {
		c.unpacks <- struct{}{}
	}
	var ended, early atomic.Bool // another archive has been unpacked; this one was unpacked before
	began := make(chan struct{})
	c.step = func(name string) error {
		switch name {
		case "fill":
			close(began)
		case "relocate":
			early.Store(!ended.Load())
			if len(c.unpacks) != mostUnpacking-1 {
				t.Errorf("conda-unpack: got %d archives that are being unpacked, want %d", len(c.unpacks), mostUnpacking-1)
			}
		}
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		env, err := c.Archive(t.Context(), path)
		if err != nil {
			t.Error(err)
			return
		}
		whole(t, c, env)
		env.Release()
	}()
	<-began
	ended.Store(true)
	<-c.unpacks
	<-done
	if early.Load() {
		t.Error("got an unpacked archive while others were unpacked, want that it waits")
	}
}

// TestACacheHasABoundedNumberOfEnvironments fills a cache with one environment more than it may
// have, all of them empty.
func TestACacheHasABoundedNumberOfEnvironments(t *testing.T) {
	c, _ := open(t, Options{Directory: t.TempDir()})
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
