package cache_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/conda/cache"
)

// TestASecondStartReadsNothing checks that another Cache, as after a restart of the server, finds
// the environment in the index without reading the archive.
func TestASecondStartReadsNothing(t *testing.T) {
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "env.tar.gz")
	pack(t, path, denseEnvironment())
	first := begin(t, role{Directory: dir, Archive: path})
	cold := first.says()
	first.end()
	second := begin(t, role{Directory: dir, Archive: path})
	warm := second.says()
	second.end()
	if cold.Error != "" || cold.Unpacked != 1 {
		t.Fatalf("first start: got %+v, want the archive unpacked once", cold)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	// Only records are read; a fingerprint would take 128 KiB.
	if warm.Directory != cold.Directory || warm.Unpacked != 0 || warm.Read > 32<<10 || info.Size() < 4*warm.Read {
		t.Errorf("second start: got %+v, want %s without a look at the archive (%d bytes)", warm, cold.Directory, info.Size())
	}
}

// TestATouchedArchiveIsReadButNotUnpacked checks that an archive with a new modification time is
// read, but not unpacked, as its digest is the same. The index then has the new identity.
func TestATouchedArchiveIsReadButNotUnpacked(t *testing.T) {
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "env.tar.gz")
	pack(t, path, aPython("a"))
	c, log := open(t, cache.Options{Directory: dir})
	first := take(t, c, path)
	if err := os.Chtimes(path, time.Time{}, time.Unix(2e9, 0)); err != nil {
		t.Fatal(err)
	}
	second := take(t, c, path)
	if second.Directory != first.Directory || unpackings(log) != 1 {
		t.Errorf("got %s after %d unpackings, want %s after one", second.Directory, unpackings(log), first.Directory)
	}
	whole(t, c, second) // the index no longer has the old identity
}

// TestACopyIsNotUnpacked checks that copies of an archive share one environment.
func TestACopyIsNotUnpacked(t *testing.T) {
	dir, path, other := t.TempDir(), filepath.Join(t.TempDir(), "a.tar.gz"), filepath.Join(t.TempDir(), "b.tar.gz")
	pack(t, path, aPython("a"))
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, content, 0o600); err != nil {
		t.Fatal(err)
	}
	c, log := open(t, cache.Options{Directory: dir})
	var wg sync.WaitGroup
	for _, path := range []string{path, other, path, other} {
		wg.Go(func() {
			env, err := c.Archive(t.Context(), path)
			if err != nil {
				t.Error(err)
				return
			}
			env.Release()
		})
	}
	wg.Wait()
	if n := unpackings(log); n != 1 {
		t.Errorf("got %d unpackings of an archive and its copy, want one", n)
	}
}

// TestAReplacedArchiveGetsADirectoryOfItsOwn checks that a replaced archive gets a new directory,
// whether it was renamed or written in place, even with the old time. Stubs of the old archive keep
// theirs.
func TestAReplacedArchiveGetsADirectoryOfItsOwn(t *testing.T) {
	for name, replace := range map[string]func(t *testing.T, path string){
		"renamed": func(t *testing.T, path string) {
			pack(t, path+".new", aPython("b"))
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
		},
		"in place": func(t *testing.T, path string) { pack(t, path, aPython("b")) },
		"in place, with the old time": func(t *testing.T, path string) {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			pack(t, path, aPython("b"))
			if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, path := t.TempDir(), filepath.Join(t.TempDir(), "env.tar.gz")
			pack(t, path, aPython("a"))
			c, _ := open(t, cache.Options{Directory: dir})
			old := take(t, c, path)
			replace(t, path)
			fresh := take(t, c, path)
			for env, want := range map[*cache.Environment]string{old: "a", fresh: "b"} {
				if got, err := os.ReadFile(filepath.Join(env.Directory, "lib", "mark")); err != nil || string(got) != want {
					t.Errorf("%s: got %q, %v, want %q", env.Directory, got, err, want)
				}
			}
			removed, err := c.Prune(t.Context(), cache.Selection{All: true})
			if err != nil || len(removed) != 0 {
				t.Errorf("Prune: got %v, %v, want nothing removed of what is in use", removed, err)
			}
		})
	}
}

func TestADeletedArchiveLeavesItsEnvironmentToItsUsers(t *testing.T) {
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "env.tar.gz")
	pack(t, path, aPython("a"))
	c, _ := open(t, cache.Options{Directory: dir})
	env := take(t, c, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Archive(t.Context(), path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Archive: got %v, want that it is not there", err)
	}
	whole(t, c, env)
}

// TestManyGoroutinesUnpackOnce checks that only one of many goroutines unpacks, and all get the
// same directory.
func TestManyGoroutinesUnpackOnce(t *testing.T) {
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "env.tar.gz")
	pack(t, path, largeEnvironment(300))
	c, log := open(t, cache.Options{Directory: dir})
	var wg sync.WaitGroup
	environments := make([]*cache.Environment, 20)
	for i := range environments {
		wg.Go(func() {
			env, err := c.Archive(t.Context(), path)
			if err != nil {
				t.Error(err)
				return
			}
			environments[i] = env
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	if n := unpackings(log); n != 1 {
		t.Errorf("got %d unpackings, want one", n)
	}
	whole(t, c, environments[0])
	for _, env := range environments {
		if env.Directory != environments[0].Directory {
			t.Errorf("got %s, want %s as the others", env.Directory, environments[0].Directory)
		}
		env.Release()
		env.Release() // the second call does nothing
	}
	if removed, err := c.Prune(t.Context(), cache.Selection{All: true}); err != nil || len(removed) != 1 {
		t.Errorf("Prune after all releases: got %v, %v, want the environment removed", removed, err)
	}
	if environments, rest := contents(t, dir); len(environments)+len(rest) > 0 {
		t.Errorf("after Prune there are %v and %v, want nothing", environments, rest)
	}
}

// TestABadArchiveLeavesNothing checks that all waiting callers get an error that names the archive.
// A good archive under the same name is then unpacked.
func TestABadArchiveLeavesNothing(t *testing.T) {
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "env.tar.gz")
	pack(t, path, largeEnvironment(300))
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content[:len(content)*2/3], 0o600); err != nil {
		t.Fatal(err)
	}
	c, _ := open(t, cache.Options{Directory: dir})
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if _, err := c.Archive(t.Context(), path); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("a truncated archive: got %v, want an error that names it", err)
			}
		})
	}
	wg.Wait()
	if environments, rest := contents(t, dir); len(environments)+len(rest) > 0 {
		t.Errorf("there are %v and %v, want nothing", environments, rest)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	whole(t, c, take(t, c, path))
}

// TestAFaultAtAnyStepLeavesNothing checks that a failure at any step leaves nothing, and the next
// attempt succeeds.
func TestAFaultAtAnyStepLeavesNothing(t *testing.T) {
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			dir, path := t.TempDir(), filepath.Join(t.TempDir(), "env.tar.gz")
			pack(t, path, aPython("a"))
			c, _ := open(t, cache.Options{Directory: dir})
			c.SetStep(func(name string) error {
				if name == step {
					return &os.PathError{Op: "write", Path: "x", Err: unix.ENOSPC}
				}
				return nil
			})
			if _, err := c.Archive(t.Context(), path); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), path) && step != "index" {
				t.Errorf("got %v, want the fault and the archive's name", err)
			}
			if environments, rest := contents(t, dir); len(environments)+len(rest) > 0 && step != "index" {
				t.Errorf("there are %v and %v, want nothing", environments, rest)
			}
			c.SetStep(func(string) error { return nil })
			whole(t, c, take(t, c, path))
		})
	}
}

// TestAWaiterGivesUpAlone checks that a waiter whose context ends does not affect the others.
func TestAWaiterGivesUpAlone(t *testing.T) {
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "env.tar.gz")
	pack(t, path, aPython("a"))
	c, log := open(t, cache.Options{Directory: dir})
	at, on := make(chan struct{}), make(chan struct{})
	c.SetStep(func(name string) error {
		if name == "fill" {
			close(at)
			<-on
		}
		return nil
	})
	made := make(chan error, 1)
	go func() {
		env, err := c.Archive(context.Background(), path)
		if err == nil {
			env.Release()
		}
		made <- err
	}()
	<-at
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if _, err := c.Archive(ctx, path); !errors.Is(err, enough) {
		t.Errorf("the waiter: got %v, want the cause of its ctx", err)
	}
	close(on)
	if err := <-made; err != nil || unpackings(log) != 1 {
		t.Errorf("the maker: got %v after %d unpackings, want none and one", err, unpackings(log))
	}
}

// TestAWaiterTakesOver checks that a waiter takes over if the unpacking goroutine's context ends.
func TestAWaiterTakesOver(t *testing.T) {
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "env.tar.gz")
	pack(t, path, aPython("a"))
	c, log := open(t, cache.Options{Directory: dir})
	first, on := make(chan struct{}), make(chan struct{})
	var once sync.Once
	c.SetStep(func(name string) error {
		if name == "fill" {
			once.Do(func() { close(first); <-on })
		}
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := c.Archive(ctx, path)
		failed <- err
	}()
	<-first
	second := make(chan error, 1)
	go func() {
		env, err := c.Archive(context.Background(), path)
		if err == nil {
			env.Release()
		}
		second <- err
	}()
	cancel()
	close(on)
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("the first: got %v, want that it was cancelled", err)
	}
	if err := <-second; err != nil || unpackings(log) != 2 {
		t.Errorf("the second: got %v after %d unpackings, want none after two", err, unpackings(log))
	}
}

// TestDifferentArchivesAreUnpackedAtTheSameTime unpacks two archives, each of which waits until the
// other is being unpacked.
func TestDifferentArchivesAreUnpackedAtTheSameTime(t *testing.T) {
	dir, folder := t.TempDir(), t.TempDir()
	c, _ := open(t, cache.Options{Directory: dir})
	var both sync.WaitGroup
	both.Add(2)
	c.SetStep(func(name string) error {
		if name == "fill" {
			both.Done()
			both.Wait()
		}
		return nil
	})
	var wg sync.WaitGroup
	for _, mark := range []string{"a", "b"} {
		path := filepath.Join(folder, mark)
		pack(t, path, aPython(mark))
		wg.Go(func() {
			env, err := c.Archive(t.Context(), path)
			if err != nil {
				t.Error(err)
				return
			}
			env.Release()
		})
	}
	wg.Wait()
}

// TestFewArchivesAreUnpackedAtATime checks that an archive waits until another one has been
// unpacked.
func TestFewArchivesAreUnpackedAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "env.tar.gz")
	pack(t, path, aPython("a"))
	c, _ := open(t, cache.Options{Directory: t.TempDir()})
	for range cache.MostUnpacking {
		c.Unpacking() <- struct{}{}
	}
	var ended, early atomic.Bool // another archive has been unpacked; this one was unpacked before
	began := make(chan struct{})
	c.SetStep(func(name string) error {
		switch name {
		case "fill":
			close(began)
		case "relocate":
			early.Store(!ended.Load())
			if len(c.Unpacking()) != cache.MostUnpacking-1 {
				t.Errorf("conda-unpack: got %d archives that are being unpacked, want %d", len(c.Unpacking()), cache.MostUnpacking-1)
			}
		}
		return nil
	})
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
	<-c.Unpacking()
	<-done
	if early.Load() {
		t.Error("got an unpacked archive while others were unpacked, want that it waits")
	}
}

// TestCondaUnpackRunsWhereTheEnvironmentStays checks that conda-unpack runs in the environment's
// final directory, before any caller gets it.
func TestCondaUnpackRunsWhereTheEnvironmentStays(t *testing.T) {
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "env.tar.gz")
	files := aPython("a")
	files["bin/conda-unpack"] = "cd \"$CONDA_PREFIX\" && pwd > prefix && echo \"$0\" >> prefix\n"
	pack(t, path, files)
	c, _ := open(t, cache.Options{Directory: dir})
	env := take(t, c, path)
	got, err := os.ReadFile(filepath.Join(env.Directory, "prefix"))
	if want := env.Directory + "\n" + filepath.Join(env.Directory, "bin", "conda-unpack") + "\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	whole(t, c, env) // the manifest includes conda-unpack's files
}

func TestCondaUnpackFails(t *testing.T) {
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "env.tar.gz")
	files := aPython("a")
	files["bin/conda-unpack"] = "echo 'prefix too long' >&2; exit 3\n"
	pack(t, path, files)
	c, _ := open(t, cache.Options{Directory: dir})
	_, err := c.Archive(t.Context(), path)
	if err == nil || !strings.Contains(err.Error(), "prefix too long") || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want the archive, the status and what was printed", err)
	}
	if environments, rest := contents(t, dir); len(environments)+len(rest) > 0 {
		t.Errorf("there are %v and %v, want nothing", environments, rest)
	}
}

// TestBuildMakesOnceForAKey checks that Build calls its function once per key, with the
// environment's final directory.
func TestBuildMakesOnceForAKey(t *testing.T) {
	c, _ := open(t, cache.Options{Directory: t.TempDir()})
	var mu sync.Mutex
	made := []string{}
	build := func(key string) *cache.Environment {
		env, err := c.Build(t.Context(), key, func(_ context.Context, dir string) error {
			mu.Lock()
			defer mu.Unlock()
			made = append(made, dir)
			return os.WriteFile(filepath.Join(dir, "key"), []byte(key), 0o600)
		})
		if err != nil {
			t.Error(err)
			return nil
		}
		t.Cleanup(env.Release)
		return env
	}
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() { build("numpy==1.26") })
	}
	wg.Wait()
	one, two := build("numpy==1.26"), build("numpy==2.0")
	if len(made) != 2 || made[0] != one.Directory || made[1] != two.Directory {
		t.Errorf("made %v, want %s and %s", made, one.Directory, two.Directory)
	}
	failing := errors.New("no such package")
	if _, err := c.Build(t.Context(), "x", func(context.Context, string) error { return failing }); !errors.Is(err, failing) {
		t.Errorf("Build that fails: got %v, want %v", err, failing)
	}
	if entries, err := c.List(); err != nil || len(entries) != 2 {
		t.Errorf("List: got %v, %v, want two environments", entries, err)
	}
}

// TestEnvironmentsRemovedByHandAreMadeAnew checks that an environment that was removed by hand is
// created again while the server runs, even if it is in use.
func TestEnvironmentsRemovedByHandAreMadeAnew(t *testing.T) {
	dir, path := filepath.Join(t.TempDir(), "cache"), filepath.Join(t.TempDir(), "env.tar.gz")
	pack(t, path, aPython("a"))
	c, _ := open(t, cache.Options{Directory: dir})
	first := take(t, c, path)
	if err := os.RemoveAll(first.Directory); err != nil {
		t.Fatal(err)
	}
	second := take(t, c, path)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	third := take(t, c, path)
	if first.Directory == second.Directory || second.Directory == third.Directory {
		t.Errorf("got %s, %s, %s, want three directories", first.Directory, second.Directory, third.Directory)
	}
	whole(t, c, third)
}

// TestDamageOfTheCacheIsRepaired checks that an unreadable entry counts as missing.
func TestDamageOfTheCacheIsRepaired(t *testing.T) {
	for _, what := range []string{"index", "records", "locks", "environment"} {
		for _, damage := range []string{"removed", "emptied", "scribbled on"} {
			if what == "environment" && damage != "removed" {
				continue // Verify reports damaged files
			}
			t.Run(what+" "+damage, func(t *testing.T) {
				dir, path := t.TempDir(), filepath.Join(t.TempDir(), "env.tar.gz")
				pack(t, path, aPython("a"))
				c, _ := open(t, cache.Options{Directory: dir})
				env, err := c.Archive(t.Context(), path)
				if err != nil {
					t.Fatal(err)
				}
				env.Release()
				paths, err := filepath.Glob(filepath.Join(dir, what, "*"))
				if what == "environment" {
					paths = []string{env.Directory}
				}
				if err != nil || len(paths) == 0 {
					t.Fatalf("got %v, %v, want files", paths, err)
				}
				for _, path := range paths {
					var err error
					switch {
					case damage == "removed":
						err = os.RemoveAll(path)
					case damage == "emptied":
						err = os.Truncate(path, 0)
					default:
						err = os.WriteFile(path, []byte(`{"name": "../../../../etc", "digest": 7}`), 0o600)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				again, _ := open(t, cache.Options{Directory: dir})
				env = take(t, again, path)
				whole(t, again, env)
			})
		}
	}
}
