package devices

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"

	"github.com/nereid-serving/nereid/boundary"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/shm/foreign"
)

// holding is an allocation of a client that the helper has open for as long as it is registered.
// Guarded by Copier.mu.
type holding struct {
	number uint64 // by which the helper knows it
	device uint64 // the number that its client has named
	handle foreign.Handle
	open   bool // false: its helper has ended
}

// Open opens a client's allocation on the device of a number, and has the helper hold it up to the last
// Release: then its bytes stay, whatever becomes of the client. An error says why in Triton's words.
//
// A helper that dies loses what it holds. The next one opens it anew, which fails if the client has
// ended meanwhile: then copies of it fail.
func (c *Copier) Open(device uint64, handle foreign.Handle) (*foreign.Device, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.start(); err != nil {
		return nil, err
	}
	c.last++
	h := &holding{number: c.last, device: device, handle: handle}
	answer, err := c.hold(h)
	if err != nil {
		return nil, err
	}
	var uuid [16]byte
	if n, err := hex.Decode(uuid[:], []byte(answer.UUID)); err != nil || n != len(uuid) {
		c.letGo(h)
		return nil, fmt.Errorf("the device helper calls the device %q, want the 32 digits of a UUID", answer.UUID)
	}
	opened := foreign.NewDevice(uint32(device), uuid, answer.Bytes, handle)
	c.held[opened] = h
	opened.OnEnd(func() {
		// Who releases it last may be a goroutine that reads a stub's ring: it waits for no copy.
		boundary.Go(c.config.Log, boundary.Life, func() { c.drop(opened) }, nil)
	})
	return opened, nil
}

// hold has the helper open an allocation. The caller has the lock, and there is a helper.
func (c *Copier) hold(h *holding) (reply, error) {
	answer, err := c.say(&command{Do: "open", Region: h.number, Device: min(h.device, math.MaxInt32), Handle: hex.EncodeToString(h.handle[:])}, c.config.StartTimeout)
	h.open = err == nil
	if err != nil {
		return answer, fmt.Errorf("failed to open CUDA IPC handle: %w", err)
	}
	return answer, nil
}

// drop ends the holding of an allocation that is not used any more.
func (c *Copier) drop(ended *foreign.Device) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.held[ended]
	delete(c.held, ended)
	if h != nil && h.open && c.helper != nil {
		c.letGo(h)
	}
}

// letGo has the helper close an allocation. The caller has the lock, and there is a helper.
func (c *Copier) letGo(h *holding) {
	if _, err := c.say(&command{Do: "close", Region: h.number}, c.config.CopyTimeout); err != nil {
		c.config.Log.Warn().Err(err).Uint64("device", h.device).Msg("memory of a client could not be closed")
	}
}

// Write copies data to offset of an allocation. It waits until it is there. Errors are an
// *infer.Error.
func (c *Copier) Write(to *foreign.Device, offset uint64, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	// The helper sees the file of requests and no other memory.
	block, err := c.config.Requests.Alloc(len(data))
	if err != nil {
		return infer.Errorf(infer.Unavailable, "an output for a device needs a copy of %d bytes: %v", len(data), err)
	}
	copy(block.Bytes(), data)
	err = c.copy("write", to, offset, uint64(len(data)), block)
	if !errors.Is(err, errStuck) { // else it may still be read
		block.Release()
	}
	if err != nil {
		c.config.Log.Warn().Err(err).Uint32("device", to.Number).Int("bytes", len(data)).Msg("an output could not be copied to its device")
		return infer.Errorf(infer.Internal, "failed to copy data: %v", err)
	}
	return nil
}
