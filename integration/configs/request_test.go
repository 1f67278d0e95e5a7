package configs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// sent is an input as the client sends it.
type sent struct {
	name, kind string
	shape      []int64
	data       []byte
}

// asked is a request that usually fits its model's config.
type asked struct {
	model      *model
	inputs     []sent
	outputs    []string
	classes    []int // per output; 0: none
	parameters map[string]any
}

// ask sends a request over a random protocol and checks that it gets one reply.
func (w *world) ask(r *rand.Rand) {
	q := requestTo(r, pick(r, w.models...))
	var err error
	switch r.IntN(3) {
	case 0:
		err = w.askHTTP(r, q)
	case 1:
		err = w.askGRPC(r, q)
	default:
		err = w.askStream(r, q)
	}
	if err != nil {
		w.t.Errorf("model %q: %v; request %+v; config:\n%s\nlog:\n%s", q.model.name, err, q, q.model.config, w.log.String())
	}
}

func requestTo(r *rand.Rand, m *model) *asked {
	q := &asked{model: m, parameters: make(map[string]any)}
	rows := int64(1 + r.IntN(3))
	if m.batch > 0 {
		rows = min(rows, m.batch)
	}
	for _, in := range m.inputs {
		if chance(r, 30) || strings.Contains(in.text, "optional") && chance(r, 2) {
			continue
		}
		s := sent{name: in.name, kind: in.kind.String()}
		if m.batch > 0 {
			s.shape = append(s.shape, rows)
		}
		for _, d := range in.dims {
			if d < 0 {
				d = int64(r.IntN(4))
			}
			s.shape = append(s.shape, d)
		}
		if chance(r, 20) {
			s.shape = make([]int64, r.IntN(4))
			for i := range s.shape {
				s.shape[i] = pick[int64](r, -1, 0, 1, 2, 1<<40, 1<<62)
			}
		}
		if chance(r, 40) {
			s.kind = pick(r, types...).String()
		}
		elements, ok := infer.Elements(s.shape)
		if !ok || elements > 1<<12 {
			elements = int64(r.IntN(3))
		}
		if in.kind == infer.Bytes {
			s.data = stringsOf(r, elements)
		} else {
			s.data = make([]byte, elements*int64(in.kind.Size()))
			for i := range s.data {
				s.data[i] = byte(r.Uint32())
			}
			if in.kind == infer.Bool {
				for i := range s.data {
					s.data[i] &= 1
				}
			}
		}
		if chance(r, 30) {
			s.data = s.data[:r.IntN(len(s.data)+1)]
		}
		q.inputs = append(q.inputs, s)
	}
	if chance(r, 30) {
		q.inputs = append(q.inputs, sent{name: "NO_SUCH", kind: "FP32", shape: []int64{1}, data: make([]byte, 4)})
	}
	for _, out := range m.outputs {
		if chance(r, 3) {
			q.outputs = append(q.outputs, out.name)
			q.classes = append(q.classes, pick(r, 0, 0, 1, 3, 100))
		}
	}
	if m.sequence && !chance(r, 20) {
		q.parameters["sequence_id"] = 1 + r.IntN(6)
		q.parameters["sequence_start"] = chance(r, 3)
		q.parameters["sequence_end"] = chance(r, 3)
	}
	if chance(r, 8) {
		q.parameters["priority"] = r.IntN(4)
		q.parameters["timeout"] = r.IntN(3000)
	}
	return q
}

func (w *world) askHTTP(r *rand.Rand, q *asked) error {
	binary := chance(r, 2)
	var inputs, outputs []map[string]any
	var tail []byte
	for _, in := range q.inputs {
		shape := in.shape
		if shape == nil {
			shape = []int64{}
		}
		inputs = append(inputs, map[string]any{
			"name": in.name, "datatype": in.kind, "shape": shape, "parameters": map[string]any{"binary_data_size": len(in.data)},
		})
		tail = append(tail, in.data...)
	}
	for i, name := range q.outputs {
		parameters := map[string]any{"binary_data": chance(r, 2)}
		if q.classes[i] > 0 {
			parameters["classification"] = q.classes[i]
		}
		outputs = append(outputs, map[string]any{"name": name, "parameters": parameters})
	}
	body := map[string]any{"inputs": inputs, "id": "x"}
	if len(inputs) == 0 {
		body["inputs"] = []any{}
	}
	if outputs != nil {
		body["outputs"] = outputs
	}
	q.parameters["binary_data_output"] = binary
	body["parameters"] = q.parameters
	head, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequest(http.MethodPost, w.base+"/v2/models/"+q.model.name+"/infer", bytes.NewReader(append(head, tail...)))
	if err != nil {
		return err
	}
	request.Header.Set("Inference-Header-Content-Length", fmt.Sprint(len(head)))
	if chance(r, 4) {
		request.Header.Set("Accept-Encoding", "gzip")
	}
	reply, err := w.http.Do(request)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	answer, err := io.ReadAll(reply.Body)
	if err != nil {
		return err
	}
	if reply.StatusCode != http.StatusOK {
		var failure struct{ Error *string } // "" is the error of the remaining requests of a cancelled sequence
		if err := json.Unmarshal(answer, &failure); err != nil || failure.Error == nil {
			return fmt.Errorf("got status %d with %q, want an error as JSON", reply.StatusCode, answer)
		}
		return refuseText(*failure.Error)
	}
	w.good.Add(1)
	if reply.Header.Get("Content-Encoding") != "" {
		return nil
	}
	var n int
	if text := reply.Header.Get("Inference-Header-Content-Length"); text != "" {
		if _, err := fmt.Sscan(text, &n); err != nil || n > len(answer) {
			return fmt.Errorf("got a header length of %q for %d bytes", text, len(answer))
		}
		answer = answer[:n]
	}
	if !json.Valid(unnumbered.ReplaceAll(answer, []byte("0"))) {
		return fmt.Errorf("got %q, want JSON", answer)
	}
	return nil
}

// unnumbered matches values that JSON numbers cannot express, although Triton's clients accept
// them.
var unnumbered = regexp.MustCompile(`-?(NaN|Infinity|inf|nan)`)

// refuseText returns an error if the text comes from a recovered panic.
func refuseText(text string) error {
	if strings.Contains(text, "internal error") {
		return fmt.Errorf("got the error %q, want one that says more", text)
	}
	return nil
}

func (q *asked) message() *kserve.ModelInferRequest {
	m := &kserve.ModelInferRequest{ModelName: q.model.name, Id: "x", Parameters: make(map[string]*kserve.InferParameter)}
	for _, in := range q.inputs {
		m.Inputs = append(m.Inputs, &kserve.ModelInferRequest_InferInputTensor{Name: in.name, Datatype: in.kind, Shape: in.shape})
		m.RawInputContents = append(m.RawInputContents, in.data)
	}
	for i, name := range q.outputs {
		out := &kserve.ModelInferRequest_InferRequestedOutputTensor{Name: name}
		if q.classes[i] > 0 {
			out.Parameters = map[string]*kserve.InferParameter{
				"classification": {ParameterChoice: &kserve.InferParameter_Int64Param{Int64Param: int64(q.classes[i])}},
			}
		}
		m.Outputs = append(m.Outputs, out)
	}
	for key, value := range q.parameters {
		switch v := value.(type) {
		case int:
			m.Parameters[key] = &kserve.InferParameter{ParameterChoice: &kserve.InferParameter_Int64Param{Int64Param: int64(v)}}
		case bool:
			m.Parameters[key] = &kserve.InferParameter{ParameterChoice: &kserve.InferParameter_BoolParam{BoolParam: v}}
		}
	}
	return m
}

func (w *world) askGRPC(r *rand.Rand, q *asked) error {
	limit, leaves := patience, chance(r, 8)
	if leaves {
		limit = time.Duration(r.IntN(2000)) * time.Microsecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_, err := w.grpc.ModelInfer(ctx, q.message())
	if leaves {
		return nil
	}
	if err == nil {
		w.good.Add(1)
	}
	if status.Code(err) == codes.DeadlineExceeded {
		return err
	}
	return refuseText(status.Convert(err).Message())
}

// askStream sends a request over a new stream and reads the stream to its end.
func (w *world) askStream(r *rand.Rand, q *asked) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, err := w.grpc.ModelStreamInfer(ctx)
	if err != nil {
		return err
	}
	message := q.message()
	message.Parameters["triton_enable_empty_final_response"] = &kserve.InferParameter{ParameterChoice: &kserve.InferParameter_BoolParam{BoolParam: true}}
	requests := 1 + r.IntN(2)
	for range requests {
		if err := stream.Send(message); err != nil {
			return err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	answers := 0
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("the stream ended: %w", err)
		}
		if err := refuseText(answer.GetErrorMessage()); err != nil {
			return err
		}
		if answer.GetErrorMessage() == "" {
			w.good.Add(1)
		}
		answers++
	}
	if !q.model.decoupled && answers != requests || answers < requests {
		return fmt.Errorf("got %d answers to %d requests", answers, requests)
	}
	return nil
}
