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
// host. A process of its own does so, which is started with the first copy and has a
// context of each device that it has copied from.
type Copier struct {
	config CopierConfig

	mu     sync.Mutex // held for one copy
	closed bool
	helper *helper // nil: none runs
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
	return &Copier{config: config}
}

// Copy copies n bytes at offset of an allocation into a block. It waits for the copy, and for
// those that others have asked for. Errors are an *infer.Error.
func (c *Copier) Copy(from *foreign.Device, offset, n uint64) ([]byte, infer.Memory, error) {
	block, err := c.config.Requests.Alloc(int(n))
	if err != nil {
		return nil, nil, infer.Errorf(infer.Unavailable, "a tensor on a device needs a copy of %d bytes: %v", n, err)
	}
	if err := c.copy(from, offset, n, block); err != nil {
		if !errors.Is(err, errStuck) { // else its copy may still come
			block.Release()
		}
		c.config.Log.Warn().Err(err).Uint32("device", from.Number).Uint64("bytes", n).Msg("a tensor could not be copied from its device")
		return nil, nil, infer.Errorf(infer.Internal, "failed to copy data: %v", err)
	}
	return block.Bytes()[:n:n], block, nil
}

// copyRequest is a line to the helper.
type copyRequest struct {
	UUID   string `json:"uuid"`
	Handle string `json:"handle"`
	Offset uint64 `json:"offset"` // in the allocation
	Bytes  uint64 `json:"bytes"`
	To     uint64 `json:"to"` // in the file of requests
}

func (c *Copier) copy(from *foreign.Device, offset, n uint64, to *shm.Block) error {
	line, err := json.Marshal(copyRequest{
		UUID: hex.EncodeToString(from.UUID[:]), Handle: hex.EncodeToString(from.Handle[:]), Offset: offset, Bytes: n, To: to.Offset(),
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errors.New("the server is shutting down")
	}
	if c.helper == nil {
		if c.helper, err = c.open(); err != nil {
			c.helper = nil
			return err
		}
	}
	var reply struct {
		Error string `json:"error"`
	}
	if err := c.helper.say(append(line, '\n'), &reply, c.config.CopyTimeout); err != nil {
		// It may still write into the block, which is another's soon: it ends before this returns.
		err = errors.Join(err, c.helper.close())
		c.helper = nil
		return err
	}
	if reply.Error != "" {
		return errors.New(reply.Error)
	}
	return nil
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
