package nereid

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/objectstore"
	"github.com/nereid-serving/nereid/sdk"
	"github.com/nereid-serving/nereid/sdk/linked"
)

// Extension extends the options of a custom server: cli.Main applies it after it has parsed the
// command line.
type Extension func(*Options)

// WithBackend links a backend into the server, for models whose config names it.
func WithBackend(name string, initialize sdk.New) Extension {
	return func(o *Options) {
		linked := maps.Clone(o.Backends.Linked)
		if linked == nil {
			linked = make(map[string]sdk.New)
		}
		linked[name] = initialize
		o.Backends.Linked = linked
	}
}

// WithObjectStores allows model repositories in object stores. providers.Open of package
// objectstore/providers opens those that Triton supports; it links their SDKs.
func WithObjectStores(open objectstore.Opener) Extension {
	return func(o *Options) { o.Repository.Objects = open }
}

// validateLinked checks the names of linked backends.
func (o *BackendOptions) validateLinked() error {
	for _, name := range slices.Sorted(maps.Keys(o.Linked)) {
		switch {
		case !repository.IsName(name) || name == config.BackendPython:
			return fmt.Errorf("Backends.Linked has the name %q, want one that a folder could have, and not %q", name, config.BackendPython)
		case o.Linked[name] == nil:
			return fmt.Errorf("Backends.Linked has no function for %q", name)
		}
	}
	return nil
}

// linkBackends creates the linked backends and adds them to the built-in ones. unload limits the
// time to finalize their models; 0: no limit.
func (s *Server) linkBackends(builtIn map[string]backend.Backend, unload time.Duration, counters *metrics.Registry) map[string]backend.Backend {
	o := &s.options
	for name, initialize := range o.Backends.Linked {
		b := linked.New(name, initialize, linked.Config{
			Settings: func() (map[string]string, string) { return o.nativeSettings(name) },
			Allocate: s.lend(budget.Blocks), Policies: o.HostPolicies,
			Metrics:      func(model string) linked.CustomMetrics { return counters.Custom(model) },
			MaxInstances: o.Limits.Processes.Instances, UnloadTimeout: unload, Log: s.log,
		})
		if s.linked == nil {
			s.linked = make(map[string]*linked.Backend)
		}
		s.linked[name], builtIn[name] = b, b
	}
	return builtIn
}

// preferredGroups returns the instance groups that a linked backend prefers. It initializes the
// backend.
func (s *Server) preferredGroups(name string) []*kserve.ModelInstanceGroup {
	if b := s.linked[name]; b != nil {
		return b.Groups()
	}
	return nil
}
