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

// CopierConfig configures the copying of tensors from devices.
type CopierConfig struct {
	Children     *launch.Children
	Helper       string // as in Config
	Interpreters func() ([]string, error)
	List         func() []Device // the devices in the order of their numbers; it may wait for the count
	Requests     *shm.Pool       // the pool for the copies
	Log          zerolog.Logger

	StartTimeout time.Duration // 0 is 30 s
	CopyTimeout  time.Duration // of one command; 0 is 30 s
	EndTimeout   time.Duration // for the end of a killed helper; 0 is 2 s
}

// Copier copies tensors from devices into the pool of requests, for models that accept them on the
// host, and holds open the device memory that clients have registered. It uses one process for each
// device, which is started with the first copy or registration.
type Copier struct {
	config CopierConfig
	last   atomic.Uint64 // number of the latest holding

	lanes func() []*lane // by the number of the device; at least one
}

// NewCopier creates a Copier. It starts nothing; the caller closes it before Children, and when
// List no longer waits.
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
		if len(all) == 0 { // they could not be counted: the helper of this lane reports them
			add(config.Log)
		}
		return all
	})
	return c
}

// of returns the lane of the device with a UUID. UUIDs come from stubs, and numbers from clients:
// an unknown one gets the first lane, whose helper reports it without creating a context.
func (c *Copier) of(uuid [16]byte) *lane {
	text := hex.EncodeToString(uuid[:])
	lanes := c.lanes()
	for number, one := range c.config.List() {
		if strings.ReplaceAll(strings.TrimPrefix(one.UUID, "GPU-"), "-", "") == text { // bound: the driver's UUID
			return lanes[number]
		}
	}
	return lanes[0]
}

// numbered returns the lane of the device with a number.
func (c *Copier) numbered(device uint64) *lane {
	lanes := c.lanes()
	if device >= uint64(len(lanes)) {
		device = 0
	}
	return lanes[device]
}

// Copy copies n bytes at offset of an allocation into a block. It waits for earlier copies of the
// device, until ctx ends, and then for its own. Errors are an *infer.Error.
func (c *Copier) Copy(ctx context.Context, from *foreign.Device, offset, n uint64) ([]byte, infer.Memory, error) {
	l := c.of(from.UUID)
	block, err := l.read(ctx, from, offset, n)
	if err != nil {
		return nil, nil, l.failed(err, n, "a tensor on a device needs", "a tensor could not be copied from its device")
	}
	return block.Bytes()[:n:n], block, nil
}

// Write copies data to offset of an allocation and waits for it as Copy does. Errors are an
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

// failed returns the error of a request whose tensor could not be copied.
func (l *lane) failed(err error, n uint64, needs, message string) error {
	var given *infer.Error
	var full *poolFullError
	switch {
	case errors.As(err, &given): // the request was cancelled
		return given
	case errors.As(err, &full):
		return infer.Errorf(infer.Unavailable, "%s a copy of %d bytes: %v", needs, n, err)
	case errors.Is(err, errBehind), errors.Is(err, errDoubtful): // the command that timed out is in the log
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
