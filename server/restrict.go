package server

import (
	"crypto/subtle"
	"fmt"
)

// The groups of endpoints that can be restricted.
const (
	apiHealth          = "health"
	apiMetadata        = "metadata"
	apiInference       = "inference"
	apiSharedMemory    = "shared-memory"
	apiModelConfig     = "model-config"
	apiModelRepository = "model-repository"
	apiStatistics      = "statistics"
	apiTrace           = "trace"
	apiLogging         = "logging"
)

var apiGroups = []string{apiHealth, apiMetadata, apiInference, apiSharedMemory, apiModelConfig,
	apiModelRepository, apiStatistics, apiTrace, apiLogging}

// Restriction closes groups of endpoints to requests without a certain header.
type Restriction struct {
	Groups []string // "health", "metadata", "inference", …
	Header string   // compared without regard to case
	Value  string   // compared exactly
}

// restrictions says for each restricted group what opens it.
type restrictions map[string]Restriction

// newRestrictions refuses unknown groups and groups named twice, with the texts
// that Triton prints at its start.
func newRestrictions(list []Restriction) (restrictions, error) {
	byGroup := restrictions{}
	for _, r := range list {
		for _, group := range r.Groups {
			known := false
			for _, g := range apiGroups {
				known = known || g == group
			}
			if !known {
				return nil, fmt.Errorf("unknown restricted api '%s' ", group)
			}
			if _, twice := byGroup[group]; twice {
				return nil, fmt.Errorf("restricted api '%s' can not be specified in multiple config groups", group)
			}
			byGroup[group] = r
		}
	}
	return byGroup, nil
}

// allow reports whether a request of that group may pass. header looks a header
// or metadata key up. Otherwise want is the header that is missing or has
// another value.
func (r restrictions) allow(group string, header func(name string) (value string, ok bool)) (want string, ok bool) {
	one, restricted := r[group]
	if !restricted {
		return "", true
	}
	value, ok := header(one.Header)
	return one.Header, ok && subtle.ConstantTimeCompare([]byte(value), []byte(one.Value)) == 1
}
