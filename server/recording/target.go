package recording

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/server"
)

// Around returns a Core whose targets record their requests, or core itself if r is nil.
func (r *Recorder) Around(core server.Core) server.Core {
	if r == nil {
		return core
	}
	return recordedCore{core, r}
}

type recordedCore struct {
	server.Core
	recorder *Recorder
}

// Target implements server.Core.
func (c recordedCore) Target(name string, version int64) (models.Target, error) {
	t, err := c.Core.Target(name, version)
	if err != nil || c.recorder.full.Load() || c.recorder.models != nil && !c.recorder.models[name] {
		return t, err
	}
	return &target{t, c.recorder}, nil
}

// target is a version whose requests are recorded.
type target struct {
	models.Target
	recorder *Recorder
}

// Infer implements models.Target.
func (t *target) Infer(ctx context.Context, req *infer.Request, send infer.Sender) error {
	if server.IsReplayed(ctx) {
		return t.Target.Infer(ctx, req, send)
	}
	p := t.recorder.begin(ctx, req, t.Info())
	if p == nil {
		return t.Target.Infer(ctx, req, send)
	}
	// The charge is returned after a panic, too.
	finished := false
	defer func() {
		if !finished {
			p.release()
		}
	}()
	err := t.Target.Infer(ctx, req, func(response *infer.Response) {
		p.answer(ctx, response) // before its receiver releases it
		send(response)
	})
	finished = true
	p.end(req, err)
	return err
}

// perTensor, perMessage and perName estimate the memory of a tensor, a message and an output's name
// besides their bytes.
const (
	perTensor  = 256
	perMessage = 512
	perName    = 32
)

// pending is a request that is being recorded.
type pending struct {
	recorder *Recorder
	number   int64
	raw      bool // the request has no names until it has been checked

	mu     sync.Mutex
	record Record
	size   int64 // charged
	drop   bool  // there was no room for all of it
}

// begin copies a request. It returns nil if there is no room.
func (r *Recorder) begin(ctx context.Context, req *infer.Request, info *models.Info) *pending {
	p := &pending{recorder: r, raw: req.Raw, record: Record{
		Model: info.Name, Version: info.Version, Decoupled: info.Decoupled(), Received: time.Now(),
	}}
	p.number = r.number.Add(1)
	sequence := sequenceOf(req)
	size := perMessage + int64(len(req.ID)) + sizeOf(sequence) + sizeOf(req.Parameters)
	for _, name := range req.Outputs {
		size += perName + int64(len(name))
	}
	ahead := 0
	if p.raw {
		ahead = infer.RawPrefix
	}
	to := &p.record.Request
	if !p.charge(size) || !p.tensors(ctx, to, req.Inputs, ahead) {
		p.release()
		r.dropped.Add(1)
		return nil
	}
	to.Asked, to.ID = req.Version, strings.Clone(req.ID) // bound: charged
	for _, name := range req.Outputs {
		to.Wanted = append(to.Wanted, strings.Clone(name)) // bound: charged
	}
	p.parameters(to, sequence)
	p.parameters(to, req.Parameters)
	return p
}

// sequenceOf returns parameters for the values that front ends keep in fields of a request.
func sequenceOf(req *infer.Request) (list []infer.Parameter) {
	number := func(name string, value uint64) {
		list = append(list, infer.Parameter{Name: name, Kind: infer.IntParameter, Int: int64(value)}) //nolint:gosec // as the protocol has them
	}
	switch c := &req.Correlation; {
	case c.Text != "":
		list = append(list, infer.Parameter{Name: "sequence_id", Kind: infer.StringParameter, String: c.Text})
	case c.Number != 0:
		number("sequence_id", c.Number)
	}
	for _, flag := range []struct {
		bit  uint32
		name string
	}{{infer.SequenceStart, "sequence_start"}, {infer.SequenceEnd, "sequence_end"}} {
		if req.Flags&flag.bit != 0 {
			list = append(list, infer.Parameter{Name: flag.name, Kind: infer.BoolParameter, Bool: true})
		}
	}
	if req.Priority != 0 {
		number("priority", req.Priority)
	}
	if req.TimeoutMicros != 0 {
		number("timeout", req.TimeoutMicros)
	}
	return list
}

func sizeOf(parameters []infer.Parameter) (n int64) {
	for i := range parameters {
		n += int64(len(parameters[i].Name) + len(parameters[i].String) + 64)
	}
	return n
}

// sizeOfError returns the size of an error's texts, which a record keeps after its response has
// been released.
func sizeOfError(err *infer.Error) int64 {
	if err == nil {
		return 0
	}
	return int64(len(err.Message) + len(err.Detail))
}

// charge takes n more bytes.
func (p *pending) charge(n int64) bool {
	r := p.recorder
	if r.waiting.Add(n) > maxWaitingBytes {
		r.waiting.Add(-n)
		return false
	}
	if r.config.Memory != nil && !r.config.Memory.Try(budget.Replies, n) {
		r.waiting.Add(-n)
		return false
	}
	p.size += n
	return true
}

// release returns the bytes.
func (p *pending) release() {
	p.mu.Lock()
	n := p.size
	p.size = 0
	p.mu.Unlock()
	p.recorder.waiting.Add(-n)
	if p.recorder.config.Memory != nil {
		p.recorder.config.Memory.Give(budget.Replies, n)
	}
}

// parameters copies parameters; redacted ones without their values.
//
// bound: charged by the caller
func (p *pending) parameters(to *Message, parameters []infer.Parameter) {
	for _, one := range parameters {
		one.Name, one.String = strings.Clone(one.Name), strings.Clone(one.String)
		if p.recorder.redact[one.Name] {
			to.Redacted = append(to.Redacted, one.Name)
		} else {
			to.Parameters = append(to.Parameters, one)
		}
	}
}

// tensors copies tensors and leaves the given number of bytes before each copy. Redacted tensors
// are copied without their bytes. It returns false if there is no room.
func (p *pending) tensors(ctx context.Context, to *Message, list []infer.Tensor, ahead int) bool {
	for i := range list {
		t := &list[i]
		one := Tensor{Tensor: infer.Tensor{DataType: t.DataType}, Redacted: p.recorder.redact[t.Name]}
		n := int64(perTensor + len(t.Name) + 8*len(t.Shape))
		if !one.Redacted {
			n += t.Size() + int64(ahead)
		}
		if !p.charge(n) {
			return false
		}
		one.Name, one.Shape = strings.Clone(t.Name), slices.Clone(t.Shape) // bound: charged
		if !one.Redacted {
			data := t.Data
			// Only the owner's guarded copy reads a client's memory. Later changes by the client do
			// not affect the record.
			if f := t.Foreign(); f != nil {
				copied, lent, err := f.Copy(ctx)
				if err != nil {
					return false
				}
				data = copied
				if lent != nil {
					defer lent.Release()
				}
			}
			one.Data = append(make([]byte, ahead, ahead+len(data)), data...) // bound: charged
		}
		to.Tensors = append(to.Tensors, one) // bound: charged
	}
	return true
}

// answer copies a response before its receiver has it.
func (p *pending) answer(ctx context.Context, response *infer.Response) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if response.Empty || p.drop {
		return
	}
	m := Message{Err: response.Err, After: time.Since(p.record.Received)}
	if response.Version > 0 {
		p.record.Version = response.Version
	}
	size := perMessage + int64(len(response.ID)) + sizeOf(response.Parameters) + sizeOfError(m.Err)
	if !p.charge(size) || !p.tensors(ctx, &m, response.Outputs, 0) {
		p.drop = true
		return
	}
	m.ID = strings.Clone(response.ID) // bound: charged
	p.parameters(&m, response.Parameters)
	p.record.Answers = append(p.record.Answers, m) // bound: charged
}

// end sends the record to the writer. The inputs of the request are still valid.
func (p *pending) end(req *infer.Request, err error) {
	if errors.Is(err, models.ErrReplaced) { // the version's successor gets it
		p.release()
		return
	}
	p.mu.Lock()
	p.record.Took = time.Since(p.record.Received)
	if err != nil {
		refused := infer.AsError(err)
		if p.drop = p.drop || !p.charge(perMessage+sizeOfError(refused)); !p.drop {
			p.record.Answers = append(p.record.Answers, Message{Err: refused, After: p.record.Took}) // bound: charged
		}
	}
	if inputs := p.record.Request.Tensors; p.raw && len(inputs) == 1 && len(req.Inputs) == 1 {
		t := &req.Inputs[0]
		inputs[0].Name, inputs[0].DataType, inputs[0].Shape = strings.Clone(t.Name), t.DataType, slices.Clone(t.Shape) // bound: the config
		if t.DataType == infer.Bytes {                                                                                 // the body is the only element
			binary.LittleEndian.PutUint32(inputs[0].Data, uint32(len(inputs[0].Data)-infer.RawPrefix)) //nolint:gosec // bodies are smaller
		} else {
			inputs[0].Data = inputs[0].Data[infer.RawPrefix:]
		}
		if inputs[0].Redacted = p.recorder.redact[t.Name]; inputs[0].Redacted {
			inputs[0].Data = nil
		}
	}
	dropped := p.drop
	p.mu.Unlock()
	if !dropped {
		select {
		case p.recorder.queue <- p: // which belongs to run from here on
			return
		default:
		}
	}
	p.recorder.dropped.Add(1)
	p.release()
}
