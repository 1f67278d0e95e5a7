package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nereid-serving/nereid/bench/measure"
)

// client asks one server over one connection, again and again.
type client interface {
	// ask sends the request and takes the whole response. With check it compares
	// the tensor with the one that was sent.
	ask(ctx context.Context, check bool) error
	close() error
}

// connector makes a client of a server.
type connector func(p *process) (client, error)

// sending returns a connector whose clients send a tensor of so many bytes.
func sending(protocol string, size int) connector {
	connect := connectHTTP
	if protocol != "HTTP" {
		connect = connectGRPC
	}
	return func(p *process) (client, error) { return connect(p, size) }
}

// load lets clients ask for the given time, after a short while in which they
// warm up and one answer of each is compared.
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

// askFor lets all clients ask until the time is over, and for the end of what
// they asked then.
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

// tensor is the bytes that are sent: floats that differ.
func tensor(size int) []byte {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i%251 + i>>12)
	}
	return data
}
