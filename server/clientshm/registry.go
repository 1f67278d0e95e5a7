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

// Kind is the kind of memory of a region.
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

// Config configures a Registry. With the zero value clients cannot register regions.
type Config struct {
	// Enabled lets clients register regions.
	Enabled bool
	// Most bounds the number of regions; default DefaultMost.
	Most int
	// Directory has the files of regions; default "/dev/shm".
	Directory string
	// Account is charged for copies on the Go heap; nil: they are not charged.
	Account *budget.Account
	// Allocate lends memory for copies of more than 4096 bytes, which is charged until it is
	// released; nil: they are on the Go heap.
	Allocate func(n int) ([]byte, infer.Memory, error)
	// Ours reports whether a file is the server's own; nil: it never is.
	Ours func(device, inode uint64) bool
	// Devices waits until the devices have been counted and returns their memory, or nil on a
	// machine without devices. Nil stands for such a machine.
	Devices func() Devices
}

// Devices opens memory of clients on devices, in a process that may touch it. Errors of Copy and
// Write are *infer.Error.
type Devices interface {
	// Open opens an allocation and holds it until the last Release. Its error becomes a part of the
	// text for the client. Open, Copy and Write end with ctx when they wait for others.
	Open(ctx context.Context, device uint64, handle foreign.Handle) (*foreign.Device, error)
	// Copy copies n bytes at offset into memory of the server, which is charged until it is
	// released.
	Copy(ctx context.Context, from *foreign.Device, offset, n uint64) ([]byte, infer.Memory, error)
	// Write copies data to offset and returns when it is there.
	Write(ctx context.Context, to *foreign.Device, offset uint64, data []byte) error
}

// DefaultMost is the default of Config.Most. Each region takes a descriptor and a mapping.
const DefaultMost = 1024

// mostBytes bounds the size of all regions. A client can create a file of any size without memory,
// and the server must not run out of addresses.
const mostBytes = 4 << 40

// maxText is the longest name, and the longest key, in bytes.
const maxText = 4 << 10

// reserved begins the names of the memory that Triton's Python backend shares with its processes.
const reserved = "triton_python_backend_shm_region_"

// ErrDisabled is the error of registering and unregistering regions where clients may not.
var ErrDisabled = &infer.Error{Code: infer.Unsupported,
	Message: "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."}

// Status describes a region.
type Status struct {
	Kind         Kind
	Name, Key    string // Key and Offset for the system, Device for CUDA
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

// CheckEnabled returns ErrDisabled if clients may not register regions.
func (r *Registry) CheckEnabled() error {
	if !r.config.Enabled {
		return ErrDisabled
	}
	return nil
}

// RegisterSystem registers a region of size bytes at offset of the file that key names. Errors are
// *infer.Error, in the order in which Triton finds them.
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
	return r.add(made)
}

// RegisterCUDA registers a region of size bytes at the start of an allocation that a client has on
// a device. Errors are *infer.Error.
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
	return r.add(made)
}

// HasDevices waits until the devices have been counted, and reports whether there are any.
func (r *Registry) HasDevices() bool { return r.devices() != nil }

func (r *Registry) devices() Devices {
	if r.config.Devices == nil {
		return nil
	}
	return r.config.Devices()
}

// NoDevice is the error of registering device memory on a machine without devices.
func NoDevice(name string) error {
	return infer.Errorf(infer.InvalidArg, "failed to register CUDA shared memory region: '%s', GPUs not supported", name)
}

// checkText rejects names and keys that are not UTF-8 or too long, since later replies contain
// them.
func checkText(name, key string) error {
	for _, text := range [...]struct{ what, value string }{{"name", name}, {"key", key}} {
		if !utf8.ValidString(text.value) {
			return infer.Errorf(infer.InvalidArg, "the %s of a shared memory region is not valid UTF-8", text.what)
		}
		if n := len(text.value); n > maxText {
			return infer.Errorf(infer.InvalidArg, "the %s of a shared memory region has %d bytes, at most %d are allowed", text.what, n, maxText)
		}
	}
	return nil
}

// checkRoom rejects a name in use, and a region beyond the limit.
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
			"failed to register shared memory region '%s': there are already %d regions, the maximum (--client-shm-max-regions)", name, n)
	}
	return nil
}

// add gives a region its name and takes over its first reference, which it releases after an error.
func (r *Registry) add(made *region) (err error) {
	defer func() {
		if err != nil {
			made.release() // without the lock
		}
	}()
	r.mu.Lock()
	defer r.mu.Unlock()
	// Another client may have been faster since checkRoom.
	if err := r.checkRoomLocked(made.status.Name); err != nil {
		return err
	}
	if int64(made.status.Size) > mostBytes-r.bytes {
		return errSpace(made.status.Name, unix.ENOMEM)
	}
	r.byName[made.status.Name] = made // bound: config.Most
	r.bytes += int64(made.status.Size)
	return nil
}

// Unregister removes the name of a region of that kind, or all names of the kind if name is empty.
// It ignores a name that does not exist or is of the other kind. Requests that use the region go on
// with it.
func (r *Registry) Unregister(kind Kind, name string) error {
	if err := r.CheckEnabled(); err != nil {
		return err
	}
	for _, gone := range r.remove(kind, name) {
		gone.release()
	}
	return nil
}

// remove removes names and returns their regions. The caller releases them.
func (r *Registry) remove(kind Kind, name string) (gone []*region) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.namedLocked(name) {
		if one.status.Kind != kind {
			continue
		}
		delete(r.byName, one.status.Name)
		r.bytes -= int64(one.status.Size)
		gone = append(gone, one) // bound: config.Most
	}
	return gone
}

// namedLocked returns the region of that name, if it exists, or all regions if the name is empty.
func (r *Registry) namedLocked(name string) []*region {
	if name != "" {
		if one := r.byName[name]; one != nil {
			return []*region{one}
		}
		return nil
	}
	all := make([]*region, 0, len(r.byName)) // bound: config.Most
	for _, one := range r.byName {
		all = append(all, one)
	}
	return all
}

// Status describes the region of that kind and name, or all of the kind if name is empty, sorted by
// name. It fails with NotFound if the name does not exist.
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
			list = append(list, one.status) // bound: config.Most
		case name != "":
			return nil, infer.Errorf(infer.NotFound, "The region named '%s' is registered as %s shared memory, not %s shared memory",
				name, one.status.Kind.title(), kind.title())
		}
	}
	slices.SortFunc(list, func(a, b Status) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

// Find returns size bytes at offset of the region of that name. The caller releases the Slice.
// Errors are *infer.Error, with Triton's texts.
func (r *Registry) Find(name string, offset, size uint64) (*Slice, error) {
	r.mu.Lock()
	found := r.byName[name]
	if found != nil {
		found.Retain() // while it has a name, the registry has a reference
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

// check rejects a range outside the region.
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

// Stats returns the number of named regions and their bytes.
func (r *Registry) Stats() (count int, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byName), r.bytes
}

// Close removes all names.
func (r *Registry) Close() {
	for _, kind := range []Kind{System, CUDA} {
		for _, gone := range r.remove(kind, "") {
			gone.release()
		}
	}
}
