package grpc

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/grpc/message"
)

const (
	// callCost is the memory of a call whose client has sent no message: its goroutine with its
	// stack, and the stream of the library.
	callCost = 12 << 10
	// headerCost is the memory of a header of a call besides its name and value.
	headerCost = 128
	// fieldOverhead is what HTTP/2 adds to the size of a header (RFC 9113, 6.5.2).
	fieldOverhead = 32
)

// call is the context of an RPC, from the moment when its headers have been read. It is charged
// before the library creates its stream, until its end has been written, because a client that
// does not read keeps it in memory.
type call struct {
	context.Context
	conn  *connection
	cost  int64
	state atomic.Uint32
}

// The states of a call. From tapped it becomes begun or dropped.
const (
	tapped  uint32 = iota
	begun          // it has a handler, which ends it
	dropped        // nothing is charged
)

type callKey struct{}

// Value implements context.Context.
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// Err implements context.Context. The library calls it before it starts the handler, and starts
// no handler for a call that has expired.
func (c *call) Err() error {
	err := c.Context.Err()
	if err != nil && c.state.CompareAndSwap(tapped, dropped) {
		c.conn.give(c.cost)
	}
	return err
}

// callOf returns the call of an RPC. Its conn is nil where the connection is not ours.
func callOf(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return &call{}
}

// holder returns the connection as the owner of the call's memory.
func (c *call) holder() *budget.Holder {
	if c.conn == nil {
		return nil
	}
	return &c.conn.member.Holder
}

// client returns the limits on sending replies to the client.
func (c *call) client() message.Overdue {
	if c.conn == nil {
		return message.Overdue{}
	}
	return c.conn.sent.overdue
}

// tap admits a call. The goroutine that reads the connection calls it when it has read the call's
// headers.
func (g *FrontEnd) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	conn := connectionOf(ctx)
	if conn == nil {
		return ctx, nil
	}
	if ctx.Err() != nil { // the library would answer with another text
		return nil, errDeadline
	}
	bytes, fields := metadataSize(info.Header)
	if n := bytes + fields*fieldOverhead; n > int64(g.cfg.MaxHeaderBytes) {
		stopTimer(ctx)
		return nil, status.Errorf(codes.ResourceExhausted, "received initial metadata size exceeds hard limit (%d vs. %d)", n, g.cfg.MaxHeaderBytes)
	}
	// The library would reject such a name without calling a handler.
	if name := info.FullMethodName; !strings.HasPrefix(name, "/") || strings.LastIndexByte(name, '/') == 0 {
		stopTimer(ctx)
		return nil, status.Errorf(codes.Unimplemented, "malformed method name: %q", infer.Cut(name, infer.MaxEcho/4))
	}
	c := &call{Context: ctx, conn: conn, cost: callCost + int64(len(info.FullMethodName)) + bytes + fields*headerCost}
	if err := conn.take(c.cost); err != nil {
		stopTimer(ctx)
		conn.refused()
		return nil, message.AsOutOfMemory(err)
	}
	return c, nil
}

// stopTimer stops the timer of a rejected call. The library does not cancel the context of such a
// call: its timer would keep it until the client's deadline, which may be years away, even after
// the connection has ended. The timer is not accessible otherwise, so it is read from the context
// by reflection. Contexts of another form are left alone.
func stopTimer(ctx context.Context) {
	// The timer is read without the context's lock, so it must not fire at this moment.
	if at, ok := ctx.Deadline(); !ok || time.Until(at) < time.Second {
		return
	}
	timer := reflect.TypeFor[*time.Timer]()
	for v := reflect.ValueOf(ctx); v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Struct; {
		v = v.Elem()
		if t := v.FieldByName("timer"); t.IsValid() && t.Type() == timer && !t.IsNil() {
			(*time.Timer)(t.UnsafePointer()).Stop()
			return
		}
		parent := v.FieldByName("Context")
		if !parent.IsValid() || parent.Kind() != reflect.Interface {
			return
		}
		v = parent.Elem()
	}
}

// metadataSize returns the bytes of the names and values in the metadata, and their number.
func metadataSize(md metadata.MD) (bytes, fields int64) {
	for name, values := range md {
		for _, v := range values {
			bytes += int64(len(name) + len(v))
			fields++
		}
	}
	return bytes, fields
}

// begin starts the handler's part of the call. The caller must call end unless begin fails.
func (c *call) begin() error {
	if c.conn == nil {
		return nil
	}
	if !c.state.CompareAndSwap(tapped, begun) { // the client has cancelled it, and Err has been called
		if err := c.conn.take(c.cost); err != nil {
			return message.AsOutOfMemory(err)
		}
	}
	if !c.conn.begin() {
		c.conn.give(c.cost)
		return errEvicted
	}
	return nil
}

// errEvicted is not sent: its connection is closed.
var errEvicted = status.Error(codes.Unavailable, "connection closed as idle")

func (c *call) end() {
	if c.conn == nil {
		return
	}
	c.conn.end()
	if c.Context.Err() != nil {
		c.conn.give(c.cost) // cancelled: nothing is written
	} else {
		c.conn.left(c.cost)
	}
}

const restrictedPrefix = "triton-grpc-protocol-"

// restricted returns the list with the headers as they appear on the wire.
//
// bound: the configured restrictions
func restricted(list []server.Restriction) []server.Restriction {
	list = slices.Clone(list)
	for i := range list {
		list[i].Header = restrictedPrefix + strings.ToLower(list[i].Header)
	}
	return list
}

// admit rejects an RPC of a restricted group unless the client sends the group's header.
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

// forwarded returns the metadata that the forward pattern selects, as parameters sorted by name.
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

// transportKey reports whether a key belongs to the transport. The library adds some keys that are
// not the client's metadata.
func transportKey(key string) bool {
	return strings.HasPrefix(key, ":") || strings.HasPrefix(key, "grpc-") || key == "content-type" || key == "te"
}
