package bench

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"github.com/nereid-serving/nereid/cli/client"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
)

// target creates the callers of one protocol.
type target interface {
	// newCaller returns a caller with its own connection. If shared memory is used, the outputs of
	// each number have their own part of it.
	newCaller(number int) (caller, error)
	close()
}

// caller sends one request at a time.
type caller interface {
	// call sends a request and waits for the complete answer. first is the time until its first
	// response in ns, or 0 if there is only one.
	call(ctx context.Context, r request) (a outcome, err error)
	close()
}

// request names the sample to send, and its position in a sequence.
type request struct {
	sample     int
	sequence   uint64 // 0: none
	start, end bool
}

// outcome is the response to a request.
type outcome struct {
	responses int
	first     int64 // until the first response, in ns
}

// prepared holds everything that requests are made from.
type prepared struct {
	options *options
	server  grpcservice.GRPCInferenceServiceClient // for calls that are not measured
	model   *kserve.ModelConfig
	samples []sample
	memory  *sharedMemory // nil: tensors are in the requests
}

// failure is an error response.
type failure struct {
	text string
	// broken means that the connection is unusable.
	broken bool
}

func (f *failure) Error() string { return f.text }

func brokenf(format string, args ...any) error {
	return &failure{fmt.Sprintf(format, args...), true}
}

// connect returns a client for calls that are not measured, and what closes its connection. Each
// call has the limit of --timeout.
func (o *options) connect() (server grpcservice.GRPCInferenceServiceClient, end func(), err error) {
	if o.protocol == protocolHTTP {
		e := client.NewEndpoint(o.address, o.timeout)
		return grpcservice.NewGRPCInferenceServiceClient(e), e.Close, nil
	}
	limited := func(ctx context.Context, call string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		ctx, cancel := context.WithTimeout(ctx, o.timeout)
		defer cancel()
		return client.Plain(invoke(ctx, call, request, reply, conn, options...))
	}
	conn, err := o.address.GRPC(min(o.maxReply, client.MaxReply), grpc.WithUnaryInterceptor(limited))
	if err != nil {
		return nil, nil, err
	}
	return grpcservice.NewGRPCInferenceServiceClient(conn), func() { _ = conn.Close() }, nil
}

// newTarget returns the target of --protocol.
func newTarget(p *prepared) target {
	if p.options.protocol == protocolHTTP {
		return &httpTarget{prepared: p}
	}
	return &grpcTarget{prepared: p}
}

// request returns the request with a sample, by the caller of a number.
//
// bound: the sample, and mostDescribed
func (p *prepared) request(index int, s sample, number int) *client.Request {
	r := &client.Request{Model: p.options.model, Version: p.options.version}
	if p.options.protocol == protocolStream {
		r.Parameters = []infer.Parameter{client.Bool("triton_enable_empty_final_response", true)}
	}
	for i := range s {
		one := client.Tensor{Tensor: s[i]}
		if p.memory != nil {
			one.Region = p.memory.input(index, i)
		}
		r.Inputs = append(r.Inputs, one)
	}
	for i, output := range p.model.GetOutput() {
		one := client.Tensor{Tensor: infer.Tensor{Name: output.GetName()}}
		if p.memory != nil {
			one.Region = p.memory.output(number, i)
		}
		r.Outputs = append(r.Outputs, one)
	}
	return r
}
