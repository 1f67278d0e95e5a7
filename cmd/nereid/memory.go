package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/nereid-serving/nereid/boundary"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/memory"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/shm"
	"github.com/rs/zerolog"
)

// makeAccount makes the account of all that clients make the server take, and the
// memory for requests and for large responses in the cache: as much address space
// as they may use, real only as far as it is used. A cache has a quarter more than
// its size, as blocks are of classes of size.
func (r *rooms) makeAccount(limit, cacheSize int64, counters *metrics.Registry, log zerolog.Logger) error {
	r.account = memory.New(memory.Config{Limit: limit, Cache: cacheSize + cacheSize/4})
	size := max(r.account.Limit()+r.account.Most(memory.Cache), 1<<20)
	region, err := shm.NewRegionUpTo(shm.Memfd{}, size, min(size, 1<<30), shm.ReadWrite)
	if err != nil {
		return fmt.Errorf("memory for requests: %w", err)
	}
	r.requests, err = shm.NewPool(region, shm.PoolConfig{
		Default: max(min(1<<20, size/64), shm.PageSize), Growth: 4 << 20,
		Charge: func(n int64) bool { return r.account.Try(memory.Blocks, n) },
		Refund: func(n int64) { r.account.Give(memory.Blocks, n) },
		Log:    log,
	})
	if err != nil {
		region.Release()
		return fmt.Errorf("memory for requests: %w", err)
	}
	r.account.OnShort(r.requests.Trim)
	r.showAccount(counters)
	return nil
}

// showAccount adds the account to the metrics.
func (r *rooms) showAccount(counters *metrics.Registry) {
	counters.Gauge("nereid_request_memory_bytes", "Shared memory that is reserved for tensors of requests, and of large cached responses",
		func() float64 { return float64(r.requests.Stats().Reserved) })
	counters.Gauge("nereid_memory_limit_bytes", "Memory that clients may make the server take, without the cache",
		func() float64 { return float64(r.account.Limit()) })
	free := func() int64 {
		s := r.requests.Stats()
		return s.Reserved - s.Kept
	}
	show := func(kind string, bytes func() int64) {
		counters.Gauge("nereid_memory_bytes", "Memory that clients have made the server take, by what it is for",
			func() float64 { return float64(bytes()) }, "kind", kind)
	}
	for k := range memory.Kind(memory.Kinds) {
		if k == memory.Blocks {
			show(k.String(), func() int64 { return max(r.account.Used(k)-free(), 0) })
			continue
		}
		show(k.String(), func() int64 { return r.account.Used(k) })
	}
	show("free", free)
}

// keepAccount watches the heap until stop is called, which waits for the end of
// that. The Go runtime has the limit of the account unless the environment, or an
// embedder, has given it one.
func (r *rooms) keepAccount(getenv func(string) string, log zerolog.Logger) (stop func()) {
	if getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(r.account.HeapLimit())
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}) // closed by the goroutine
	boundary.Go(log, boundary.Memory, func() {
		defer close(done)
		r.account.Keep(ctx)
	}, nil)
	return func() {
		cancel()
		<-done
	}
}

// lend returns an allocator of blocks that are charged as the given kind.
func (r *rooms) lend(kind memory.Kind) func(n int) ([]byte, infer.Memory, error) {
	return func(n int) ([]byte, infer.Memory, error) {
		if kind != memory.Blocks && !r.account.Fits(kind, int64(n)) {
			return nil, nil, r.account.Refuse(kind, int64(n))
		}
		block, err := r.requests.Alloc(n)
		if err != nil {
			return nil, nil, server.Refusal(r.account, n, err)
		}
		if kind != memory.Blocks {
			size := block.Real()
			r.account.Move(memory.Blocks, kind, size)
			block.OnFree(func() { r.account.Move(kind, memory.Blocks, size) })
		}
		return block.Bytes(), block, nil
	}
}

// open lends the front ends blocks that become real as they are filled.
func (r *rooms) open(n, arrived int) (server.Filling, error) {
	block, err := r.requests.Open(n, arrived)
	if errors.Is(err, shm.ErrUnproven) {
		err = server.ErrUnproven
	}
	if err != nil {
		return nil, err
	}
	return block, nil
}
