package process

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process/cudaipc"
	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/backend/process/launch"
	"github.com/nereid-serving/nereid/backend/process/mapping"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/shm"
)

// mapFrom is the least size of an input that a stub looks at where its client has put it.
// It is zero copy's own limit in loans.py: a stub copies smaller inputs anyway.
const mapFrom = 64 << 10

var _ backend.Mapper = (*Model)(nil)

// Maps implements backend.Mapper. A stub that has not mapped the region yet is asked to, for
// the requests to come. Inputs of a decoupled model are copied: it may look at them when its
// last response has gone, and the client has been told that they are its own again.
func (m *Model) Maps(t *infer.Tensor) bool {
	if cudaipc.Of(t) != nil {
		return m.TakesDevices()
	}
	if c, _, _ := cudaipc.OfClient(t); c != nil {
		return m.TakesDevices() && t.DataType.Size() != 0 && t.Size() > 0 && !m.decoupled()
	}
	_, region, _ := frames.SharedOf(t)
	if region == nil || !region.Trusted() || t.DataType.Size() == 0 || t.Size() < mapFrom || m.decoupled() {
		return false
	}
	ready, lives := true, false
	for _, in := range m.list() {
		if l := in.current.Load(); l != nil {
			// Each is asked, also behind one that is not ready.
			ready = l.mapped.Want(region, false) && ready
			lives = true
		}
	}
	return ready && lives
}

// Writes implements backend.Mapper, as Maps does for inputs. A decoupled model's outputs are
// copied: the next response of its request goes to the same place, and not before this one has
// left the server.
func (m *Model) Writes(p *infer.Place) (some bool) {
	if p.OnDevice {
		return true
	}
	if c, _, _ := cudaipc.ClientAt(p); c != nil {
		return m.knowsDevices() && c.Size() > 0 && !m.decoupled() && !m.isBytes(p.Output)
	}
	_, region, _ := frames.SharedAt(p)
	if region == nil || !region.Trusted() || p.Memory.Size() < frames.WriteFrom || m.decoupled() || m.isBytes(p.Output) {
		return false
	}
	for _, in := range m.list() {
		if l := in.current.Load(); l != nil && l.mapped.Want(region, true) {
			some = true
		}
	}
	return some
}

// isBytes reports whether an output has elements of any size, which a stub never writes into a
// region: a mapping for it would serve nothing.
func (m *Model) isBytes(output string) bool {
	return slices.ContainsFunc(m.config.GetOutput(), func(o *kserve.ModelOutput) bool {
		return o.GetName() == output && o.GetDataType() == kserve.DataType_TYPE_STRING
	})
}

// newMapped makes the table of what a life's stub maps, and the stub's end of its socket.
func (l *life) newMapped(files *Files) error {
	config := mapping.Config{Send: l.encoder.Send, Log: l.in.log}
	if l.in.model.supervisor.regions && !l.in.model.settings.CopyRegions {
		var err error
		if config.Socket, files.Regions, err = mapping.Socket(); err != nil {
			return err
		}
	}
	l.mapped = mapping.New(config)
	l.encoder.SetMapped(l.mapped.Number)
	l.decoder.SetMapped(l.mapped.Number)
	return nil
}

// takenAwayError says that a stub was lost because a client took memory away that the stub
// had mapped, which is no fault of the model.
type takenAwayError struct{ err error }

func (e *takenAwayError) Error() string {
	return fmt.Sprintf("%v: a client has truncated its region of shared memory", e.err)
}

func (e *takenAwayError) Unwrap() error { return e.err }

// blame finds out whether clients have caused the end of a life. What has vanished under it
// is copied from then on. The stub still has its batches.
func (l *life) blame(err error) error {
	var exit *launch.ExitError
	if !errors.As(err, &exit) || exit.Signal != unix.SIGBUS {
		return err
	}
	found := l.mapped.Distrust()
	if !found { // the client may have given the file its size back
		for _, region := range l.regionsInside() {
			region.Distrust()
			found = true
		}
	}
	if !found {
		return err
	}
	l.blamed = true
	return &takenAwayError{err}
}

// regionsInside lists the regions of the requests that the stub has, or has left open: of
// inputs that it may read, and of outputs that it may write.
func (f *inFlight) regionsInside() (regions []*shm.Shared) {
	f.mu.Lock()
	defer f.mu.Unlock()
	add := func(task *backend.Task) {
		eachShared(task.Request, func(_ frames.Shared, region *shm.Shared) bool {
			regions = append(regions, region)
			return true
		})
	}
	for i := range f.count {
		for _, task := range f.current[i].batch.Tasks {
			add(task)
		}
	}
	for task := range f.open.byTask {
		add(task)
	}
	return regions
}

// eachShared calls f with the memory of a request that a stub may map, until f returns false.
func eachShared(r *infer.Request, f func(frames.Shared, *shm.Shared) bool) {
	for i := range r.Inputs {
		if s, region, _ := frames.SharedOf(&r.Inputs[i]); s != nil && !f(s, region) {
			return
		}
	}
	for i := range r.Places {
		if s, region, _ := frames.SharedAt(&r.Places[i]); s != nil && !f(s, region) {
			return
		}
	}
}

// lostError is what the client of a request is told whose stub was lost.
func (l *life) lostError(task *backend.Task) error {
	if !l.blamed {
		return l.in.unhealthy()
	}
	var err error = l.in.unhealthy()
	eachShared(task.Request, func(s frames.Shared, region *shm.Shared) bool {
		if region.Trusted() {
			return true
		}
		err = s.Truncated()
		return false
	})
	return err
}
