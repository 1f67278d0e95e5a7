package devices

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend/process/launch"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/shm"
	"github.com/nereid-serving/nereid/shm/foreign"
)

// CopierConfig says how tensors are copied from devices.
type CopierConfig struct {
	Children     *launch.Children
	Helper       string // as Config's
	Interpreters func() ([]string, error)
	List         func() []Device // the devices, by their numbers; it may wait for the count
	Requests     *shm.Pool       // where the copies go
	Log          zerolog.Logger

	StartTimeout time.Duration // 0 is 30 s
	CopyTimeout  time.Duration // for one command; 0 is 30 s
	EndTimeout   time.Duration // for the end of a helper that was killed; 0 is 2 s
}

// Copier copies tensors from devices into the pool of requests, for models that take them on the
// host, and holds what clients have registered of devices' memory. Processes of its own do so,
// one for each device, which is started with the first copy, or registration.
type Copier struct {
	config CopierConfig
	last   atomic.Uint64 // number of a holding

	lanes func() []*lane // by the number of the device; one at least
}

// NewCopier makes a Copier. It starts nothing; the caller closes it before Children, and when
// List waits no more.
func NewCopier(config CopierConfig) *Copier {
	for _, limit := range []struct {
		field     *time.Duration
		otherwise time.Duration
	}{{&config.StartTimeout, 30 * time.Second}, {&config.CopyTimeout, 30 * time.Second}, {&config.EndTimeout, 2 * time.Second}} {
		if *limit.field == 0 {
			*limit.field = limit.otherwise
		}
	}
	c := &Copier{config: config}
	c.lanes = sync.OnceValue(func() (all []*lane) {
		add := func(log zerolog.Logger) {
			all = append(all, &lane{config: &c.config, log: log, queue: newQueue(), held: make(map[*foreign.Device]*holding)})
		}
		for _, one := range config.List() {
			add(config.Log.With().Int32("device", one.Number).Str("uuid", one.UUID).Logger())
		}
		if len(all) == 0 { // they could not be counted: its helper says what there is
			add(config.Log)
		}
		return all
	})
	return c
}

// of is the lane of the device with a UUID. A UUID is what a stub says, and a number what a
// client says: what is not there has the first lane, whose helper says so, and makes no context.
func (c *Copier) of(uuid [16]byte) *lane {
	text := hex.EncodeToString(uuid[:])
	lanes := c.lanes()
	for number, one := range c.config.List() {
		if strings.ReplaceAll(strings.TrimPrefix(one.UUID, "GPU-"), "-", "") == text {
			return lanes[number]
		}
	}
	return lanes[0]
}

// numbered is the lane of the device with a number.
func (c *Copier) numbered(device uint64) *lane {
	lanes := c.lanes()
	if device >= uint64(len(lanes)) {
		device = 0
	}
	return lanes[device]
}

// Copy copies n bytes at offset of an allocation into a block. It waits for those copies of the device that others
// have asked for, until ctx ends, and then for its own. Errors are an *infer.Error.
func (c *Copier) Copy(ctx context.Context, from *foreign.Device, offset, n uint64) ([]byte, infer.Memory, error) {
	l := c.of(from.UUID)
	block, err := l.read(ctx, from, offset, n)
	if err != nil {
		return nil, nil, l.failed(err, n, "a tensor on a device needs", "a tensor could not be copied from its device")
	}
	return block.Bytes()[:n:n], block, nil
}

// Write copies data to offset of an allocation. It waits until it is there, as Copy waits. Errors are an
// *infer.Error.
func (c *Copier) Write(ctx context.Context, to *foreign.Device, offset uint64, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	l := c.of(to.UUID)
	if err := l.write(ctx, to, offset, data); err != nil {
		return l.failed(err, uint64(len(data)), "an output for a device needs", "an output could not be copied to its device")
	}
	return nil
}

// failed makes the error of a request whose tensor could not be copied.
func (l *lane) failed(err error, n uint64, needs, message string) error {
	var given *infer.Error
	var full *roomError
	switch {
	case errors.As(err, &given): // it was cancelled
		return given
	case errors.As(err, &full):
		return infer.Errorf(infer.Unavailable, "%s a copy of %d bytes: %v", needs, n, err)
	case errors.Is(err, errBehind), errors.Is(err, errDoubtful): // the log has the one that has waited
	default:
		l.log.Warn().Err(err).Uint64("bytes", n).Msg(message)
	}
	return infer.Errorf(infer.Internal, "failed to copy data: %v", err)
}

// Close ends the helpers. Copies fail from then on.
func (c *Copier) Close() {
	if c == nil {
		return
	}
	for _, l := range c.lanes() {
		l.close()
	}
}
