package devices

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
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
	Requests     *shm.Pool // where the copies go
	Log          zerolog.Logger

	StartTimeout time.Duration // 0 is 30 s
	CopyTimeout  time.Duration // for one copy; 0 is 30 s
	EndTimeout   time.Duration // for the end of a helper that was killed; 0 is 2 s
}

// Copier copies tensors from devices into the pool of requests, for models that take them on the
// host, and holds what clients have registered of devices' memory. A process of its own does so,
// which is started with the first copy, or registration, and has a context of each device that
// it has used.
type Copier struct {
	config CopierConfig

	mu     sync.Mutex // held for one command of the helper
	closed bool
	helper *helper // nil: none runs
	last   uint64  // number of a holding
	held   map[*foreign.Device]*holding
}

// NewCopier makes a Copier. It starts nothing; the caller closes it before Children.
func NewCopier(config CopierConfig) *Copier {
	if config.StartTimeout == 0 {
		config.StartTimeout = 30 * time.Second
	}
	if config.CopyTimeout == 0 {
		config.CopyTimeout = 30 * time.Second
	}
	if config.EndTimeout == 0 {
		config.EndTimeout = 2 * time.Second
	}
	return &Copier{config: config, held: make(map[*foreign.Device]*holding)}
}

// Copy copies n bytes at offset of an allocation into a block. It waits for the copy, and for
// those that others have asked for. Errors are an *infer.Error.
func (c *Copier) Copy(from *foreign.Device, offset, n uint64) ([]byte, infer.Memory, error) {
	block, err := c.config.Requests.Alloc(int(n))
	if err != nil {
		return nil, nil, infer.Errorf(infer.Unavailable, "a tensor on a device needs a copy of %d bytes: %v", n, err)
	}
	if err := c.copy("read", from, offset, n, block); err != nil {
		if !errors.Is(err, errStuck) { // else its copy may still come
			block.Release()
		}
		c.config.Log.Warn().Err(err).Uint32("device", from.Number).Uint64("bytes", n).Msg("a tensor could not be copied from its device")
		return nil, nil, infer.Errorf(infer.Internal, "failed to copy data: %v", err)
	}
	return block.Bytes()[:n:n], block, nil
}

// command is a line to the helper.
type command struct {
	Do     string `json:"do"` // what the helper calls it
	UUID   string `json:"uuid"`
	Handle string `json:"handle"`
	Region uint64 `json:"region"` // number of the holding; 0: there is none
	Device uint64 `json:"device"` // the number, for "open"
	Offset uint64 `json:"offset"` // in the allocation
	Bytes  uint64 `json:"bytes"`
	At     uint64 `json:"at"` // in the file of requests
}

// reply is the line that answers one.
type reply struct {
	Error string `json:"error"`
	// Of "open": what the driver says of the device and the bytes.
	UUID  string `json:"uuid"`
	Bytes uint64 `json:"bytes"`
}

// copy copies between an allocation and a block.
func (c *Copier) copy(do string, allocation *foreign.Device, offset, n uint64, block *shm.Block) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.start(); err != nil {
		return err
	}
	line := command{
		Do: do, UUID: hex.EncodeToString(allocation.UUID[:]), Handle: hex.EncodeToString(allocation.Handle[:]), Offset: offset, Bytes: n, At: block.Offset(),
	}
	if h := c.held[allocation]; h != nil {
		if !h.open { // the helper that had it open is no more
			if _, err := c.hold(h); err != nil {
				return err
			}
		}
		line.Region = h.number
	}
	_, err := c.say(&line, c.config.CopyTimeout)
	return err
}

// start starts a helper if none runs.
func (c *Copier) start() (err error) {
	if c.closed {
		return errors.New("the server is shutting down")
	}
	if c.helper != nil {
		select {
		case <-c.helper.gone: // between two commands, which are none the worse for it
			_ = c.lose() // it has ended
		default:
			return nil
		}
	}
	if c.helper, err = c.open(); err != nil {
		c.helper = nil
		return err
	}
	// What clients have registered stays open as far as it can.
	for _, h := range c.held {
		if c.helper == nil {
			break // one of them has ended it
		}
		if _, err := c.hold(h); err != nil {
			c.config.Log.Warn().Err(err).Uint64("device", h.device).Msg("memory that a client has registered could not be opened again")
		}
	}
	if c.helper == nil {
		return errors.New("the device helper ended")
	}
	return nil
}

// say has the helper act on a line. After an error that is no answer of it there is no helper.
func (c *Copier) say(line *command, limit time.Duration) (answer reply, err error) {
	text, err := json.Marshal(line)
	if err != nil {
		return answer, err
	}
	if err := c.helper.say(append(text, '\n'), &answer, limit); err != nil {
		// It may still write into the block, which is another's soon: it ends before this returns.
		return answer, errors.Join(err, c.lose())
	}
	if answer.Error != "" {
		return answer, errors.New(answer.Error)
	}
	return answer, nil
}

// lose ends the helper, and with it what it holds.
func (c *Copier) lose() error {
	err := c.helper.close()
	c.helper = nil
	for _, h := range c.held {
		h.open = false
	}
	return err
}

// open starts a helper, by the first interpreter that can run it.
func (c *Copier) open() (*helper, error) {
	interpreters, err := c.config.Interpreters()
	if err != nil {
		return nil, err
	}
	err = errors.New("there is no interpreter")
	for _, interpreter := range interpreters {
		var h *helper
		if h, err = startHelper(c.config.Children, c.config.Log, []string{interpreter, "-I", "-S", "-u", c.config.Helper, "copy"}, []*os.File{c.config.Requests.Region().File()}, c.config.EndTimeout); err != nil {
			continue
		}
		var ready struct {
			Error string `json:"error"`
		}
		if err = h.receive(&ready, c.config.StartTimeout); err == nil && ready.Error != "" {
			err = errors.New(ready.Error)
		}
		if err == nil {
			return h, nil
		}
		err = fmt.Errorf("device helper of %s: %w", interpreter, errors.Join(err, h.close()))
	}
	return nil, err
}

// Close ends the helper. Copies fail from then on.
func (c *Copier) Close() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.helper != nil {
		if err := c.helper.close(); err != nil {
			c.config.Log.Warn().Err(err).Msg("device helper is left behind")
		}
		c.helper = nil
	}
}
