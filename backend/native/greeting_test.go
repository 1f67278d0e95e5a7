package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/backend/process/launch"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/shm"
)

// patience bounds every wait of these tests.
const patience = 60 * time.Second

// greeted is a program whose plugin is a shell script, with the files it is started with.
type greeted struct {
	*program
	files  process.Files
	prints *os.File // the process's output
}

// newGreeted returns a program whose plugin runs a script. Files still open are closed at the end
// of the test.
func newGreeted(t *testing.T, script string) *greeted {
	t.Helper()
	region, err := shm.NewRegion(shm.Memfd{}, 1<<20, shm.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := shm.NewPool(region, shm.PoolConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	supervisor, err := process.New(process.Environment{Requests: pool, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(supervisor.Close)
	root := testkit.WriteFiles(t, t.TempDir(), map[string]string{"m/1/nereid_b": script})
	path := filepath.Join(root, "m", "1", "nereid_b")
	if err := os.Chmod(path, 0o700); err != nil {
		t.Fatal(err)
	}
	b := New(Environment{
		Supervisor: supervisor, Log: zerolog.Nop(),
		Settings: func(string) (map[string]string, string) { return nil, "{}" },
	})
	p := &program{
		backend: b, name: "b", path: path, known: b.of("b"), log: zerolog.Nop(), taking: patience,
		env: backend.Env{Name: "m", Version: 1, Directory: filepath.Join(root, "m"), Plugin: path, Config: &kserve.ModelConfig{Backend: "b"}},
	}
	g := &greeted{program: p}
	near, far, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	g.prints = near
	null := func() *os.File {
		file, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = file.Close() })
		return file
	}
	g.files = process.Files{Peer: ipc.PeerFiles{Down: null(), Up: null(), DownBell: null(), UpBell: null(), Lifeline: null()}, Requests: null(), Output: [2]*os.File{far, far}}
	t.Cleanup(func() {
		_ = near.Close()
		_ = far.Close()
	})
	return g
}

// start starts a process. If its handshake succeeds, it is ended with the test.
func (g *greeted) start(t *testing.T, ctx context.Context) error { //nolint:revive // t is first everywhere
	t.Helper()
	p, err := g.Start(ctx, "m_0_0", &g.files)
	children := g.backend.env.Supervisor.Children()
	if err != nil {
		if n := children.Count(); n != 0 {
			t.Errorf("%d processes are left of a handshake that failed", n)
		}
		return err
	}
	t.Cleanup(func() {
		p.Kill()
		_ = p.Wait()
		children.Forget(p)
	})
	return nil
}

// printed returns the process's output once it contains want.
func (g *greeted) printed(t *testing.T, want string) string {
	t.Helper()
	if err := g.prints.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	var all []byte
	buffer := make([]byte, 4096)
	for !strings.Contains(string(all), want) {
		n, err := g.prints.Read(buffer)
		all = append(all, buffer[:n]...)
		if err != nil {
			t.Fatalf("got %q, error %v, want %q in it", all, err, want)
		}
	}
	return string(all)
}

// takes redirects a script's output to its output files, which are the last two numbers in
// FilesEnv: 3 to 8 are the others.
const takes = "exec >/proc/self/fd/9 2>/proc/self/fd/10\n"

// TestAHandshakeThatIsMade checks a plugin's descriptors, cookie and version, and its output after
// the handshake line.
func TestAHandshakeThatIsMade(t *testing.T) {
	t.Setenv("PLUGIN_UNIX_SOCKET_DIR", "of another")
	t.Setenv(ipc.PluginFilesEnv, "of another")
	t.Setenv("TMPDIR", t.TempDir())
	g := newGreeted(t, "#!/bin/sh\necho '"+ipc.PluginLine(ipc.PluginVersion)+"'\n"+takes+"env\necho descriptors /proc/self/fd/*\necho end\nexec sleep 600\n")
	if err := g.start(t, t.Context()); err != nil {
		t.Fatal(err)
	}
	got := g.printed(t, "end\n")
	for _, want := range []string{ipc.PluginCookieKey + "=" + ipc.PluginCookieValue + "\n", ipc.PluginVersionsEnv + "=" + strconv.Itoa(ipc.PluginVersion) + "\n", ipc.PluginFilesEnv + "=3,4,5,6,7,8,9,10\n", "fd/10"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
	if strings.Contains(got, "of another") || strings.Contains(got, "PLUGIN_UNIX_SOCKET_DIR") {
		t.Errorf("got %q, want nothing of go-plugin's that this server does not mean", got)
	}
	left, err := os.ReadDir(os.TempDir())
	if err != nil || len(left) != 0 {
		t.Errorf("got %v, error %v in the directory for temporary files, want nothing", left, err)
	}
}

// TestAPluginThatKeepsItsPipe checks that the reader of the pipe ends after a timeout if a plugin
// never uses its output files. testkit.Main detects goroutines left behind.
func TestAPluginThatKeepsItsPipe(t *testing.T) {
	g := newGreeted(t, "#!/bin/sh\necho '"+ipc.PluginLine(ipc.PluginVersion)+"'\ntrap '' PIPE\nwhile echo more 2>/dev/null; do :; done\necho broken >&2\nexec sleep 600\n")
	g.taking = 100 * time.Millisecond
	if err := g.start(t, t.Context()); err != nil {
		t.Fatal(err)
	}
	g.printed(t, "broken\n")
}

// TestHandshakesThatFail checks that each failed handshake returns an error that names the plugin,
// and leaves nothing.
func TestHandshakesThatFail(t *testing.T) {
	for _, c := range []struct {
		name, script string
		code         infer.Code
		want         string // after the plugin's name
		printed      string
	}{
		{"garbage", "echo usage: something; exec sleep 600", infer.Internal, `printed "usage: something" instead of its handshake line`, "usage: something\n"},
		{"garbage that ends", "printf 'no end'", infer.Internal, `printed "no end" instead`, "no end"},
		{"much garbage", "exec yes yes", infer.Internal, `printed "yes" instead`, "yes\n"},
		{"a line that never ends", "exec cat /dev/zero", infer.Internal, "printed ", "\x00"},
		{"exits", "echo oops >&2; exit 3", infer.Internal, "exited with code 3 before its handshake", "oops\n"},
		{"leaves a child that holds its stdout", "sleep 600 & exit 4", infer.Internal, "exited with code 4 before its handshake", ""},
		{"is killed", "kill -KILL $$", infer.Internal, "was ended by SIGKILL before its handshake", ""},
		{"crashes", "kill -SEGV $$", infer.Internal, "was ended by SIGSEGV before its handshake", ""},
		{"is silent", "exec 1>&-; exec sleep 600", infer.Internal, "closed its stdout before its handshake", ""},
		{"hangs", "exec sleep 600", infer.Internal, "did not make its handshake within 1s (setting start-timeout-seconds)", ""},
		{"older", "echo '" + ipc.PluginLine(0) + "'; exec sleep 600", infer.Unsupported, "was built for version 0 of the protocol of plugins, this server has version 3: rebuild it with the SDK of this server", ""},
		{"newer", "echo '" + ipc.PluginLine(4) + "'; exec sleep 600", infer.Unsupported, "was built for version 4 of the protocol of plugins, this server has version 3: build it with the SDK of this server, or use a newer server", ""},
		{"of another program", "echo '1|1|unix|/tmp/x|grpc'; exec sleep 600", infer.Unsupported, `is one of another program: its protocol is "grpc", want "nereid"`, ""},
		{"of another core", "echo '9|1|unix|none|nereid'; exec sleep 600", infer.Unsupported, `made the handshake "9|1|unix|none|nereid", want one like "1|3|unix|none|nereid"`, ""},
		{"of no version", "echo '1|one|unix|none|nereid'; exec sleep 600", infer.Unsupported, `made the handshake "1|one|unix|none|nereid", want`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newGreeted(t, "#!/bin/sh\n"+c.script+"\n")
			if c.name == "hangs" {
				g.known.config.StubTimeout = time.Second
			}
			err := g.start(t, t.Context())
			var told *infer.Error
			if !errors.As(err, &told) || told.Code != c.code || !strings.HasPrefix(told.Detail, fmt.Sprintf("backend 'b': plugin '%s' %s", g.path, c.want)) || strings.Contains(told.Message, g.path) {
				t.Fatalf("got error %v, want %v, the plugin and %q", err, c.code, c.want)
			}
			var exit *launch.ExitError
			if !errors.As(err, &exit) {
				t.Errorf("error %v does not say how the process ended", err)
			}
			if c.printed != "" {
				g.printed(t, c.printed)
			}
		})
	}
}

// TestFilesThatCannotBeStarted checks the errors for files that Check accepts but the kernel
// rejects.
func TestFilesThatCannotBeStarted(t *testing.T) {
	for _, c := range []struct{ name, content, want string }{
		{"broken", "\x7fELF, but no more", "cannot be executed here"},
		{"of another machine", "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00\x4b\x00" + strings.Repeat("\x00", 44), "cannot be executed here: it was built for EM_VAX"},
		{"of a machine with big ends", "\x7fELF\x02\x02\x01" + strings.Repeat("\x00", 9) + "\x00\x02\x00\x4b" + strings.Repeat("\x00", 44), "cannot be executed here: it was built for EM_VAX"},
		{"no interpreter", "#!/no/such/interpreter\n", "was not started: start "},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGreeted(t, c.content)
			if err := g.Check(t.Context(), ""); err != nil {
				t.Errorf("Check: got error %v", err)
			}
			if err := g.start(t, t.Context()); err == nil || !strings.HasPrefix(infer.AsError(err).Detailed().Message, fmt.Sprintf("backend 'b': plugin '%s' %s", g.path, c.want)) || strings.Contains(err.Error(), g.path) {
				t.Errorf("got error %v, want %q", err, c.want)
			}
		})
	}
}

// TestAHandshakeIsGivenUp checks that a cancelled load ends the wait for a hanging plugin, and its
// process.
func TestAHandshakeIsGivenUp(t *testing.T) {
	g := newGreeted(t, "#!/bin/sh\necho started >&2\nsleep 600 &\nwait\n")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	why := errors.New("the load was given up")
	failed := make(chan error, 1)
	go func() { failed <- g.start(t, ctx) }()
	g.printed(t, "started\n")
	cancel(why)
	if err := <-failed; !errors.Is(err, why) {
		t.Errorf("got error %v, want that of the context", err)
	}
	if err := g.start(t, ctx); !errors.Is(err, why) {
		t.Errorf("after the end of the context: got error %v, want it", err)
	}
}

// TestCheckLooksAtTheFile checks that Check rejects files that are not plugins.
func TestCheckLooksAtTheFile(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(outside, []byte("#!/bin/sh\n"), 0o700); err != nil { //nolint:gosec // an executable
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(path string) error
		want   string
	}{
		{"right", func(string) error { return nil }, ""},
		{"a link inside", func(path string) error {
			return errors.Join(os.Rename(path, path+"-1.0"), os.Symlink(path+"-1.0", path))
		}, ""},
		{"missing", os.Remove, "cannot be read: "},
		{"a directory", func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) }, "is not a file (drwx------)"},
		{"a link out", func(path string) error { return errors.Join(os.Remove(path), os.Symlink(outside, path)) },
			"is a link to '" + outside + "', outside of the repository and of the backends' directory"},
		{"not executable", func(path string) error { return os.Chmod(path, 0o600) }, "is not executable (-rw-------)"},
		{"a text", func(path string) error { return os.WriteFile(path, []byte("import os\n"), 0o600) }, `begins with "impo" and is not a program`},
		{"empty", func(path string) error { return os.WriteFile(path, nil, 0o600) }, `begins with "" and is not a program`},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGreeted(t, "#!/bin/sh\n")
			if err := c.change(g.path); err != nil {
				t.Fatal(err)
			}
			err := g.Check(t.Context(), "")
			if c.want == "" {
				if err != nil {
					t.Errorf("got error %v, want none", err)
				}
				return
			}
			if err == nil || !strings.HasPrefix(infer.AsError(err).Detailed().Message, fmt.Sprintf("backend 'b': plugin '%s' %s", g.path, c.want)) || strings.Contains(err.Error(), g.path) {
				t.Errorf("got error %v, want %q", err, c.want)
			}
		})
	}
}

// TestSettingsAreReadOncePerBackend checks that the settings are read once per backend.
func TestSettingsAreReadOncePerBackend(t *testing.T) {
	values := map[string]string{startTimeout: "7", "own": "x"}
	b := New(Environment{Settings: func(name string) (map[string]string, string) {
		return map[string]string{startTimeout: values[startTimeout], "of": name}, "message of " + name
	}})
	first := b.of("b")
	values[startTimeout] = "0"
	if again := b.of("b"); again != first || first.err != nil || first.config.StubTimeout != 7*time.Second || first.message != "message of b" || !first.config.CopyRegions {
		t.Errorf("got %+v, then %+v, want 7s twice", first, again)
	}
	want := `--backend-config: start-timeout-seconds is "0", want a whole number without a unit, 1 to 9223372036`
	if _, err := b.Open(backend.Env{Config: &kserve.ModelConfig{Backend: "other"}}); err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}

// TestSettingsOfManyBackends checks that models which bring backends of ever new names fill no
// memory.
func TestSettingsOfManyBackends(t *testing.T) {
	b := New(Environment{Settings: func(string) (map[string]string, string) { return nil, "" }})
	for i := range 2*mostKnown + 1 {
		b.of(strconv.Itoa(i))
	}
	if n := len(b.known); n > mostKnown {
		t.Errorf("%d backends are remembered, want %d at most", n, mostKnown)
	}
}
