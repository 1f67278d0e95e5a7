package config

import (
	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/kserve"
)

// Difference is how far two configurations of a model differ.
type Difference uint8

// How far two configurations differ.
const (
	Same         Difference = 0 // but for the choice of versions
	GroupsDiffer Difference = 1 // in the instances, and perhaps the choice of versions
	Differ       Difference = 2
)

// Compare returns how far two filled configurations differ.
func Compare(a, b *kserve.ModelConfig) Difference {
	bare := func(c *kserve.ModelConfig, groups bool) *kserve.ModelConfig {
		c = Clone(c)
		c.VersionPolicy = nil
		if !groups {
			c.InstanceGroup = nil
		}
		return c
	}
	switch {
	case proto.Equal(bare(a, true), bare(b, true)):
		return Same
	case proto.Equal(bare(a, false), bare(b, false)):
		return GroupsDiffer
	default:
		return Differ
	}
}

// Clone copies a configuration.
func Clone(config *kserve.ModelConfig) *kserve.ModelConfig {
	return proto.Clone(config).(*kserve.ModelConfig) // bound: the config
}
