package process

import (
	"errors"

	"github.com/nereid-serving/nereid/ipc"
)

// callees are those of a chain of models that call each other at which a
// follower looks for the last callee, for which all others wait.
const callees = 8

// follower looks for the response of the model that a process waits for, while a
// goroutine spins on that process, which says nothing before the response has come.
type follower struct {
	of      *blsRequests
	watched *blsRequests // of the last callee; nil while there is none, or another goroutine watches it
}

// look reports whether something has come.
func (f *follower) look() bool {
	last := f.of.callee.Load()
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
		f.leave()
		if last != nil && last != f.of && last.channel.Watch() {
			f.watched = last
		}
	}
	if f.watched == nil {
		return false
	}
	found, err := f.watched.channel.Look(f.watched.session.handle)
	if err != nil {
		f.failed(err)
	}
	return found
}

// leave ends the watch, if there is one.
func (f *follower) leave() {
	b := f.watched
	f.watched = nil
	if b == nil {
		return
	}
	if err := b.channel.Unwatch(b.session.handle); err != nil {
		b.failUnlessClosed(err)
	}
}

func (f *follower) failed(err error) {
	b := f.watched
	f.watched = nil
	_ = b.channel.Unwatch(func(ipc.Frame) error { return err })
	b.failUnlessClosed(err)
}

// failUnlessClosed ends the life of a process that has broken the protocol.
func (b *blsRequests) failUnlessClosed(err error) {
	if !errors.Is(err, ipc.ErrClosed) {
		b.session.fail(err)
	}
}
