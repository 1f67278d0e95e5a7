package warmup_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/models/warmup"
)

// heard is a scheduler that records its calls.
type heard struct {
	mu    sync.Mutex
	lines []string
}

func (h *heard) Available(in backend.Instance) { h.add("up " + in.Name()) }
func (h *heard) Lost(in backend.Instance, hopeless bool) {
	h.add(fmt.Sprintf("down %s %v", in.Name(), hopeless))
}

func (h *heard) add(line string) {
	h.mu.Lock()
	h.lines = append(h.lines, line)
	h.mu.Unlock()
}

// said returns the calls since the last said.
func (h *heard) said() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	text := strings.Join(h.lines, ", ")
	h.lines = nil
	return text
}

// TestBarrierHoldsInstancesUntilWarm runs scripts of events for the instances a and b. A warm-up
// takes a second; after "spoil" it fails.
func TestBarrierHoldsInstancesUntilWarm(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		want   string // the calls to the scheduler and the results of wait
	}{
		"both come up":                    {"up a; up b; wait; admit", "wait <nil>; up a, up b"},
		"nobody passes before":            {"up a; pass", ""},
		"one fails":                       {"up a; spoil; up b; wait", "wait b is spoilt"},
		"lost while it is warmed up":      {"up a; down a; wait; admit; up a; pass", "wait <nil>; down a false, up a"},
		"lost, and warmed up again":       {"up a; wait; admit; down a; up a; pass", "wait <nil>; up a, down a false, up a"},
		"lost again before it was warm":   {"up a; wait; admit; down a; up a; down a; pass", "wait <nil>; up a, down a false, down a false"},
		"a later warm-up fails":           {"up a; wait; admit; down a; spoil; up a; pass", "wait <nil>; up a, down a false, up a"},
		"hopeless":                        {"up a; wait; admit; down a; hopeless a", "wait <nil>; up a, down a false, down a true"},
		"hopeless before it was admitted": {"up a; wait; down a; hopeless a; admit", "wait <nil>; down a true"},
		"retired":                         {"up a; wait; admit; retire a; down a; up a; pass", "wait <nil>; up a, down a false"},
		"retired before it was admitted":  {"up a; wait; retire a; down a; up a; pass; admit", "wait <nil>"},
		"another comes later":             {"up a; wait; admit; up b; pass; wait; admit", "wait <nil>; up a; wait <nil>; up b"},
		"another fails later":             {"up a; wait; admit; spoil; up b; wait; retire b; down b", "wait <nil>; up a; wait b is spoilt"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &heard{}
				var spoilt atomic.Bool
				warm := func(ctx context.Context, in backend.Instance, _ bool) error {
					fails := spoilt.Load()
					select {
					case <-time.After(time.Second):
					case <-ctx.Done():
						return nil
					}
					if fails {
						return errors.New(in.Name() + " is spoilt")
					}
					return nil
				}
				g := warmup.NewBarrier(h, warm, zerolog.Nop())
				instances := map[string]*warmup.Gated{"a": {"a"}, "b": {"b"}}
				var got []string
				for step := range strings.SplitSeq(test.script, "; ") {
					verb, of, _ := strings.Cut(step, " ")
					in := instances[of]
					switch verb {
					case "up":
						g.Available(in)
						time.Sleep(time.Millisecond)
					case "down":
						g.Lost(in, false)
					case "hopeless":
						g.Lost(in, true)
					case "spoil":
						spoilt.Store(true)
					case "pass":
						time.Sleep(time.Minute)
					case "admit":
						g.Admit()
					case "retire":
						g.Retire(in)
					case "wait":
						if said := h.said(); said != "" {
							got = append(got, said)
						}
						got = append(got, fmt.Sprint("wait ", g.Wait(t.Context())))
					}
				}
				time.Sleep(time.Minute)
				if said := h.said(); said != "" {
					got = append(got, said)
				}
				g.Close()
				// Waiting instances are admitted in any order.
				text := strings.ReplaceAll(strings.Join(got, "; "), "up b, up a", "up a, up b")
				if text != test.want {
					t.Errorf("got %q, want %q", text, test.want)
				}
			})
		})
	}
}

// TestBarrierWithoutWarmupPassesAtOnce checks that a barrier without samples passes every call on
// at once.
func TestBarrierWithoutWarmupPassesAtOnce(t *testing.T) {
	h := &heard{}
	g := warmup.NewBarrier(h, nil, zerolog.Nop())
	a := &warmup.Gated{"a"}
	g.Available(a)
	if err := g.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.Admit()
	g.Lost(a, false)
	g.Available(a)
	if in := g.Retire(a); in != a {
		t.Errorf("the scheduler knows it as %v", in)
	}
	g.Forget(a)
	g.Lost(a, true)
	if got := h.said(); got != "up a, down a false, up a" {
		t.Errorf("the scheduler hears %q", got)
	}
}
