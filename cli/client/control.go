package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/kserve"
)

// ModelPath returns the path of a model, or of its version unless version is "".
func ModelPath(model, version string) string {
	path := "/v2/models/" + url.PathEscape(model)
	if version != "" {
		path += "/versions/" + url.PathEscape(version)
	}
	return path
}

// Invoke makes one of the calls that commands need, and no other.
func (e *Endpoint) Invoke(ctx context.Context, call string, request, reply any, _ ...grpc.CallOption) error {
	method, path, member := http.MethodGet, "", "" // member of the gRPC message that HTTP sends alone
	var body []byte
	switch q := request.(type) {
	case *kserve.ServerMetadataRequest:
		path = "/v2"
	case *kserve.ModelReadyRequest:
		path = ModelPath(q.GetName(), q.GetVersion()) + "/ready"
	case *kserve.ModelConfigRequest:
		path, member = ModelPath(q.GetName(), q.GetVersion())+"/config", "config"
	case *kserve.ModelStatisticsRequest:
		path = ModelPath(q.GetName(), q.GetVersion()) + "/stats"
	case *kserve.RepositoryIndexRequest:
		method, path, member, body = http.MethodPost, "/v2/repository/index", "models", []byte("{}")
	case *kserve.SystemSharedMemoryRegisterRequest:
		method, path = http.MethodPost, "/v2/systemsharedmemory/region/"+url.PathEscape(q.GetName())+"/register"
		body, _ = json.Marshal(map[string]any{"key": q.GetKey(), "offset": q.GetOffset(), "byte_size": q.GetByteSize()})
	case *kserve.SystemSharedMemoryUnregisterRequest:
		method, path = http.MethodPost, "/v2/systemsharedmemory/region/"+url.PathEscape(q.GetName())+"/unregister"
	default:
		return fmt.Errorf("%s is not made over HTTP", call)
	}
	text, err := e.Ask(ctx, method, path, body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	to, ok := reply.(proto.Message)
	if !ok || len(text) == 0 {
		return nil
	}
	if member != "" {
		text = slices.Concat([]byte(`{"`+member+`":`), text, []byte("}"))
	}
	text = bytes.ToValidUTF8(text, []byte("\uFFFD")) // reasons are texts of models
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, to); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// NewStream is not supported over HTTP.
func (e *Endpoint) NewStream(_ context.Context, _ *grpc.StreamDesc, call string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, fmt.Errorf("%s is not made over HTTP", call)
}

// nobody matches gRPC's error if no server listens at an address.
var nobody = regexp.MustCompile(`Error while dialing: .*(connection refused|no such file or directory)`)

// Plain returns a gRPC error as its code and its text, and other errors unchanged.
func Plain(err error) error {
	if s, ok := status.FromError(err); ok && err != nil {
		text := fmt.Sprintf("%s: %s", s.Code(), s.Message())
		if nobody.MatchString(text) {
			text += loading
		}
		return errors.New(text)
	}
	return err
}
