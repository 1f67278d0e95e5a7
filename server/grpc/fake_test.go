package grpc_test

import (
	"context"
	"os"
	"runtime"
	"testing"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
	"github.com/nereid-serving/nereid/server"
	grpcserver "github.com/nereid-serving/nereid/server/grpc"
	"github.com/nereid-serving/nereid/server/servertest"
)

// testServer is a gRPC front end over fakes, with a client.
type testServer struct {
	*grpcserver.FrontEnd
	parts  server.Parts
	core   *servertest.Core
	blocks *servertest.Blocks
	conn   *grpc.ClientConn
	client grpcservice.GRPCInferenceServiceClient
	cancel context.CancelFunc // ends the context of Run
	stop   func() error       // cancels, and returns the result of Run
}

// start runs a front end until the test ends. All memory must then have been released.
func start(t testing.TB, cfg grpcserver.Config, core *servertest.Core, dial ...grpc.DialOption) *testServer {
	t.Helper()
	return startWith(t, cfg, core, func(*server.Parts, *servertest.Blocks) {}, dial...)
}

// startWith is start with parts modified by change.
func startWith(t testing.TB, cfg grpcserver.Config, core *servertest.Core, change func(*server.Parts, *servertest.Blocks), dial ...grpc.DialOption) *testServer {
	t.Helper()
	if core == nil {
		core = servertest.NewCore()
	}
	cfg.Address = "127.0.0.1"
	blocks := &servertest.Blocks{Account: budget.New(budget.Config{Limit: 1 << 30})}
	parts := server.Parts{Core: core, Allocate: blocks.Allocate, Memory: blocks.Account,
		Logging: &servertest.Log[server.LogSettings]{S: server.LogSettings{Info: true, Warning: true, Error: true, Format: server.LogFormatDefault}}}
	change(&parts, blocks)
	g, err := grpcserver.New(cfg, parts, zerolog.New(os.Stderr).Level(zerolog.WarnLevel))
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	cancel, stop := servertest.Run(t, g)
	s := &testServer{FrontEnd: g, parts: parts, core: core, blocks: blocks, cancel: cancel, stop: stop}
	s.conn, s.client = s.dial(t, dial...)
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		s.settled(t)
	})
	return s
}

// dial returns a separate client, which is closed when the test ends.
func (s *testServer) dial(t testing.TB, options ...grpc.DialOption) (*grpc.ClientConn, grpcservice.GRPCInferenceServiceClient) {
	t.Helper()
	options = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30), grpc.MaxCallSendMsgSize(1<<30)),
	}, options...)
	conn, err := grpc.NewClient(s.Addr().String(), options...)
	if err != nil {
		t.Fatalf("NewClient: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, grpcservice.NewGRPCInferenceServiceClient(conn)
}

// settled waits until no request holds memory. Responses dropped with a broken connection are
// released by the garbage collector.
func (s *testServer) settled(t testing.TB) {
	t.Helper()
	testkit.Eventually(t, servertest.Patience, func() bool {
		if s.blocks.Lent.Load() == 0 && s.blocks.Account.Total() == s.blocks.Account.Used(budget.Connections) { // its connections may be open
			return true
		}
		runtime.GC()
		return false
	})
}

// rpcContext returns a context that ends with the test, or after a time limit if the test hangs.
func rpcContext(t testing.TB, keys ...string) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*servertest.Patience)
	t.Cleanup(cancel)
	return metadata.AppendToOutgoingContext(ctx, keys...)
}

// wantStatus checks the status of an RPC.
func wantStatus(t testing.TB, err error, code codes.Code, message string) {
	t.Helper()
	if s := status.Convert(err); s.Code() != code || s.Message() != message {
		t.Errorf("got %s %q, want %s %q", s.Code(), s.Message(), code, message)
	}
}

// paramOf returns an InferParameter, which has no value if v is nil.
func paramOf(v any) *kserve.InferParameter {
	switch v := v.(type) {
	case bool:
		return &kserve.InferParameter{ParameterChoice: &kserve.InferParameter_BoolParam{BoolParam: v}}
	case int:
		return &kserve.InferParameter{ParameterChoice: &kserve.InferParameter_Int64Param{Int64Param: int64(v)}}
	case string:
		return &kserve.InferParameter{ParameterChoice: &kserve.InferParameter_StringParam{StringParam: v}}
	case float64:
		return &kserve.InferParameter{ParameterChoice: &kserve.InferParameter_DoubleParam{DoubleParam: v}}
	case uint64:
		return &kserve.InferParameter{ParameterChoice: &kserve.InferParameter_Uint64Param{Uint64Param: v}}
	}
	return &kserve.InferParameter{}
}

// paramsOf makes a parameter map from alternating names and values.
func paramsOf(pairs ...any) map[string]*kserve.InferParameter {
	m := map[string]*kserve.InferParameter{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i].(string)] = paramOf(pairs[i+1])
	}
	return m
}

// rawRequest returns a request with one input tensor of raw bytes.
func rawRequest(model, datatype string, shape []int64, data []byte) *kserve.ModelInferRequest {
	return &kserve.ModelInferRequest{ModelName: model,
		Inputs:           []*kserve.ModelInferRequest_InferInputTensor{{Name: "INPUT0", Datatype: datatype, Shape: shape}},
		RawInputContents: [][]byte{data}}
}

// int32s returns a request with n elements of INT32.
func int32s(model string, n int) *kserve.ModelInferRequest {
	data := make([]byte, 4*n)
	for i := range data {
		data[i] = byte(i * 7)
	}
	return rawRequest(model, "INT32", []int64{int64(n)}, data)
}

// decoupledModel returns a decoupled model whose Infer is f.
func decoupledModel(name string, f func(ctx context.Context, req *infer.Request, send infer.Sender) error) *servertest.Model {
	m := servertest.NewModel(name, 0, "INPUT0 INT32 -1", "OUTPUT0 INT32 -1")
	m.Info.Config.ModelTransactionPolicy = &kserve.ModelTransactionPolicy{Decoupled: true}
	m.Infer = f
	return m
}

// benchCodec sends pre-encoded messages and counts the received bytes.
type benchCodec struct{}

// benchReply is the length of a received message.
type benchReply int

func (benchCodec) Name() string { return "proto" }

func (benchCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (benchCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*benchReply) = benchReply(data.Len())
	return nil
}

func encodeBench(b testing.TB, m proto.Message) []byte {
	b.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	return data
}
