package mirror

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models/copies"
	"github.com/nereid-serving/nereid/models/mirror/mirrortest"
)

func FillInTheMiddle(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Skipf("mount: %v", err)
	}
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	place := copies.NewWorkspace(disk, zerolog.Nop())
	t.Cleanup(place.Close)
	w := newWorld(t, func(c *Config) { c.Workspace = place }, "a/1/x", "a/1/y")
	for _, key := range []string{"a/1/x", "a/1/y", "env.tar.gz"} {
		w.store.Put(key, strings.Repeat("x", 400<<10))
	}
	w.renew()
	shelf := newShelf(t, func(c *ArchivesConfig) {
		c.Open = w.store.Opener
		c.Base = func(string) string { return disk }
	})
	filler := filepath.Join(disk, "filler")
	for what, copied := range map[string]func() (*copies.Copy, error){
		"a model": func() (*copies.Copy, error) { return w.copyOf("a") },
		"an archive": func() (*copies.Copy, error) {
			a, err := shelf.fetch("s3://bucket/models/env.tar.gz")
			if err != nil {
				return nil, err
			}
			return a.Copy, nil
		},
	} {
		fill := sync.OnceFunc(func() { // after the space is claimed and before any data arrives
			if err := os.WriteFile(filler, make([]byte, 2<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
				t.Errorf("fill the disk: got %v", err)
			}
		})
		w.store.Before(func(call mirrortest.Call, _ string) {
			if call == mirrortest.Read {
				fill()
			}
		})
		_, err := copied()
		if want := disk + " is full: make room, or have MOUNT name a directory with more"; err == nil || infer.AsError(err).Detailed().Message != want {
			t.Errorf("%s: got error %v, want %s", what, err, want)
		}
		w.store.Before(nil)
		if left := testkit.Tree(t, disk); strings.Contains(left, "folder") {
			t.Errorf("%s: %s is left", what, left)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		c, err := copied()
		if err != nil {
			t.Fatalf("%s: with room again: %v", what, err)
		}
		c.Drop()
	}
	if w.mirror.claimed != 0 {
		t.Errorf("%d bytes are claimed after all", w.mirror.claimed)
	}
}
