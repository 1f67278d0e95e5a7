package grpc

import (
	"context"

	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/server"
)

func (g *FrontEnd) systemRegionStatus(_ context.Context, q *kserve.SystemSharedMemoryStatusRequest) (*kserve.SystemSharedMemoryStatusResponse, error) {
	if name := q.GetName(); name != "" {
		return nil, server.NoRegion("system", name)
	}
	return &kserve.SystemSharedMemoryStatusResponse{}, nil
}

func (g *FrontEnd) cudaRegionStatus(_ context.Context, q *kserve.CudaSharedMemoryStatusRequest) (*kserve.CudaSharedMemoryStatusResponse, error) {
	if name := q.GetName(); name != "" {
		return nil, server.NoRegion("cuda", name)
	}
	return &kserve.CudaSharedMemoryStatusResponse{}, nil
}

func (g *FrontEnd) systemRegionUnregister(context.Context, *kserve.SystemSharedMemoryUnregisterRequest) (*kserve.SystemSharedMemoryUnregisterResponse, error) {
	return &kserve.SystemSharedMemoryUnregisterResponse{}, nil
}

func (g *FrontEnd) cudaRegionUnregister(context.Context, *kserve.CudaSharedMemoryUnregisterRequest) (*kserve.CudaSharedMemoryUnregisterResponse, error) {
	return &kserve.CudaSharedMemoryUnregisterResponse{}, nil
}
