package devices

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/shm"
	"github.com/nereid-serving/nereid/shm/foreign"
)

// lane performs the copies from and to one device: its own helper, started with the first command,
// executes one command at a time. A device that is lost, or whose driver hangs, holds up no other.
//
//	none ──▶ running ──▶ none        it died, did not answer in time, or its context is of no use any more
//	            └──────▶ stuck ──▶ none   SIGKILL does not end it, as the driver hangs in the kernel
//
// A driver that hangs costs one timeout, not one for each waiting command (queue).
type lane struct {
	config *CopierConfig
	log    zerolog.Logger // names the device

	// running is helper, for close only, which ends the helper in the middle of a command.
	running atomic.Pointer[helper]
	closed  atomic.Bool // no further helper is started

	queue

	// Guarded by the turn of the queue.
	helper *helper                      // nil if no helper runs
	stuck  *helper                      // a helper that does not end, or nil: no other is started beside it
	held   map[*foreign.Device]*holding // bound: the regions that clients may register
}

// command is a line to the helper.
type command struct {
	Do     string `json:"do"` // the helper's name of the command
	UUID   string `json:"uuid"`
	Handle string `json:"handle"`
	Region uint64 `json:"region"` // number of the holding; 0 without one
	Device uint64 `json:"device"` // the number, for "open"
	Offset uint64 `json:"offset"` // in the allocation
	Bytes  uint64 `json:"bytes"`
	At     uint64 `json:"at"` // in the file of requests
}

// reply is the response to a command.
type reply struct {
	Error string `json:"error"`
	// Lost means that the helper's context is broken: another process may work.
	Lost bool `json:"lost"`
	// For "open": the driver's data about the device and the size.
	UUID  string `json:"uuid"`
	Bytes uint64 `json:"bytes"`
}

// read copies n bytes at offset of an allocation into a block, which belongs to the caller.
func (l *lane) read(ctx context.Context, allocation *foreign.Device, offset, n uint64) (*shm.Block, error) {
	return l.copy(ctx, "read", allocation, offset, n, nil)
}

// write copies data to offset of an allocation.
func (l *lane) write(ctx context.Context, allocation *foreign.Device, offset uint64, data []byte) error {
	block, err := l.copy(ctx, "write", allocation, offset, uint64(len(data)), data)
	if err == nil {
		block.Release()
	}
	return err
}

// poolFullError means that the pool of requests has no block for a copy.
type poolFullError struct{ error }

// copy copies between an allocation and a block. The block is allocated when a helper can begin, so
// that waiting commands hold no memory. After a failure it is released as soon as no process can
// touch it.
func (l *lane) copy(ctx context.Context, do string, allocation *foreign.Device, offset, n uint64, data []byte) (*shm.Block, error) {
	if err := l.enter(ctx); err != nil {
		return nil, err
	}
	defer l.leave()
	if err := l.start(); err != nil {
		return nil, err
	}
	line := command{
		Do: do, UUID: hex.EncodeToString(allocation.UUID[:]), Handle: hex.EncodeToString(allocation.Handle[:]), Offset: offset, Bytes: n,
	}
	if h := l.held[allocation]; h != nil {
		if !h.open { // the helper that had it open has ended
			if _, err := l.hold(h); err != nil {
				return nil, err
			}
		}
		line.Region = h.number
	}
	// The helper can access the file of requests and no other memory.
	block, err := l.config.Requests.Alloc(int(n))
	if err != nil {
		return nil, &poolFullError{err}
	}
	copy(block.Bytes(), data)
	line.At = block.Offset()
	if _, err = l.say(&line); err == nil {
		return block, nil
	}
	if stuck := l.stuck; errors.Is(err, errStuck) && stuck != nil { // its copy may still be executed
		panics.Go(l.log, panics.Life, func() {
			<-stuck.gone
			block.Release()
		}, nil)
	} else {
		block.Release()
	}
	return nil, err
}

// start starts a helper unless one runs.
func (l *lane) start() (err error) {
	if l.closed.Load() {
		return errClosed
	}
	if l.stuck != nil {
		select {
		case <-l.stuck.gone:
			l.stuck = nil
		default:
			return errStuck
		}
	}
	if l.helper != nil {
		select {
		case <-l.helper.gone: // between two commands, which are not affected
			_ = l.lose() // already ended
		default:
			return nil
		}
	}
	if l.helper, err = l.open(); err != nil {
		l.helper = nil
		return err
	}
	// The memory that clients have registered is reopened as far as possible.
	for _, h := range l.held {
		if _, err := l.hold(h); err != nil {
			l.log.Warn().Err(err).Msg("reopening a client's registered memory failed")
			if l.helper == nil {
				return err
			}
		}
	}
	return nil
}

// say makes the helper execute a command. A broken helper is ended, and the next command starts
// another.
func (l *lane) say(line *command) (answer reply, err error) {
	text, err := json.Marshal(line) // bound: numbers, a UUID and a handle
	if err != nil {
		return answer, err
	}
	err = l.helper.say(append(text, '\n'), &answer, l.config.CopyTimeout)
	l.answered(err)
	if err == nil {
		if answer.Error == "" {
			return answer, nil
		}
		if err = errors.New(answer.Error); !answer.Lost {
			return answer, err
		}
	}
	l.log.Warn().Err(err).Msg("the copying device helper was stopped; the next copy starts another")
	// It may still write into the block, which others will soon use: it ends before this function
	// returns.
	return answer, errors.Join(err, l.lose())
}

// lose ends the helper, and with it its open allocations.
func (l *lane) lose() error {
	err := l.helper.close()
	if err != nil {
		l.stuck = l.helper
	}
	l.running.Store(nil)
	l.helper = nil
	for _, h := range l.held {
		h.open = false
	}
	return err
}

// open starts a helper with the first interpreter that can run it.
func (l *lane) open() (*helper, error) {
	config := l.config
	interpreters, err := config.Interpreters()
	if err != nil {
		return nil, err
	}
	err = errors.New("there is no interpreter")
	for _, interpreter := range interpreters {
		var h *helper
		if h, err = startHelper(config.Children, config.Log, []string{interpreter, "-I", "-S", "-u", config.Helper, "copy"}, []*os.File{config.Requests.Region().File()}, config.EndTimeout); err != nil {
			continue
		}
		// Before the check of closed, which close sets before it reads running: one of the two ends
		// a helper that starts meanwhile.
		l.running.Store(h)
		if l.closed.Load() {
			h.process.Kill()
		}
		var ready struct {
			Error string `json:"error"`
		}
		err = h.receive(&ready, config.StartTimeout)
		if err != nil { // readiness says nothing about the device
			l.answered(err)
		}
		if err == nil && ready.Error != "" {
			err = errors.New(ready.Error)
		}
		if err == nil {
			return h, nil
		}
		stuck := h.close()
		l.running.Store(nil)
		err = fmt.Errorf("device helper of %s: %w", interpreter, errors.Join(err, stuck))
		if stuck != nil {
			l.stuck = h
			break
		}
		if l.closed.Load() {
			return nil, errClosed
		}
	}
	return nil, err
}

// close ends the helper. Commands fail from then on, including the current one.
func (l *lane) close() {
	l.closed.Store(true)
	if h := l.running.Load(); h != nil {
		h.process.Kill()
	}
	l.wait()
	defer l.leave()
	if l.helper != nil {
		if err := l.lose(); err != nil {
			l.log.Warn().Err(err).Msg("device helper did not exit")
		}
	}
}
