package models_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/models/version"
	"github.com/nereid-serving/nereid/scheduler/ratelimit"
)

// TestInstancesStormLosesNoRequest sends requests while requests and loads, some of which fail,
// change the number of instances, with warm-up and a rate limiter. It checks that no request is
// lost and that the last change determines the final count.
func TestInstancesStormLosesNoRequest(t *testing.T) {
	const group = `instance_group [ { name: "a" count: 2 kind: KIND_CPU rate_limiter { resources [ { name: "R" count: 1 } ] } } ]`
	g := newGrower(t, group+sampleOf("batch_size: 1", "IN", "INT32", "1", "zero_data: true"), func(c *models.RegistryConfig) {
		c.Limiter = ratelimit.New([]ratelimit.Resource{{Name: "R", Count: 3, Device: ratelimit.AnyDevice}})
	})
	span := time.Second
	if !testkit.Long() {
		span = 200 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(t.Context(), span)
	defer cancel()
	var clients, changes sync.WaitGroup
	var answers atomic.Int64
	for range 8 {
		clients.Go(func() {
			for ctx.Err() == nil {
				if by, err := g.send(t.Context(), ""); err != nil || by == "" {
					t.Errorf("%q answered, %v", by, err)
				}
				answers.Add(1)
			}
		})
	}
	for range 2 { // clients that disconnect
		clients.Go(func() {
			for ctx.Err() == nil {
				short, leave := context.WithTimeout(ctx, time.Duration(rand.IntN(300))*time.Microsecond)
				if _, err := g.send(short, ""); err != nil && infer.AsError(err).Code != infer.Cancelled {
					t.Errorf("a client that leaves: %v", err)
				}
				leave()
			}
		})
	}
	for i := range 3 {
		changes.Go(func() {
			for ctx.Err() == nil {
				n := 1 + rand.IntN(5)
				var err error
				if i == 0 {
					config := strings.Replace(group, "count: 2", fmt.Sprintf("count: %d", n), 1)
					g.write(config + sampleOf("batch_size: 1", "IN", "INT32", "1", "zero_data: true"))
					err = g.Load(t.Context(), "m", "", nil)
				} else {
					_, err = g.SetInstances(t.Context(), "m", "", n)
				}
				if err != nil && !strings.Contains(err.Error(), "no room") {
					t.Errorf("%d instances: %v", n, err)
				}
			}
		})
	}
	changes.Go(func() {
		for ctx.Err() == nil {
			g.backend.mu.Lock()
			if g.backend.refuse == nil && rand.IntN(3) == 0 {
				g.backend.refuse = infer.Errorf(infer.Internal, "no room")
			} else {
				g.backend.refuse = nil
			}
			g.backend.mu.Unlock()
			time.Sleep(time.Millisecond)
		}
		g.backend.mu.Lock()
		g.backend.refuse = nil
		g.backend.mu.Unlock()
	})
	clients.Wait()
	changes.Wait()
	states, err := g.SetInstances(t.Context(), "m", "", 2)
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, s := range states {
		if !s.Draining {
			kept++
		}
	}
	if kept != 2 || g.config() != "a2" {
		t.Errorf("in the end there are %d instances, the config has %s", kept, g.config())
	}
	if by, err := g.send(t.Context(), ""); err != nil {
		t.Errorf("in the end %q answers, %v", by, err)
	}
	l := g.version()
	g.wantQuiet(l)
	g.backend.mu.Lock()
	defer g.backend.mu.Unlock()
	if g.backend.opened != 1 {
		t.Errorf("the model was loaded %d times", g.backend.opened)
	}
	t.Logf("%d answers", answers.Load())
}

// wantQuiet checks that the warm-up barrier has forgotten all ended instances.
func (g *grower) wantQuiet(l *version.Version) {
	g.t.Helper()
	known := 0
	if testkit.Within(patience, func() bool {
		known = l.Barrier().Known()
		return known == 2
	}) {
		return
	}
	g.t.Errorf("the barrier knows %d instances, want 2", known)
}
