package server

import (
	"crypto/subtle"
	"fmt"
)

// The groups of endpoints that can be restricted, as named on the command line.
const (
	GroupHealth          = "health"
	GroupMetadata        = "metadata"
	GroupInference       = "inference"
	GroupSharedMemory    = "shared-memory"
	GroupModelConfig     = "model-config"
	GroupModelRepository = "model-repository"
	GroupStatistics      = "statistics"
	GroupTrace           = "trace"
	GroupLogging         = "logging"
)

var allGroups = []string{GroupHealth, GroupMetadata, GroupInference, GroupSharedMemory, GroupModelConfig,
	GroupModelRepository, GroupStatistics, GroupTrace, GroupLogging}

// Restriction closes groups of endpoints to requests without a certain header.
type Restriction struct {
	Groups []string // "health", "metadata", "inference", …
	Header string   // case-insensitive
	Value  string   // case-sensitive
}

// Restrictions has the Restriction of each restricted group.
type Restrictions map[string]Restriction

// NewRestrictions rejects unknown groups and groups named twice, with the texts that Triton prints
// at startup.
func NewRestrictions(list []Restriction) (Restrictions, error) {
	byGroup := Restrictions{}
	for _, r := range list {
		for _, group := range r.Groups {
			known := false
			for _, g := range allGroups {
				known = known || g == group
			}
			if !known {
				return nil, fmt.Errorf("unknown restricted api '%s' ", group)
			}
			if _, twice := byGroup[group]; twice {
				return nil, fmt.Errorf("restricted api '%s' can not be specified in multiple config groups", group)
			}
			byGroup[group] = r // bound: the groups
		}
	}
	return byGroup, nil
}

// Allow reports whether a request of that group may pass. header looks up a header or metadata key.
// If not, want is the header that is missing or has another value.
func (r Restrictions) Allow(group string, header func(name string) (value string, ok bool)) (want string, ok bool) {
	one, restricted := r[group]
	if !restricted {
		return "", true
	}
	value, ok := header(one.Header)
	return one.Header, ok && subtle.ConstantTimeCompare([]byte(value), []byte(one.Value)) == 1 // bound: a header
}
