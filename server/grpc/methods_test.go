package grpc_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/clientshm"
	grpcserver "github.com/nereid-serving/nereid/server/grpc"
	"github.com/nereid-serving/nereid/server/servertest"
)

const service = "/inference.GRPCInferenceService/"

// invoke calls a method and compares the reply with text, or the error with a code and a message.
func (s *testServer) invoke(t *testing.T, method string, request, answer proto.Message, code codes.Code, want string) {
	t.Helper()
	if !strings.HasPrefix(method, "/") {
		method = service + method
	}
	err := s.conn.Invoke(rpcContext(t), method, request, answer)
	if code != codes.OK || err != nil {
		wantStatus(t, err, code, want)
		return
	}
	wanted := answer.ProtoReflect().New().Interface()
	if err := prototext.Unmarshal([]byte(want), wanted); err != nil {
		t.Fatalf("want %s: %v", want, err)
	}
	if !proto.Equal(answer, wanted) {
		t.Errorf("%s: got %v, want %v", method, answer, wanted)
	}
}

func TestMethodsAnswerByTheTable(t *testing.T) {
	core := servertest.NewCore()
	core.Models["batch"].Info.Config.Platform = "plat"
	core.Models["sick"] = &servertest.Model{Info: core.Models["fails"].Info}
	s := start(t, grpcserver.Config{ServerName: "name", ServerVersion: "1.2.3"}, core)
	const (
		stol = "failed to get model version from specified version string 'x' (details: stol), version should be an integral value > 0"
		load = "invalid value type for load parameter '"
	)
	param := func(v any) *kserve.ModelRepositoryParameter {
		switch v := v.(type) {
		case bool:
			return &kserve.ModelRepositoryParameter{ParameterChoice: &kserve.ModelRepositoryParameter_BoolParam{BoolParam: v}}
		case string:
			return &kserve.ModelRepositoryParameter{ParameterChoice: &kserve.ModelRepositoryParameter_StringParam{StringParam: v}}
		case []byte:
			return &kserve.ModelRepositoryParameter{ParameterChoice: &kserve.ModelRepositoryParameter_BytesParam{BytesParam: v}}
		}
		return &kserve.ModelRepositoryParameter{}
	}
	type params = map[string]*kserve.ModelRepositoryParameter
	for _, test := range []struct {
		method          string
		request, answer proto.Message
		code            codes.Code
		want            string
	}{
		{"ServerLive", &kserve.ServerLiveRequest{}, &kserve.ServerLiveResponse{}, codes.OK, "live: true"},
		{"ServerReady", &kserve.ServerReadyRequest{}, &kserve.ServerReadyResponse{}, codes.OK, "ready: true"},
		{"/grpc.health.v1.Health/Check", &grpc_health_v1.HealthCheckRequest{Service: "any"}, &grpc_health_v1.HealthCheckResponse{}, codes.OK, "status: SERVING"},
		{"/grpc.health.v1.Health/Watch", &grpc_health_v1.HealthCheckRequest{}, &grpc_health_v1.HealthCheckResponse{}, codes.Unimplemented, ""},
		{"ModelReady", &kserve.ModelReadyRequest{Name: "batch"}, &kserve.ModelReadyResponse{}, codes.OK, "ready: true"},
		{"ModelReady", &kserve.ModelReadyRequest{Name: "batch", Version: "1"}, &kserve.ModelReadyResponse{}, codes.OK, "ready: true"},
		{"ModelReady", &kserve.ModelReadyRequest{Name: "batch", Version: " +1x"}, &kserve.ModelReadyResponse{}, codes.OK, "ready: true"},
		{"ModelReady", &kserve.ModelReadyRequest{Name: "batch", Version: "2"}, &kserve.ModelReadyResponse{}, codes.OK, ""},
		{"ModelReady", &kserve.ModelReadyRequest{Name: "batch", Version: "0"}, &kserve.ModelReadyResponse{}, codes.OK, ""},
		{"ModelReady", &kserve.ModelReadyRequest{Name: "fails"}, &kserve.ModelReadyResponse{}, codes.OK, ""},
		{"ModelReady", &kserve.ModelReadyRequest{Name: "none"}, &kserve.ModelReadyResponse{}, codes.OK, ""},
		{"ModelReady", &kserve.ModelReadyRequest{Name: "batch", Version: "x"}, &kserve.ModelReadyResponse{}, codes.InvalidArgument, stol},
		{"ModelReady", &kserve.ModelReadyRequest{Name: "batch", Version: "-3"}, &kserve.ModelReadyResponse{}, codes.InvalidArgument,
			"invalid model version specified '-3' , version should be an integral value > 0"},
		{"ServerMetadata", &kserve.ServerMetadataRequest{}, &kserve.ServerMetadataResponse{}, codes.OK, `name: "name" version: "1.2.3"
			extensions: ["classification", "sequence", "model_repository", "model_repository(unload_dependents)", "schedule_policy",
			"model_configuration", "system_shared_memory", "cuda_shared_memory", "binary_tensor_data", "parameters", "statistics", "trace", "logging"]`},
		{"ModelMetadata", &kserve.ModelMetadataRequest{Name: "batch"}, &kserve.ModelMetadataResponse{}, codes.OK, `name: "batch" versions: "1" platform: "plat"
			inputs: {name: "INPUT0" datatype: "FP32" shape: [-1, 4]} outputs: {name: "OUTPUT0" datatype: "FP32" shape: [-1, 4]}`},
		{"ModelMetadata", &kserve.ModelMetadataRequest{Name: "id_bytes", Version: "01"}, &kserve.ModelMetadataResponse{}, codes.OK, `name: "id_bytes" versions: "1" platform: "python"
			inputs: {name: "INPUT0" datatype: "BYTES" shape: -1} outputs: {name: "OUTPUT0" datatype: "BYTES" shape: -1}`},
		{"ModelMetadata", &kserve.ModelMetadataRequest{Name: "none"}, &kserve.ModelMetadataResponse{}, codes.NotFound, "Request for unknown model: 'none' is not found"},
		{"ModelMetadata", &kserve.ModelMetadataRequest{Name: "batch", Version: "x"}, &kserve.ModelMetadataResponse{}, codes.InvalidArgument, stol},
		{"ModelConfig", &kserve.ModelConfigRequest{Name: "batch", Version: "1"}, &kserve.ModelConfigResponse{}, codes.OK, `config: {name: "batch" platform: "plat" backend: "python" max_batch_size: 8
			input: {name: "INPUT0" data_type: TYPE_FP32 dims: 4} output: {name: "OUTPUT0" data_type: TYPE_FP32 dims: 4}}`},
		{"ModelConfig", &kserve.ModelConfigRequest{Name: "batch", Version: "7"}, &kserve.ModelConfigResponse{}, codes.NotFound, "Request for unknown model: 'batch' version 7 is not found"},
		{"ModelStatistics", &kserve.ModelStatisticsRequest{Name: "batch"}, &kserve.ModelStatisticsResponse{}, codes.OK, `model_stats: {name: "batch" version: "1"}`},
		{"ModelStatistics", &kserve.ModelStatisticsRequest{Name: "none"}, &kserve.ModelStatisticsResponse{}, codes.InvalidArgument, "requested model 'none' is not available"},
		{"ModelStatistics", &kserve.ModelStatisticsRequest{Name: "batch", Version: "2"}, &kserve.ModelStatisticsResponse{}, codes.InvalidArgument,
			"requested model version is not available for model 'batch'"},
		{"ModelStatistics", &kserve.ModelStatisticsRequest{Version: "x"}, &kserve.ModelStatisticsResponse{}, codes.InvalidArgument, stol},
		{"RepositoryIndex", &kserve.RepositoryIndexRequest{}, &kserve.RepositoryIndexResponse{}, codes.OK,
			`models: {name: "a" version: "1" state: "READY"} models: {name: "b" version: "2" state: "UNAVAILABLE" reason: "unloaded"} models: {name: "c"}`},
		{"RepositoryIndex", &kserve.RepositoryIndexRequest{Ready: true}, &kserve.RepositoryIndexResponse{}, codes.OK, `models: {name: "a" version: "1" state: "READY"}`},
		{"RepositoryIndex", &kserve.RepositoryIndexRequest{RepositoryName: "r"}, &kserve.RepositoryIndexResponse{}, codes.Unimplemented, server.ErrRepositoryName.Message},
		{"RepositoryModelLoad", &kserve.RepositoryModelLoadRequest{ModelName: "m", Parameters: params{"config": param("{}"), "file:1/model.py": param([]byte("x\xff"))}},
			&kserve.RepositoryModelLoadResponse{}, codes.OK, ""},
		{"RepositoryModelLoad", &kserve.RepositoryModelLoadRequest{ModelName: "m", Parameters: params{"config": param("")}}, &kserve.RepositoryModelLoadResponse{}, codes.OK, ""},
		{"RepositoryModelLoad", &kserve.RepositoryModelLoadRequest{ModelName: "broken"}, &kserve.RepositoryModelLoadResponse{}, codes.Internal,
			"failed to load 'broken', failed to poll from model repository"},
		{"RepositoryModelLoad", &kserve.RepositoryModelLoadRequest{RepositoryName: "r"}, &kserve.RepositoryModelLoadResponse{}, codes.Unimplemented, server.ErrRepositoryName.Message},
		{"RepositoryModelLoad", &kserve.RepositoryModelLoadRequest{Parameters: params{"config": param(true)}}, &kserve.RepositoryModelLoadResponse{}, codes.InvalidArgument,
			load + "config', expected string_param."},
		{"RepositoryModelLoad", &kserve.RepositoryModelLoadRequest{Parameters: params{"file:a": param("text")}}, &kserve.RepositoryModelLoadResponse{}, codes.InvalidArgument,
			load + "file:a', expected bytes_param."},
		{"RepositoryModelLoad", &kserve.RepositoryModelLoadRequest{Parameters: params{"other": param("text")}}, &kserve.RepositoryModelLoadResponse{}, codes.InvalidArgument,
			"unrecognized load parameter 'other'."},
		{"RepositoryModelUnload", &kserve.RepositoryModelUnloadRequest{ModelName: "m", Parameters: params{"unload_dependents": param(true), "x": param("y")}},
			&kserve.RepositoryModelUnloadResponse{}, codes.OK, ""},
		{"RepositoryModelUnload", &kserve.RepositoryModelUnloadRequest{ModelName: "n"}, &kserve.RepositoryModelUnloadResponse{}, codes.OK, ""},
		{"RepositoryModelUnload", &kserve.RepositoryModelUnloadRequest{RepositoryName: "r"}, &kserve.RepositoryModelUnloadResponse{}, codes.Unimplemented, server.ErrRepositoryName.Message},
		{"RepositoryModelUnload", &kserve.RepositoryModelUnloadRequest{Parameters: params{"unload_dependents": param(nil)}}, &kserve.RepositoryModelUnloadResponse{}, codes.InvalidArgument,
			"invalid value type for 'unload_dependents' parameter, expected bool_param."},
		{"SystemSharedMemoryRegister", &kserve.SystemSharedMemoryRegisterRequest{Name: "r"}, &kserve.SystemSharedMemoryRegisterResponse{}, codes.Unimplemented, clientshm.ErrDisabled.Message},
		{"CudaSharedMemoryRegister", &kserve.CudaSharedMemoryRegisterRequest{Name: "r"}, &kserve.CudaSharedMemoryRegisterResponse{}, codes.InvalidArgument,
			"failed to register CUDA shared memory region: 'r', GPUs not supported"},
		{"SystemSharedMemoryStatus", &kserve.SystemSharedMemoryStatusRequest{}, &kserve.SystemSharedMemoryStatusResponse{}, codes.OK, ""},
		{"SystemSharedMemoryStatus", &kserve.SystemSharedMemoryStatusRequest{Name: "r"}, &kserve.SystemSharedMemoryStatusResponse{}, codes.NotFound, "Unable to find system shared memory region: 'r'"},
		{"SystemSharedMemoryUnregister", &kserve.SystemSharedMemoryUnregisterRequest{Name: "r"}, &kserve.SystemSharedMemoryUnregisterResponse{}, codes.Unimplemented, clientshm.ErrDisabled.Message},
		{"CudaSharedMemoryStatus", &kserve.CudaSharedMemoryStatusRequest{}, &kserve.CudaSharedMemoryStatusResponse{}, codes.OK, ""},
		{"CudaSharedMemoryStatus", &kserve.CudaSharedMemoryStatusRequest{Name: "r"}, &kserve.CudaSharedMemoryStatusResponse{}, codes.NotFound, "Unable to find cuda shared memory region: 'r'"},
		{"CudaSharedMemoryUnregister", &kserve.CudaSharedMemoryUnregisterRequest{}, &kserve.CudaSharedMemoryUnregisterResponse{}, codes.Unimplemented, clientshm.ErrDisabled.Message},
		{"TraceSetting", &kserve.TraceSettingRequest{}, &kserve.TraceSettingResponse{}, codes.OK, traceSettings("1000", "-1")},
		{"TraceSetting", &kserve.TraceSettingRequest{ModelName: "batch"}, &kserve.TraceSettingResponse{}, codes.OK, traceSettings("1000", "-1")},
		{"TraceSetting", &kserve.TraceSettingRequest{ModelName: "n"}, &kserve.TraceSettingResponse{}, codes.InvalidArgument, "Request for unknown model : n"},
		{"TraceSetting", traced("trace_rate", "5"), &kserve.TraceSettingResponse{}, codes.OK, traceSettings("5", "-1")},
		{"TraceSetting", traced("trace_rate"), &kserve.TraceSettingResponse{}, codes.OK, traceSettings("1000", "-1")},
		{"TraceSetting", traced("trace_count", " 6x"), &kserve.TraceSettingResponse{}, codes.OK, traceSettings("1000", "6")},
		{"TraceSetting", traced("trace_count", "-2"), &kserve.TraceSettingResponse{}, codes.InvalidArgument, "Unable to parse 'trace_count'. Expecting value >= -1, got: -2"},
		{"TraceSetting", traced("log_frequency", "1", "2"), &kserve.TraceSettingResponse{}, codes.InvalidArgument, "expect only 1 value for 'log_frequency'"},
		{"TraceSetting", traced("trace_level", "OFF", "TENSORS"), &kserve.TraceSettingResponse{}, codes.InvalidArgument, "Expect only one trace level 'OFF' is specified"},
		{"TraceSetting", traced("trace_level", "TENSORS"), &kserve.TraceSettingResponse{}, codes.InvalidArgument, "Attempting to set invalid trace setting :trace file name is not given"},
		{"TraceSetting", traced("trace_level"), &kserve.TraceSettingResponse{}, codes.OK, traceSettings("1000", "6")},
		{"TraceSetting", traced("trace_file"), &kserve.TraceSettingResponse{}, codes.Unimplemented, "trace file location can not be updated through network protocol"},
		{"TraceSetting", traced("trace_mode", "opentelemetry"), &kserve.TraceSettingResponse{}, codes.OK, traceSettings("1000", "6")},
		{"Nothing", &kserve.ServerLiveRequest{}, &kserve.ServerLiveResponse{}, codes.Unimplemented, ""},
		{"/some.Other/Thing", &kserve.ServerLiveRequest{}, &kserve.ServerLiveResponse{}, codes.Unimplemented, ""},
		// Fields that the message type does not have are skipped.
		{"ModelReady", &kserve.ModelStatistics{Name: "batch", Version: "1", InferenceCount: 3}, &kserve.ModelReadyResponse{}, codes.OK, "ready: true"},
	} {
		s.invoke(t, test.method, test.request, test.answer, test.code, test.want)
	}
	if want := []string{`load m "{}" [1/model.py="x\xff"]`, `load m " " []`, `load broken "" []`, "unload m true", "unload n false"}; !slices.Equal(core.Loads, want) {
		t.Errorf("the core was told %q, want %q", core.Loads, want)
	}
}

// traced returns a request that changes one trace setting.
func traced(key string, values ...string) *kserve.TraceSettingRequest {
	return &kserve.TraceSettingRequest{Settings: map[string]*kserve.TraceSettingRequest_SettingValue{key: {Value: values}}}
}

// traceSettings returns the trace settings of a server that traces nothing.
func traceSettings(rate, count string) string {
	text := ""
	for _, pair := range [][2]string{
		{"log_frequency", "0"}, {"trace_count", count}, {"trace_file", ""}, {"trace_level", "OFF"}, {"trace_mode", "triton"}, {"trace_rate", rate},
	} {
		text += fmt.Sprintf("settings: {key: %q value: {value: %q}} ", pair[0], pair[1])
	}
	return text
}

// TestStatisticsOfAllIgnoreTheVersion checks that a version without a model is ignored.
func TestStatisticsOfAllIgnoreTheVersion(t *testing.T) {
	s := start(t, grpcserver.Config{}, nil)
	got, err := s.client.ModelStatistics(rpcContext(t), &kserve.ModelStatisticsRequest{Version: "7"})
	want := &kserve.ModelStatisticsResponse{ModelStats: []*kserve.ModelStatistics{servertest.Statistics("a"), {Name: "b", Version: "2"}}}
	if err != nil || !proto.Equal(got, want) {
		t.Errorf("got %v and error %v, want %v", got, err, want)
	}
}

// TestUnparsableMessagesAreRefused checks the error for bytes that are not a message of the method.
func TestUnparsableMessagesAreRefused(t *testing.T) {
	s := start(t, grpcserver.Config{}, nil)
	for _, method := range []string{"ServerLive", "ModelReady", "ModelInfer"} {
		for _, body := range []string{"\x0a\xff", "\x0b", "\x0a\x01\xff"} {
			if method == "ServerLive" && body == "\x0a\x01\xff" {
				continue // it has no field 1, so any bytes are accepted
			}
			err := s.conn.Invoke(rpcContext(t), service+method, []byte(body), &kserve.ServerLiveResponse{}, grpc.ForceCodec(rawCodec{}))
			wantStatus(t, err, codes.Internal, "Unable to parse request")
		}
	}
}

// rawCodec sends bytes unchanged and discards replies.
type rawCodec struct{}

func (rawCodec) Name() string                    { return "proto" }
func (rawCodec) Marshal(v any) ([]byte, error)   { return v.([]byte), nil }
func (rawCodec) Unmarshal(_ []byte, _ any) error { return nil }

func TestExitingRefusesEveryRPC(t *testing.T) {
	core := servertest.NewCore()
	core.Down = infer.Errorf(infer.Unavailable, "Server exiting")
	s := start(t, grpcserver.Config{}, core)
	for method, request := range map[string]proto.Message{
		"ServerLive": &kserve.ServerLiveRequest{}, "ServerReady": &kserve.ServerReadyRequest{}, "ServerMetadata": &kserve.ServerMetadataRequest{},
		"ModelReady": &kserve.ModelReadyRequest{Name: "batch"}, "RepositoryIndex": &kserve.RepositoryIndexRequest{},
		"/grpc.health.v1.Health/Check": &grpc_health_v1.HealthCheckRequest{},
	} {
		s.invoke(t, method, request, &kserve.ServerLiveResponse{}, codes.Unavailable, "Server exiting")
	}
}

func TestNotReadyIsAnsweredAsHealth(t *testing.T) {
	core := servertest.NewCore()
	core.Unready = true
	s := start(t, grpcserver.Config{}, core)
	s.invoke(t, "ServerReady", &kserve.ServerReadyRequest{}, &kserve.ServerReadyResponse{}, codes.OK, "")
	s.invoke(t, "/grpc.health.v1.Health/Check", &grpc_health_v1.HealthCheckRequest{}, &grpc_health_v1.HealthCheckResponse{}, codes.OK, "status: NOT_SERVING")
}

func TestLogSettingsAreChangedAndShown(t *testing.T) {
	s := start(t, grpcserver.Config{}, nil)
	type settings = map[string]*kserve.LogSettingsRequest_SettingValue
	flag := func(b bool) *kserve.LogSettingsRequest_SettingValue {
		return &kserve.LogSettingsRequest_SettingValue{ParameterChoice: &kserve.LogSettingsRequest_SettingValue_BoolParam{BoolParam: b}}
	}
	text := func(s string) *kserve.LogSettingsRequest_SettingValue {
		return &kserve.LogSettingsRequest_SettingValue{ParameterChoice: &kserve.LogSettingsRequest_SettingValue_StringParam{StringParam: s}}
	}
	number := func(n uint32) *kserve.LogSettingsRequest_SettingValue {
		return &kserve.LogSettingsRequest_SettingValue{ParameterChoice: &kserve.LogSettingsRequest_SettingValue_Uint32Param{Uint32Param: n}}
	}
	for _, test := range []struct {
		change settings
		code   codes.Code
		text   string
		want   server.LogSettings
	}{
		{nil, codes.OK, "", server.LogSettings{Info: true, Warning: true, Error: true, Format: "default"}},
		{settings{"log_info": flag(false), "log_verbose_level": number(3), "log_format": text("ISO8601"), "other": text("x")}, codes.OK, "",
			server.LogSettings{Warning: true, Error: true, VerboseLevel: 3, Format: "ISO8601"}},
		{settings{"log_warning": flag(false), "log_error": text("x")}, codes.InvalidArgument, "expect boolean for 'log_error'",
			server.LogSettings{Error: true, VerboseLevel: 3, Format: "ISO8601"}},
		{settings{"log_verbose_level": text("1")}, codes.InvalidArgument, "expect int32 for 'log_verbose_level'", server.LogSettings{Error: true, VerboseLevel: 3, Format: "ISO8601"}},
		{settings{"log_format": flag(true)}, codes.InvalidArgument, "expect string for 'log_format'", server.LogSettings{Error: true, VerboseLevel: 3, Format: "ISO8601"}},
		{settings{"log_format": text("short")}, codes.InvalidArgument, "invalid argument for log_format, got: short", server.LogSettings{Error: true, VerboseLevel: 3, Format: "ISO8601"}},
		{settings{"log_file": text("/tmp/x"), "log_info": flag(true)}, codes.Unimplemented, "log file location can not be updated through network protocol",
			server.LogSettings{Error: true, VerboseLevel: 3, Format: "ISO8601"}},
	} {
		got, err := s.client.LogSettings(rpcContext(t), &kserve.LogSettingsRequest{Settings: test.change})
		wantStatus(t, err, test.code, test.text)
		if now := s.parts.Logging.LogSettings(); now != test.want {
			t.Errorf("%v: the settings are %+v, want %+v", test.change, now, test.want)
		}
		if err != nil {
			continue
		}
		if n := len(got.Settings); n != 6 || got.Settings["log_format"].GetStringParam() != test.want.Format ||
			got.Settings["log_info"].GetBoolParam() != test.want.Info || got.Settings["log_verbose_level"].GetUint32Param() != test.want.VerboseLevel {
			t.Errorf("%v: answered %v, want %+v", test.change, got, test.want)
		}
	}
}

// TestLoadOutlivesClient checks that a load continues after its client has disconnected.
func TestLoadOutlivesClient(t *testing.T) {
	core := servertest.NewCore()
	begun, left, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	core.OnLoad = func(ctx context.Context, _, _ string, _ map[string][]byte) error {
		close(begun)
		<-left
		ended <- ctx.Err()
		return nil
	}
	s := start(t, grpcserver.Config{}, core)
	ctx, cancel := context.WithCancel(rpcContext(t))
	go func() {
		<-begun
		cancel()
	}()
	_, err := s.client.RepositoryModelLoad(ctx, &kserve.RepositoryModelLoadRequest{ModelName: "m"})
	if status.Code(err) != codes.Canceled {
		t.Errorf("load: got %v, want it cancelled", err)
	}
	close(left)
	if err := <-ended; err != nil {
		t.Errorf("the context of the load has ended: %v", err)
	}
}
