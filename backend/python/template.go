package python

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/backend/process/launch"
	"github.com/nereid-serving/nereid/panics"
	"github.com/rs/zerolog"
	"github.com/vmihailenco/msgpack/v5"
	"golang.org/x/sys/unix"
)

// template is a Python process that has imported numpy and the stub's modules. It forks stubs on
// demand, which start in milliseconds and share its memory. It forks twice and waits for the
// intermediate process, so that a stub is already a child of this process, the subreaper, when its
// pid arrives here.
type template struct {
	interpreter interpreterInfo
	process     *launch.Process
	gone        chan struct{}     // closed when the process has been reaped
	exit        *launch.ExitError // set before
	log         zerolog.Logger

	mu     sync.Mutex // one exchange at a time
	conn   *net.UnixConn
	broken error
}

// interpreterInfo describes an interpreter.
type interpreterInfo struct {
	Path       string `msgpack:"-"` // as it is started
	Python     string `msgpack:"python"`
	Numpy      string `msgpack:"numpy"`
	Executable string `msgpack:"executable"`
	Prefix     string `msgpack:"prefix"`
	Error      string `msgpack:"error"`
	// NoAccelerator is why the stub runs in Python alone (docs/accelerator.md); "" if it does not.
	NoAccelerator string `msgpack:"no_accelerator"`
	// AcceleratorFailed means that the reason is a fault and not a choice.
	AcceleratorFailed bool `msgpack:"accelerator_failed"`
	// FreeThreaded means that it runs without the GIL.
	FreeThreaded bool `msgpack:"free_threaded"`
	// Threads are the names of threads that its startup has left running. It is not forked then,
	// because the stubs would lack these threads.
	Threads []string `msgpack:"threads"`
}

// forkTimeout limits a fork, which normally takes milliseconds. After a timeout the template is
// ended, and stubs are started as programs.
const forkTimeout = 5 * time.Second

// titleRoom is the length of a template's padding argument, over which a forked stub writes its own
// command line.
const titleRoom = 512

// lateError is the error of an interpreter that took too long.
type lateError struct {
	interpreter string
	limit       time.Duration
}

func (e *lateError) Error() string {
	return fmt.Sprintf("%s has not imported numpy %s after its start; give it more time with --backend-config=python,interpreter-timeout-seconds=N", e.interpreter, e.limit)
}

// launchTemplate starts a template and waits for its HELLO. If ctx ends first, the template is
// killed with its descendants.
func (p *python) launchTemplate(ctx context.Context, interpreter string, output [2]*os.File) (*template, error) {
	near, far, err := launch.PacketPair()
	if err != nil {
		return nil, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		_ = near.Close()
		_ = far.Close()
		return nil, err
	}
	defer null.Close()
	program := filepath.Join(p.backend.dir, "nereid_template")
	children := p.backend.supervisor.Children()
	child, err := children.Bear(func() (*launch.Process, error) {
		return launch.Start(launch.Command{
			Argv:  []string{interpreter, "-u", program, "--fd=3", strings.Repeat(" ", titleRoom)},
			Files: []*os.File{null, output[0], output[1], far}, Environment: p.variables,
		}, children.TemplateMark())
	})
	_ = far.Close() // or its end would not be noticed here
	if err != nil {
		_ = near.Close()
		return nil, err
	}
	t := &template{process: child, conn: near, gone: make(chan struct{}), log: p.backend.log}
	panics.Go(p.backend.log, panics.Life, func() {
		defer close(t.gone)
		defer children.Forget(child)
		t.exit = child.Wait()
	}, nil)
	stop := context.AfterFunc(ctx, panics.Guard(p.backend.log, panics.Life, child.Kill, nil))
	err = t.receive(&t.interpreter, p.wish.limit)
	switch {
	case !stop():
		err = context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = &lateError{interpreter, p.wish.limit}
	case err != nil:
		err = fmt.Errorf("template of %s: %w", interpreter, err)
	}
	if err != nil {
		t.close()
		if errors.Is(err, io.EOF) {
			err = t.exit
		}
		return nil, err
	}
	t.interpreter.Path = interpreter
	if t.interpreter.Error != "" {
		t.close()
		return nil, errors.New(t.interpreter.Error)
	}
	return t, nil
}

// fork starts a stub.
func (t *template) fork(instance, mark string, files *process.Files) (*launch.Process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken != nil {
		return nil, t.broken
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	body, err := msgpack.Marshal(map[string]any{"instance": instance, "cwd": dir, "mark": mark, "shared": files.Joins != nil})
	if err != nil {
		return nil, err
	}
	var fds []int
	list := files.List()
	if files.Joins != nil {
		list = append(list, files.Joins) // bound: ten
	}
	for _, f := range append(list, files.Output[:]...) { // bound: ten
		fds = append(fds, int(f.Fd())) // bound: the process's files
	}
	var reply struct {
		PID   int    `msgpack:"pid"`
		Error string `msgpack:"error"`
	}
	if _, _, err = t.conn.WriteMsgUnix(body, unix.UnixRights(fds...), nil); err == nil {
		err = t.receive(&reply, forkTimeout)
	}
	if err != nil {
		t.broken = fmt.Errorf("template of %s: %w", t.interpreter.Path, err)
		t.process.Kill()
		return nil, t.broken
	}
	if reply.Error != "" {
		return nil, fmt.Errorf("template of %s: %s", t.interpreter.Path, reply.Error)
	}
	// The stub is our child now, so its pid is not reused until we reap it.
	return launch.Adopt(reply.PID, -1, mark), nil
}

// undo ends a stub that a lost template may have forked without reporting it, because the next stub
// reads the same rings. It reports whether the template is gone, which is necessary for certainty.
func (t *template) undo(children *launch.Children, mark string) bool {
	limit := panics.NewLimit(forkTimeout)
	defer limit.Stop()
	select {
	case <-t.gone: // with its group, in which a stub is until it has its mark
		children.KillMarked(mark)
		return true
	case <-limit.C:
		return false
	}
}

// receive reads one message; a limit of 0 means no limit.
func (t *template) receive(into any, limit time.Duration) error {
	if err := t.conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	late := panics.AfterLimit(t.log, panics.Life, limit, func() { _ = t.conn.SetReadDeadline(time.Unix(1, 0)) }, nil)
	defer late.Stop()
	buffer := make([]byte, 64<<10)
	n, err := t.conn.Read(buffer)
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return fmt.Errorf("read its message: %w", err)
	}
	return msgpack.Unmarshal(buffer[:n], into) // bound: buffer, and room for 1e6 names of threads
}

// usable reports whether the template can still fork.
func (t *template) usable() bool {
	select {
	case <-t.gone:
		return false
	default:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.broken == nil
}

// close ends the template. The stubs that it forked continue.
func (t *template) close() {
	// Without this message it would assume that this process was killed.
	if body, err := msgpack.Marshal(map[string]bool{"end": true}); err == nil {
		_ = t.conn.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = t.conn.Write(body)
	}
	_ = t.conn.Close() // ends an exchange that is on
	t.mu.Lock()
	if t.broken == nil {
		t.broken = errors.New("template is closed")
	}
	t.mu.Unlock()
	limit := panics.NewLimit(time.Second)
	defer limit.Stop()
	select {
	case <-t.gone:
		return
	case <-limit.C:
		t.process.Kill()
	}
	<-t.gone
}
