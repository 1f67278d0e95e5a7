package server

import (
	"context"
	"crypto/subtle"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/nereid-serving/nereid/infer"
)

// GRPCRestriction closes groups of calls to clients that do not send a key.
type GRPCRestriction struct {
	// Protocols are the groups: health, metadata, inference, shared-memory,
	// model-config, model-repository, statistics, trace, logging.
	Protocols []string
	// Key and Value are what must be sent as metadata; the name of the key on the
	// wire is "triton-grpc-protocol-" and Key in lower case.
	Key, Value string
}

const grpcRestrictionPrefix = "triton-grpc-protocol-"

var grpcGroups = []string{
	"health", "metadata", "inference", "shared-memory", "model-config",
	"model-repository", "statistics", "trace", "logging",
}

// grpcLocks has what each closed group asks for.
type grpcLocks map[string]grpcLock

type grpcLock struct {
	key, value string
	refusal    error
}

func grpcNewLocks(restrictions []GRPCRestriction) (grpcLocks, error) {
	locks := grpcLocks{}
	for _, r := range restrictions {
		key := grpcRestrictionPrefix + strings.ToLower(r.Key)
		for _, group := range r.Protocols {
			if !slices.Contains(grpcGroups, group) {
				return nil, fmt.Errorf("unknown restricted protocol '%s'", group)
			}
			if _, twice := locks[group]; twice {
				return nil, fmt.Errorf("restricted protocol '%s' can not be specified in multiple config groups", group)
			}
			locks[group] = grpcLock{key, r.Value, status.Errorf(codes.Unavailable,
				"This protocol is restricted, expecting header '%s'", key)}
		}
	}
	return locks, nil
}

// check refuses a call to a group that is closed to this client.
func (l grpcLocks) check(ctx context.Context, group string) error {
	if len(l) == 0 {
		return nil
	}
	lock, closed := l[group]
	if !closed {
		return nil
	}
	for _, v := range metadata.ValueFromIncomingContext(ctx, lock.key) {
		if subtle.ConstantTimeCompare([]byte(v), []byte(lock.value)) == 1 {
			return nil
		}
	}
	return lock.refusal
}

var grpcReservedParams = []string{
	"sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "binary_data_output",
}

// grpcForward returns the metadata whose keys match, as parameters in the order
// of their names.
func grpcForward(ctx context.Context, pattern *regexp.Regexp) ([]infer.Parameter, error) {
	if pattern == nil {
		return nil, nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	var out []infer.Parameter
	for key, values := range md {
		if grpcTransportKey(key) || !pattern.MatchString(key) {
			continue
		}
		if slices.Contains(grpcReservedParams, key) || strings.HasPrefix(key, grpcReservedPrefix) {
			return nil, grpcInvalid("Header '%s' is reserved for Triton usage and cannot be forwarded.", key)
		}
		for _, v := range values {
			out = append(out, infer.Parameter{Name: key, Kind: infer.StringParameter, String: v})
		}
	}
	slices.SortStableFunc(out, func(a, b infer.Parameter) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// grpcTransportKey reports whether a key belongs to the transport: the library
// lists some that are no metadata of the client's.
func grpcTransportKey(key string) bool {
	return strings.HasPrefix(key, ":") || strings.HasPrefix(key, "grpc-") || key == "content-type" || key == "te"
}
