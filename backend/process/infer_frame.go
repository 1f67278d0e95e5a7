package process

import (
	"errors"
	"strconv"

	"github.com/nereid-serving/nereid/backend/process/output"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
)

// sendResponse sends INFER_RESPONSE and releases the response. What cannot be
// sent becomes an error that can. An error is the end of the life; one that has
// ended already is none.
func (l *life) sendResponse(number uint64, r *infer.Response) error {
	defer r.Release()
	err := l.trySendResponse(number, r)
	if refused := refusal(err); refused != nil {
		failed := infer.ErrorResponse(refused)
		failed.Final = r.Final
		err = l.trySendResponse(number, failed)
	}
	if refused := refusal(err); refused != nil { // not even the text, if it is long
		failed := infer.ErrorResponse(infer.Errorf(infer.Internal, "An error occurred while performing BLS request."))
		failed.Final = r.Final
		err = l.trySendResponse(number, failed)
	}
	if errors.Is(err, ipc.ErrClosed) {
		return nil
	}
	return err
}

func (l *life) trySendResponse(number uint64, r *infer.Response) error {
	for i := range r.Parameters {
		if r.Err == nil && r.Parameters[i].Kind == infer.DoubleParameter {
			return infer.Errorf(infer.InvalidArg, "Unsupported parameter type for parameter '%s'.", r.Parameters[i].Name)
		}
	}
	p, err := l.place(r)
	defer p.release()
	if err != nil {
		return err
	}
	in := l.in
	in.submit.Lock()
	defer in.submit.Unlock()
	return p.publish(number)
}

// placed is an INFER_RESPONSE on its way into the ring.
type placed struct {
	life       *life
	response   *infer.Response
	head       ipc.ResponseHead
	text       string
	parameters []byte
	blocks     []*shm.Block // retained; nil for outputs that travel in the frame
	few        [8]*shm.Block
	size       int // bytes of the body
	inline     int // where tensor bytes begin in it
}

// place chooses where each output's bytes travel, and copies those that must be.
func (l *life) place(r *infer.Response) (*placed, error) {
	p := &placed{life: l, response: r}
	text, err := checkResponse(r)
	if err != nil {
		return p, err
	}
	if r.Err != nil || !r.Empty {
		p.head.Flags = ipc.FlagPresent
	}
	if r.Final {
		p.head.Flags |= ipc.FlagFinal
	}
	if r.Err != nil {
		p.head.Flags |= ipc.FlagError
		p.head.Code, p.text = uint16(r.Err.Code), text
		p.head.Error = uint32(len(p.text))
		p.size = ipc.InferResponseSize + ipc.ResponseSize + ipc.Align8(len(p.text))
		return p, nil
	}
	p.parameters = appendParameters(nil, r.Parameters)
	p.head.Parameters, p.head.Outputs = uint32(len(p.parameters)), uint16(len(r.Outputs))
	p.size = ipc.InferResponseSize + ipc.ResponseSize + ipc.Align8(len(p.parameters))
	for i := range r.Outputs {
		p.size += ipc.DescriptorSize + 8*len(r.Outputs[i].Shape)
	}
	p.inline = p.size
	p.blocks = p.few[:0]
	most := ipc.MaxInlineBody
	if l.channel.Backlog() > patientBacklog {
		// The stub does not read: what waits for it must not grow.
		most = 0
	}
	for i := range r.Outputs {
		t := &r.Outputs[i]
		if begin := alignInline(p.size); len(t.Data) <= ipc.MaxInline && begin+len(t.Data) <= most || len(t.Data) == 0 {
			p.size = begin + len(t.Data)
			p.blocks = append(p.blocks, nil)
			continue
		}
		if _, lent := l.loans.Count(); int64(len(t.Data)) > l.channel.MaxArena()-lent {
			return p, infer.Errorf(infer.Unavailable,
				"Failed to increase the shared memory pool size to %d bytes. If you are running Triton inside docker, use '--shm-size' flag to control the shared memory region size. Error: the model holds as many tensors as it may",
				lent)
		}
		block, _, err := inPool(l.encoder.pool, t)
		if err != nil {
			return p, err
		}
		p.blocks = append(p.blocks, block)
	}
	return p, nil
}

// patientBacklog is how many bytes of frames may wait for room in a stub's ring
// before small tensors travel in blocks.
const patientBacklog = 1 << 20

func (p *placed) release() {
	for _, block := range p.blocks {
		if block != nil {
			block.Release()
		}
	}
}

// publish sends the frame, and before it NAMEs that are new to the stub. The
// caller holds submit.
func (p *placed) publish(number uint64) error {
	descriptors, err := p.describe()
	if err == nil {
		err = p.life.sendFilled(ipc.InferResponse, number, p.size, func(body []byte) { p.write(body, descriptors) })
	}
	if err != nil {
		p.life.takeBack(descriptors)
	}
	return err
}

// describe makes the descriptors and lends the blocks.
func (p *placed) describe() ([]ipc.Descriptor, error) {
	l, outputs := p.life, p.response.Outputs
	if p.response.Err != nil {
		return nil, nil
	}
	descriptors := make([]ipc.Descriptor, len(outputs))
	at := p.inline
	for i := range outputs {
		t, d := &outputs[i], &descriptors[i]
		index, err := l.nameIndex(t.Name)
		if err != nil {
			return descriptors[:i], err
		}
		*d = ipc.Descriptor{Name: index, Type: uint8(t.DataType), Length: uint64(len(t.Data)), Shape: t.Shape, Element: element(t)}
		if block := p.blocks[i]; block != nil {
			ticket, ok := l.loans.Lend(block)
			if !ok {
				return descriptors[:i], ipc.ErrClosed
			}
			d.Region, d.Offset, d.Ticket = ipc.InRequests, block.Offset(), uint64(ticket)
			continue
		}
		at = alignInline(at)
		d.Region, d.Offset = ipc.InFrame, uint64(ipc.HeaderSize+at)
		at += len(t.Data)
	}
	return descriptors, nil
}

func (p *placed) write(body []byte, descriptors []ipc.Descriptor) {
	clear(body)
	b := p.head.Put(body[ipc.InferResponseSize:])
	for i := range descriptors {
		d := &descriptors[i]
		b = d.Put(b)
		if d.Region == ipc.InFrame {
			copy(body[d.Offset-ipc.HeaderSize:], p.response.Outputs[i].Data)
		}
	}
	b = b[copy(b, p.parameters):]
	copy(b, p.text)
}

// takeBack ends the loans of descriptors that were not sent.
func (l *life) takeBack(descriptors []ipc.Descriptor) {
	for i := range descriptors {
		if descriptors[i].Region == ipc.InRequests {
			_ = l.loans.Return(shm.Ticket(descriptors[i].Ticket))
		}
	}
}

// nameIndex returns a name's index in the down table, telling the stub first if
// the name is new. The caller holds submit.
func (l *life) nameIndex(name string) (uint16, error) {
	if index, ok := l.down.index[name]; ok {
		return index, nil
	}
	index := len(l.down.list)
	if rule, detail := l.down.refuses([]byte(name)); rule != "" {
		return 0, infer.Errorf(infer.Internal, "the models that were called have answered with %d different names of tensors, and now with %s: %s",
			index, strconv.QuoteToASCII(output.CutAt(name, 64)), detail)
	}
	// The table grows with what has been sent alone: an index that the stub does not
	// know would be taken for the next name.
	if err := l.sendBody(ipc.Name, uint64(index), []byte(name)); err != nil {
		return 0, err
	}
	l.down.append(name)
	l.down.index[name] = uint16(index)
	return uint16(index), nil
}
