// Package minimal is the smallest useful backend. Its models return the values of their input IN0,
// four numbers of type INT32, as their output OUT0, and log which requests share a batch.
//
// Start here to learn the hooks; package recommended shows a backend that is ready for other users.
package minimal

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"strings"

	"github.com/nereid-serving/nereid/sdk"
)

// New initializes the backend. This one has no settings and no state.
func New(*sdk.BackendEnv) (sdk.Backend, error) { return backend{}, nil }

type backend struct{}

func (backend) Attributes() sdk.Attributes { return sdk.Attributes{} }

// NewModel does not check the model's config; package recommended shows how to do that.
func (backend) NewModel(env *sdk.ModelEnv) (sdk.Model, error) { return &model{env.Name, env.Log}, nil }

func (backend) Close() {}

type model struct {
	name string
	log  *slog.Logger
}

func (m *model) NewInstance(*sdk.InstanceEnv) (sdk.Instance, error) { return &instance{m}, nil }

func (m *model) Close() {}

type instance struct{ model *model }

// Execute responds to all requests. A failure of one request is that request's error. If it is not
// even possible to create a response, Execute returns the error and has taken none of the requests.
func (i *instance) Execute(_ context.Context, requests []*sdk.Request) error {
	responses := make([]*sdk.Response, len(requests))
	for at, request := range requests {
		var err error
		if responses[at], err = request.NewResponse(); err != nil {
			return err
		}
	}

	// A real backend gathers the inputs in the same way, to compute with all of them at once.
	var batch []byte
	ends := make([]int, len(requests))
	failures := make([]error, len(requests))
	for at, request := range requests {
		input, err := request.Input("IN0")
		if err == nil {
			batch = append(batch, input.Data()...)
		}
		ends[at], failures[at] = len(batch), err
	}
	i.model.log.Info(fmt.Sprintf("model %s: requests in batch %d", i.model.name, len(requests)))
	i.model.log.Info("batched IN0 value: " + numbers(batch))

	start := 0
	for at, request := range requests {
		err := failures[at]
		if err == nil {
			err = scatter(request, responses[at], batch[start:ends[at]])
		}
		start = ends[at]
		// The last response of a request is sent before its release. Either may fail if the server stops;
		// nothing more can be done for the request then.
		_ = responses[at].Send(sdk.SendFinal, err)
		_ = request.Release(sdk.ReleaseAll)
	}
	return nil
}

func (i *instance) Close() {}

// scatter adds one request's output, with its part of the batch. The shape is that of the input:
// [4], or [n, 4] if requests are batched.
func scatter(request *sdk.Request, response *sdk.Response, part []byte) error {
	input, err := request.Input("IN0")
	if err != nil {
		return err
	}
	output, err := response.Output("OUT0", sdk.Int32, input.Shape())
	if err != nil {
		return err
	}
	copy(output, part)
	return nil
}

// numbers formats values of type INT32, as in "[ 1, 2 ]".
func numbers(data []byte) string {
	texts := make([]string, len(data)/4)
	for i := range texts {
		texts[i] = fmt.Sprint(int32(binary.LittleEndian.Uint32(data[4*i:])))
	}
	return "[ " + strings.Join(texts, ", ") + " ]"
}
