package sdk

import (
	"encoding/binary"

	"github.com/nereid-serving/nereid/sdk/internal/execution"
)

// SendFinal is the flag of a request's last response. A model that is not decoupled has one response, with this flag.
const SendFinal = execution.SendFinal

// Response is one response to a request. Outputs and parameters are added, then it is sent, once, or discarded. It is for one
// goroutine at a time.
type Response execution.Response

func (p *Response) own() *execution.Response { return (*execution.Response)(p) }

// Output adds an output and returns its bytes, which the caller fills in before Send: as many as type and shape make. They are
// zero only if fresh: all must be written. An output of no bytes has none (nil). The shape has the batch dimension; it is copied.
func (p *Response) Output(name string, dataType DataType, shape []int64) ([]byte, error) {
	return p.own().Output(name, dataType, shape)
}

// OutputSize is Output of the given size in bytes, for BYTES: each element is a length of 4 bytes, little-endian, and that many
// bytes.
func (p *Response) OutputSize(name string, dataType DataType, shape []int64, size int64) ([]byte, error) {
	return p.own().OutputSize(name, dataType, shape, size)
}

// OutputElements adds an output of BYTES.
func (p *Response) OutputElements(name string, shape []int64, elements [][]byte) error {
	size := 4 * int64(len(elements))
	for _, e := range elements {
		size += int64(len(e))
	}
	data, err := p.own().OutputSize(name, Bytes, shape, size)
	if err != nil {
		return err
	}
	for _, e := range elements {
		binary.LittleEndian.PutUint32(data, uint32(len(e)))
		data = data[4+copy(data[4:], e):]
	}
	return nil
}

// Forward adds an output whose bytes are those of an input, without a copy. The shape may differ from the input's as long as it has
// as many elements; nil is the input's. The input's request is not released before Send.
func (p *Response) Forward(name string, shape []int64, input *Input) error {
	return p.own().Forward(name, shape, (*execution.Input)(input))
}

// SetParameter adds a parameter: a string, an integer, a bool or a float. Order and repetitions are kept.
func (p *Response) SetParameter(name string, value any) error {
	return p.own().SetParameter(name, value)
}

// Send sends the response and ends its use, whatever it returns. flags is 0 or SendFinal. If err is not nil, the client gets that
// in place of the outputs; an *Error keeps its code. Of a decoupled model Send waits while the client is too far behind, and
// fails with Cancelled when no client waits any more; the response is dropped then.
func (p *Response) Send(flags uint32, err error) error { return p.own().Send(flags, err) }

// Discard gives up a response that is not to be sent.
func (p *Response) Discard() { p.own().Discard() }

// ResponseFactory makes responses to one request, also after the request has been released. It may be used by any goroutine.
type ResponseFactory execution.Factory

func (f *ResponseFactory) own() *execution.Factory { return (*execution.Factory)(f) }

// NewResponse makes a response.
func (f *ResponseFactory) NewResponse() (*Response, error) {
	p, err := f.own().NewResponse()
	return (*Response)(p), err
}

// SendFlags sends SendFinal without a response: nothing follows.
func (f *ResponseFactory) SendFlags(flags uint32) error { return f.own().Send(flags) }

// Cancelled reports whether no client waits for responses any more.
func (f *ResponseFactory) Cancelled() bool { return f.own().Request().Cancelled() }

// Close says that the factory makes nothing more. The final response may have been sent by another one.
func (f *ResponseFactory) Close() { f.own().Close() }
