package grpc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	grpcserver "github.com/nereid-serving/nereid/server/grpc"
	"github.com/nereid-serving/nereid/server/servertest"
)

// TestRegionMethodsAnswerByTheTable registers, lists and unregisters system and CUDA regions, and
// compares the replies with a table.
func TestRegionMethodsAnswerByTheTable(t *testing.T) {
	var path string
	s := startWith(t, grpcserver.Config{}, nil, servertest.WithRegions(t, &path))
	register := func(name, key string, offset, size uint64) proto.Message {
		return &kserve.SystemSharedMemoryRegisterRequest{Name: name, Key: key, Offset: offset, ByteSize: size}
	}
	status := func(name string) proto.Message { return &kserve.SystemSharedMemoryStatusRequest{Name: name} }
	for _, test := range []struct {
		method  string
		request proto.Message
		reply   proto.Message
		code    codes.Code
		want    string
	}{
		{"SystemSharedMemoryRegister", register("r", "", 0, 1), &kserve.SystemSharedMemoryRegisterResponse{}, codes.InvalidArgument,
			"cannot register shared memory region 'r' - invalid shm key ''"},
		{"SystemSharedMemoryRegister", register("r", "none", 0, 1), &kserve.SystemSharedMemoryRegisterResponse{}, codes.Internal, "Unable to open shared memory region: 'none'"},
		{"SystemSharedMemoryRegister", register("r", "/client", 65536, 7), &kserve.SystemSharedMemoryRegisterResponse{}, codes.OK, ""},
		{"SystemSharedMemoryRegister", register("r", "/client", 65536, 7), &kserve.SystemSharedMemoryRegisterResponse{}, codes.AlreadyExists,
			"shared memory region 'r' already in manager"},
		{"SystemSharedMemoryRegister", register("s", "client", 0, 1), &kserve.SystemSharedMemoryRegisterResponse{}, codes.OK, ""},
		{"SystemSharedMemoryStatus", status(""), &kserve.SystemSharedMemoryStatusResponse{}, codes.OK, `
			regions: {key: "r" value: {name: "r" key: "/client" offset: 65536 byte_size: 7}} regions: {key: "s" value: {name: "s" key: "client" byte_size: 1}}`},
		{"SystemSharedMemoryStatus", status("s"), &kserve.SystemSharedMemoryStatusResponse{}, codes.OK, `regions: {key: "s" value: {name: "s" key: "client" byte_size: 1}}`},
		{"SystemSharedMemoryStatus", status("t"), &kserve.SystemSharedMemoryStatusResponse{}, codes.NotFound, "Unable to find system shared memory region: 't'"},
		{"CudaSharedMemoryStatus", &kserve.CudaSharedMemoryStatusRequest{}, &kserve.CudaSharedMemoryStatusResponse{}, codes.OK, ""},
		{"CudaSharedMemoryStatus", &kserve.CudaSharedMemoryStatusRequest{Name: "s"}, &kserve.CudaSharedMemoryStatusResponse{}, codes.NotFound,
			"The region named 's' is registered as system shared memory, not CUDA shared memory"},
		{"CudaSharedMemoryRegister", &kserve.CudaSharedMemoryRegisterRequest{Name: "c"}, &kserve.CudaSharedMemoryRegisterResponse{}, codes.InvalidArgument,
			"failed to register CUDA shared memory region: 'c', GPUs not supported"},
		{"CudaSharedMemoryUnregister", &kserve.CudaSharedMemoryUnregisterRequest{}, &kserve.CudaSharedMemoryUnregisterResponse{}, codes.OK, ""},
		{"SystemSharedMemoryUnregister", &kserve.SystemSharedMemoryUnregisterRequest{Name: "r"}, &kserve.SystemSharedMemoryUnregisterResponse{}, codes.OK, ""},
		{"SystemSharedMemoryUnregister", &kserve.SystemSharedMemoryUnregisterRequest{Name: "r"}, &kserve.SystemSharedMemoryUnregisterResponse{}, codes.OK, ""},
		{"SystemSharedMemoryStatus", status(""), &kserve.SystemSharedMemoryStatusResponse{}, codes.OK, `regions: {key: "s" value: {name: "s" key: "client" byte_size: 1}}`},
		{"SystemSharedMemoryUnregister", &kserve.SystemSharedMemoryUnregisterRequest{}, &kserve.SystemSharedMemoryUnregisterResponse{}, codes.OK, ""},
		{"SystemSharedMemoryStatus", status(""), &kserve.SystemSharedMemoryStatusResponse{}, codes.OK, ""},
	} {
		s.invoke(t, test.method, test.request, test.reply, test.code, test.want)
	}
}

// inRegion returns the parameters that place a tensor in a client's region.
func inRegion(region string, offset, size int) map[string]*kserve.InferParameter {
	return paramsOf("shared_memory_region", region, "shared_memory_offset", offset, "shared_memory_byte_size", size)
}

// placed returns a request whose INT32 input of n elements is at from in the region, and whose
// output has room bytes at to.
func placed(model string, n, from, to, room int) *kserve.ModelInferRequest {
	return &kserve.ModelInferRequest{ModelName: model,
		Inputs:  []*kserve.ModelInferRequest_InferInputTensor{{Name: "INPUT0", Datatype: "INT32", Shape: []int64{int64(n)}, Parameters: inRegion("r", from, 4*n)}},
		Outputs: []*kserve.ModelInferRequest_InferRequestedOutputTensor{{Name: "OUTPUT0", Parameters: inRegion("r", to, room)}}}
}

// registered runs a front end with a region "r", which contains the INT32 values 0, 1, 2 and so on.
// path is the region's file.
func registered(t *testing.T, core *servertest.Core) (s *testServer, path string) {
	t.Helper()
	s = startWith(t, grpcserver.Config{}, core, servertest.WithRegions(t, &path))
	data := make([]byte, 65536)
	for i := range len(data) / 4 {
		binary.LittleEndian.PutUint32(data[4*i:], uint32(i))
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteAt(data, 0)
	}
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	_, err = s.client.SystemSharedMemoryRegister(rpcContext(t), &kserve.SystemSharedMemoryRegisterRequest{Name: "r", Key: servertest.RegionFile, ByteSize: servertest.RegionBytes})
	if err != nil {
		t.Fatal(err)
	}
	return s, path
}

// lies returns n bytes of the file at offset.
func lies(t *testing.T, path string, offset, n int) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data[offset:][:n]
}

// TestInferencesUseRegions checks that inferences read inputs from a client's region and write
// outputs to it, for small and large tensors, and checks the errors of invalid ranges.
func TestInferencesUseRegions(t *testing.T) {
	s, path := registered(t, nil)
	for _, n := range []int{0, 3, 5000} {
		got, err := s.client.ModelInfer(rpcContext(t), placed("id_int32", n, 400, 100_000, 4*n))
		want := &kserve.ModelInferResponse{ModelName: "id_int32", ModelVersion: "1", RawOutputContents: [][]byte{{}},
			Outputs: []*kserve.ModelInferResponse_InferOutputTensor{{Name: "OUTPUT0", Datatype: "INT32", Shape: []int64{int64(n)}}}}
		if err != nil || !proto.Equal(got, want) {
			t.Errorf("%d elements: got %v and error %v, want %v", n, got, err, want)
		}
		if !bytes.Equal(lies(t, path, 100_000, 4*n), lies(t, path, 400, 4*n)) {
			t.Errorf("%d elements: the output is not in the region", n)
		}
	}

	// One input is in the region and the other in the message, and so are the outputs.
	got, err := s.client.ModelInfer(rpcContext(t), &kserve.ModelInferRequest{ModelName: "multi",
		Inputs: []*kserve.ModelInferRequest_InferInputTensor{{Name: "INPUT0", Datatype: "INT32", Shape: []int64{1}, Parameters: inRegion("r", 28, 4)},
			{Name: "INPUT3", Datatype: "BOOL", Shape: []int64{2}}},
		RawInputContents: [][]byte{{1, 0}},
		Outputs: []*kserve.ModelInferRequest_InferRequestedOutputTensor{{Name: "OUTPUT3", Parameters: inRegion("r", 200_000, 100)},
			{Name: "OUTPUT0", Parameters: paramsOf("binary_data", true)}}})
	if err != nil || len(got.GetOutputs()) != 2 || !bytes.Equal(bytes.Join(got.GetRawOutputContents(), []byte("|")), []byte("\x07\x00\x00\x00|")) {
		t.Errorf("got %v and error %v, want 7 and nothing", got, err)
	}
	if data := lies(t, path, 200_000, 3); !bytes.Equal(data, []byte{1, 0, 0}) {
		t.Errorf("got %v in the region, want 1 0 0", data)
	}

	refused := func(q *kserve.ModelInferRequest, code codes.Code, text string) {
		t.Helper()
		_, err := s.client.ModelInfer(rpcContext(t), q)
		wantStatus(t, err, code, text)
	}
	refused(placed("id_int32", 2, servertest.RegionBytes, 0, 8), codes.InvalidArgument, "Invalid offset for shared memory region: 'r'")
	refused(placed("id_int32", 2, -8, 0, 8), codes.InvalidArgument, "Invalid offset for shared memory region: 'r'")
	refused(placed("id_int32", 2, servertest.RegionBytes-4, 0, 8), codes.InvalidArgument, "Invalid offset + byte size for shared memory region: 'r'")
	refused(placed("id_int32", 2, 0, 4, -2), codes.InvalidArgument,
		"Integer overflow detected: byte_size (18446744073709551614) + offset (4) exceeds maximum value (18446744073709551615) for region 'r'")
	refused(placed("id_int32", 2, 0, 8, 7), codes.Internal,
		"shared memory size specified with the request for output 'OUTPUT0' (7 bytes) should be at least 8 bytes to hold the results")
	twice := placed("id_int32", 2, 0, 8, 8)
	twice.Outputs = append(twice.Outputs, &kserve.ModelInferRequest_InferRequestedOutputTensor{Name: "OUTPUT1", Parameters: inRegion("none", 0, 8)})
	refused(twice, codes.NotFound, "Unable to find shared memory region: 'none'")

	if err := os.Truncate(path, 10); err != nil {
		t.Fatal(err)
	}
	refused(placed("id_int32", 2, 65536, 0, 8), codes.InvalidArgument, "shared memory region 'r' has been truncated by its owner")
	refused(placed("id_int32", 2, 0, 65536, 8), codes.InvalidArgument, "shared memory region 'r' has been truncated by its owner")
}

// TestNothingIsWrittenForAClientThatHasLeft checks that no output is written to the region of a
// client that has disconnected, because it may have reused the memory.
func TestNothingIsWrittenForAClientThatHasLeft(t *testing.T) {
	core := servertest.NewCore()
	entered, left := make(chan struct{}), make(chan struct{})
	echo := core.Models["id_int32"].Infer
	core.Models["id_int32"].Infer = func(ctx context.Context, r *infer.Request, send infer.Sender) error {
		defer close(left)
		close(entered)
		<-ctx.Done()
		return echo(ctx, r, send)
	}
	s, path := registered(t, core)
	ctx, cancel := context.WithCancel(rpcContext(t))
	go func() {
		<-entered
		cancel()
	}()
	if _, err := s.client.ModelInfer(ctx, placed("id_int32", 2, 40, 500_000, 8)); err == nil {
		t.Error("the request that was cancelled succeeded")
	}
	<-left
	if err := s.stop(); err != nil { // after the request has ended
		t.Error(err)
	}
	if data := lies(t, path, 500_000, 8); !bytes.Equal(data, make([]byte, 8)) {
		t.Errorf("got %v in the region, want nothing", data)
	}
}

// TestStreamsUseRegions checks that each response of a stream is in the region when its message
// arrives, even if the region was unregistered meanwhile, and that a response that does not fit is
// an error by itself.
func TestStreamsUseRegions(t *testing.T) {
	next := make(chan struct{})
	three := decoupledModel("three", func(_ context.Context, r *infer.Request, send infer.Sender) error {
		for i := range 3 {
			<-next
			send(&infer.Response{Model: r.Model, Version: 1, ID: r.ID, Final: i == 2, Outputs: []infer.Tensor{
				{Name: "OUTPUT0", DataType: infer.Int32, Shape: []int64{int64(1 + i)}, Data: bytes.Repeat([]byte{byte(1 + i)}, 4*(1+i))}}})
		}
		return nil
	})
	s, path := registered(t, servertest.NewCore(three))
	stream := s.open(t, rpcContext(t))
	sendAll(t, stream, withID(placed("id_int32", 2, 40, 500_000, 8), "a"), withID(placed("id_int32", 2, 40, 500_100, 4), "b"),
		withID(placed("three", 1, 0, 600_000, 8), "c"))
	for _, want := range []string{"id_int32/1 a true 0",
		"id_int32/ b true: shared memory size specified with the request for output 'OUTPUT0' (4 bytes) should be at least 8 bytes to hold the results"} {
		if got := receive(t, stream); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if !bytes.Equal(lies(t, path, 500_000, 8), lies(t, path, 40, 8)) {
		t.Error("the output is not in the region")
	}
	for i, want := range []string{"three/1 c false 0", "three/1 c false 0",
		"three/ c true: shared memory size specified with the request for output 'OUTPUT0' (8 bytes) should be at least 12 bytes to hold the results"} {
		next <- struct{}{}
		if got := receive(t, stream); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if data := lies(t, path, 600_000, 4); i < 2 && data[0] != byte(1+i) {
			t.Errorf("response %d: got %v in the region", i, data)
		}
		if _, err := s.client.SystemSharedMemoryUnregister(rpcContext(t), &kserve.SystemSharedMemoryUnregisterRequest{}); err != nil {
			t.Error(err)
		}
	}
	sendAll(t, stream, withID(placed("id_int32", 2, 40, 500_000, 8), "d"))
	if got, want := receive(t, stream), "/ d -: Unable to find shared memory region: 'r'"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, end := receiveAll(t, stream); len(got) > 0 || !errors.Is(end, io.EOF) {
		t.Errorf("got %q and %v, want the end", got, end)
	}
}

// TestStreamsThatEndLeaveNoRegion checks that queued responses that are never written release the
// region after their client has disconnected.
func TestStreamsThatEndLeaveNoRegion(t *testing.T) {
	sent := make(chan struct{})
	many := decoupledModel("many", func(_ context.Context, r *infer.Request, send infer.Sender) error {
		defer close(sent)
		for i := range 40 {
			send(&infer.Response{Model: r.Model, Version: 1, ID: r.ID, Final: i == 39, Outputs: []infer.Tensor{
				{Name: "OUTPUT0", DataType: infer.Int32, Shape: []int64{1}, Data: make([]byte, 4)}}})
		}
		return nil
	})
	s, path := registered(t, servertest.NewCore(many))
	ctx, cancel := context.WithCancel(rpcContext(t))
	stream := s.open(t, ctx)
	sendAll(t, stream, placed("many", 1, 0, 8, 4))
	<-sent
	cancel()
	if _, err := s.client.SystemSharedMemoryUnregister(rpcContext(t), &kserve.SystemSharedMemoryUnregisterRequest{}); err != nil {
		t.Error(err)
	}
	testkit.Eventually(t, servertest.Patience, func() bool {
		links, err := filepath.Glob("/proc/self/fd/*")
		for _, link := range links {
			if to, _ := os.Readlink(link); to == path {
				return false
			}
		}
		return err == nil
	})
}

// TestOutputsInTheirPlaces checks that an output that the backend has written to the client's
// region is described in the reply but not written again, and that the region is released.
func TestOutputsInTheirPlaces(t *testing.T) {
	m := servertest.NewModel("puts", 0, "INPUT0 INT32 -1", "OUTPUT0 UINT8 -1")
	m.Infer = servertest.PutInPlace(100_000)
	s, path := registered(t, servertest.NewCore(m))
	request := placed("puts", 2, 40, 300_000, 200_000)
	want := &kserve.ModelInferResponse{ModelName: "puts", ModelVersion: "1", RawOutputContents: [][]byte{{}},
		Outputs: []*kserve.ModelInferResponse_InferOutputTensor{{Name: "OUTPUT0", Datatype: "UINT8", Shape: []int64{100_000}}}}
	got, err := s.client.ModelInfer(rpcContext(t), request)
	if err != nil || !proto.Equal(got, want) {
		t.Errorf("got %v and error %v, want %v", got, err, want)
	}
	check := func() {
		t.Helper()
		data := lies(t, path, 0, servertest.RegionBytes)
		if data[299_999] != 0 || data[300_000] != 7 || data[399_999] != 7 || data[400_000] != 0 {
			t.Error("the region has other bytes than the backend has put there")
		}
	}
	check()
	stream := s.open(t, rpcContext(t))
	sendAll(t, stream, withID(request, "a"))
	if got, want := receive(t, stream), "puts/1 a true 0"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	check()
	if _, err := s.client.SystemSharedMemoryUnregister(rpcContext(t), &kserve.SystemSharedMemoryUnregisterRequest{}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, servertest.Patience, func() bool {
		maps, err := os.ReadFile("/proc/self/maps")
		return err == nil && !bytes.Contains(maps, []byte(path))
	})
	if got, end := receiveAll(t, stream); len(got) > 0 || !errors.Is(end, io.EOF) {
		t.Errorf("got %q and %v, want the end", got, end)
	}
}
