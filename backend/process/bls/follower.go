package bls

import (
	"errors"

	"github.com/nereid-serving/nereid/ipc"
)

// callees limits the length of a chain of models that call each other in which a Follower finds the
// last callee, for which all others wait.
const callees = 8

// Follower looks for the response of the called model while a goroutine spins on the calling
// process, which sends nothing before that response.
type Follower struct {
	Of      *Requests // of the process on which the goroutine spins
	watched *Requests // of the last callee; nil without one, or while another goroutine watches it
}

// Look reports whether something has come. It is called repeatedly until then.
//
// The chain is read without a lock and may change meanwhile. Then Look looks at another process
// than the one for which all wait, until the next call. A process whose life has ended stays in the
// chain until its request ends; its channel is closed and cannot be watched.
func (f *Follower) Look() bool {
	last := f.Of.callee.Load()
	for range callees {
		if last == nil {
			break
		}
		next := last.callee.Load()
		if next == nil {
			break
		}
		last = next
	}
	if last != f.watched {
		f.Leave() // one process at a time: the previous one's bell rings again
		if last != nil && last != f.Of && last.Channel.Watch() {
			f.watched = last
		}
	}
	if f.watched == nil {
		return false
	}
	found, err := f.watched.Channel.Look(f.watched.session.Handle)
	if err != nil {
		f.failed(err)
	}
	return found
}

// Leave ends the watch, if there is one.
func (f *Follower) Leave() {
	b := f.watched
	f.watched = nil
	if b == nil {
		return
	}
	if err := b.Channel.Unwatch(b.session.Handle); err != nil {
		b.failUnlessClosed(err)
	}
}

// failed ends the watch of a process with an invalid frame: its further frames are not handled.
func (f *Follower) failed(err error) {
	b := f.watched
	f.watched = nil
	_ = b.Channel.Unwatch(func(ipc.Frame) error { return err })
	b.failUnlessClosed(err)
}

// failUnlessClosed ends the life of a process that has violated the protocol.
func (b *Requests) failUnlessClosed(err error) {
	if !errors.Is(err, ipc.ErrClosed) {
		b.session.Fail(err)
	}
}
