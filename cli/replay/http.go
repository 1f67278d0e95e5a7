package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"

	"github.com/nereid-serving/nereid/cli/client"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/recording"
)

// httpSender sends over HTTP, with all tensors in binary.
type httpSender struct {
	*client.Endpoint
	key string // of the recording
}

func newHTTP(o *options) *httpSender {
	return &httpSender{client.NewEndpoint(o.address, o.timeout), o.key}
}

func (s *httpSender) close() { s.Close() }

// requestOf returns the recorded request.
//
// bound: the record
func requestOf(r *recording.Record) *client.Request {
	q := &client.Request{Model: r.Model, ID: r.Request.ID, Parameters: r.Request.Parameters}
	if r.Request.Asked > 0 {
		q.Version = strconv.FormatInt(r.Request.Asked, 10)
	}
	for i := range r.Request.Tensors {
		q.Inputs = append(q.Inputs, client.Tensor{Tensor: r.Request.Tensors[i].Tensor})
	}
	for _, name := range r.Request.Wanted {
		q.Outputs = append(q.Outputs, client.Tensor{Tensor: infer.Tensor{Name: name}})
	}
	return q
}

// send implements sender.
//
// bound: the record, and mostAnswered
func (s *httpSender) send(ctx context.Context, r *recording.Record) ([]recording.Message, error) {
	q := requestOf(r)
	if len(q.Outputs) == 0 {
		q.Parameters = append(slices.Clip(q.Parameters), client.Bool("binary_data_output", true))
	}
	head, body, err := q.HTTP()
	if err != nil {
		return nil, err
	}
	header := http.Header{"Content-Type": {"application/octet-stream"}, client.LengthHeader: {strconv.Itoa(len(head))}}
	if s.key != "" {
		header.Set(recording.Header, s.key)
	}
	reply, err := s.Do(ctx, http.MethodPost, client.ModelPath(q.Model, q.Version)+"/infer", header, append(head, body...))
	var noDial client.DialError
	switch {
	case errors.As(err, &noDial) && ctx.Err() == nil:
		return nil, &unreachableError{s.Address, noDial}
	case err != nil:
		return nil, err
	}
	defer reply.Body.Close()
	most := mostAnswered(r)
	text, err := io.ReadAll(io.LimitReader(reply.Body, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > most {
		return nil, &longError{most}
	}
	if reply.StatusCode != http.StatusOK {
		var e struct{ Error string }
		if json.Unmarshal(text, &e) != nil {
			return nil, fmt.Errorf("the server answered with status %s and without a KServe error: %.100q", reply.Status, text)
		}
		return []recording.Message{{Err: &infer.Error{Message: e.Error}}}, nil
	}
	m, err := decodeHTTP(text, reply.Header.Get(client.LengthHeader))
	if err != nil {
		return nil, err
	}
	return []recording.Message{*m}, nil
}

// decodeHTTP decodes a response. length is the length of its head; without it there are no binary
// tensors.
//
// bound: the reply, of at most mostAnswered bytes
func decodeHTTP(text []byte, length string) (*recording.Message, error) {
	head, binary := text, []byte(nil)
	if length != "" {
		n, err := strconv.Atoi(length)
		if err != nil || n < 0 || n > len(text) {
			return nil, fmt.Errorf("the response has %s %q but %d bytes", client.LengthHeader, length, len(text))
		}
		head, binary = text[:n], text[n:]
	}
	var fields struct {
		ID         string          `json:"id"`
		Parameters json.RawMessage `json:"parameters"`
		Outputs    []struct {
			Name       string
			Shape      []int64
			DataType   string
			Parameters struct {
				Size *int `json:"binary_data_size"`
			}
		} `json:"outputs"`
	}
	if err := json.Unmarshal(head, &fields); err != nil {
		return nil, fmt.Errorf("the response is not JSON: %w", err)
	}
	m := &recording.Message{ID: fields.ID}
	var err error
	if m.Parameters, err = infer.ParseParameters(fields.Parameters); err != nil {
		return nil, err
	}
	for _, out := range fields.Outputs {
		size := out.Parameters.Size
		if size == nil || *size < 0 || *size > len(binary) {
			return nil, fmt.Errorf("output %s of the response has no binary data", out.Name)
		}
		m.Tensors = append(m.Tensors, recording.Tensor{Tensor: infer.Tensor{
			Name: out.Name, DataType: infer.ParseDataType(out.DataType), Shape: out.Shape, Data: binary[:*size],
		}})
		binary = binary[*size:]
	}
	return m, nil
}
