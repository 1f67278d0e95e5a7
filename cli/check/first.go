package check

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/diagnosis"
)

// guessedSize is the size of inputs with only a name. It is not 1, so that dimensions of outputs
// that follow it are recognizable.
const guessedSize = 3

// writeConfig writes a config.pbtxt for a model without one: its inputs are those of a request, and
// its outputs those of the response.
func (c *check) writeConfig(ctx context.Context, stdout io.Writer) error {
	e := c.only()
	path := filepath.Join(e.Directory, configName)
	info, err := c.server.Registry().Model(c.model, infer.LatestVersion)
	if err != nil {
		return nil //nolint:nilerr // it failed to load, which has been reported
	}
	if len(info.Config.GetInput())+len(info.Config.GetOutput()) > 0 {
		return fmt.Errorf("model %s needs no %s: its auto_complete_config has its inputs and outputs", c.model, configName)
	}
	written := &kserve.ModelConfig{Name: c.model, Backend: info.Config.GetBackend()}
	guess, err := config.ParseText(configName, []byte(diagnosis.FirstConfig(readStart(scriptOf(e, info.Version)))))
	if err != nil {
		return err
	}
	var q *infer.Request
	if c.request != "" {
		if q, err = readRequest(c.body, c.request, c.model); err != nil {
			return err
		}
		q.Outputs = nil // the reply shows the model's outputs
		for i := range q.Inputs {
			in := &q.Inputs[i]
			written.Input = append(written.Input, &kserve.ModelInput{Name: in.Name, DataType: kserve.DataType(in.DataType), Dims: free(in.Shape)})
		}
	} else {
		written.Input = guess.GetInput()
		sized := config.Clone(written)
		for _, in := range sized.GetInput() {
			in.Dims = []int64{guessedSize}
		}
		if q, err = randomRequest(sized); err != nil {
			return err
		}
	}
	if err := c.answered(ctx, e, written, q); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		f := c.faultOf(e, nil, severityError, "try", err)
		f.File, f.Remedy = c.shown(e, f.File), "give a suitable request with --request FILE"
		c.report.add(f)
		return nil
	}
	return write(path, written, stdout, c.json)
}

// only returns the one model that the command line names.
func (c *check) only() *models.Examined {
	return c.found[slices.IndexFunc(c.found, func(e *models.Examined) bool { return e.Identity.Name == c.model })]
}

// free converts a shape to configuration dimensions. Dimensions above 1 become variable.
func free(shape []int64) []int64 {
	dims := slices.Clone(shape)
	for i, d := range dims {
		if d != 1 {
			dims[i] = -1
		}
	}
	return dims
}

// unconfigured matches the log text about an output that is not in the configuration.
var unconfigured = regexp.MustCompile(`^output '(.+)' is not in the configuration of model `)

// answered loads the model with a configuration, and adds the outputs of its response to that. A
// first request finds their names, and a second one their types and shapes.
func (c *check) answered(ctx context.Context, e *models.Examined, written *kserve.ModelConfig, q *infer.Request) error {
	for range 2 {
		if err := c.server.Registry().Load(ctx, c.model, string(config.JSON(written)), nil); err != nil {
			return err
		}
		c.log.forget()
		outputs, err := c.ask(ctx, q)
		if err != nil {
			return err
		}
		written.Output = nil
		for i := range outputs {
			out := &outputs[i]
			written.Output = append(written.Output, &kserve.ModelOutput{Name: out.Name, DataType: kserve.DataType(out.DataType), Dims: free(out.Shape)})
		}
		for _, l := range c.log.forget() {
			if m := unconfigured.FindStringSubmatch(l.Message); m != nil {
				written.Output = append(written.Output, &kserve.ModelOutput{Name: m[1], DataType: kserve.DataType_TYPE_FP32, Dims: []int64{-1}})
			}
		}
	}
	if len(written.Output) == 0 {
		return infer.Errorf(infer.Internal, "model '%s' answers the request without an output", c.model)
	}
	// The findings about the missing configuration are resolved.
	c.report.Findings = slices.DeleteFunc(c.report.Findings, func(f *finding) bool { return f.Rule == "no-tensors" && f.Model == e.Identity.String() })
	return nil
}

// write writes a configuration in the usual text form.
func write(path string, c *kserve.ModelConfig, stdout io.Writer, quiet bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, "backend: %q\n", c.GetBackend())
	tensor := func(field, name string, datatype kserve.DataType, dims []int64) {
		numbers := strings.Trim(strings.ReplaceAll(fmt.Sprint(dims), " ", ", "), "[]")
		fmt.Fprintf(&b, "%s { name: %q data_type: %s dims: [ %s ] }\n", field, name, datatype, numbers)
	}
	for _, in := range c.GetInput() {
		tensor("input", in.GetName(), in.GetDataType(), in.GetDims())
	}
	for _, out := range c.GetOutput() {
		tensor("output", out.GetName(), out.GetDataType(), out.GetDims())
	}
	if _, err := config.ParseText(path, []byte(b.String())); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // the usual mode of repository files
	if err != nil {
		return err
	}
	if _, err := f.WriteString(b.String()); err != nil {
		_ = f.Close()
		return err
	}
	if !quiet {
		fmt.Fprintf(stdout, "wrote %s:\n%s", path, b.String())
	}
	return f.Close()
}
