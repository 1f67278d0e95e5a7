package rest_test

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/rest"
	"github.com/nereid-serving/nereid/server/servertest"
)

// The fakes behind a front end under test.
type (
	FakeModel = servertest.Model
	fakeCore  = servertest.Core
	fakeLog   = servertest.Log[server.LogSettings]
)

const Patience = servertest.Patience

// Model is servertest.NewModel.
func Model(name string, maxBatch int32, tensors ...string) *FakeModel {
	return servertest.NewModel(name, maxBatch, tensors...)
}

// fakeBlocks is an Allocator and an Opener that counts unreleased memory.
type fakeBlocks struct {
	servertest.Blocks
	Unproven atomic.Bool // an announcement without data gets no memory
}

func (b *fakeBlocks) open(n, arrived int) (server.Filling, error) {
	if b.Unproven.Load() && arrived < n/8 {
		return nil, server.ErrUnproven
	}
	block, err := b.Open(n)
	if err != nil {
		return nil, err
	}
	return block, nil
}

// TestServer is an HTTP front end over fakes.
type TestServer struct {
	*rest.FrontEnd
	Core   *fakeCore
	Blocks *fakeBlocks
	Addr   string
	Stop   func() error // ends Run and returns its result
}

// StartHTTP runs a front end until the test ends. All memory must then have been released, and no
// error may have been logged, because a panic from releasing a block twice is logged.
func StartHTTP(t testing.TB, cfg rest.Config, core *fakeCore, change ...func(*server.Parts, *servertest.Blocks)) *TestServer {
	t.Helper()
	if core == nil {
		core = servertest.NewCore()
	}
	cfg.Address = "127.0.0.1"
	log := zerolog.New(errorLog{t}).Level(zerolog.ErrorLevel)
	if core.Panics {
		log = zerolog.Nop()
	}
	blocks := &fakeBlocks{Blocks: servertest.Blocks{Account: budget.New(budget.Config{Limit: 1 << 30})}}
	parts := server.Parts{Core: core, Allocate: blocks.Allocate, Open: blocks.open, Memory: blocks.Account,
		Logging: &fakeLog{S: server.LogSettings{Info: true, Warning: true, Error: true, Format: server.LogFormatDefault}}}
	for _, f := range change {
		f(&parts, &blocks.Blocks)
	}
	h, err := rest.New(cfg, parts, log)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	_, stop := servertest.Run(t, h)
	s := &TestServer{FrontEnd: h, Core: core, Blocks: blocks, Addr: h.Addr().String(), Stop: stop}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if n := blocks.Lent.Load(); n != 0 {
			t.Errorf("%d blocks have not been released", n)
		}
		if n := blocks.Account.Total(); n != 0 {
			t.Errorf("%d bytes are still charged to the account", n)
		}
	})
	return s
}

func (s *TestServer) Dial(t testing.TB) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(2 * Patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

// Eventually waits until ok returns true, or fails the test.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if !testkit.Within(Patience, ok) {
		t.Fatalf("%s: not within %v", what, Patience)
	}
}
