package nereid

import (
	"context"
	"errors"
	"fmt"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/clientshm"
	"github.com/nereid-serving/nereid/shm"
)

// makeAccount creates the memory account of everything that clients make the server take. It also
// creates the memory for requests and for large responses in the cache: address space for the whole
// limit, which becomes real only as it is used. A cache needs a quarter more than its size, because
// blocks have fixed size classes.
func (s *Server) makeAccount(limit, cacheSize int64, counters *metrics.Registry) error {
	s.account = budget.New(budget.Config{Limit: limit, Cache: cacheSize + cacheSize/4, Limits: s.options.ClientLimits})
	size := max(s.account.Limit()+s.account.Most(budget.Cache), 1<<20)
	region, err := shm.NewRegionUpTo(shm.Memfd{}, size, min(size, 1<<30), shm.ReadWrite)
	if err != nil {
		return fmt.Errorf("memory for requests: %w", err)
	}
	s.requests, err = shm.NewPool(region, shm.PoolConfig{
		Default: max(min(1<<20, size/64), shm.PageSize), Growth: 4 << 20,
		Charge: func(n int64) bool { return s.account.Try(budget.Blocks, n) },
		Refund: func(n int64) { s.account.Give(budget.Blocks, n) },
		Log:    s.log,
	})
	if err != nil {
		region.Release()
		return fmt.Errorf("memory for requests: %w", err)
	}
	s.account.OnShort(s.requests.Trim)
	s.showAccount(counters)
	return nil
}

// showAccount adds the account to the metrics.
func (s *Server) showAccount(counters *metrics.Registry) {
	counters.Gauge("nereid_request_memory_bytes", "Shared memory that is reserved for tensors of requests, and of large cached responses",
		func() float64 { return float64(s.requests.Stats().Reserved) })
	counters.Gauge("nereid_memory_limit_bytes", "Memory that clients may make the server take, without the cache",
		func() float64 { return float64(s.account.Limit()) })
	counters.Gauge("nereid_memory_real_bytes", "Memory of the server itself, charged or not: its heap and stacks, the requests pool and the memory reserved for outputs",
		func() float64 { return float64(s.account.Real()) })
	counters.Gauge("nereid_memory_pressure", "Whether memory is short, so that large requests are refused",
		func() float64 {
			if s.account.Pressed() {
				return 1
			}
			return 0
		})
	counters.Counter("nereid_memory_holders_ended_total", "Connections, streams and processes that were ended because memory was short",
		func() float64 { return float64(s.account.Ended()) })
	free := func() int64 {
		now := s.requests.Stats()
		return now.Reserved - now.Kept
	}
	show := func(kind string, bytes func() int64) {
		counters.Gauge("nereid_memory_bytes", "Memory charged for clients, by purpose",
			func() float64 { return float64(bytes()) }, "kind", kind)
	}
	for k := range budget.Kind(budget.Kinds) {
		if k == budget.Blocks {
			show(k.String(), func() int64 { return max(s.account.Used(k)-free(), 0) })
			continue
		}
		show(k.String(), func() int64 { return s.account.Used(k) })
	}
	show("free", free)
}

// keepAccount watches the memory until the server is closed.
func (s *Server) keepAccount() {
	watch := budget.Watch{LimitHeap: s.options.LimitGoHeap, Log: s.log}
	s.keep(panics.Memory, func(ctx context.Context) { s.account.Keep(ctx, watch) })
}

// keep runs a watcher until the server is closed. where names it in counts of its panics.
func (s *Server) keep(where panics.Where, run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}) // closed by the goroutine
	panics.Go(s.log, where, func() {
		defer close(done)
		run(ctx)
	}, nil)
	before := s.stopKeeping
	s.stopKeeping = func() {
		before()
		cancel()
		<-done
	}
}

// makeRegions creates the registry of clients' shared memory regions.
func (s *Server) makeRegions(counters *metrics.Registry) {
	config := clientshm.Config{
		Enabled: s.options.AllowClientSHM, Most: s.options.MaxClientRegions, Account: s.account, Allocate: s.lend(budget.Blocks),
	}
	if s.supervisor != nil {
		config.Ours = s.supervisor.OwnsFile
	}
	if s.copier != nil {
		config.Devices = func() clientshm.Devices {
			if len(s.devices.List()) == 0 {
				return nil
			}
			return s.copier
		}
	}
	s.regions = clientshm.New(config)
	counters.Gauge("nereid_client_regions", "Regions of shared memory that clients have registered",
		func() float64 { count, _ := s.regions.Stats(); return float64(count) })
	counters.Gauge("nereid_client_region_bytes", "Bytes of the regions of shared memory that clients have registered",
		func() float64 { _, bytes := s.regions.Stats(); return float64(bytes) })
}

// lend returns an allocator of blocks that are charged as the given kind.
func (s *Server) lend(kind budget.Kind) func(n int) ([]byte, infer.Memory, error) {
	return func(n int) ([]byte, infer.Memory, error) {
		if kind != budget.Blocks && !s.account.Fits(kind, int64(n)) {
			return nil, nil, s.account.Refuse(kind, int64(n))
		}
		if err := s.account.Admit(int64(n)); err != nil {
			return nil, nil, err
		}
		block, err := s.requests.Alloc(n)
		if err != nil {
			return nil, nil, server.Refusal(s.account, n, err)
		}
		if kind != budget.Blocks {
			size := block.Real()
			s.account.Move(budget.Blocks, kind, size)
			block.OnFree(func() { s.account.Move(kind, budget.Blocks, size) })
		}
		return block.Bytes(), block, nil
	}
}

// open lends the front ends blocks that become real as they are filled.
func (s *Server) open(n, arrived int) (server.Filling, error) {
	if err := s.account.Admit(int64(n)); err != nil {
		return nil, err
	}
	block, err := s.requests.Open(n, arrived)
	if errors.Is(err, shm.ErrUnproven) {
		err = server.ErrUnproven
	}
	if err != nil {
		return nil, err
	}
	return block, nil
}
