package notify

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/panics"
)

const (
	// sendLimit limits the wait for a manager that does not read its socket.
	sendLimit = 250 * time.Millisecond
	// extendEvery is the interval of reports during a long start, and extendBy the validity of one
	// report.
	extendEvery, extendBy = 5 * time.Second, 30 * time.Second
)

// variables are the environment variables of the protocol. Model processes must not see them: with
// NotifyAccess=all their messages would count as the server's.
var variables = []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}

// Manager is the service manager that has started this process, such as systemd.
type Manager struct {
	log      zerolog.Logger
	watchdog time.Duration // how long the manager waits for WATCHDOG=1; 0: it does not
	turn     chan struct{} // has room for one value, which signals a new state
	end      context.CancelFunc
	ended    chan struct{} // closed by the goroutine

	mu     sync.Mutex
	socket *net.UnixConn
	state  state
	probe  func(context.Context) error
	warned bool
}

type state int

const (
	starting state = iota
	ready
	stopping
)

// Open returns the manager that the environment names, or nil, and reports that the server is
// starting. It removes the variables that it reads from this process's environment, which model
// processes inherit.
func Open(getenv func(string) string, log zerolog.Logger) *Manager {
	name := getenv("NOTIFY_SOCKET")
	if name == "" {
		return nil
	}
	m := &Manager{log: log, watchdog: watchdog(getenv), turn: make(chan struct{}, 1), ended: make(chan struct{})}
	for _, v := range variables {
		_ = os.Unsetenv(v) // it fails only for invalid names
	}
	var err error
	if m.socket, err = net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"}); err != nil {
		log.Warn().Err(err).Msg("notify the service manager: NOTIFY_SOCKET cannot be reached")
		return nil
	}
	ctx, end := context.WithCancel(context.Background())
	m.end = end
	m.send(starting, "STATUS=Loading models", extension(extendBy))
	panics.Go(log, panics.Server, func() {
		defer close(m.ended)
		m.keep(ctx)
	}, nil)
	return m
}

// watchdog returns how long the manager waits for a sign of life, or 0 for no limit.
func watchdog(getenv func(string) string) time.Duration {
	if pid := getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	us, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || us <= 0 {
		return 0
	}
	return time.Duration(us) * time.Microsecond
}

func extension(d time.Duration) string {
	return fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", d.Microseconds())
}

// Ready reports that the server serves. status is a line for people. From then on, probe runs twice
// per watchdog period, and each success is reported as a sign of life.
func (m *Manager) Ready(status string, probe func(context.Context) error) {
	if m == nil {
		return
	}
	m.mu.Lock()
	m.probe = probe
	m.mu.Unlock()
	m.enter(ready, "READY=1", "STATUS="+status)
}

// Stopping reports that shutdown has begun, and how long it may take.
func (m *Manager) Stopping(limit time.Duration) {
	if m == nil {
		return
	}
	m.enter(stopping, "STOPPING=1", "STATUS=Finishing requests and unloading models", extension(limit))
}

// Close stops the messages. The manager notices the end of the process by itself.
func (m *Manager) Close() {
	if m == nil {
		return
	}
	m.end()
	<-m.ended
	_ = m.socket.Close()
}

// enter begins a state, unless a later one has begun.
func (m *Manager) enter(s state, lines ...string) {
	m.mu.Lock()
	later := m.state > s
	m.state = max(m.state, s)
	m.mu.Unlock()
	if later {
		return
	}
	m.send(s, lines...)
	select {
	case m.turn <- struct{}{}:
	default: // the goroutine reads the state anyway
	}
}

// send sends lines that belong to a state, unless a later one has begun.
func (m *Manager) send(s state, lines ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state != s {
		return
	}
	_ = m.socket.SetWriteDeadline(time.Now().Add(sendLimit))
	if _, err := m.socket.Write([]byte(strings.Join(lines, "\n"))); err != nil && !m.warned {
		m.warned = true
		m.log.Warn().Err(err).Msg("the service manager was not notified of the server's state")
	}
}

// keep repeats messages until ctx ends.
func (m *Manager) keep(ctx context.Context) {
	for {
		m.mu.Lock()
		now, probe := m.state, m.probe
		m.mu.Unlock()
		wait := extendEvery
		if now == ready {
			wait = m.watchdog / 2
		}
		timer := time.NewTimer(wait)
		if now == stopping || wait == 0 {
			timer.Stop() // nothing is repeated
		}
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-m.turn:
			timer.Stop()
			continue
		case <-timer.C:
		}
		if now == starting {
			m.send(starting, extension(extendBy))
			continue
		}
		// The other half of the period is left for reporting the result.
		bounded, cancel := context.WithTimeout(ctx, m.watchdog/2)
		err := probe(bounded)
		cancel()
		if err != nil {
			m.log.Warn().Err(err).Msg("the server does not answer its own request; the service manager's watchdog is not notified")
			continue
		}
		m.send(ready, "WATCHDOG=1")
	}
}
