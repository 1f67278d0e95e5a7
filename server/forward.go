package server

import (
	"regexp"
	"strings"

	"github.com/nereid-serving/nereid/infer"
)

// Forwarding chooses the headers that become parameters of an inference; nil chooses none.
type Forwarding struct{ pattern *regexp.Regexp }

// NewForwarding compiles a pattern that matches anywhere in a name and ignores case. It returns nil
// for "".
func NewForwarding(pattern string) (*Forwarding, error) {
	if pattern == "" {
		return nil, nil
	}
	re, err := regexp.Compile("(?i)" + pattern)
	if err != nil {
		return nil, err
	}
	return &Forwarding{re}, nil
}

// AppendHeader appends the header as a parameter if it is chosen. A chosen header with a reserved
// name is an error.
func (f *Forwarding) AppendHeader(params []infer.Parameter, name, value string) ([]infer.Parameter, error) {
	if !f.pattern.MatchString(name) {
		return params, nil
	}
	if reservedParameter(name) {
		return params, infer.Errorf(infer.InvalidArg, "Header '%s' is reserved for Triton usage and cannot be forwarded.", name)
	}
	return append(params, infer.Parameter{Name: name, Kind: infer.StringParameter, String: value}), nil
}

// ReservedPrefix begins the names of the server's own parameters.
const ReservedPrefix = "triton_"

// reservedParameter reports whether a name has its own meaning in requests, so that a header of
// that name must not become a parameter.
func reservedParameter(name string) bool {
	switch name {
	case "sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "binary_data_output":
		return true
	}
	return strings.HasPrefix(name, ReservedPrefix)
}
