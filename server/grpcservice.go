package server

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/kserve"
)

// services describes all methods. They are not the generated descriptions:
// those decode before a handler is asked, and with the library's texts.
func (g *GRPC) services() []*grpc.ServiceDesc {
	inference := &grpc.ServiceDesc{
		ServiceName: kserve.GRPCInferenceService_ServiceDesc.ServiceName,
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{
			grpcUnary(g, "ServerLive", "health", g.serverLive),
			grpcUnary(g, "ServerReady", "health", g.serverReady),
			grpcUnary(g, "ModelReady", "health", g.modelReady),
			grpcUnary(g, "ServerMetadata", "metadata", g.serverMetadata),
			grpcUnary(g, "ModelMetadata", "metadata", g.modelMetadata),
			grpcUnary(g, "ModelConfig", "model-config", g.modelConfig),
			grpcUnary(g, "ModelStatistics", "statistics", g.modelStatistics),
			grpcUnary(g, "RepositoryIndex", "model-repository", g.repositoryIndex),
			grpcUnary(g, "RepositoryModelLoad", "model-repository", g.repositoryModelLoad),
			grpcUnary(g, "RepositoryModelUnload", "model-repository", g.repositoryModelUnload),
			{
				StreamName: "ModelInfer",
				Handler:    g.handler("inference", errGRPCStopping, g.modelInfer),
			},
			{
				StreamName:    "ModelStreamInfer",
				Handler:       g.handler("inference", errGRPCStopping, g.modelStreamInfer),
				ServerStreams: true,
				ClientStreams: true,
			},
		},
	}
	if g.cfg.Log != nil {
		inference.Streams = append(inference.Streams, grpcUnary(g, "LogSettings", "logging", g.logSettings))
	}
	// Watch is left out: clients get UNIMPLEMENTED, as from Triton.
	health := &grpc.ServiceDesc{
		ServiceName: grpc_health_v1.Health_ServiceDesc.ServiceName,
		HandlerType: (*any)(nil),
		Streams:     []grpc.StreamDesc{grpcUnary(g, "Check", "health", g.healthCheck)},
	}
	return []*grpc.ServiceDesc{inference, health}
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
			receiver.init(stream, g.cfg.MaxMessageBytes, &g.pool)
			charge := grpcCharge{budget: &g.budget}
			defer charge.release()
			request := P(new(Q))
			if err := receiver.one(request, &charge); err != nil {
				return err
			}
			if err := grpcCompression(stream.Context(), GRPCCompressionNone, receiver.compression()); err != nil {
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
