package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/recording"
)

const lengthHeader = "Inference-Header-Content-Length"

// httpSender sends over HTTP, with all tensors in binary.
type httpSender struct {
	url    string
	key    string // of the recording
	client *http.Client
}

func newHTTP(o *options) *httpSender {
	address := o.url
	if !strings.HasPrefix(address, "https://") {
		address = "http://" + address
	}
	return &httpSender{url: address, key: o.key, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: o.concurrency}}}
}

func (s *httpSender) close() { s.client.CloseIdleConnections() }

type httpTensor struct {
	Name       string         `json:"name"`
	Shape      []int64        `json:"shape,omitempty"`
	DataType   string         `json:"datatype,omitempty"`
	Parameters map[string]any `json:"parameters,omitempty"`
}

// send implements sender.
//
// bound: the record, and mostAnswered
func (s *httpSender) send(ctx context.Context, r *recording.Record) ([]recording.Message, error) {
	head, body, err := encodeHTTP(&r.Request)
	if err != nil {
		return nil, err
	}
	path := s.url + "/v2/models/" + url.PathEscape(r.Model)
	if r.Request.Asked > 0 {
		path += "/versions/" + strconv.FormatInt(r.Request.Asked, 10)
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, path+"/infer", bytes.NewReader(append(head, body...)))
	if err != nil {
		return nil, err
	}
	q.Header.Set("Content-Type", "application/octet-stream")
	if s.key != "" {
		q.Header.Set(recording.Header, s.key)
	}
	q.Header.Set(lengthHeader, strconv.Itoa(len(head)))
	reply, err := s.client.Do(q)
	var network *net.OpError
	switch {
	case errors.As(err, &network) && network.Op == "dial" && ctx.Err() == nil:
		return nil, &unreachableError{strings.TrimPrefix(s.url, "http://"), network}
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
	m, err := decodeHTTP(text, reply.Header.Get(lengthHeader))
	if err != nil {
		return nil, err
	}
	return []recording.Message{*m}, nil
}

// encodeHTTP encodes the head and the tensors of a request.
//
// bound: the record
func encodeHTTP(m *recording.Message) (head, body []byte, err error) {
	fields := struct {
		ID         string          `json:"id,omitempty"`
		Parameters json.RawMessage `json:"parameters,omitempty"`
		Inputs     []httpTensor    `json:"inputs"`
		Outputs    []httpTensor    `json:"outputs,omitempty"`
	}{ID: m.ID, Inputs: []httpTensor{}}
	parameters := m.Parameters
	if len(m.Wanted) == 0 {
		parameters = append(parameters[:len(parameters):len(parameters)], infer.Parameter{Name: "binary_data_output", Kind: infer.BoolParameter, Bool: true})
	}
	if len(parameters) > 0 {
		fields.Parameters = infer.AppendParameters(nil, parameters)
	}
	for i := range m.Tensors {
		t := &m.Tensors[i]
		one := httpTensor{Name: t.Name, Shape: t.Shape, DataType: t.DataType.String(), Parameters: map[string]any{"binary_data_size": len(t.Data)}}
		if t.Shape == nil {
			one.Shape = []int64{}
		}
		fields.Inputs = append(fields.Inputs, one)
		body = append(body, t.Data...)
	}
	for _, name := range m.Wanted {
		fields.Outputs = append(fields.Outputs, httpTensor{Name: name, Parameters: map[string]any{"binary_data": true}})
	}
	head, err = json.Marshal(fields)
	return head, body, err
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
			return nil, fmt.Errorf("the response has %s %q but %d bytes", lengthHeader, length, len(text))
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
