package measure

import (
	"fmt"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a program that is measured.
type Process struct {
	command *exec.Cmd
	ended   chan struct{} // closed once it has been reaped
}

// Start starts a program in its own process group, out of reach of Ctrl-C.
func Start(command *exec.Cmd) (*Process, error) {
	command.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		return nil, err
	}
	p := &Process{command: command, ended: make(chan struct{})}
	go func() {
		_ = command.Wait() // ProcessState has the outcome
		close(p.ended)
	}()
	return p, nil
}

// PID returns its process id, which stays valid after it has ended.
func (p *Process) PID() int { return p.command.Process.Pid }

// Ended returns a channel that is closed once the program has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// State returns how the program ended, or nil before Ended is closed.
func (p *Process) State() *os.ProcessState {
	select {
	case <-p.ended:
		return p.command.ProcessState
	default:
		return nil
	}
}

// Signal sends a signal. It does nothing if the program has ended.
func (p *Process) Signal(signal os.Signal) { _ = p.command.Process.Signal(signal) }

// Kill kills the program and waits for its end.
func (p *Process) Kill() {
	_ = p.command.Process.Kill() // it may have ended
	<-p.ended
}

// AwaitReady polls ready every few milliseconds until it returns true. It fails if the program ends
// or patience runs out; in the latter case the program keeps running.
func (p *Process) AwaitReady(patience time.Duration, ready func() bool) error {
	limit := time.After(patience)
	for tick := time.NewTicker(5 * time.Millisecond); ; {
		if ready() {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.ended:
			return fmt.Errorf("it ended before it was ready: %v", p.command.ProcessState)
		case <-limit:
			return fmt.Errorf("it was not ready within %v", patience)
		}
	}
}

// Stop stops the program like an operator: by SIGTERM, and by SIGKILL after patience. It fails
// unless the program ends by itself with success.
func (p *Process) Stop(patience time.Duration) error {
	p.Signal(unix.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.Kill()
		return fmt.Errorf("it did not end within %v of SIGTERM", patience)
	}
	if state := p.command.ProcessState; !state.Success() {
		return fmt.Errorf("it ended with %v", state)
	}
	return nil
}
