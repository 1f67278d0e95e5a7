package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/backend/process/launch"
	"github.com/nereid-serving/nereid/backend/process/output"
	"github.com/nereid-serving/nereid/panics"
)

// host is a process, in which one life runs. If the program's processes are shared, all instances
// of a group run in one of them, each in a thread of its own: the first life starts it, and the
// others join. The process exits after its last life. If a life fails, the process is killed and
// all its lives end.
type host struct {
	model   *Model
	process *launch.Process
	output  *output.Capture
	exited  chan struct{}     // closed when the process has been reaped
	exit    *launch.ExitError // set before
	done    sync.Once         // of finish

	// joins is the socket that hands further lives to the process, and lifeline ends the process with
	// this one. Both are nil unless the process is shared.
	joins    *net.UnixConn
	lifeline *os.File

	closed atomic.Bool // no life can join
	mu     sync.Mutex  // held while a life joins, which takes no longer than joinLimit
	lives  int         // that have not left
	// serving counts the lives that accept batches.
	serving atomic.Int32
	// fault is why the server killed the process; nil if it did not. All lives report it.
	fault atomic.Pointer[error]
}

// joinLimit limits the time to hand a life to its process, which reads the socket at once.
const joinLimit = time.Second

// hostKey identifies the instances that share a process.
type hostKey struct{ group, cores string }

// sharedHost is the process of these instances, if there is one.
type sharedHost struct {
	mu   sync.Mutex // held while a process starts
	host *host
}

// findHost returns the process for a life of the instance: a new one, or a shared one that the life
// has joined.
func (in *Instance) findHost(ctx context.Context, files *Files) (h *host, joined bool, err error) {
	m := in.model
	if !m.program.Capabilities().SharesProcess {
		h, err = m.startHost(ctx, in, files, false)
		return h, false, err
	}
	key := hostKey{in.placement.Group.GetName(), fmt.Sprint(in.cores)} // bound: the cores
	m.mu.Lock()
	if m.shared == nil {
		m.shared = make(map[hostKey]*sharedHost)
	}
	if m.shared[key] == nil {
		m.shared[key] = &sharedHost{} // bound: the groups
	}
	s := m.shared[key]
	m.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.host.join(in.name, files) {
		return s.host, true, nil
	}
	if h, err = m.startHost(ctx, in, files, true); err == nil {
		s.host = h
	}
	return h, false, err
}

// startHost starts a process with the life of an instance.
func (m *Model) startHost(ctx context.Context, in *Instance, files *Files, shared bool) (_ *host, err error) {
	s, log := m.supervisor, in.log
	if shared {
		log = m.log
	}
	h := &host{model: m, exited: make(chan struct{}), lives: 1}
	h.closed.Store(!shared)
	defer func() {
		if err != nil {
			h.closeFiles()
		}
	}()
	if shared {
		if err := h.open(files); err != nil {
			return nil, err
		}
	}
	if h.output, files.Output, err = output.Open(log.With().Str("file", "output").Logger(), s.printed(m.settings), s.limits.Output); err != nil {
		return nil, err
	}
	h.output.Begin()
	if h.process, err = m.program.Start(ctx, in.name, files); err != nil {
		files.close() // the output's end of file must be visible
		h.output.Finish()
		var exit *launch.ExitError
		if errors.As(err, &exit) {
			exit.Stderr = h.output.LastLines()
		}
		return nil, err
	}
	if shared {
		log.Info().Str("group", in.placement.Group.GetName()).Int("pid", h.process.PID()).Msg("started a process for the instances of a group")
	}
	launch.Arm(files.Peer.Lifeline, h.process)
	panics.Go(log, panics.Life, func() {
		defer close(h.exited)
		h.exit = &launch.ExitError{Code: -1}
		h.exit = h.process.Wait()
	}, nil)
	return h, nil
}

// open makes the socket and the lifeline of a shared process. The lifeline replaces that of the
// first life, whose end must not end the process.
func (h *host) open(files *Files) error {
	far, near, err := os.Pipe()
	if err != nil {
		return err
	}
	_ = files.Peer.Lifeline.Close()
	files.Peer.Lifeline, h.lifeline = far, near
	h.joins, files.Joins, err = launch.PacketPair()
	return err
}

// join hands a life to the process, and reports whether it could: false on a nil host. The process
// says HELLO when it has started a thread for it.
func (h *host) join(instance string, files *Files) bool {
	if h == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.exited:
		return false
	default:
	}
	if h.closed.Load() {
		return false
	}
	var fds []int
	for _, f := range files.List() {
		fds = append(fds, int(f.Fd())) // bound: the process's files
	}
	_ = h.joins.SetWriteDeadline(time.Now().Add(joinLimit))
	name := []byte(instance) // bound: a name of the config
	if _, _, err := h.joins.WriteMsgUnix(name, unix.UnixRights(fds...), nil); err != nil {
		h.model.log.Warn().Err(err).Msg("a process takes no further instance, restarting it")
		h.kill()
		return false
	}
	h.lives++
	h.model.supervisor.joined.Add(1)
	return true
}

// kill ends the process with all its lives. It does not wait.
func (h *host) kill() {
	h.closed.Store(true)
	h.process.Kill()
}

// leave counts the end of a life, and reports whether it was the last. A shared process then exits,
// because its socket is closed.
func (h *host) leave() (last bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lives--; h.lives > 0 {
		h.model.supervisor.joined.Add(-1)
		return false
	}
	h.closed.Store(true)
	h.closeJoins()
	return true
}

func (h *host) closeJoins() {
	if h.joins != nil {
		_ = h.joins.Close()
	}
}

// finish releases what belongs to the process, once. It has exited.
func (h *host) finish() {
	h.done.Do(func() {
		h.model.supervisor.children.Forget(h.process)
		h.output.Finish()
		h.exit.Stderr = h.output.LastLines()
		h.closeFiles()
	})
}

// closeFiles closes the files of a shared process.
func (h *host) closeFiles() {
	h.closeJoins()
	if h.lifeline != nil {
		_ = h.lifeline.Close()
	}
}
