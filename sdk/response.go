package sdk

import (
	"encoding/binary"

	"github.com/nereid-serving/nereid/sdk/internal/execution"
)

// SendFinal is the flag of a request's last response. A model that is not decoupled sends exactly
// one response, with this flag.
const SendFinal = execution.SendFinal

// Response is one response to a request. Outputs and parameters are added first; then it is either
// sent or discarded, once. Only one goroutine may use it at a time.
type Response execution.Response

func (p *Response) own() *execution.Response { return (*execution.Response)(p) }

// Output adds an output and returns its bytes, whose number follows from the type and the shape.
// The caller fills them in completely before Send, as they may contain old data. The slice is nil
// if the output has no bytes. The shape includes the batch dimension; it is copied.
func (p *Response) Output(name string, dataType DataType, shape []int64) ([]byte, error) {
	return p.own().Output(name, dataType, shape)
}

// OutputSize adds an output like Output, but with an explicit size in bytes. It is for BYTES, where
// each element is a little-endian length of 4 bytes followed by that number of bytes.
func (p *Response) OutputSize(name string, dataType DataType, shape []int64, size int64) ([]byte, error) {
	return p.own().OutputSize(name, dataType, shape, size)
}

// OutputElements adds a BYTES output with the given elements.
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

// Forward adds an output that shares the bytes of an input, without a copy. The shape may differ
// from the input's if it has the same number of elements; nil means the input's shape. The input's
// request must not be released before Send.
func (p *Response) Forward(name string, shape []int64, input *Input) error {
	return p.own().Forward(name, shape, (*execution.Input)(input))
}

// SetParameter adds a parameter: a string, an integer, a bool or a float. Their order and
// duplicates are preserved.
func (p *Response) SetParameter(name string, value any) error {
	return p.own().SetParameter(name, value)
}

// Send sends the response. The response must not be used afterwards, even if Send fails. flags is 0
// or SendFinal. If err is not nil, the client receives it instead of the outputs; an *Error keeps
// its code. For a decoupled model, Send waits while the client is too far behind. It fails with
// Cancelled, and drops the response, when no client waits any more.
func (p *Response) Send(flags uint32, err error) error { return p.own().Send(flags, err) }

// Discard drops a response without sending it.
func (p *Response) Discard() { p.own().Discard() }

// ResponseFactory creates responses to one request, also after the request has been released. It is
// safe for concurrent use.
type ResponseFactory execution.Factory

func (f *ResponseFactory) own() *execution.Factory { return (*execution.Factory)(f) }

// NewResponse creates a response.
func (f *ResponseFactory) NewResponse() (*Response, error) {
	p, err := f.own().NewResponse()
	return (*Response)(p), err
}

// SendFlags sends SendFinal without a response, which ends the request's responses.
func (f *ResponseFactory) SendFlags(flags uint32) error { return f.own().Send(flags) }

// Cancelled reports whether no client waits for responses any more.
func (f *ResponseFactory) Cancelled() bool { return f.own().Request().Cancelled() }

// Close ends the use of the factory. Another factory of the same request may have sent the final
// response.
func (f *ResponseFactory) Close() { f.own().Close() }
