package server

import (
	"context"

	"github.com/nereid-serving/nereid/kserve"
)

func (g *GRPC) systemRegionStatus(_ context.Context, q *kserve.SystemSharedMemoryStatusRequest) (*kserve.SystemSharedMemoryStatusResponse, error) {
	if name := q.GetName(); name != "" {
		return nil, NoRegion("system", name)
	}
	return &kserve.SystemSharedMemoryStatusResponse{}, nil
}

func (g *GRPC) cudaRegionStatus(_ context.Context, q *kserve.CudaSharedMemoryStatusRequest) (*kserve.CudaSharedMemoryStatusResponse, error) {
	if name := q.GetName(); name != "" {
		return nil, NoRegion("cuda", name)
	}
	return &kserve.CudaSharedMemoryStatusResponse{}, nil
}

func (g *GRPC) systemRegionUnregister(context.Context, *kserve.SystemSharedMemoryUnregisterRequest) (*kserve.SystemSharedMemoryUnregisterResponse, error) {
	return &kserve.SystemSharedMemoryUnregisterResponse{}, nil
}

func (g *GRPC) cudaRegionUnregister(context.Context, *kserve.CudaSharedMemoryUnregisterRequest) (*kserve.CudaSharedMemoryUnregisterResponse, error) {
	return &kserve.CudaSharedMemoryUnregisterResponse{}, nil
}
