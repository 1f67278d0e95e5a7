package cache_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/conda/cache"
	"github.com/nereid-serving/nereid/internal/testkit"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(roleVariable); text != "" {
		os.Exit(play(text))
	}
	testkit.Main(m)
}

// roleVariable makes the test binary run as one of the processes that share a cache.
const roleVariable = "NEREID_CACHE_TEST_ROLE"

// role is the job of such a process. It gets an archive's environment, reports its outcome and
// keeps the environment until its standard input ends.
type role struct {
	Directory string
	Archive   string
	MaxBytes  int64
	Kill      string // the step at which it kills itself
	Mount     string // where it first mounts a small file system
	Announce  bool   // sends an empty outcome before it requests the environment
}

// outcome is the report of such a process.
type outcome struct {
	Directory string
	Unpacked  int   // archives
	Read      int64 // bytes, within Archive only
	Error     string
}

func play(text string) int {
	var r role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		panic(err)
	}
	if r.Mount != "" {
		if err := syscall.Mount("tmpfs", r.Mount, "tmpfs", 0, "size=512k,mode=700"); err != nil {
			_ = json.NewEncoder(os.Stdout).Encode(outcome{Error: "mount: " + err.Error()})
			return 0
		}
	}
	var said outcome
	log := &testkit.Buffer{}
	c, err := cache.Open(cache.Options{Directory: r.Directory, MaxBytes: r.MaxBytes, Log: zerolog.New(log), Run: run})
	if err == nil {
		c.SetStep(func(name string) error {
			if name == r.Kill {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
			return nil
		})
		if r.Announce {
			_ = json.NewEncoder(os.Stdout).Encode(outcome{})
		}
		before := readSoFar()
		var env *cache.Environment
		if env, err = c.Archive(context.Background(), r.Archive); err == nil {
			said.Directory = env.Directory
			defer env.Release()
		}
		said.Read = readSoFar() - before
	}
	if err != nil {
		said.Error = err.Error()
	}
	said.Unpacked = log.Count("Extracting Python execution env ")
	_ = json.NewEncoder(os.Stdout).Encode(said)
	_, _ = io.Copy(io.Discard, os.Stdin)
	if c != nil {
		defer c.Close()
	}
	return 0
}

// readSoFar returns the number of bytes that this process has read.
func readSoFar() int64 {
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		panic(err)
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(string(text), "rchar: "), "\n")
	n, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// run implements Options.Run.
func run(ctx context.Context, argv, env []string, dir string) (string, error) {
	command := exec.CommandContext(ctx, argv[0], argv[1:]...)
	command.Env, command.Dir = env, dir
	output, err := command.CombinedOutput()
	return string(output), err
}

// process is a test binary with a role.
type process struct {
	t       *testing.T
	command *exec.Cmd
	stdin   io.WriteCloser
	stdout  *json.Decoder
}

// says waits for a process's outcome.
func (p *process) says() outcome {
	p.t.Helper()
	var said outcome
	if err := p.stdout.Decode(&said); err != nil {
		p.t.Fatalf("a process says nothing: %v", err)
	}
	return said
}

// end makes the process release its environment and waits until it exits.
func (p *process) end() {
	p.t.Helper()
	p.stdin.Close()
	if err := p.command.Wait(); err != nil {
		p.t.Errorf("a process ended badly: %v", err)
	}
}

// kill kills the process with SIGKILL.
func (p *process) kill() {
	_ = p.command.Process.Kill()
	_ = p.command.Wait()
}

// diesAtItsStep waits until the process has killed itself.
func (p *process) diesAtItsStep() {
	p.t.Helper()
	_ = p.command.Wait()
	if status := p.command.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() {
		p.t.Errorf("the process ended with %v, want it killed", p.command.ProcessState)
	}
}

// begin starts a process that is killed at the end of the test, if not before.
func begin(t *testing.T, r role, change ...func(*exec.Cmd)) *process {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, command: exec.Command(os.Args[0], "-test.run=^$")}
	p.command.Env = append(os.Environ(), roleVariable+"="+string(text), "GORACE=atexit_sleep_ms=0")
	p.command.Stderr = os.Stderr
	if p.stdin, err = p.command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := p.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdout = json.NewDecoder(stdout)
	for _, f := range change {
		f(p.command)
	}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.command.Process.Kill()
		_ = p.command.Wait()
	})
	return p
}

// open opens a cache that is closed with the test.
func open(t *testing.T, options cache.Options) (*cache.Cache, *testkit.Buffer) {
	t.Helper()
	log := &testkit.Buffer{}
	options.Log = zerolog.New(log)
	if options.Run == nil {
		options.Run = run
	}
	c, err := cache.Open(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c, log
}

// take returns the environment of an archive. It is released at the end of the test, if not before.
func take(t *testing.T, c *cache.Cache, path string) *cache.Environment {
	t.Helper()
	env, err := c.Archive(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(env.Release)
	return env
}

// unpackings returns the number of unpacked archives in a log.
func unpackings(log *testkit.Buffer) int { return log.Count("Extracting Python execution env ") }

// pack writes a tar.gz of files. Names that start with bin/ are executable.
func pack(t *testing.T, path string, files map[string]string) {
	t.Helper()
	var b bytes.Buffer
	zip, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(zip)
	for name, text := range files {
		mode := int64(0o644)
		if strings.HasPrefix(name, "bin/") {
			mode = 0o755
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(text)), Typeflag: tar.TypeReg, ModTime: time.Unix(1e9, 0)}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// aPython returns the smallest valid environment, with a distinguishing mark.
func aPython(mark string) map[string]string {
	return map[string]string{"bin/python": "#!/bin/sh\nexec /bin/sh \"$@\"\n", "lib/mark": mark}
}

// denseEnvironment returns an environment whose archive is much larger than the parts that its
// fingerprint covers.
func denseEnvironment() map[string]string {
	all := aPython("dense")
	random := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(random)
	all["lib/dense"] = string(random)
	return all
}

// largeEnvironment returns an environment with enough files to kill a process between them.
func largeEnvironment(files int) map[string]string {
	all := aPython("large")
	for i := range files {
		all[fmt.Sprintf("lib/%02d/%d.py", i%17, i)] = strings.Repeat(strconv.Itoa(i), 300)
	}
	return all
}

// named matches names of environments.
var named = regexp.MustCompile(`^[0-9a-f]{12}-[0-9a-f]{8}$`)

// contents lists a cache's environments and the other files that belong to entries.
func contents(t *testing.T, root string) (environments, rest []string) {
	t.Helper()
	for _, dir := range []string{".", "records", "manifests", "index", "locks", "new"} {
		entries, err := os.ReadDir(filepath.Join(root, dir))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			switch name := entry.Name(); {
			case dir == "." && named.MatchString(name):
				environments = append(environments, name)
			case dir == "." || dir == "locks" && name == "probe":
			default:
				rest = append(rest, dir+"/"+name)
			}
		}
	}
	return environments, rest
}

// whole fails the test unless the cache contains exactly one undamaged environment and nothing
// else.
func whole(t *testing.T, c *cache.Cache, env *cache.Environment) {
	t.Helper()
	root := filepath.Dir(env.Directory)
	var environments, rest []string
	if !testkit.Within(20*time.Second, func() bool { // sweeps run in the background
		environments, rest = contents(t, root)
		return len(environments) == 1 && environments[0] == filepath.Base(env.Directory) && len(rest) == 4 // record, manifest, index, lock
	}) {
		t.Errorf("the cache has the environments %v and %v, want %s alone", environments, rest, env.Directory)
	}
	entries, err := c.List()
	if err != nil || len(entries) != 1 || !entries[0].Complete || !entries[0].InUse {
		t.Fatalf("List: got %+v, %v, want one complete environment in use", entries, err)
	}
	damage, err := c.Verify(t.Context(), entries[0], true)
	if err != nil || len(damage) > 0 {
		t.Errorf("Verify: got %v, %v, want no damage", damage, err)
	}
}
