package native

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pluginrunner "github.com/hashicorp/go-plugin/runner"

	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/backend/process/launch"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/panics"
)

// runner implements go-plugin's runner for one process, whose stdout is a pipe until the handshake
// is over.
type runner struct {
	program     *program
	files       *process.Files
	environment []string // bound: the environment of this process
	near        *os.File // the pipe's end of this process
	ended       bool     // the process has closed its stdout, or ended, by itself

	// abandoned: the caller waits no longer. late: the time for the handshake has passed. killed:
	// endLimit has passed.
	abandoned, late, killed atomic.Bool

	mu      sync.Mutex
	process *launch.Process // set once, by Start
	said    []byte          // stdout so far; bound: mostSaid
	closed  bool            // stdout has ended
}

var _ pluginrunner.Runner = (*runner)(nil)

// mostSaid is the number of bytes of stdout that are kept for diagnosis.
const mostSaid = 64 << 10

// taken are the variables that a plugin gets only from this server, even if this process has them.
var taken = []string{ipc.PluginCookieKey + "=", ipc.PluginFilesEnv + "=", "PLUGIN_"}

func newRunner(p *program, files *process.Files) *runner {
	r := &runner{program: p, files: files}
	for _, v := range os.Environ() {
		own := false
		for _, name := range taken {
			own = own || strings.HasPrefix(v, name)
		}
		if !own {
			r.environment = append(r.environment, v)
		}
	}
	return r
}

// Start implements runner.Runner.
func (r *runner) Start(context.Context) error {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	near, far, err := os.Pipe()
	if err != nil {
		return err
	}
	defer far.Close()
	r.near = near
	list := append(r.files.List(), r.files.Output[0], r.files.Output[1])
	inherit := append([]*os.File{null, far, r.files.Output[1]}, list...) // bound: the process's files
	numbers := make([]string, len(list))                                 // bound: the process's files
	for i := range list {
		numbers[i] = strconv.Itoa(len(inherit) - len(list) + i)
	}
	children := r.program.backend.env.Supervisor.Children()
	started, err := children.Bear(func() (*launch.Process, error) {
		return launch.Start(launch.Command{
			Argv: []string{r.program.path}, Files: inherit,
			Environment: append(r.environment, ipc.PluginFilesEnv+"="+strings.Join(numbers, ",")),
		}, children.NewMark())
	})
	if err != nil {
		_ = near.Close()
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.process = started
	if r.abandoned.Load() { // abandon has not seen it
		started.Kill()
	}
	return nil
}

// abandon ends the handshake because its caller no longer waits for the process.
func (r *runner) abandon() {
	r.abandoned.Store(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process != nil {
		r.process.Kill()
		_ = r.near.SetReadDeadline(time.Now()) // something that the process has started may hold the other end
	}
}

// end ends a process whose handshake has failed, with its descendants, and returns how it ended, or
// nil if no process ran.
func (r *runner) end() *launch.ExitError {
	if r.process == nil {
		return nil
	}
	children, limit := r.program.backend.env.Supervisor.Children(), time.Duration(1) // at once
	r.mu.Lock()
	if r.closed && len(r.said) == 0 {
		r.ended, limit = true, endLimit
	}
	r.mu.Unlock()
	children.Look(r.process)
	late := panics.AfterLimit(r.program.log, panics.Life, limit, func() {
		r.killed.Store(true)
		r.process.Kill()
	}, nil)
	exit := r.process.Wait()
	late.Stop()
	children.Forget(r.process)
	r.process.KillFamily()
	children.KillOrphans(r.process)
	_ = r.near.Close() // go-plugin's goroutines end with it
	r.mu.Lock()
	defer r.mu.Unlock()
	if bytes.Count(r.said, []byte("|")) < 4 { // its output instead of the line is among its last lines
		_, _ = r.files.Output[0].Write(r.said)
	}
	return exit
}

// line returns the first line of stdout.
func (r *runner) line() (line string, said bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first, _, _ := bytes.Cut(r.said, []byte("\n"))
	return strings.TrimSpace(string(first)), len(r.said) > 0 // bound: mostSaid
}

// Wait implements runner.Runner. go-plugin calls it at the end of stdout. After a handshake that is
// when the process takes over its outputs, so go-plugin does not wait for the end of the process.
func (r *runner) Wait(context.Context) error {
	_ = r.near.Close()
	return nil
}

// Kill implements runner.Runner. go-plugin calls it after a failed handshake; Start then ends the
// process.
func (r *runner) Kill(context.Context) error { return nil }

// Stdout implements runner.Runner.
func (r *runner) Stdout() io.ReadCloser { return stdout{r} }

// Stderr implements runner.Runner. A process has its own stderr from the beginning.
func (r *runner) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Name implements runner.Runner.
func (r *runner) Name() string { return r.program.path }

// ID implements runner.Runner.
func (r *runner) ID() string { return strconv.Itoa(r.process.PID()) }

// Diagnose implements runner.Runner. runner.diagnose returns more details.
func (r *runner) Diagnose(context.Context) string { return "" }

// PluginToHost implements runner.Runner.
func (r *runner) PluginToHost(network, address string) (string, string, error) {
	// The handshake is over. If the process does not take over its outputs, this bounds the wait for
	// it.
	_ = r.near.SetReadDeadline(time.Now().Add(r.program.taking))
	return network, address, nil
}

// HostToPlugin implements runner.Runner.
func (r *runner) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}

// stdout is the reading end of the pipe, for go-plugin. It ends only at the end of the pipe.
type stdout struct{ *runner }

func (s stdout) Read(b []byte) (int, error) {
	n, err := s.near.Read(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, b[:min(n, mostSaid-len(s.said))]...)
	if err != nil {
		s.closed = s.closed || errors.Is(err, io.EOF)
		err = io.EOF
	}
	return n, err
}

func (s stdout) Close() error { return nil }
