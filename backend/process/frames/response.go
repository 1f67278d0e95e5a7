package frames

import (
	"encoding/binary"
	"strconv"

	"github.com/nereid-serving/nereid/backend/process/cudaipc"
	"github.com/nereid-serving/nereid/backend/process/output"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
)

// Response is an INFER_RESPONSE to be sent: the response to a BLS request, for the model that made
// it.
type Response struct {
	encoder *Encoder
	// Hint is 0, ipc.HintDevices or ipc.HintHost. It is set before Send.
	Hint       uint32
	head       ipc.ResponseHead
	text       string // of the error
	parameters []infer.Parameter
	outputs    []preparedOutput  // bound: the outputs of a response, which are charged
	few        [2]preparedOutput // initial memory of outputs
	size       int               // bytes of the body
}

// preparedOutput is one output of a Response. Its storage holds its block until Release. It is lent
// only under the Encoder's lock, right before the frame is sent.
type preparedOutput struct {
	tensor     *infer.Tensor
	storage    storage
	descriptor ipc.Descriptor
}

// patientBacklog is the number of bytes of frames that may wait for room in a stub's ring before
// small tensors travel in blocks.
const patientBacklog = 1 << 20

// Prepare chooses where each output's bytes travel, and copies those that need it. The caller keeps
// r until it has released the Response. An error says why the response cannot be sent.
func (e *Encoder) Prepare(r *infer.Response) (*Response, error) {
	text, err := checkResponse(r)
	if err != nil {
		return nil, err
	}
	p := &Response{encoder: e, head: ipc.ResponseHead{Version: r.Version}}
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
	p.parameters = r.Parameters
	p.head.Parameters, p.head.Outputs = uint32(infer.ParametersSize(r.Parameters)), uint16(len(r.Outputs))
	p.size = ipc.InferResponseSize + ipc.ResponseSize + ipc.Align8(int(p.head.Parameters))
	for i := range r.Outputs {
		p.size += ipc.DescriptorSize + 8*len(r.Outputs[i].Shape)
	}
	p.outputs = p.few[:0]
	most := ipc.MaxInlineBody
	if e.channel.Backlog() > patientBacklog {
		// The stub does not read: the data that waits for it must not grow.
		most = 0
	}
	complete := false
	defer func() {
		if !complete { // including a panic
			p.Release()
		}
	}()
	for i := range r.Outputs {
		if err := p.addOutput(&r.Outputs[i], most); err != nil {
			return nil, err
		}
	}
	complete = true
	return p, nil
}

// addOutput chooses where one output's bytes travel.
func (p *Response) addOutput(t *infer.Tensor, most int) error {
	e := p.encoder
	if m := cudaipc.Of(t); m != nil {
		// The request allowed outputs to stay there.
		p.outputs = append(p.outputs, preparedOutput{tensor: t, storage: onDevice(m)})
		return nil
	}
	at, size, ok := inFrame(t.Data, p.size, most)
	p.size = size
	if !ok {
		if _, lent := e.loans.Count(); int64(len(t.Data)) > e.channel.MaxArena()-lent {
			return infer.Errorf(infer.Unavailable,
				"Failed to increase the shared memory pool size to %d bytes. If you are running Triton inside docker, use '--shm-size' flag to control the shared memory region size. Error: a tensor needs %d bytes, and the model's process holds %d bytes of others and may hold %d (shm-max-byte-size, --model-max-memory-share)",
				lent, len(t.Data), lent, e.channel.MaxArena())
		}
		var err error
		if e.MayKeep != nil {
			err = e.MayKeep(int64(len(t.Data)))
		}
		if err != nil {
			return err
		}
		if at, err = e.inRequests(t); err != nil {
			return err
		}
	}
	p.outputs = append(p.outputs, preparedOutput{tensor: t, storage: at})
	return nil
}

// ToCopy returns the bytes of a response's outputs that Prepare must copy into the requests pool.
func ToCopy(pool *shm.Pool, r *infer.Response) (n int) {
	for i := range r.Outputs {
		if t := &r.Outputs[i]; len(t.Data) > ipc.MaxInline && own(pool, t) == nil {
			n += len(t.Data)
		}
	}
	return n
}

// Release releases the response's storage; loans hold the memory that was sent.
func (p *Response) Release() {
	for i := range p.outputs {
		p.outputs[i].storage.release()
	}
}

// Send lends the outputs and sends the frame, after a NAME for each name that is new to the stub.
// The caller holds its lock. After an error nothing is lent.
func (p *Response) Send(number uint64) error {
	err := p.describe()
	if err == nil {
		err = p.encoder.fill(ipc.InferResponse, number, p.size, p.write)
	}
	if err != nil {
		for i := range p.outputs {
			p.outputs[i].storage.takeBack(p.encoder.loans)
		}
	}
	return err
}

// describe creates the descriptors and lends the blocks.
func (p *Response) describe() error {
	for i := range p.outputs {
		out := &p.outputs[i]
		// The name comes first: the NAME must lie in the ring before the frame that uses it.
		t := out.tensor
		index, err := p.encoder.nameIndex(t.Name)
		if err != nil {
			return err
		}
		if err := p.encoder.name(&out.storage); err != nil {
			return err
		}
		if err := out.storage.lend(p.encoder.loans, nil); err != nil {
			return err
		}
		out.descriptor = ipc.Descriptor{Name: index, Type: uint8(t.DataType), Shape: t.Shape, Element: element(t)}
		out.storage.describe(&out.descriptor)
	}
	return nil
}

func (p *Response) write(body []byte) {
	clear(body)
	binary.LittleEndian.PutUint32(body, p.Hint)
	b := p.head.Put(body[ipc.InferResponseSize:])
	for i := range p.outputs {
		b = p.outputs[i].descriptor.Put(b)
		p.outputs[i].storage.fill(body)
	}
	b = b[putParameters(b, p.head.Parameters, p.parameters):]
	copy(b, p.text)
}

// nameIndex returns a name's index in the stub's table, sending a new name to the stub first. The
// caller holds its lock.
//
// bound: maxNames and maxNameBytes
func (e *Encoder) nameIndex(name string) (uint16, error) {
	if index, ok := e.Names.index[name]; ok {
		return index, nil
	}
	index := len(e.Names.list)
	if rule, detail := e.Names.refuses([]byte(name)); rule != "" {
		return 0, infer.Errorf(infer.Internal, "the models that were called have answered with %d different names of tensors, and now with %s: %s",
			index, strconv.QuoteToASCII(output.CutAt(name, 64)), detail)
	}
	// The table only grows by names that have been sent: the stub would take an unknown index for
	// the next name.
	if err := e.Send(ipc.Name, uint64(index), []byte(name)); err != nil {
		return 0, err
	}
	e.Names.append(name)
	e.Names.index[name] = uint16(index)
	return uint16(index), nil
}
