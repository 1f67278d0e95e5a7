package process

import (
	"errors"

	"github.com/nereid-serving/nereid/backend/process/launch"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/shm"
	"golang.org/x/sys/unix"
)

// Cause is why a stub process was lost. The texts are the metric's label.
type Cause string

// The causes of losses.
const (
	// Exited: the process ended by itself, or a signal from outside ended it.
	Exited Cause = "exit"
	// BrokeProtocol: the process said what the protocol forbids, and was ended.
	BrokeProtocol Cause = "protocol"
	// TooLate: the process did not do something within its time, and was ended.
	TooLate Cause = "timeout"
	// OutOfMemory: the kernel ended the process for want of memory, or there was no
	// memory, or no descriptor, for what a process needs.
	OutOfMemory Cause = "memory"
	// OurFault: the process trusted what it got no more, or the server had to give
	// the life up because of a fault of its own.
	OurFault Cause = "server"
	// TakenAway: a client truncated its region of shared memory while the process read or wrote it.
	TakenAway Cause = "region"
)

// counts reports whether a loss speaks against the model, which is given up after
// too many: a want of memory passes, a fault of ours, or of a client, is not the model's.
func (c Cause) counts() bool { return c != OutOfMemory && c != OurFault && c != TakenAway }

// The codes with which a stub ends that has no memory for what it needs itself, or
// cannot trust the ring any more: as in process.py.
const (
	exitNoMemory = 71
	exitConfused = 76
)

// lateError says what a stub did not do in time.
type lateError struct{ text string }

func (e *lateError) Error() string { return e.text }

// Late returns an error of a Program's Start that counts as TooLate.
func Late(text string) error { return &lateError{text} }

// causeOf tells why a life has ended, or could not begin.
func causeOf(err error) Cause {
	var (
		exit     *launch.ExitError
		protocol *ipc.ProtocolError
		late     *lateError
		panicked *panics.Error
		taken    *takenAwayError
	)
	switch {
	case errors.As(err, &panicked):
		return OurFault
	case errors.As(err, &taken):
		return TakenAway
	case errors.As(err, &protocol):
		return BrokeProtocol
	case errors.As(err, &late):
		return TooLate
	case errors.As(err, &exit) && (exit.OutOfMemory || exit.Code == exitNoMemory):
		return OutOfMemory
	case errors.As(err, &exit) && exit.Code == exitConfused:
		return OurFault
	case exit == nil && isShortage(err):
		return OutOfMemory
	}
	return Exited
}

// isShortage reports whether an error is one of memory, descriptors or processes.
func isShortage(err error) bool {
	for _, reason := range []error{
		shm.ErrExhausted, unix.ENOMEM, unix.EMFILE, unix.ENFILE, unix.ENOSPC, unix.EAGAIN, unix.ENOBUFS, unix.EDQUOT,
	} {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}

// shortage says what the server lacked to start a process, and the remedy; "" if err is about something else.
func shortage(err error) string {
	switch {
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return "No file descriptor is left for the process: raise their limit (ulimit -n, LimitNOFILE=), or load fewer instances."
	case errors.Is(err, unix.EAGAIN):
		return "No further process can be started: raise their limit (ulimit -u, pids.max, TasksMax=), or load fewer instances."
	case errors.Is(err, unix.ENOMEM):
		return "No memory is left to start the process."
	}
	return ""
}

// loss is what is to be known of a lost life for the pause behind it.
type loss struct {
	cause Cause
	// started is true if the stub became ready, and answered if it then answered a
	// batch other than those of warm-ups.
	started, served bool
}
