package grpc

import (
	"context"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server"
)

const restrictedPrefix = "triton-grpc-protocol-"

// restricted returns the list with the headers as they stand on the wire.
func restricted(list []server.Restriction) []server.Restriction {
	list = slices.Clone(list)
	for i := range list {
		list[i].Header = restrictedPrefix + strings.ToLower(list[i].Header)
	}
	return list
}

// admit refuses an RPC of a group that is closed to this client.
func (g *FrontEnd) admit(ctx context.Context, group string) error {
	want, ok := g.access.Restrictions.Allow(group, func(name string) (string, bool) {
		values := metadata.ValueFromIncomingContext(ctx, name)
		if len(values) == 0 {
			return "", false
		}
		return values[0], true
	})
	if !ok {
		return status.Errorf(codes.Unavailable, "This protocol is restricted, expecting header '%s'", want)
	}
	return nil
}

// forwarded returns the metadata that is chosen, as parameters in the order of
// their names.
func (g *FrontEnd) forwarded(ctx context.Context) (params []infer.Parameter, err error) {
	if g.access.Forwarding == nil {
		return nil, nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	for _, key := range slices.Sorted(maps.Keys(md)) {
		if transportKey(key) {
			continue
		}
		for _, v := range md[key] {
			if params, err = g.access.Forwarding.AppendHeader(params, key, v); err != nil {
				return nil, err
			}
		}
	}
	return params, nil
}

// transportKey reports whether a key belongs to the transport: the library
// lists some that are no metadata of the client's.
func transportKey(key string) bool {
	return strings.HasPrefix(key, ":") || strings.HasPrefix(key, "grpc-") || key == "content-type" || key == "te"
}
