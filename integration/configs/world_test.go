package configs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/models/cache"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
	"github.com/nereid-serving/nereid/server"
	grpcserver "github.com/nereid-serving/nereid/server/grpc"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/rest"
	"github.com/nereid-serving/nereid/shm"
)

// patience is the time limit for a response.
const patience = time.Minute

// world is a server with scripted instances and its clients.
type world struct {
	t        *testing.T
	rand     *rand.Rand
	log      testkit.Buffer
	pool     *shm.Pool
	account  *budget.Account
	cache    *cache.Cache
	registry *models.Registry
	models   []*model // the served models
	made     int
	good     atomic.Int64 // requests answered without an error
	base     string
	http     *http.Client
	grpc     grpcservice.GRPCInferenceServiceClient
}

// live creates a world, sends it requests, and checks that nothing panicked and nothing is left
// over.
func live(t *testing.T, seed uint64, requests int) (served, made int, good int64) {
	before := testkit.Panics()
	w := &world{t: t, rand: rand.New(rand.NewPCG(seed, 11))}
	stop := w.start()
	var clients sync.WaitGroup
	for range 3 {
		r := rand.New(rand.NewPCG(w.rand.Uint64(), w.rand.Uint64()))
		clients.Go(func() {
			for range requests {
				if len(w.models) > 0 && !t.Failed() {
					w.ask(r)
				}
			}
		})
	}
	clients.Wait()
	stop()
	if n := testkit.Panics(); n != before {
		t.Errorf("seed %d: got %d panics, want none; configs:\n%s\nlog:\n%s", seed, n-before, w.configs(), w.log.String())
	}
	if err := w.pool.Verify(); err != nil {
		t.Errorf("seed %d: %v; configs:\n%s", seed, err, w.configs())
	}
	// Replies that the transport has dropped are released by the garbage collector.
	if !testkit.Within(patience, func() bool { return w.pool.Stats().Blocks == 0 }) {
		t.Errorf("seed %d: got %d blocks lent in the end, want none; configs:\n%s", seed, w.pool.Stats().Blocks, w.configs())
	}
	w.pool.Close()
	return len(w.models), w.made, w.good.Load()
}

func (w *world) configs() string {
	var b strings.Builder
	for _, m := range w.models {
		fmt.Fprintf(&b, "name: %q\n%s\n", m.name, m.config)
	}
	return b.String()
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// start serves random models, except those whose config is rejected.
func (w *world) start() (stop func()) {
	root := w.t.TempDir()
	var parts []*model
	for i := range 1 + w.rand.IntN(3) {
		parts = append(parts, modelOf(w.rand, fmt.Sprintf("m%d", i)))
	}
	all := parts
	if chance(w.rand, 2) {
		all = append(all[:len(all):len(all)], ensembleOf(w.rand, "e", parts))
	}
	w.made = len(all)
	for _, m := range all {
		w.must(os.MkdirAll(filepath.Join(root, m.name, "1"), 0o755))
		w.must(os.WriteFile(filepath.Join(root, m.name, "config.pbtxt"), []byte(m.config), 0o644))
		w.must(os.WriteFile(filepath.Join(root, m.name, "labels.txt"), []byte("none\none\n\nthree"), 0o644))
	}
	region, err := shm.NewRegion(shm.Memfd{}, 256<<20, shm.ReadWrite)
	w.must(err)
	w.pool, err = shm.NewPool(region, shm.PoolConfig{})
	w.must(err)
	w.account = budget.New(budget.Config{Limit: 64 << 20})
	lend := func(n int) ([]byte, infer.Memory, error) {
		block, err := w.pool.Alloc(n)
		if err != nil {
			return nil, nil, infer.Errorf(infer.Unavailable, "%v", err)
		}
		return block.Bytes(), block, nil
	}
	w.cache, err = cache.New(cache.Config{Size: 1 << 20, Allocate: lend})
	w.must(err)
	opened, err := repository.Open([]string{root}, repository.Options{DisableAutoComplete: true})
	w.must(err)
	log := zerolog.New(&w.log).Level(zerolog.ErrorLevel)
	w.registry = models.NewRegistry(models.RegistryConfig{
		Repository: opened,
		Settings: version.Settings{
			Backends: map[string]backend.Backend{"scripted": &scripted{pool: w.pool, rand: rand.New(rand.NewPCG(w.rand.Uint64(), 3))}},
			Allocate: lend, Metrics: metrics.New(metrics.Config{}), Cache: w.cache, Log: log,
		},
	})
	_ = w.registry.Start(context.Background()) // models with a rejected config are not served
	for _, m := range all {
		if _, err := w.registry.Model(m.name, infer.LatestVersion); err == nil {
			w.models = append(w.models, m)
		}
	}
	parted := server.Parts{Core: w.registry, Allocate: lend, Memory: w.account, Logging: noLogging{}}
	h, err := rest.New(rest.Config{Address: "127.0.0.1", Config: http1.Config{ExitTimeout: patience}}, parted, log)
	w.must(err)
	g, err := grpcserver.New(grpcserver.Config{Address: "127.0.0.1", ExitTimeout: patience}, parted, log)
	w.must(err)
	w.must(h.Listen())
	w.must(g.Listen())
	ctx, cancel := context.WithCancel(context.Background())
	var fronts sync.WaitGroup
	for _, run := range []func(context.Context) error{h.Run, g.Run} {
		fronts.Go(func() {
			if err := run(ctx); err != nil {
				w.t.Errorf("front end: %v", err)
			}
		})
	}
	w.base = "http://" + h.Addr().String()
	transport := &http.Transport{MaxIdleConnsPerHost: 8}
	w.http = &http.Client{Transport: transport, Timeout: patience}
	conn, err := grpc.NewClient(g.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	w.must(err)
	w.grpc = grpcservice.NewGRPCInferenceServiceClient(conn)
	return func() {
		transport.CloseIdleConnections()
		_ = conn.Close()
		cancel()
		fronts.Wait()
		ending, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := w.registry.Shutdown(ending); err != nil {
			w.t.Errorf("shutdown: %v; configs:\n%s", err, w.configs())
		}
		opened.Close()
	}
}

// noLogging has no settings to change.
type noLogging struct{}

func (noLogging) LogSettings() server.LogSettings             { return server.LogSettings{} }
func (noLogging) ChangeLogSettings(func(*server.LogSettings)) {}
