package nereid_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/sdk"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/grpc"
)

// TestValidateNamesTheField makes one field at a time invalid and expects an error that names it.
func TestValidateNamesTheField(t *testing.T) {
	for _, test := range []struct {
		field  string
		change func(o *nereid.Options)
	}{
		{"Repository.Paths is empty", func(o *nereid.Options) { o.Repository.Paths = nil }},
		{`Repository.Control is "explicit"`, func(o *nereid.Options) { o.Repository.Control = "explicit" }},
		{"Repository.StartupModels is [\"m\"]", func(o *nereid.Options) { o.Repository.StartupModels = []string{"m"} }},
		{"Repository.StartupModels is", func(o *nereid.Options) {
			o.Repository.Control, o.Repository.StartupModels = nereid.ControlExplicit, []string{"*", "m"}
		}},
		{"Repository.Develop (--dev) follows the sources in directories", func(o *nereid.Options) {
			o.Repository.Develop, o.Repository.Paths = true, []string{"r", "s3://bucket/r"}
		}},
		{"CacheBytes is -1", func(o *nereid.Options) { o.CacheBytes = -1 }},
		{"Limits.QueuedRequests is -1", func(o *nereid.Options) { o.Limits.QueuedRequests = -1 }},
		{"ClientLimits.GroupInstances is 2147483648", func(o *nereid.Options) { o.ClientLimits.GroupInstances = 1 << 31 }},
		{"Limits.Processes.Output.LineBytes is 16777217", func(o *nereid.Options) { o.Limits.Processes.Output.LineBytes = 16<<20 + 1 }},
		{"Limits.Processes.Calls.Bytes is -1", func(o *nereid.Options) { o.Limits.Processes.Calls.Bytes = -1 }},
		{"GRPC.StreamWindowBytes is 65535", func(o *nereid.Options) { o.GRPC.StreamWindowBytes = 65535 }},
		{"HostPolicies: ", func(o *nereid.Options) { o.HostPolicies = map[string]map[string]string{"p": {"what": "1"}} }},
		{`Backends.Linked has the name "python"`, func(o *nereid.Options) { nereid.WithBackend("python", noBackend)(o) }},
		{`Backends.Linked has the name "a/b"`, func(o *nereid.Options) { nereid.WithBackend("a/b", noBackend)(o) }},
		{`Backends.Linked has no function for "x"`, func(o *nereid.Options) { nereid.WithBackend("x", nil)(o) }},
		{"HTTP.Port is 65536", func(o *nereid.Options) { o.HTTP.Port = 65536 }},
		{"HTTP.ForwardPattern: ", func(o *nereid.Options) { o.HTTP.ForwardPattern = "(" }},
		{"HTTP.Restricted: ", func(o *nereid.Options) {
			o.HTTP.Restricted = []server.Restriction{{Groups: []string{"what"}, Header: "k", Value: "v"}}
		}},
		{"HTTP.MaxHeaderBytes is -1", func(o *nereid.Options) { o.HTTP.MaxHeaderBytes = -1 }},
		{"GRPC.KeepaliveTime is -1", func(o *nereid.Options) { o.GRPC.KeepaliveTime = -1 }},
		{"GRPC.Compression", func(o *nereid.Options) { o.GRPC.Compression = "much" }},
		{"GRPC.Port is 8000", func(o *nereid.Options) { o.GRPC.Port = 8000 }},
		{"Metrics.Port is 8000", func(o *nereid.Options) { o.Metrics.Port = 8000 }},
		{"Metrics.Port is -1", func(o *nereid.Options) { o.Metrics.Port = -1 }},
	} {
		o := nereid.Defaults()
		o.Repository.Paths = []string{"/r"}
		if err := o.Validate(); err != nil {
			t.Fatalf("Defaults with a repository: got error %v, want none", err)
		}
		test.change(&o)
		if err := o.Validate(); err == nil || !strings.HasPrefix(err.Error(), test.field) {
			t.Errorf("got error %v, want one that begins with %q", err, test.field)
		}
		if s, err := nereid.New(o); err == nil {
			s.Close()
			t.Errorf("%s: New accepts what Validate refuses", test.field)
		}
	}
}

func noBackend(*sdk.BackendEnv) (sdk.Backend, error) { return nil, errors.New("no backend") }

// TestPortsThatTheKernelChooses checks that all of them may be 0, and that disabled endpoints are
// ignored.
func TestPortsThatTheKernelChooses(t *testing.T) {
	o := nereid.Defaults()
	o.Repository.Paths = []string{"/r"}
	o.HTTP.Port, o.GRPC.Port, o.Metrics.Port = 0, 0, 0
	if err := o.Validate(); err != nil {
		t.Errorf("three ports 0: got error %v, want none", err)
	}
	o.GRPC = nereid.GRPCOptions{Config: grpc.Config{Port: -1, MaxCalls: -1}}
	if err := o.Validate(); err != nil {
		t.Errorf("a wrong port of an endpoint that is off: got error %v, want none", err)
	}
}
