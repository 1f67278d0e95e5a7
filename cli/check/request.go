package check

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/nereid-serving/nereid/cli/tensors"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/server/rest/inference"
)

// textBytes is the length of each random element of a BYTES input.
const textBytes = 8

// randomRequest creates a request that a configuration allows: a batch of 1, size 1 for variable
// dimensions, without optional inputs. For a sequence model it is a complete sequence, unless
// iterative_sequence makes the server create it.
func randomRequest(c *kserve.ModelConfig) (*infer.Request, error) {
	q := &infer.Request{Model: c.GetName(), Version: infer.LatestVersion}
	if s := c.GetSequenceBatching(); s != nil && !s.GetIterativeSequence() {
		beOneSequence(q)
	}
	for _, in := range c.GetInput() {
		if in.GetOptional() {
			continue
		}
		t := infer.Tensor{Name: in.GetName(), DataType: infer.DataType(in.GetDataType())}
		if c.GetMaxBatchSize() > 0 && !in.GetIsShapeTensor() {
			t.Shape = append(t.Shape, 1)
		}
		for _, d := range in.GetDims() {
			t.Shape = append(t.Shape, max(d, 1))
		}
		if err := tensors.Fill(&t, false, textBytes); err != nil {
			return nil, fmt.Errorf("input %s: %w", t.Name, err)
		}
		q.Inputs = append(q.Inputs, t)
	}
	return q, nil
}

func beOneSequence(q *infer.Request) {
	q.Correlation.Number, q.Flags = 1, infer.SequenceStart|infer.SequenceEnd
}

// readRequest reads the JSON of a request, as clients send it, from the text of a file.
func readRequest(text []byte, path, model string) (*infer.Request, error) {
	var body struct {
		ID         string
		Parameters json.RawMessage
		Inputs     []struct {
			Name     string
			Shape    []int64
			DataType string
			Data     json.RawMessage
		}
		Outputs []struct {
			Name       string
			Parameters map[string]json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &body); err != nil {
		return nil, fmt.Errorf("%s: %w; want a JSON request, such as {\"inputs\": [{\"name\": \"A\", \"shape\": [1], \"datatype\": \"FP32\", \"data\": [1]}]}", path, err)
	}
	if len(body.Inputs) == 0 {
		return nil, fmt.Errorf("%s has no inputs; want a JSON request with a list named inputs", path)
	}
	q := &infer.Request{Model: model, Version: infer.LatestVersion, ID: body.ID}
	if body.Parameters != nil {
		if err := inference.ReadParameters(body.Parameters, q); err != nil {
			return nil, fmt.Errorf("%s: parameters: %w", path, err)
		}
	}
	for _, in := range body.Inputs {
		t := infer.Tensor{Name: in.Name, DataType: infer.ParseDataType(in.DataType), Shape: in.Shape}
		if !t.DataType.Valid() {
			return nil, fmt.Errorf("%s: input %s has datatype %q, want one such as FP32, INT64 or BYTES", path, in.Name, in.DataType)
		}
		err := tensors.Read(&t, in.Data)
		if err == nil {
			err = tensors.Check(&t)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: input %s: %w", path, in.Name, err)
		}
		q.Inputs = append(q.Inputs, t)
	}
	for _, out := range body.Outputs {
		if out.Name == "" {
			return nil, fmt.Errorf("%s: an output has no name", path)
		}
		for name := range out.Parameters {
			if name != "binary_data" { // it concerns only the encoding of the response
				return nil, fmt.Errorf("%s: output %s has the parameter %s, want only its name: classification and shared memory are not supported here", path, out.Name, name)
			}
		}
		q.Outputs = append(q.Outputs, out.Name)
	}
	return q, nil
}

func readAll(path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(os.Stdin)
	}
	return os.ReadFile(path)
}

// ask sends a request to the server's models, and returns the outputs of its first response as a
// client would see them, without data.
func (c *check) ask(ctx context.Context, q *infer.Request) (outputs []infer.Tensor, err error) {
	if q.Inputs == nil {
		q.Inputs = []infer.Tensor{}
	}
	first := true
	refused := c.server.Registry().Infer(ctx, q, func(r *infer.Response) {
		defer r.Release()
		switch {
		case r.Err != nil && err == nil:
			err = r.Err
		case first && !r.Empty:
			first = false
			for i := range r.Outputs {
				out := &r.Outputs[i]
				outputs = append(outputs, infer.Tensor{Name: strings.Clone(out.Name), DataType: out.DataType, Shape: slices.Clone(out.Shape)})
			}
		}
	})
	if refused != nil {
		return nil, refused
	}
	return outputs, err
}

// codeFault matches exceptions and errors caused by the code, whatever the values are.
var codeFault = regexp.MustCompile(`\b(?:AttributeError|ImportError|IndentationError|ModuleNotFoundError|NameError|NotImplementedError|SyntaxError|UnboundLocalError): ` +
	`|Number of InferenceResponse objects|in the execute (?:function )?return|execute returned no response|NumPy dtype is not supported|incompatible constructor arguments`)

// sequenceCode matches a model.py that distinguishes sequences itself.
var sequenceCode = regexp.MustCompile(`(?m)^[^#\n]*\.correlation_id\(`)

// try sends a request to each loaded model, unless its warm-up has sent one.
func (c *check) try(ctx context.Context) error {
	for _, e := range c.found {
		m := c.modelReport(e)
		if !*m.Loaded || e.Description == nil || c.report.hasError(m.Name) || len(c.models) > 0 && !slices.Contains(c.models, e.Identity.Name) {
			continue
		}
		info, err := c.server.Registry().Model(e.Identity.Name, infer.LatestVersion)
		if err != nil {
			continue // several repositories have a model of this name
		}
		if c.request == "" && slices.ContainsFunc(info.Config.GetModelWarmup(), func(w *kserve.ModelWarmup) bool { return w.GetBatchSize() > 0 }) {
			m.Tried = "warm-up"
			continue
		}
		if len(info.Config.GetInput())+len(info.Config.GetOutput()) == 0 && c.request == "" {
			continue // a warning has been reported
		}
		var q *infer.Request
		if c.request != "" {
			if q, err = readRequest(c.body, c.request, e.Identity.Name); err != nil {
				return err
			}
		} else if q, err = randomRequest(info.Config); err != nil {
			return err
		} else if info.Config.GetSequenceBatching() == nil && sequenceCode.Match(readStart(scriptOf(e, info.Version))) {
			beOneSequence(q)
		}
		if _, err = c.ask(ctx, q); ctx.Err() != nil {
			return ctx.Err()
		}
		if m.Tried = "request"; err == nil {
			continue
		}
		m.Tried = "failed"
		f := c.faultOf(e, configSource(e), severityError, "try", err)
		f.File = c.shown(e, f.File)
		if f.Remedy == "" && c.request == "" && len(q.Inputs) > 0 && !codeFault.MatchString(err.Error()) {
			f.Remedy = "the request had random values: if the model cannot handle them, give a request with --request FILE, or a model_warmup"
		}
		c.report.add(f)
	}
	return nil
}
