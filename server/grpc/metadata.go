package grpc

import (
	"context"
	"strconv"

	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/server/grpc/message"
)

func (g *FrontEnd) serverLive(context.Context, *kserve.ServerLiveRequest) (*kserve.ServerLiveResponse, error) {
	live, err := g.parts.Core.Live()
	return &kserve.ServerLiveResponse{Live: live}, err
}

func (g *FrontEnd) serverReady(ctx context.Context, _ *kserve.ServerReadyRequest) (*kserve.ServerReadyResponse, error) {
	ready, err := g.parts.Core.Ready(ctx)
	return &kserve.ServerReadyResponse{Ready: ready}, err
}

func (g *FrontEnd) healthCheck(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	ready, err := g.parts.Core.Ready(ctx)
	status := grpc_health_v1.HealthCheckResponse_NOT_SERVING
	if ready {
		status = grpc_health_v1.HealthCheckResponse_SERVING
	}
	return &grpc_health_v1.HealthCheckResponse{Status: status}, err
}

// modelReady replies false, not an error, for a model that does not exist or is not loaded.
func (g *FrontEnd) modelReady(ctx context.Context, q *kserve.ModelReadyRequest) (*kserve.ModelReadyResponse, error) {
	version, err := message.ParseVersion(q.GetVersion())
	if err != nil {
		return nil, err
	}
	live, err := g.parts.Core.Live()
	if err != nil {
		return nil, err
	}
	ready, err := g.parts.Core.ModelReady(ctx, q.GetName(), version)
	if err != nil {
		if code := infer.AsError(err).Code; live && (code == infer.NotFound || code == infer.Unavailable) {
			return &kserve.ModelReadyResponse{}, nil
		}
		return nil, err
	}
	return &kserve.ModelReadyResponse{Ready: ready}, nil
}

func (g *FrontEnd) serverMetadata(context.Context, *kserve.ServerMetadataRequest) (*kserve.ServerMetadataResponse, error) {
	if _, err := g.parts.Core.Live(); err != nil {
		return nil, err
	}
	return &kserve.ServerMetadataResponse{Name: g.cfg.ServerName, Version: g.cfg.ServerVersion, Extensions: g.extensions}, nil
}

// findModel finds the model that a request names.
func (g *FrontEnd) findModel(name, versionText string) (*models.Info, int64, error) {
	version, err := message.ParseVersion(versionText)
	if err != nil {
		return nil, 0, err
	}
	info, err := g.parts.Core.Model(name, version)
	return info, version, err
}

func (g *FrontEnd) modelMetadata(_ context.Context, q *kserve.ModelMetadataRequest) (*kserve.ModelMetadataResponse, error) {
	info, version, err := g.findModel(q.GetName(), q.GetVersion())
	if err != nil {
		return nil, err
	}
	versions := []int64{version}
	if version == infer.LatestVersion {
		versions = g.parts.Core.ReadyVersions(info.Name)
	}
	a := &kserve.ModelMetadataResponse{Name: info.Name, Platform: info.Platform()}
	for _, v := range versions {
		a.Versions = append(a.Versions, strconv.FormatInt(v, 10)) // bound: the versions of a model
	}
	batched := info.Config.GetMaxBatchSize() >= 1
	for _, in := range info.Config.GetInput() {
		a.Inputs = append(a.Inputs, tensorMetadata(in.GetName(), in.GetDataType(), in.GetDims(), batched)) // bound: the inputs of the config
	}
	for _, out := range info.Config.GetOutput() {
		a.Outputs = append(a.Outputs, tensorMetadata(out.GetName(), out.GetDataType(), out.GetDims(), batched)) // bound: the outputs of the config
	}
	return a, nil
}

func tensorMetadata(name string, d kserve.DataType, dims []int64, batched bool) *kserve.ModelMetadataResponse_TensorMetadata {
	if batched {
		dims = append([]int64{-1}, dims...)
	}
	// The config's data types have the same numbers as those of package infer.
	return &kserve.ModelMetadataResponse_TensorMetadata{Name: name, Datatype: infer.DataType(d).String(), Shape: dims}
}

func (g *FrontEnd) modelConfig(_ context.Context, q *kserve.ModelConfigRequest) (*kserve.ModelConfigResponse, error) {
	info, _, err := g.findModel(q.GetName(), q.GetVersion())
	if err != nil {
		return nil, err
	}
	return &kserve.ModelConfigResponse{Config: info.Config}, nil
}

func (g *FrontEnd) modelStatistics(_ context.Context, q *kserve.ModelStatisticsRequest) (*kserve.ModelStatisticsResponse, error) {
	version, err := message.ParseVersion(q.GetVersion())
	if err != nil {
		return nil, err
	}
	if q.GetName() == "" {
		version = infer.LatestVersion // a version is meaningless without a model
	}
	stats, err := g.parts.Core.Statistics(q.GetName(), version)
	return &kserve.ModelStatisticsResponse{ModelStats: stats}, err
}
