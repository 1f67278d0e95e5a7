package devices

import (
	"context"
	"encoding/hex"
	"fmt"
	"math"

	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/shm/foreign"
)

// holding is a client's allocation that the helper holds open while it is registered. Guarded by
// the turn of its lane.
type holding struct {
	number uint64 // the helper's number of it
	device uint64 // the device number given by its client
	handle foreign.Handle
	open   bool // false: its helper has ended
}

// Open opens a client's allocation on the device with a number, and makes the helper hold it until
// the last Release: its bytes stay valid even if the client ends. An error has Triton's words.
//
// A helper that dies loses its allocations. The next one reopens them, which fails if the client
// has ended meanwhile: then copies of them fail.
func (c *Copier) Open(ctx context.Context, device uint64, handle foreign.Handle) (*foreign.Device, error) {
	return c.numbered(device).register(ctx, device, &holding{number: c.last.Add(1), device: device, handle: handle})
}

// register opens an allocation and holds it until its end.
func (l *lane) register(ctx context.Context, device uint64, h *holding) (*foreign.Device, error) {
	if err := l.enter(ctx); err != nil {
		return nil, err
	}
	defer l.leave()
	if err := l.start(); err != nil {
		return nil, err
	}
	answer, err := l.hold(h)
	if err != nil {
		return nil, err
	}
	var uuid [16]byte
	// bound: maxLine
	if n, err := hex.Decode(uuid[:], []byte(answer.UUID)); err != nil || n != len(uuid) {
		l.letGo(h)
		return nil, fmt.Errorf("the device helper calls the device %q, want the 32 digits of a UUID", answer.UUID)
	}
	opened := foreign.NewDevice(uint32(device), uuid, answer.Bytes, h.handle)
	l.held[opened] = h
	opened.OnEnd(func() {
		// The goroutine of the last Release may be a reader of a stub's ring, which must not wait
		// for a copy.
		panics.Go(l.log, panics.Life, func() { l.drop(opened) }, nil)
	})
	return opened, nil
}

// hold makes the helper open an allocation. The caller has the turn, and a helper runs.
func (l *lane) hold(h *holding) (reply, error) {
	answer, err := l.say(&command{Do: "open", Region: h.number, Device: min(h.device, math.MaxInt32), Handle: hex.EncodeToString(h.handle[:])})
	h.open = err == nil
	if err != nil {
		return answer, fmt.Errorf("failed to open CUDA IPC handle: %w", err)
	}
	return answer, nil
}

// drop ends the holding of an allocation that is not used any more.
func (l *lane) drop(ended *foreign.Device) {
	l.wait()
	defer l.leave()
	h := l.held[ended]
	delete(l.held, ended)
	if h != nil && h.open && l.helper != nil {
		l.letGo(h)
	}
}

// letGo makes the helper close an allocation. The caller has the turn, and a helper runs.
func (l *lane) letGo(h *holding) {
	if _, err := l.say(&command{Do: "close", Region: h.number}); err != nil {
		l.log.Warn().Err(err).Msg("closing a client's memory failed")
	}
}
