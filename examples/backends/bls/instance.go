package bls

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/nereid-serving/nereid/sdk"
)

// The called models.
const (
	adding      = "addsub_python" // its output 0 is the sum
	subtracting = "addsub_onnx"   // its output 1 is the difference
)

type instance struct {
	server     sdk.Server
	log        *slog.Logger
	statistics sdk.Statistics
}

func (i *instance) Execute(ctx context.Context, requests []*sdk.Request) error {
	executing := sdk.Now()
	for _, request := range requests {
		computing := sdk.Now()
		err := i.answer(ctx, request)
		computed := sdk.Now()
		_ = i.statistics.Request(request, err == nil, sdk.Times{ExecStart: computing, ComputeStart: computing, ComputeEnd: computed, ExecEnd: computed})
		_ = request.Release(sdk.ReleaseAll)
	}
	ended := sdk.Now()
	_ = i.statistics.Batch(1, sdk.Times{ExecStart: executing, ComputeStart: executing, ComputeEnd: ended, ExecEnd: ended})
	return nil
}

func (i *instance) Close() {}

// answer calls both models and sends the response. It returns an error that it has also sent.
func (i *instance) answer(ctx context.Context, request *sdk.Request) error {
	response, err := request.NewResponse()
	if err != nil {
		return err
	}
	sum, difference, err := i.ask(ctx, request)
	if err == nil {
		// Responses of the models lie in the server's memory until Release.
		defer sum.Release()
		defer difference.Release()
		if err = output(response, sum, 0); err == nil {
			err = output(response, difference, 1)
		}
	}
	_ = response.Send(sdk.SendFinal, err)
	return err
}

// ask sends both requests before it waits for the first response.
func (i *instance) ask(ctx context.Context, request *sdk.Request) (sum, difference *sdk.InferResponse, err error) {
	for _, model := range []string{adding, subtracting} {
		if err := i.usable(ctx, model); err != nil {
			i.log.Error(err.Error())
			return nil, nil, sdk.Errorf(sdk.Internal, "Failed to send inference requests")
		}
	}
	first, second := i.begin(ctx, request, adding), i.begin(ctx, request, subtracting)
	sum, difference = <-first, <-second
	for _, r := range []*sdk.InferResponse{sum, difference} {
		if r.Err != nil {
			i.log.Error(r.Err.Error())
			err = r.Err
		}
	}
	if err != nil {
		sum.Release()
		difference.Release()
		return nil, nil, err
	}
	return sum, difference, nil
}

// begin calls one model. The response, or an error, arrives through the channel.
func (i *instance) begin(ctx context.Context, request *sdk.Request, model string) <-chan *sdk.InferResponse {
	answer := make(chan *sdk.InferResponse, 1)
	err := i.server.InferAsync(ctx, copyOf(request, model), func(r *sdk.InferResponse) { answer <- r })
	if err != nil {
		answer <- sdk.NewInferResponse(sdk.InferResponse{Err: sdk.Errorf(sdk.Internal, "%s", err)}, nil)
	}
	return answer
}

// usable returns an error if a model cannot be called.
func (i *instance) usable(ctx context.Context, model string) error {
	if ready, err := i.server.ModelReady(ctx, model, sdk.LatestVersion); err != nil || !ready {
		return fmt.Errorf("Failed to execute the inference request. Model '%s' is not ready.", model)
	}
	decoupled, err := i.server.Decoupled(model, sdk.LatestVersion)
	if err != nil {
		return err
	}
	if decoupled {
		return fmt.Errorf("Model '%s' is using the decoupled. This BLS Backend doesn't support models using the decoupled transaction policy.", model)
	}
	return nil
}

// copyOf returns a request for another model with the same inputs, which are not copied.
func copyOf(request *sdk.Request, model string) *sdk.InferRequest {
	asked := &sdk.InferRequest{
		Model: model, Version: sdk.LatestVersion, ID: request.ID(), Flags: request.Flags(), Outputs: request.Outputs(), From: request,
	}
	asked.CorrelationNumber, _ = request.CorrelationNumber() // an id is a number or a text; the other one is empty
	asked.CorrelationText, _ = request.CorrelationText()
	for at := range request.InputCount() {
		if input, err := request.InputAt(at); err == nil {
			asked.Inputs = append(asked.Inputs, sdk.Tensor{Name: input.Name(), Of: input})
		}
	}
	return asked
}

// output adds an output with the data of the output at index in another model's response.
func output(response *sdk.Response, from *sdk.InferResponse, index int) error {
	if index >= len(from.Outputs) {
		return nil // it was not requested
	}
	tensor := from.Outputs[index]
	data, err := response.Output(tensor.Name, tensor.DataType, tensor.Shape)
	if err != nil {
		return err
	}
	copy(data, tensor.Data)
	return nil
}
