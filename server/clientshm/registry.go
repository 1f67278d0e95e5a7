package clientshm

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/shm/foreign"
)

// Kind says what memory a region is of.
type Kind uint8

// The kinds.
const (
	System Kind = 1
	CUDA   Kind = 2
)

// String returns the name of the kind in endpoints and most texts.
func (k Kind) String() string {
	if k == CUDA {
		return "cuda"
	}
	return "system"
}

// title returns the name of the kind in the other texts.
func (k Kind) title() string {
	if k == CUDA {
		return "CUDA"
	}
	return "system"
}

// Config sets up a Registry. The zero value lets no client register anything.
type Config struct {
	// Enabled lets clients register regions.
	Enabled bool
	// Most is how many regions there may be; default DefaultMost.
	Most int
	// Directory has the files of regions; default "/dev/shm".
	Directory string
	// Account is charged for copies on the Go heap; nil: they are not charged.
	Account *budget.Account
	// Allocate lends memory for copies of more than 4096 bytes, which is charged until
	// it is released; nil: they lie on the Go heap.
	Allocate func(n int) ([]byte, infer.Memory, error)
	// Ours reports whether a file is the server's own; nil: none is.
	Ours func(device, inode uint64) bool
	// Devices waits until devices have been counted, and returns what uses them, nil if there
	// are none; nil: there are none.
	Devices func() Devices
}

// Devices opens memory of clients on devices, in a process that may touch it. Errors of Copy and
// Write are *infer.Error.
type Devices interface {
	// Open opens an allocation, and holds it up to the last Release. The error is a part of
	// what the client is told.
	// Open, Copy and Write end with ctx where they wait for others.
	Open(ctx context.Context, device uint64, handle foreign.Handle) (*foreign.Device, error)
	// Copy copies n bytes at offset into memory of the server, which is charged until it is released.
	Copy(ctx context.Context, from *foreign.Device, offset, n uint64) ([]byte, infer.Memory, error)
	// Write copies data to offset, and waits until it is there.
	Write(ctx context.Context, to *foreign.Device, offset uint64, data []byte) error
}

// DefaultMost is how many regions there may be unless Config says otherwise. Each takes a
// descriptor and a mapping.
const DefaultMost = 1024

// mostBytes is how many bytes all regions may have together: a client can make a file of any
// size without memory, and the server must not run out of addresses.
const mostBytes = 4 << 40

// maxText is the longest name, and the longest key, in bytes.
const maxText = 4 << 10

// reserved begins the names of the memory that the Python backend of Triton shares with
// its processes.
const reserved = "triton_python_backend_shm_region_"

// ErrDisabled refuses to register and unregister regions.
var ErrDisabled = &infer.Error{Code: infer.Unsupported,
	Message: "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."}

// Status describes a region.
type Status struct {
	Kind         Kind
	Name, Key    string // Key and Offset of the system, Device of CUDA
	Offset, Size uint64 // bytes, in the file or on the device
	Device       uint64 // its number
}

// Registry has the regions of one server. It is safe for concurrent use.
type Registry struct {
	config Config

	mu     sync.Mutex
	byName map[string]*region
	bytes  int64 // of all regions
}

// New returns a Registry without regions.
func New(config Config) *Registry {
	config.Most = cmp.Or(config.Most, DefaultMost)
	config.Directory = cmp.Or(config.Directory, "/dev/shm")
	return &Registry{config: config, byName: map[string]*region{}}
}

// CheckEnabled fails with ErrDisabled if clients may not register regions.
func (r *Registry) CheckEnabled() error {
	if !r.config.Enabled {
		return ErrDisabled
	}
	return nil
}

// RegisterSystem makes a region of size bytes at offset of the file that key names. Errors
// are *infer.Error, in the order in which Triton finds them.
func (r *Registry) RegisterSystem(name, key string, offset, size uint64) error {
	if err := r.CheckEnabled(); err != nil {
		return err
	}
	if err := checkText(name, key); err != nil {
		return err
	}
	file := strings.TrimLeft(key, "/")
	if file == "" {
		return infer.Errorf(infer.InvalidArg, "cannot register shared memory region '%s' - invalid shm key '%s'", name, key)
	}
	if strings.HasPrefix(file, reserved) {
		return infer.Errorf(infer.InvalidArg,
			"cannot register shared memory region '%s' with key '%s' as the key contains the reserved prefix '%s'", name, key, reserved)
	}
	if err := r.checkRoom(name); err != nil {
		return err
	}
	made, err := r.open(Status{Kind: System, Name: name, Key: key, Offset: offset, Size: size}, file)
	if err != nil {
		return err
	}
	if err := r.add(made); err != nil {
		made.release()
		return err
	}
	return nil
}

// RegisterCUDA makes a region of size bytes at the beginning of an allocation that a client has on a
// device. Errors are *infer.Error.
func (r *Registry) RegisterCUDA(ctx context.Context, name string, device uint64, handle []byte, size uint64) error {
	if err := r.CheckEnabled(); err != nil {
		return err
	}
	if err := checkText(name, ""); err != nil {
		return err
	}
	if err := r.checkRoom(name); err != nil {
		return err
	}
	made, err := r.openDevice(ctx, Status{Kind: CUDA, Name: name, Device: device, Size: size}, handle)
	if err != nil {
		return err
	}
	if err := r.add(made); err != nil {
		made.release()
		return err
	}
	return nil
}

// HasDevices waits until devices have been counted, and reports whether there are any.
func (r *Registry) HasDevices() bool { return r.devices() != nil }

func (r *Registry) devices() Devices {
	if r.config.Devices == nil {
		return nil
	}
	return r.config.Devices()
}

// NoDevice refuses a region on a device of a machine without one.
func NoDevice(name string) error {
	return infer.Errorf(infer.InvalidArg, "failed to register CUDA shared memory region: '%s', GPUs not supported", name)
}

// checkText refuses what later replies could not tell, or would keep too much memory.
func checkText(name, key string) error {
	for _, text := range [...]struct{ what, value string }{{"name", name}, {"key", key}} {
		if !utf8.ValidString(text.value) {
			return infer.Errorf(infer.InvalidArg, "the %s of a shared memory region is not valid UTF-8", text.what)
		}
		if n := len(text.value); n > maxText {
			return infer.Errorf(infer.InvalidArg, "the %s of a shared memory region has %d bytes, at most %d can be", text.what, n, maxText)
		}
	}
	return nil
}

// checkRoom refuses a name that is taken, and a region more than there may be.
func (r *Registry) checkRoom(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.checkRoomLocked(name)
}

func (r *Registry) checkRoomLocked(name string) error {
	if r.byName[name] != nil {
		return infer.Errorf(infer.AlreadyExists, "shared memory region '%s' already in manager", name)
	}
	if n := len(r.byName); n >= r.config.Most {
		return infer.Errorf(infer.Unavailable,
			"failed to register shared memory region '%s': there are %d regions, the most that there may be (--client-shm-max-regions)", name, n)
	}
	return nil
}

// add gives a region its name. The registry then owns the reference that came with it.
func (r *Registry) add(made *region) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Another client may have been faster since checkRoom.
	if err := r.checkRoomLocked(made.status.Name); err != nil {
		return err
	}
	if int64(made.status.Size) > mostBytes-r.bytes {
		return errSpace(made.status.Name, unix.ENOMEM)
	}
	r.byName[made.status.Name] = made
	r.bytes += int64(made.status.Size)
	return nil
}

// Unregister takes the name of a region of that kind away, or all names of the kind if name
// is empty. A name that is not there, or is of the other kind, is left alone. Requests that
// use the region go on with it.
func (r *Registry) Unregister(kind Kind, name string) error {
	if err := r.CheckEnabled(); err != nil {
		return err
	}
	for _, gone := range r.remove(kind, name) {
		gone.release()
	}
	return nil
}

// remove returns the regions that have lost their names. The caller releases them.
func (r *Registry) remove(kind Kind, name string) (gone []*region) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.namedLocked(name) {
		if one.status.Kind != kind {
			continue
		}
		delete(r.byName, one.status.Name)
		r.bytes -= int64(one.status.Size)
		gone = append(gone, one)
	}
	return gone
}

// namedLocked returns the region of that name, if there is one, or all if it is empty.
func (r *Registry) namedLocked(name string) []*region {
	if name != "" {
		if one := r.byName[name]; one != nil {
			return []*region{one}
		}
		return nil
	}
	all := make([]*region, 0, len(r.byName))
	for _, one := range r.byName {
		all = append(all, one)
	}
	return all
}

// Status describes the region of that kind and name, or all of the kind if name is empty, in
// the order of their names. It fails with NotFound if there is none of the name.
func (r *Registry) Status(kind Kind, name string) (list []Status, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := r.namedLocked(name)
	if name != "" && len(found) == 0 {
		return nil, infer.Errorf(infer.NotFound, "Unable to find %s shared memory region: '%s'", kind, name)
	}
	for _, one := range found {
		switch {
		case one.status.Kind == kind:
			list = append(list, one.status)
		case name != "":
			return nil, infer.Errorf(infer.NotFound, "The region named '%s' is registered as %s shared memory, not %s shared memory",
				name, one.status.Kind.title(), kind.title())
		}
	}
	slices.SortFunc(list, func(a, b Status) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

// Find returns size bytes at offset of the region of that name. The caller releases the
// Slice. Errors are *infer.Error, with Triton's texts.
func (r *Registry) Find(name string, offset, size uint64) (*Slice, error) {
	r.mu.Lock()
	found := r.byName[name]
	if found != nil {
		found.refs.Add(1) // while it has a name, the registry has a reference
	}
	r.mu.Unlock()
	if found == nil {
		return nil, infer.Errorf(infer.NotFound, "Unable to find shared memory region: '%s'", name)
	}
	if err := found.check(offset, size); err != nil {
		found.release()
		return nil, err
	}
	return &Slice{region: found, offset: int64(offset), size: int64(size)}, nil
}

// check refuses a range that the region does not have.
func (g *region) check(offset, size uint64) error {
	name, all := g.status.Name, g.status.Size
	switch {
	case offset >= all:
		return infer.Errorf(infer.InvalidArg, "Invalid offset for shared memory region: '%s'", name)
	case size > math.MaxUint64-offset:
		return infer.Errorf(infer.InvalidArg, "Integer overflow detected: byte_size (%d) + offset (%d) exceeds maximum value (%d) for region '%s'",
			size, offset, uint64(math.MaxUint64), name)
	case size > all-offset:
		return infer.Errorf(infer.InvalidArg, "Invalid offset + byte size for shared memory region: '%s'", name)
	}
	return nil
}

// Stats returns how many regions have names, and their bytes.
func (r *Registry) Stats() (count int, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byName), r.bytes
}

// Close takes all names away.
func (r *Registry) Close() {
	for _, kind := range []Kind{System, CUDA} {
		for _, gone := range r.remove(kind, "") {
			gone.release()
		}
	}
}
