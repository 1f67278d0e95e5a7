package server

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/memory"
)

// services describes all methods. They are not the generated descriptions:
// those decode before a handler is asked, and with the library's texts. life is
// for work that goes on when the client has left: it ends with the server.
func (g *GRPC) services(life context.Context) []*grpc.ServiceDesc {
	inference := &grpc.ServiceDesc{
		ServiceName: kserve.GRPCInferenceService_ServiceDesc.ServiceName,
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{
			grpcUnary(g, "ServerLive", GroupHealth, g.serverLive),
			grpcUnary(g, "ServerReady", GroupHealth, g.serverReady),
			grpcUnary(g, "ModelReady", GroupHealth, g.modelReady),
			grpcUnary(g, "ServerMetadata", GroupMetadata, g.serverMetadata),
			grpcUnary(g, "ModelMetadata", GroupMetadata, g.modelMetadata),
			grpcUnary(g, "ModelConfig", GroupModelConfig, g.modelConfig),
			grpcUnary(g, "ModelStatistics", GroupStatistics, g.modelStatistics),
			grpcUnary(g, "RepositoryIndex", GroupModelRepository, g.repositoryIndex),
			grpcUnary(g, "RepositoryModelLoad", GroupModelRepository, g.repositoryModelLoad(life)),
			grpcUnary(g, "RepositoryModelUnload", GroupModelRepository, g.repositoryModelUnload(life)),
			grpcUnary(g, "LogSettings", GroupLogging, g.logSettings),
			grpcUnary(g, "SystemSharedMemoryStatus", GroupSharedMemory, g.systemRegionStatus),
			grpcUnary(g, "SystemSharedMemoryUnregister", GroupSharedMemory, g.systemRegionUnregister),
			grpcUnary(g, "CudaSharedMemoryStatus", GroupSharedMemory, g.cudaRegionStatus),
			grpcUnary(g, "CudaSharedMemoryUnregister", GroupSharedMemory, g.cudaRegionUnregister),
			g.unsupported("SystemSharedMemoryRegister", GroupSharedMemory, ErrRegionsOff),
			g.unsupported("CudaSharedMemoryRegister", GroupSharedMemory, ErrRegionsOff),
			g.unsupported("TraceSetting", GroupTrace, ErrTracesOff),
			{
				StreamName: "ModelInfer",
				Handler:    g.handler(GroupInference, errGRPCStopping, g.modelInfer),
			},
			{
				StreamName:    "ModelStreamInfer",
				Handler:       g.handler(GroupInference, errGRPCStopping, g.modelStreamInfer),
				ServerStreams: true,
				ClientStreams: true,
			},
		},
	}
	// Watch is left out: clients get UNIMPLEMENTED, as from Triton.
	health := &grpc.ServiceDesc{
		ServiceName: grpc_health_v1.Health_ServiceDesc.ServiceName,
		HandlerType: (*any)(nil),
		Streams:     []grpc.StreamDesc{grpcUnary(g, "Check", GroupHealth, g.healthCheck)},
	}
	return []*grpc.ServiceDesc{inference, health}
}

// unsupported describes a method that is always refused.
func (g *GRPC) unsupported(name, group string, refusal *infer.Error) grpc.StreamDesc {
	return grpc.StreamDesc{
		StreamName: name,
		Handler:    g.handler(group, errGRPCExiting, func(grpc.ServerStream) error { return refusal }),
	}
}

// grpcUnary describes a method that takes one message and answers with one.
func grpcUnary[Q any, P interface {
	*Q
	proto.Message
}, A proto.Message](g *GRPC, name, group string, method func(context.Context, P) (A, error)) grpc.StreamDesc {
	return grpc.StreamDesc{
		StreamName: name,
		Handler: g.handler(group, errGRPCExiting, func(stream grpc.ServerStream) error {
			var receiver grpcReceiver
			receiver.init(g, stream)
			receiver.watch()
			defer receiver.close()
			charge := memory.Charge{Account: g.account}
			defer charge.Settle()
			request := P(new(Q))
			if err := receiver.one(request, &charge); err != nil {
				return err
			}
			receiver.rest()
			if err := grpcCompression(stream.Context(), grpcCompressionNone, receiver.compression()); err != nil {
				return err
			}
			answer, err := method(stream.Context(), request)
			if err != nil {
				return err
			}
			return stream.SendMsg(answer)
		}),
	}
}
