package grpc

import (
	"context"
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/clientshm"
	"github.com/nereid-serving/nereid/server/grpc/message"
)

// services describes all methods. The generated descriptions would decode a message before the
// handler runs, and report the library's errors. life ends with the server; it is the context of
// loads and unloads, which go on after the client has disconnected.
func (g *FrontEnd) services(life context.Context) []*grpc.ServiceDesc {
	inference := &grpc.ServiceDesc{
		ServiceName: grpcservice.GRPCInferenceService_ServiceDesc.ServiceName,
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{
			unary(g, "ServerLive", server.GroupHealth, g.serverLive),
			unary(g, "ServerReady", server.GroupHealth, g.serverReady),
			unary(g, "ModelReady", server.GroupHealth, g.modelReady),
			unary(g, "ServerMetadata", server.GroupMetadata, g.serverMetadata),
			unary(g, "ModelMetadata", server.GroupMetadata, g.modelMetadata),
			unary(g, "ModelConfig", server.GroupModelConfig, g.modelConfig),
			unary(g, "ModelStatistics", server.GroupStatistics, g.modelStatistics),
			unary(g, "RepositoryIndex", server.GroupModelRepository, g.repositoryIndex),
			unary(g, loadMethod, server.GroupModelRepository, g.repositoryModelLoad(life)),
			unary(g, "RepositoryModelUnload", server.GroupModelRepository, g.repositoryModelUnload(life)),
			unary(g, "LogSettings", server.GroupLogging, g.logSettings),
			unary(g, "SystemSharedMemoryStatus", server.GroupSharedMemory, g.systemRegionStatus),
			unary(g, "SystemSharedMemoryUnregister", server.GroupSharedMemory, g.systemRegionUnregister),
			unary(g, "CudaSharedMemoryStatus", server.GroupSharedMemory, g.cudaRegionStatus),
			unary(g, "CudaSharedMemoryUnregister", server.GroupSharedMemory, g.cudaRegionUnregister),
			unary(g, "SystemSharedMemoryRegister", server.GroupSharedMemory, g.systemRegionRegister),
			unary(g, "CudaSharedMemoryRegister", server.GroupSharedMemory, g.cudaRegionRegister),
			unary(g, "TraceSetting", server.GroupTrace, g.traceSettings),
			{
				StreamName: "ModelInfer",
				Handler:    g.handler(server.GroupInference, errStopping, g.modelInfer),
			},
			{
				StreamName:    "ModelStreamInfer",
				Handler:       g.handler(server.GroupInference, errStopping, g.modelStreamInfer),
				ServerStreams: true,
				ClientStreams: true,
			},
		},
	}
	// Watch is left out: clients get UNIMPLEMENTED, as from Triton.
	health := &grpc.ServiceDesc{
		ServiceName: grpc_health_v1.Health_ServiceDesc.ServiceName,
		HandlerType: (*any)(nil),
		Streams:     []grpc.StreamDesc{unary(g, "Check", server.GroupHealth, g.healthCheck)},
	}
	return []*grpc.ServiceDesc{inference, health}
}

// loadMethod is the only method besides inference that accepts large messages.
const loadMethod = "RepositoryModelLoad"

// unary describes a method with one request message and one reply message.
func unary[Q any, P interface {
	*Q
	proto.Message
}, A proto.Message](g *FrontEnd, name, group string, method func(context.Context, P) (A, error)) grpc.StreamDesc {
	plan := message.PlanOf(P(new(Q)))
	limits := g.parts.Memory.Limits()
	most := message.Bounds{Bytes: int(min(limits.SmallBody, math.MaxInt32)), Entries: limits.LoadFiles + 1}
	if name == loadMethod {
		most.Bytes = math.MaxInt32
	}
	return grpc.StreamDesc{
		StreamName: name,
		Handler: g.handler(group, errExiting, func(stream grpc.ServerStream) error {
			c := callOf(stream.Context())
			client := c.client()
			charge := budget.Charge{Account: g.parts.Memory, Holder: c.holder()}
			defer charge.Settle()
			var receiver message.Receiver
			receiver.Init(&g.receiving, stream, client.Conn)
			receiver.Watch()
			defer receiver.Close()
			request := P(new(Q))
			if err := receiver.One(request, plan, most, &charge); err != nil {
				return err
			}
			receiver.Rest()
			if err := message.ChooseCompression(stream.Context(), message.CompressionNone, receiver.Compression()); err != nil {
				return err
			}
			reply, err := method(stream.Context(), request)
			if err != nil {
				return err
			}
			encoded, err := client.EncodeProto(reply)
			if err != nil {
				return err
			}
			return stream.SendMsg(encoded)
		}),
	}
}

func (g *FrontEnd) systemRegionStatus(_ context.Context, q *kserve.SystemSharedMemoryStatusRequest) (*kserve.SystemSharedMemoryStatusResponse, error) {
	list, err := g.parts.Regions.Status(clientshm.System, q.GetName())
	if err != nil {
		return nil, err
	}
	reply := &kserve.SystemSharedMemoryStatusResponse{}
	for _, one := range list {
		if reply.Regions == nil {
			reply.Regions = map[string]*kserve.SystemSharedMemoryStatusResponse_RegionStatus{}
		}
		reply.Regions[one.Name] = &kserve.SystemSharedMemoryStatusResponse_RegionStatus{ // bound: the regions, which are charged
			Name: one.Name, Key: one.Key, Offset: one.Offset, ByteSize: one.Size,
		}
	}
	return reply, nil
}

func (g *FrontEnd) systemRegionRegister(_ context.Context, q *kserve.SystemSharedMemoryRegisterRequest) (*kserve.SystemSharedMemoryRegisterResponse, error) {
	if err := g.parts.Regions.RegisterSystem(q.GetName(), q.GetKey(), q.GetOffset(), q.GetByteSize()); err != nil {
		return nil, err
	}
	return &kserve.SystemSharedMemoryRegisterResponse{}, nil
}

func (g *FrontEnd) systemRegionUnregister(_ context.Context, q *kserve.SystemSharedMemoryUnregisterRequest) (*kserve.SystemSharedMemoryUnregisterResponse, error) {
	if err := g.parts.Regions.Unregister(clientshm.System, q.GetName()); err != nil {
		return nil, err
	}
	return &kserve.SystemSharedMemoryUnregisterResponse{}, nil
}

func (g *FrontEnd) cudaRegionStatus(_ context.Context, q *kserve.CudaSharedMemoryStatusRequest) (*kserve.CudaSharedMemoryStatusResponse, error) {
	list, err := g.parts.Regions.Status(clientshm.CUDA, q.GetName())
	if err != nil {
		return nil, err
	}
	reply := &kserve.CudaSharedMemoryStatusResponse{}
	for _, one := range list {
		if reply.Regions == nil {
			reply.Regions = map[string]*kserve.CudaSharedMemoryStatusResponse_RegionStatus{}
		}
		reply.Regions[one.Name] = &kserve.CudaSharedMemoryStatusResponse_RegionStatus{Name: one.Name, DeviceId: one.Device, ByteSize: one.Size} // bound: the regions, which are charged
	}
	return reply, nil
}

// cudaRegionRegister first checks for devices, as Triton does over gRPC. Without devices it rejects
// every region, whether clients may register regions or not.
func (g *FrontEnd) cudaRegionRegister(ctx context.Context, q *kserve.CudaSharedMemoryRegisterRequest) (*kserve.CudaSharedMemoryRegisterResponse, error) {
	if !g.parts.Regions.HasDevices() {
		return nil, clientshm.NoDevice(q.GetName())
	}
	// The conversion turns a negative number into one that no device has.
	if err := g.parts.Regions.RegisterCUDA(ctx, q.GetName(), uint64(q.GetDeviceId()), q.GetRawHandle(), q.GetByteSize()); err != nil {
		return nil, err
	}
	return &kserve.CudaSharedMemoryRegisterResponse{}, nil
}

func (g *FrontEnd) cudaRegionUnregister(_ context.Context, q *kserve.CudaSharedMemoryUnregisterRequest) (*kserve.CudaSharedMemoryUnregisterResponse, error) {
	if err := g.parts.Regions.Unregister(clientshm.CUDA, q.GetName()); err != nil {
		return nil, err
	}
	return &kserve.CudaSharedMemoryUnregisterResponse{}, nil
}
