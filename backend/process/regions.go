package process

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process/cudaipc"
	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/backend/process/launch"
	"github.com/nereid-serving/nereid/backend/process/mapping"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/shm"
	"golang.org/x/sys/unix"
)

// mapFrom is the minimum size of an input that a stub reads in its client's region. It is the limit
// of zero copy in loans.py: a stub copies smaller inputs anyway.
const mapFrom = 64 << 10

var _ backend.Mapper = (*Model)(nil)

// Maps implements backend.Mapper. It asks a stub that has not mapped the region to map it for
// future requests. Inputs of a decoupled model are copied, because it may read them after its last
// response, when the client may already reuse them.
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
			// Each stub is asked, even if one before it is not ready.
			ready = l.mapped.Want(region, false) && ready
			lives = true
		}
	}
	return ready && lives
}

// Writes implements backend.Mapper, as Maps does for inputs. A decoupled model's outputs are
// copied: the next response of its request goes to the same place, but only after this one has left
// the server.
func (m *Model) Writes(p *infer.Place) (some bool) {
	if p.OnDevice {
		return true
	}
	if c, _, _ := cudaipc.ClientAt(p); c != nil {
		return m.program.Capabilities().UsesDevices && c.Size() > 0 && !m.decoupled() && !m.isBytes(p.Output)
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

// isBytes reports whether an output has elements of variable length, which a stub never writes into
// a region.
func (m *Model) isBytes(output string) bool {
	return slices.ContainsFunc(m.config.GetOutput(), func(o *kserve.ModelOutput) bool {
		return o.GetName() == output && o.GetDataType() == kserve.DataType_TYPE_STRING
	})
}

// newMapped creates the table of the regions that a life's stub maps, and the stub's end of its
// socket.
func (l *life) newMapped(files *Files) error {
	config := mapping.Config{Send: l.encoder.Send, Log: l.in.log}
	if l.in.model.supervisor.regions && !l.in.model.settings.CopyRegions {
		var err error
		if config.Socket, files.Regions, err = mapping.Socket(); err != nil {
			return err
		}
	}
	l.mapped = mapping.New(config)
	l.encoder.Mapped = l.mapped.Number
	l.decoder.Mapped = l.mapped.Number
	return nil
}

// takenAwayError is the loss of a stub because a client truncated memory that the stub had mapped.
// It is not the model's fault.
type takenAwayError struct{ err error }

func (e *takenAwayError) Error() string {
	return fmt.Sprintf("%v: a client has truncated its region of shared memory", e.err)
}

func (e *takenAwayError) Unwrap() error { return e.err }

// blame finds out whether clients have caused the end of a life. The truncated regions are copied
// from then on. The stub still has its batches.
func (l *life) blame(err error) error {
	var exit *launch.ExitError
	if !errors.As(err, &exit) || exit.Signal != unix.SIGBUS {
		return err
	}
	found := l.mapped.Distrust()
	if !found { // the client may have restored the file's size
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

// regionsInside lists the regions of the requests that the stub has or has left open: of inputs
// that it may read, and of outputs that it may write.
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

// lostError returns the error for a request whose stub was lost.
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

// TakesDevices implements backend.Mapper.
func (m *Model) TakesDevices() bool { return m.program.Capabilities().TakesDevices }

// newDevices creates the tables of the device memory that a life's stub lends and knows.
func (l *life) newDevices() {
	l.lent = cudaipc.NewLent(l.channel.Arena(), l.in.model.supervisor.copier)
	l.announced = cudaipc.NewAnnounced(l.lent, l.encoder.Send, l.in.log)
	l.decoder.Devices = l.lent
	l.encoder.Announced = l.announced
	if l.in.model.program.Capabilities().UsesDevices {
		l.decoder.Announced = l.announced
		l.encoder.PutsThere = true
	}
}

// closeDevices closes announced first: the stub is not told of the end of its own memory.
func (l *life) closeDevices() {
	l.announced.Close()
	l.lent.Close()
}
