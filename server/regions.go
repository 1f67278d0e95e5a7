package server

import (
	"context"
	"net/http"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// errRegionsOff refuses clients' shared memory. Triton's own text names a flag,
// which would not help here.
var errRegionsOff = &infer.Error{Code: infer.Unsupported,
	Message: "This server does not support the shared memory of clients."}

// noRegion says that a region of one kind of shared memory, "system" or "cuda",
// is not there.
func noRegion(kind, region string) error {
	return infer.Errorf(infer.NotFound, "Unable to find %s shared memory region: '%s'", kind, region)
}

// serveRegionStatus serves GET …/status of one kind of shared memory, "system"
// or "cuda". There is none, so all that can be asked for is unknown.
func serveRegionStatus(w *reply, kind, region string) error {
	if region != "" {
		return noRegion(kind, region)
	}
	w.send(http.StatusOK, []byte("[]"))
	return nil
}

// serveRegionUnregister serves POST …/unregister, which succeeds for regions that
// are not there: clients begin with it.
func serveRegionUnregister(w *reply) error {
	w.send(http.StatusOK, nil)
	return nil
}

func (g *GRPC) systemRegionStatus(_ context.Context, q *kserve.SystemSharedMemoryStatusRequest) (*kserve.SystemSharedMemoryStatusResponse, error) {
	if name := q.GetName(); name != "" {
		return nil, noRegion("system", name)
	}
	return &kserve.SystemSharedMemoryStatusResponse{}, nil
}

func (g *GRPC) cudaRegionStatus(_ context.Context, q *kserve.CudaSharedMemoryStatusRequest) (*kserve.CudaSharedMemoryStatusResponse, error) {
	if name := q.GetName(); name != "" {
		return nil, noRegion("cuda", name)
	}
	return &kserve.CudaSharedMemoryStatusResponse{}, nil
}

func (g *GRPC) systemRegionUnregister(context.Context, *kserve.SystemSharedMemoryUnregisterRequest) (*kserve.SystemSharedMemoryUnregisterResponse, error) {
	return &kserve.SystemSharedMemoryUnregisterResponse{}, nil
}

func (g *GRPC) cudaRegionUnregister(context.Context, *kserve.CudaSharedMemoryUnregisterRequest) (*kserve.CudaSharedMemoryUnregisterResponse, error) {
	return &kserve.CudaSharedMemoryUnregisterResponse{}, nil
}
