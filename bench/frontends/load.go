package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nereid-serving/nereid/bench/measure"
)

// client repeatedly sends requests to one server over one connection.
type client interface {
	// ask sends the request and reads the complete response. With check it compares the returned
	// tensor with the sent one.
	ask(ctx context.Context, check bool) error
	close() error
}

// connector creates a client of a server.
type connector func(p *process) (client, error)

// sending returns a connector whose clients send tensors of size bytes.
func sending(protocol string, size int) connector {
	connect := connectHTTP
	if protocol != "HTTP" {
		connect = connectGRPC
	}
	return func(p *process) (client, error) { return connect(p, size) }
}

// load lets clients send requests for the given time, after a short warm-up in which one response
// of each is compared.
func (p *process) load(ctx context.Context, connect connector, clients int, span time.Duration) (times measure.Times, err error) {
	all := make([]client, clients)
	for i := range all {
		c, err := connect(p)
		if err != nil {
			return measure.Times{}, err
		}
		defer func() { err = errors.Join(err, c.close()) }()
		all[i] = c
		if err := c.ask(ctx, true); err != nil {
			return measure.Times{}, err
		}
	}
	if _, err := askFor(ctx, all, span/5); err != nil {
		return measure.Times{}, err
	}
	tree, err := measure.Tree(p.PID())
	if err != nil {
		return measure.Times{}, err
	}
	before, err := measure.CPU(tree)
	if err != nil {
		return measure.Times{}, err
	}
	times, err = askFor(ctx, all, span)
	if err != nil {
		return measure.Times{}, err
	}
	after, err := measure.CPU(tree)
	times.CPU = after - before
	return times, err
}

// askFor lets all clients send requests for the given time, and waits for the last responses.
func askFor(ctx context.Context, clients []client, span time.Duration) (measure.Times, error) {
	begin := time.Now()
	end := begin.Add(span)
	each := make([][]time.Duration, len(clients))
	errs := make([]error, len(clients))
	var asking sync.WaitGroup
	for i, c := range clients {
		asking.Go(func() {
			for last := time.Now(); last.Before(end); {
				if err := c.ask(ctx, false); err != nil {
					errs[i] = err
					return
				}
				now := time.Now()
				each[i] = append(each[i], now.Sub(last))
				last = now
			}
		})
	}
	asking.Wait()
	times := measure.Times{Wall: time.Since(begin)}
	for _, part := range each {
		times.Each = append(times.Each, part...)
	}
	return times, errors.Join(append(errs, ctx.Err())...)
}

// tensor returns the bytes to send: floats with different values.
func tensor(size int) []byte {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i%251 + i>>12)
	}
	return data
}
