package nereid

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/nereid-serving/nereid/internal/bounds"
	"github.com/nereid-serving/nereid/objectstore"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/server/clientshm"
	"github.com/nereid-serving/nereid/server/openai"
)

// Validate returns the error with which New would reject the options. The error begins with the
// name of the field.
func (o *Options) Validate() error {
	r := &o.Repository
	switch {
	case len(r.Paths) == 0:
		return errors.New("Repository.Paths is empty, want a directory of models")
	case r.Control != ControlNone && r.Control != ControlPoll && r.Control != ControlExplicit:
		return fmt.Errorf("Repository.Control is %q, want %s, %s or %s", r.Control, ControlNone, ControlPoll, ControlExplicit)
	case len(r.StartupModels) > 0 && r.Control != ControlExplicit:
		return fmt.Errorf("Repository.StartupModels is %q, want none unless Repository.Control is %s", r.StartupModels, ControlExplicit)
	case len(r.StartupModels) > 1 && slices.Contains(r.StartupModels, "*"):
		return fmt.Errorf("Repository.StartupModels is %q, want \"*\" alone or no \"*\"", r.StartupModels)
	case r.Develop && slices.ContainsFunc(r.Paths, isInStore):
		return errors.New("Repository.Develop (--dev) follows the sources in directories, and a repository is in an object store: copy the model into a directory and serve that")
	case o.RequestMemoryBytes > 0 && o.RequestMemoryBytes < leastMemory:
		return fmt.Errorf("RequestMemoryBytes (--request-memory-byte-size) is %d, want at least %d bytes, or 0 for half of the memory", o.RequestMemoryBytes, leastMemory)
	}
	if err := o.bounds().Validate(); err != nil {
		return err
	}
	if err := o.HostPolicies.Validate(); err != nil {
		return fmt.Errorf("HostPolicies: %w", err)
	}
	if err := o.Backends.validateLinked(); err != nil {
		return err
	}
	if err := o.validateRecord(); err != nil {
		return err
	}
	return o.validateEndpoints()
}

// leastMemory is the smallest account with which a server can serve anything.
const leastMemory = 1 << 20

// isInStore reports whether a path is the URL of an object store.
func isInStore(path string) bool {
	_, inStore, _ := objectstore.Parse(path)
	return inStore
}

// validateRecord rejects recording into a repository, where a folder is a model.
func (o *Options) validateRecord() error {
	directory, err := filepath.Abs(o.Record.Directory)
	if o.Record.Directory == "" || err != nil {
		return err
	}
	for _, path := range o.Repository.Paths {
		repository, err := filepath.Abs(path)
		if err != nil {
			continue
		}
		if below, err := filepath.Rel(repository, directory); err == nil && filepath.IsLocal(below) {
			return fmt.Errorf("the directory for recorded requests %q (--record) is inside the model repository %s: choose one outside of it", o.Record.Directory, path)
		}
	}
	return nil
}

// Bounds lists the numbers of o, including those of its endpoints, with their bounds.
func (o *Options) Bounds() bounds.Table {
	return slices.Concat(o.bounds(), o.HTTP.Bounds().Under("HTTP"), o.GRPC.Bounds().Under("GRPC")) // bound: the fields
}

// bounds lists the numbers of o except those of endpoints.
func (o *Options) bounds() bounds.Table {
	return slices.Concat(bounds.Table{
		bounds.Of("MaxClientRegions", &o.MaxClientRegions, clientshm.DefaultMost, 1, math.MaxInt),
		bounds.Of("CacheBytes", &o.CacheBytes, 0, 0, math.MaxInt64),
		bounds.Of("OpenAI.DefaultMaxTokens", &o.OpenAI.DefaultMaxTokens, openai.DefaultMaxTokens, 1, math.MaxInt32),
		bounds.Of("Limits.QueuedRequests", &o.Limits.QueuedRequests, scheduler.DefaultMaxQueue, 1, math.MaxInt),
	}, o.Record.Bounds().Under("Record"), o.ClientLimits.Bounds().Under("ClientLimits"), o.Limits.Processes.Bounds().Under("Limits.Processes")) // bound: the fields
}

func (o *Options) validateEndpoints() error {
	if o.HTTP.Allow {
		if err := o.httpConfig(nil).Validate(); err != nil {
			return fmt.Errorf("HTTP.%w", err)
		}
	}
	if o.HTTPS.Allow {
		if o.HTTPS.CertFile == "" || o.HTTPS.KeyFile == "" {
			return fmt.Errorf("HTTPS.CertFile is %q and HTTPS.KeyFile is %q, want a certificate and its key", o.HTTPS.CertFile, o.HTTPS.KeyFile)
		}
		if err := o.httpsConfig(nil).Validate(); err != nil {
			return fmt.Errorf("HTTPS.%w", err)
		}
	}
	if o.GRPC.Allow {
		if err := o.grpcConfig(nil).Validate(); err != nil {
			return fmt.Errorf("GRPC.%w", err)
		}
	}
	for _, platform := range []struct {
		name string
		on   bool
		port int
	}{{"SageMaker", o.SageMaker.Allow, o.SageMaker.Port}, {"VertexAI", o.VertexAI.Allow, o.VertexAI.Port}} {
		if platform.on {
			if err := o.configAt(nil, PlatformAddress, platform.port).Validate(); err != nil {
				return fmt.Errorf("%s.%w", platform.name, err)
			}
		}
	}
	if o.OpenAI.Allow {
		if err := o.openAIConfig(nil).Validate(); err != nil {
			return fmt.Errorf("OpenAI.%w", err)
		}
	}
	if o.Metrics.Allow {
		if err := o.metricsConfig(nil).Validate(); err != nil {
			return fmt.Errorf("Metrics.%w", err)
		}
	}
	endpoints := []struct {
		name    string
		on      bool
		address string
		port    int
	}{
		{"HTTP", o.HTTP.Allow, o.HTTP.Address, o.HTTP.Port},
		{"HTTPS", o.HTTPS.Allow, o.httpsAddress(), o.HTTPS.Port},
		{"GRPC", o.GRPC.Allow, o.GRPC.Address, o.GRPC.Port},
		{"SageMaker", o.SageMaker.Allow, PlatformAddress, o.SageMaker.Port},
		{"VertexAI", o.VertexAI.Allow, PlatformAddress, o.VertexAI.Port},
		{"OpenAI", o.OpenAI.Allow, o.openAIAddress(), o.OpenAI.Port},
		{"Metrics", o.Metrics.Allow, o.metricsAddress(), o.Metrics.Port},
	}
	for i, a := range endpoints {
		for _, b := range endpoints[i+1:] {
			if a.on && b.on && a.address == b.address && a.port == b.port && a.port != 0 {
				return fmt.Errorf("%s.Port is %d at %q, as %s.Port is: want two ports", b.name, b.port, b.address, a.name)
			}
		}
	}
	return nil
}
