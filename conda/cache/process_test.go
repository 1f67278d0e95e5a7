package cache_test

import (
	"context"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/conda/cache"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// steps are the steps at which creating an environment can end.
var steps = []string{"directory", "fill", "relocate", "settle", "record", "index"}

// TestTenProcessesUnpackOnce starts ten processes on one empty cache.
func TestTenProcessesUnpackOnce(t *testing.T) {
	dir, path := filepath.Join(t.TempDir(), "deep", "cache"), filepath.Join(t.TempDir(), "env.tar.gz")
	pack(t, path, largeEnvironment(500))
	var all []*process
	for range 10 {
		all = append(all, begin(t, role{Directory: dir, Archive: path}))
	}
	unpacked, directories := 0, map[string]bool{}
	for _, p := range all {
		said := p.says()
		if said.Error != "" {
			t.Fatal(said.Error)
		}
		unpacked += said.Unpacked
		directories[said.Directory] = true
	}
	if unpacked != 1 || len(directories) != 1 {
		t.Errorf("ten processes unpacked %d times, to %v, want once", unpacked, directories)
	}
	c, _ := open(t, cache.Options{Directory: dir})
	env := take(t, c, path)
	whole(t, c, env)
	for _, p := range all {
		p.end()
	}
}

// TestKilledAtEachStep kills a process at each step. The next process finds nothing or a complete
// environment, and sweeps the remains.
func TestKilledAtEachStep(t *testing.T) {
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			dir, path := t.TempDir(), filepath.Join(t.TempDir(), "env.tar.gz")
			pack(t, path, aPython("a"))
			begin(t, role{Directory: dir, Archive: path, Kill: step}).diesAtItsStep()
			c, log := open(t, cache.Options{Directory: dir})
			env := take(t, c, path)
			if n, want := unpackings(log), map[bool]int{true: 0, false: 1}[step == "index"]; n != want {
				t.Errorf("got %d unpackings after the death, want %d", n, want)
			}
			whole(t, c, env)
		})
	}
}

// TestKilledAmongTheFiles kills a process after a number of files. A waiting process takes over.
func TestKilledAmongTheFiles(t *testing.T) {
	testkit.Story(t)
	path := filepath.Join(t.TempDir(), "env.tar.gz")
	pack(t, path, largeEnvironment(1000))
	for _, files := range []int{1, 30, 400, 1000} {
		t.Run(strconv.Itoa(files), func(t *testing.T) {
			dir := t.TempDir()
			victim := begin(t, role{Directory: dir, Archive: path})
			testkit.Eventually(t, time.Minute, func() bool { return filesIn(dir) >= files })
			heir := begin(t, role{Directory: dir, Archive: path})
			victim.kill()
			if said := heir.says(); said.Error != "" {
				t.Fatal(said.Error)
			}
			c, _ := open(t, cache.Options{Directory: dir})
			whole(t, c, take(t, c, path))
			heir.end()
		})
	}
}

// TestKillsStormLeavesWholeEnvironments kills two processes at a time, at random moments, while
// archives change. Environments that the cache reports as complete must be undamaged, and the last
// surviving process must create the others.
func TestKillsStormLeavesWholeEnvironments(t *testing.T) {
	testkit.Story(t)
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "env.tar.gz")
	rounds := 12
	if testkit.Long() {
		rounds = 300
	}
	random := rand.New(rand.NewPCG(1, uint64(rounds)))
	files := largeEnvironment(100)
	files["bin/conda-unpack"] = "cd \"$CONDA_PREFIX\" && pwd > lib/mark\n"
	c, _ := open(t, cache.Options{Directory: dir})
	longest := 50 * time.Millisecond // the longest creation so far
	for round := range rounds {
		if round%4 == 0 {
			files["lib/round"] = strconv.Itoa(round)
			pack(t, path, files)
		}
		var all []*process
		for range 2 {
			all = append(all, begin(t, role{Directory: dir, Archive: path, Announce: true}))
		}
		for _, p := range all {
			p.says() // from now on, they request the environment
		}
		for _, p := range all {
			<-time.After(time.Duration(random.Int64N(int64(longest))))
			p.kill()
		}
		entries, err := c.List()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !e.Complete {
				continue
			}
			if damage, err := c.Verify(t.Context(), e, true); err != nil || len(damage) > 0 {
				t.Fatalf("round %d: %+v: got %v, %v, want no damage", round, e, damage, err)
			}
		}
		if round%4 != 3 {
			continue
		}
		began := time.Now()
		env := take(t, c, path)
		longest = max(longest, time.Since(began))
		if got, err := os.ReadFile(filepath.Join(env.Directory, "lib", "mark")); err != nil || string(got) != env.Directory+"\n" {
			t.Fatalf("round %d: got %q, %v, want %s", round, got, err, env.Directory)
		}
		env.Release()
		if _, err := c.Prune(t.Context(), cache.Selection{All: true}); err != nil {
			t.Fatal(err)
		}
		if environments, rest := contents(t, dir); len(environments)+len(rest) > 0 {
			t.Fatalf("round %d: after Prune there are %v and %v, want nothing", round, environments, rest)
		}
	}
}

// filesIn returns the number of files in a cache's environments.
func filesIn(dir string) int {
	n := 0
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && named.MatchString(strings.Split(strings.TrimPrefix(path, dir+"/"), "/")[0]) {
			n++
		}
		return nil
	})
	return n
}

// TestCondaUnpackOutlivesItsServer checks that late writes of conda-unpack do not reach the next
// environment.
func TestCondaUnpackOutlivesItsServer(t *testing.T) {
	dir, folder := t.TempDir(), t.TempDir()
	path := filepath.Join(folder, "env.tar.gz")
	files := aPython("a")
	files["bin/conda-unpack"] = `cd "$CONDA_PREFIX"
if mkdir ` + folder + `/first 2>/dev/null; then
	while [ ! -e ` + folder + `/go ]; do sleep 0.01; done
	{ echo late > "$CONDA_PREFIX/lib/mark"; } 2>/dev/null
	mkdir ` + folder + `/done
fi
`
	pack(t, path, files)
	victim := begin(t, role{Directory: dir, Archive: path})
	exists := func(name string) func() bool {
		return func() bool {
			_, err := os.Lstat(filepath.Join(folder, name))
			return err == nil
		}
	}
	testkit.Eventually(t, time.Minute, exists("first"))
	victim.kill()
	c, _ := open(t, cache.Options{Directory: dir})
	env := take(t, c, path)
	if err := os.Mkdir(filepath.Join(folder, "go"), 0o700); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, time.Minute, exists("done"))
	whole(t, c, env)
}

// TestEvictionSparesEnvironmentsInUseElsewhere checks that eviction removes only environments that
// no process uses. Once the other process is killed, its environment can be evicted.
func TestEvictionSparesEnvironmentsInUseElsewhere(t *testing.T) {
	dir, folder := t.TempDir(), t.TempDir()
	paths := map[string]string{}
	for _, mark := range []string{"a", "b", "c", "d"} {
		paths[mark] = filepath.Join(folder, mark)
		pack(t, paths[mark], aPython(mark))
	}
	user := begin(t, role{Directory: dir, Archive: paths["a"]})
	used := user.says()
	if used.Error != "" {
		t.Fatal(used.Error)
	}
	c, _ := open(t, cache.Options{Directory: dir, MaxBytes: 1})
	there := func(directory string) bool {
		_, err := os.Lstat(directory)
		return err == nil
	}
	unused := func(mark string) string {
		env, err := c.Archive(t.Context(), paths[mark])
		if err != nil {
			t.Fatal(err)
		}
		env.Release()
		return env.Directory
	}
	b := unused("b")
	if !there(b) || !there(used.Directory) {
		t.Fatal("an environment in use was removed")
	}
	cc := unused("c")
	if there(b) || !there(cc) || !there(used.Directory) {
		t.Errorf("unused environment there: %v, new one: %v, another process's: %v; want false, true, true", there(b), there(cc), there(used.Directory))
	}
	user.kill()
	unused("d")
	if there(cc) || there(used.Directory) {
		t.Error("environments that nobody uses are still there, want them removed")
	}
}

// TestAReadOnlyCacheWorks checks a cache whose user owns nothing in it, such as root's cache in a
// container image.
func TestAReadOnlyCacheWorks(t *testing.T) {
	folder := openFolder(t)
	dir, path, other := filepath.Join(folder, "cache"), filepath.Join(folder, "env.tar.gz"), filepath.Join(folder, "other.tar.gz")
	pack(t, path, denseEnvironment())
	pack(t, other, aPython("b"))
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	size := info.Size()
	first := begin(t, role{Directory: dir, Archive: path})
	made := first.says()
	first.end()
	if out, err := exec.Command("chmod", "-R", "a+rX,go-w", dir).CombinedOutput(); err != nil {
		t.Fatalf("chmod: %v: %s", err, out)
	}
	root := os.Geteuid() == 0 // otherwise root's cases are skipped
	asNobody := func(*exec.Cmd) {}
	if root {
		asNobody = runAsNobody(t, folder)
	}
	shell := func(line string) func() {
		return func() {
			if out, err := exec.Command("sh", "-ec", line).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", line, err, out)
			}
		}
	}
	const ends = 2 * 64 << 10 // the parts that a fingerprint covers
	for _, test := range []struct {
		name   string
		change func()
		reads  int64 // approximate, from the archive
	}{
		{"of root", func() {}, 0},
		{"of root, and the archive is a copy, as in an image", shell("cp -p " + path + " " + path + ".new && mv " + path + ".new " + path), ends},
		{"of root, and the archive is touched", shell("touch -d @2000000000 " + path), ends + size},
		{"of the user, without the right to write", shell("if [ $(id -u) = 0 ]; then chown -R 65534 " + dir + "; fi; touch -d @2000000000 " + path + "; chmod -R a-w " + dir), ends + size},
	} {
		t.Run(test.name, func(t *testing.T) {
			if !root && strings.HasPrefix(test.name, "of root") {
				t.Skip("only root can run a process as another user")
			}
			test.change()
			user := begin(t, role{Directory: dir, Archive: path}, asNobody)
			if said := user.says(); said.Error != "" || said.Directory != made.Directory || said.Unpacked != 0 {
				t.Errorf("got %+v, want %s as it is", said, made.Directory)
			} else if said.Read < test.reads || said.Read > test.reads+32<<10 {
				t.Errorf("got %d bytes read, want some %d", said.Read, test.reads)
			}
			user.end()
			refused := begin(t, role{Directory: dir, Archive: other}, asNobody)
			if said := refused.says(); !strings.Contains(said.Error, dir) || !strings.Contains(said.Error, "env-cache-directory") {
				t.Errorf("an archive that is not in the cache: got %+v, want a sentence about the cache directory", said)
			}
			refused.end()
		})
	}
}

// openFolder returns a directory that every user may enter.
func openFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "cache-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = exec.Command("chmod", "-R", "u+w", folder).Run()
		_ = os.RemoveAll(folder)
	})
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	return folder
}

// runAsNobody returns a function that makes a command run as user 65534.
func runAsNobody(t *testing.T, folder string) func(*exec.Cmd) {
	t.Helper()
	binary := filepath.Join(folder, "test-binary")
	content, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(binary, content, 0o755); err != nil {
		t.Fatal(err)
	}
	return func(command *exec.Cmd) {
		command.Path = binary
		command.Dir = folder
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
}

// TestAFullDiskLeavesNothing unpacks to a small file system and expects an error with a remedy.
func TestAFullDiskLeavesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "env.tar.gz")
	files := aPython("a")
	files["lib/big"] = strings.Repeat("0123456789abcdef", 64<<10)
	pack(t, path, files)
	p := begin(t, role{Directory: dir, Archive: path, Mount: dir}, func(command *exec.Cmd) {
		command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	})
	said := p.says()
	if strings.HasPrefix(said.Error, "mount: ") {
		t.Skip(said.Error)
	}
	if !strings.Contains(said.Error, path) || !strings.Contains(said.Error, "no space left") || !strings.Contains(said.Error, " has room for ") || !strings.Contains(said.Error, "nereid env prune") {
		t.Errorf("got %q, want the archive, the reason and the remedy", said.Error)
	}
	inside := filepath.Join("/proc", strconv.Itoa(p.command.Process.Pid), "root", dir)
	if environments, rest := contents(t, inside); len(environments)+len(rest) > 0 {
		t.Errorf("there are %v and %v, want nothing", environments, rest)
	}
	p.end()
}

// TestDirectoriesOfOthersAreRefused checks that Open refuses unsafe or unusable directories, with
// an error that names the problem.
func TestDirectoriesOfOthersAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		change func(dir string) error
		want   string
	}{
		"writable by others": {func(dir string) error { return os.Chmod(dir, 0o770) }, "chmod go-w"},
		"of another user":    {func(dir string) error { return os.Chown(dir, 65534, 65534) }, "belongs to user 65534"},
		"a file": {func(dir string) error {
			if err := os.Remove(dir); err != nil {
				return err
			}
			return os.WriteFile(dir, nil, 0o600)
		}, "not a directory"},
		"of another version": {func(dir string) error { return os.WriteFile(filepath.Join(dir, "format"), []byte("7\n"), 0o600) }, `layout "7"`},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "of another user" && os.Geteuid() != 0 {
				t.Skip("only root can give a directory away")
			}
			dir := filepath.Join(t.TempDir(), "cache")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := test.change(dir); err != nil {
				t.Fatal(err)
			}
			if _, err := cache.Open(cache.Options{Directory: dir}); err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("Open: got %v, want %q and the directory", err, test.want)
			}
		})
	}
}

// TestWithoutAFolderATemporaryOneIsUsed checks that Close removes the temporary directory. If its
// owner was killed, the next process removes it.
func TestWithoutAFolderATemporaryOneIsUsed(t *testing.T) {
	tmp := t.TempDir()
	path := filepath.Join(t.TempDir(), "env.tar.gz")
	pack(t, path, aPython("a"))
	variables := map[string]string{"TMPDIR": tmp, "XDG_CACHE_HOME": "/proc/nowhere"}
	for name, value := range variables {
		t.Setenv(name, value)
	}
	for name, end := range map[string]func(*process){"ended": (*process).end, "killed": (*process).kill} {
		p := begin(t, role{Archive: path})
		said := p.says()
		if said.Error != "" || !strings.HasPrefix(said.Directory, tmp) || said.Unpacked != 1 {
			t.Fatalf("got %+v, want a directory below %s", said, tmp)
		}
		end(p)
		if left, err := os.ReadDir(tmp); err != nil || len(left) != map[string]int{"ended": 0, "killed": 1}[name] {
			t.Errorf("after a process %s: got %v, %v", name, left, err)
		}
	}
	c, log := open(t, cache.Options{})
	first, second := take(t, c, path), take(t, c, path)
	if first.Directory != second.Directory || unpackings(log) != 1 || log.Count("temporary directory") != 1 {
		t.Errorf("got %s and %s after %d unpackings, want one", first.Directory, second.Directory, unpackings(log))
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) != 1 {
		t.Errorf("got %v, %v, want this process's directory alone", left, err)
	}
}

// TestTheDefaultIsTheUsersFolder checks that the default directory is in the user's cache
// directory, with mode 0700.
func TestTheDefaultIsTheUsersFolder(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", folder)
	c, _ := open(t, cache.Options{})
	env, err := c.Build(t.Context(), "key", func(_ context.Context, dir string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer env.Release()
	if want := filepath.Join(folder, "nereid", "environments"); filepath.Dir(env.Directory) != want {
		t.Errorf("got %s, want it below %s", env.Directory, want)
	}
	info, err := os.Stat(filepath.Dir(env.Directory))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode of the cache: got %v, %v, want 0700", info.Mode(), err)
	}
}
