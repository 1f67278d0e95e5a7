package measure

import (
	"fmt"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a program under measure.
type Process struct {
	command *exec.Cmd
	ended   chan struct{} // closed once it has been waited for
}

// Start starts a program in a process group of its own, which Ctrl-C does not reach.
func Start(command *exec.Cmd) (*Process, error) {
	command.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		return nil, err
	}
	p := &Process{command: command, ended: make(chan struct{})}
	go func() {
		_ = command.Wait() // how it ended is in ProcessState
		close(p.ended)
	}()
	return p, nil
}

// PID is its number, also when it has ended.
func (p *Process) PID() int { return p.command.Process.Pid }

// Ended is closed once the program has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// State is how the program ended; nil before Ended is closed.
func (p *Process) State() *os.ProcessState {
	select {
	case <-p.ended:
		return p.command.ProcessState
	default:
		return nil
	}
}

// Signal sends a signal. The program may have ended: that is no error here.
func (p *Process) Signal(signal os.Signal) { _ = p.command.Process.Signal(signal) }

// Kill ends the program at once and waits for its end.
func (p *Process) Kill() {
	_ = p.command.Process.Kill() // it may have ended
	<-p.ended
}

// AwaitReady asks ready every few milliseconds until it says so. The program may end meanwhile, or let patience pass; it is
// not ended then.
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

// Stop ends the program as its operator would, by SIGTERM, and by SIGKILL if it is still there after patience. It is an error
// if the program does not end by itself, or not with success.
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
