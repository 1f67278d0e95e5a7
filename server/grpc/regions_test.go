package grpc

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/servertest"
)

// withRegions lets clients register shared memory, and tells where its file lies.
func withRegions(t testing.TB, path *string) func(*server.Parts, *servertest.Blocks) {
	return func(parts *server.Parts, blocks *servertest.Blocks) {
		parts.Regions, *path = servertest.Regions(t, blocks)
	}
}

// TestRegionMethodsAnswerByTheTable registers, shows and unregisters regions of both kinds.
func TestRegionMethodsAnswerByTheTable(t *testing.T) {
	var path string
	s := startWith(t, Config{}, nil, withRegions(t, &path))
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
