package recording

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/nereid-serving/nereid/infer"
)

// Extension is the extension of the files.
const Extension = ".record"

// Format is the version of the format.
const Format = 1

// maxFileBytes bounds a file that is read. A Recorder writes no larger one: JSON is at most a few
// times longer than the content in memory.
const maxFileBytes = 8 * maxWaitingBytes

// Record is one request with its responses.
type Record struct {
	Model     string
	Version   int64 // of the responses; 0 if unknown
	Decoupled bool
	Received  time.Time
	Took      time.Duration
	Request   Message
	Answers   []Message
}

// Message is a request, a response or an error.
type Message struct {
	// Asked is the requested version, usually infer.LatestVersion.
	Asked      int64
	ID         string
	Parameters []infer.Parameter // of a request, also those of its sequence, priority and timeout
	Redacted   []string          // names of parameters whose values were left out
	Tensors    []Tensor
	Wanted     []string // the requested outputs; none means all
	Err        *infer.Error
	After      time.Duration // since the request was received
}

// Tensor is an input or an output. Data is nil if it was redacted.
type Tensor struct {
	infer.Tensor
	Redacted bool
}

// The JSON of a file.
type (
	jsonFile struct {
		Format    int           `json:"nereid_record"`
		Model     string        `json:"model"`
		Version   int64         `json:"version,omitempty"`
		Decoupled bool          `json:"decoupled"`
		Received  time.Time     `json:"received"`
		Took      int64         `json:"took_us"`
		Messages  []jsonMessage `json:"messages"`
	}
	jsonMessage struct {
		Kind   string `json:"kind"`
		Head   int64  `json:"head"`
		Binary int64  `json:"binary"`
		After  int64  `json:"after_us,omitempty"`
	}
	jsonHead struct {
		ModelName    string          `json:"model_name,omitempty"`
		ModelVersion string          `json:"model_version,omitempty"`
		ID           string          `json:"id,omitempty"`
		Parameters   json.RawMessage `json:"parameters,omitempty"`
		Redacted     []string        `json:"redacted_parameters,omitempty"`
		Inputs       []jsonTensor    `json:"inputs,omitempty"`
		Outputs      []jsonTensor    `json:"outputs,omitempty"`
		Error        *string         `json:"error,omitempty"`
		Code         string          `json:"code,omitempty"`
	}
	jsonTensor struct {
		Name       string                `json:"name"`
		Shape      []int64               `json:"shape,omitempty"`
		DataType   string                `json:"datatype,omitempty"`
		Parameters *jsonTensorParameters `json:"parameters,omitempty"`
	}
	jsonTensorParameters struct {
		Size     *int64 `json:"binary_data_size,omitempty"`
		Redacted bool   `json:"redacted,omitempty"`
	}
)

// The kinds of messages.
const (
	kindRequest  = "request"
	kindResponse = "response"
	kindError    = "error"
)

// WriteTo writes the file.
//
// bound: one record at a time, which is charged
func (r *Record) WriteTo(w io.Writer) (n int64, err error) {
	file := jsonFile{Format: Format, Model: r.Model, Version: r.Version, Decoupled: r.Decoupled, Received: r.Received.UTC(), Took: r.Took.Microseconds()}
	var pieces [][]byte
	add := func(kind string, m *Message) error {
		head, err := json.Marshal(r.head(kind, m))
		if err != nil {
			return err
		}
		described := jsonMessage{Kind: kind, Head: int64(len(head)), After: m.After.Microseconds()}
		pieces = append(pieces, head)
		for i := range m.Tensors {
			described.Binary += int64(len(m.Tensors[i].Data))
			pieces = append(pieces, m.Tensors[i].Data)
		}
		file.Messages = append(file.Messages, described)
		return nil
	}
	if err := add(kindRequest, &r.Request); err != nil {
		return 0, err
	}
	for i := range r.Answers {
		kind := kindResponse
		if r.Answers[i].Err != nil {
			kind = kindError
		}
		if err := add(kind, &r.Answers[i]); err != nil {
			return 0, err
		}
	}
	line, err := json.Marshal(file)
	if err != nil {
		return 0, err
	}
	for _, piece := range append([][]byte{append(line, '\n')}, pieces...) {
		written, err := w.Write(piece)
		if n += int64(written); err != nil {
			return n, err
		}
	}
	return n, nil
}

// bound: one record at a time, which is charged
func (r *Record) head(kind string, m *Message) *jsonHead {
	h := &jsonHead{ID: m.ID, Parameters: encodeParameters(m.Parameters), Redacted: m.Redacted}
	switch kind {
	case kindError:
		h.Error, h.Code = &m.Err.Message, m.Err.Code.String()
	case kindRequest:
		if m.Asked > 0 {
			h.ModelVersion = strconv.FormatInt(m.Asked, 10)
		}
		h.Inputs = describe(m.Tensors)
		for _, name := range m.Wanted {
			h.Outputs = append(h.Outputs, jsonTensor{Name: name})
		}
	default:
		h.ModelName, h.ModelVersion = r.Model, strconv.FormatInt(r.Version, 10)
		h.Outputs = describe(m.Tensors)
	}
	return h
}

// bound: one record at a time, which is charged
func describe(tensors []Tensor) []jsonTensor {
	list := make([]jsonTensor, 0, len(tensors))
	for i := range tensors {
		t := &tensors[i]
		one := jsonTensor{Name: t.Name, Shape: t.Shape, DataType: t.DataType.String(), Parameters: &jsonTensorParameters{Redacted: t.Redacted}}
		if !t.Redacted {
			size := int64(len(t.Data))
			one.Parameters.Size = &size
		}
		list = append(list, one)
	}
	return list
}

// encodeParameters returns parameters as a JSON object. A value without a JSON number becomes a
// text.
//
// bound: one record at a time, which is charged
func encodeParameters(parameters []infer.Parameter) json.RawMessage {
	if len(parameters) == 0 {
		return nil
	}
	list := make([]infer.Parameter, len(parameters))
	for i, p := range parameters {
		if p.Kind == infer.DoubleParameter && (math.IsNaN(p.Double) || math.IsInf(p.Double, 0)) {
			p = infer.Parameter{Name: p.Name, Kind: infer.StringParameter, String: strconv.FormatFloat(p.Double, 'g', -1, 64)}
		}
		list[i] = p
	}
	return infer.AppendParameters(nil, list)
}

// Open reads the record in a file.
func Open(path string) (*Record, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFileBytes {
		return nil, fmt.Errorf("%s: it has %d bytes, want at most %d", path, info.Size(), maxFileBytes)
	}
	r, err := Read(f, info.Size())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// Read reads a record of size bytes. It takes a few times as much memory, whatever the file says.
//
// bound: the file, which the operator names
func Read(from io.Reader, size int64) (*Record, error) {
	in := bufio.NewReader(io.LimitReader(from, size))
	line, err := in.ReadBytes('\n')
	var file jsonFile
	if err != nil || json.Unmarshal(line, &file) != nil || file.Format == 0 {
		return nil, errors.New("it is not a record: want a line of JSON with \"nereid_record\" first")
	}
	if file.Format != Format {
		return nil, fmt.Errorf("it has format %d, want %d: this release reads no other", file.Format, Format)
	}
	rest := size - int64(len(line))
	r := &Record{Model: file.Model, Version: file.Version, Decoupled: file.Decoupled, Received: file.Received, Took: time.Duration(file.Took) * time.Microsecond}
	for i, described := range file.Messages {
		m, err := readMessage(in, described, &rest)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		switch {
		case (i == 0) != (described.Kind == kindRequest):
			return nil, fmt.Errorf("message %d is of kind %q, want the request first and once", i, described.Kind)
		case i == 0:
			r.Request = *m
		default:
			r.Answers = append(r.Answers, *m)
		}
	}
	if len(file.Messages) == 0 || file.Model == "" {
		return nil, errors.New("it has no request")
	}
	return r, nil
}

// bound: the rest of the file
func readMessage(in io.Reader, described jsonMessage, rest *int64) (*Message, error) {
	if described.Head < 0 || described.Binary < 0 || described.Head > *rest || described.Binary > *rest-described.Head {
		return nil, fmt.Errorf("it has %d and %d bytes, and the file %d more: it was cut off", described.Head, described.Binary, *rest)
	}
	*rest -= described.Head + described.Binary
	text, binary := make([]byte, described.Head), make([]byte, described.Binary)
	if _, err := io.ReadFull(in, text); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(in, binary); err != nil {
		return nil, err
	}
	var h jsonHead
	if err := json.Unmarshal(text, &h); err != nil {
		return nil, err
	}
	parameters, err := infer.ParseParameters(h.Parameters)
	if err != nil {
		return nil, err
	}
	m := &Message{Asked: infer.LatestVersion, ID: h.ID, Parameters: parameters, Redacted: h.Redacted, After: time.Duration(described.After) * time.Microsecond}
	tensors := h.Outputs
	switch described.Kind {
	case kindError:
		if h.Error == nil {
			return nil, errors.New("it has no text of an error")
		}
		m.Err = &infer.Error{Code: codeNamed(h.Code), Message: *h.Error}
		return m, nil
	case kindRequest:
		if h.ModelVersion != "" {
			if m.Asked, err = strconv.ParseInt(h.ModelVersion, 10, 64); err != nil {
				return nil, fmt.Errorf("model_version is %q, want a number", h.ModelVersion)
			}
		}
		for _, out := range h.Outputs {
			m.Wanted = append(m.Wanted, out.Name)
		}
		tensors = h.Inputs
	}
	for _, t := range tensors {
		one := Tensor{Tensor: infer.Tensor{Name: t.Name, DataType: infer.ParseDataType(t.DataType), Shape: t.Shape}}
		switch p := t.Parameters; {
		case p == nil || p.Redacted:
			one.Redacted = true
		case p.Size == nil || *p.Size < 0 || *p.Size > int64(len(binary)):
			return nil, fmt.Errorf("tensor %s has more bytes than the message", t.Name)
		default:
			one.Data, binary = binary[:*p.Size:*p.Size], binary[*p.Size:]
		}
		m.Tensors = append(m.Tensors, one)
	}
	return m, nil
}

func codeNamed(name string) infer.Code {
	for c := infer.Unknown; c.Valid(); c++ {
		if c.String() == name {
			return c
		}
	}
	return infer.Unknown
}
