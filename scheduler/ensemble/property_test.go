package ensemble

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// randomEnsemble returns a random graph. As the check at load requires, all inputs of a step have
// the same origin: one decoupled step, or none.
func randomEnsemble(r *rand.Rand) Config {
	type tensor struct {
		name   string
		origin int // the decoupled step that produces it, from 1; 0: none
	}
	var tensors []tensor
	c := Config{Model: "e"}
	for i := range 1 + r.IntN(3) {
		tensors = append(tensors, tensor{fmt.Sprintf("I%d", i), 0})
		c.Inputs = append(c.Inputs, tensors[i].name)
	}
	alike := func(origin int) (list []tensor) {
		for _, x := range tensors {
			if x.origin == origin {
				list = append(list, x)
			}
		}
		return list
	}
	for i := range 1 + r.IntN(7) {
		s := Step{Model: fmt.Sprintf("m%d", i), Version: infer.LatestVersion, Decoupled: r.IntN(4) == 0}
		from := tensors[r.IntN(len(tensors))].origin
		like := alike(from)
		for j := range 1 + r.IntN(3) {
			s.Inputs = append(s.Inputs, Link{fmt.Sprintf("IN%d", j), like[r.IntN(len(like))].name})
		}
		if s.Decoupled {
			from = i + 1
			c.Decoupled = true
		}
		for j := range 1 + r.IntN(3) {
			t := tensor{fmt.Sprintf("T%d_%d", i, j), from}
			tensors = append(tensors, t)
			s.Outputs = append(s.Outputs, Link{fmt.Sprintf("OUT%d", j), t.name})
		}
		c.Steps = append(c.Steps, s)
	}
	like := alike(tensors[r.IntN(len(tensors))].origin)
	r.Shuffle(len(like), func(i, j int) { like[i], like[j] = like[j], like[i] })
	for _, t := range like[:1+r.IntN(len(like))] {
		c.Outputs = append(c.Outputs, Output{Tensor: t.name, Dims: []int64{-1}})
	}
	if r.IntN(3) == 0 {
		c.MaxInflight = 1 + r.IntN(3)
	}
	return c
}

// made returns the responses of a model to its inputs, as text. Some outputs may be missing, and a
// decoupled model responds any number of times. The result depends on nothing else, so that the
// reference can compute it too.
func made(s *Step, inputs string) []map[string]string {
	seed := uint64(14695981039346656037)
	for _, b := range []byte(s.Model + inputs) {
		seed = (seed ^ uint64(b)) * 1099511628211
	}
	r := rand.New(rand.NewPCG(seed, 1))
	n := 1
	if s.Decoupled {
		n = r.IntN(4)
	}
	list := make([]map[string]string, n)
	for k := range list {
		list[k] = make(map[string]string)
		for _, out := range s.Outputs {
			if r.IntN(8) > 0 {
				list[k][out.Name] = fmt.Sprintf("%x", r.Uint32())
			}
		}
	}
	return list
}

// reference evaluates an ensemble in the simplest way: a tensor is the list of its values, and the
// results of a step have lists of the same length. It returns the responses as sorted text, without
// a response that only ends a stream.
func reference(c *Config, inputs map[string]string) []string {
	const nothing = "\x00"
	values := make(map[string][]string)
	for _, in := range c.Inputs {
		values[in] = []string{inputs[in]}
	}
	for i := range c.Steps { // in order: each step reads existing values
		s := &c.Steps[i]
		for k := range values[s.Inputs[0].Tensor] {
			var given []string
			for _, in := range s.Inputs {
				if v := values[in.Tensor][k]; v != nothing {
					given = append(given, in.Name+"="+v)
				}
			}
			for _, answer := range made(s, strings.Join(given, ",")) {
				for _, out := range s.Outputs {
					v, there := answer[out.Name]
					if !there {
						v = nothing
					}
					values[out.Tensor] = append(values[out.Tensor], v)
				}
			}
		}
	}
	var responses []string
	for k := range values[c.Outputs[0].Tensor] {
		var list []string
		for _, out := range c.Outputs {
			if v := values[out.Tensor][k]; v != nothing {
				list = append(list, out.Tensor+"="+v)
			}
		}
		responses = append(responses, strings.Join(list, ","))
	}
	slices.Sort(responses)
	return responses
}

// perform sends the responses that made returns for a step, with pauses. With trouble, some of them
// are errors.
func (k *fakeComposer) perform(c *Config, call *stepCall, r *rand.Rand, trouble bool) {
	at := slices.IndexFunc(c.Steps, func(s Step) bool { return s.Model == call.model })
	s := &c.Steps[at]
	pause := func() { time.Sleep(time.Duration(r.IntN(5)) * time.Millisecond) }
	pause()
	answers := made(s, tensorsText(call.req.Inputs))
	apart := s.Decoupled && r.IntN(2) == 0 || len(answers) == 0 // the final flag comes in a response of its own
	for i, answer := range answers {
		response := &infer.Response{Final: !apart && i == len(answers)-1, Held: k.countedMemory(false)}
		for _, out := range s.Outputs {
			if text, there := answer[out.Name]; there {
				response.Outputs = append(response.Outputs, k.tensor(out.Name, text))
			}
		}
		if s.Decoupled {
			response.Slot = k.countedMemory(true)
		}
		if trouble && r.IntN(6) == 0 {
			response.Release()
			*response = infer.Response{Err: infer.Errorf(infer.Internal, "trouble"), Final: response.Final}
		}
		call.send(response)
		pause()
	}
	if apart {
		call.send(&infer.Response{Empty: true, Final: true})
	}
}

// TestRandomEnsemblesMatchTheReference executes random graphs whose models respond after random
// pauses, with several requests at once, and compares the clients' responses with the reference. In
// one of four runs, models fail and clients disconnect; then it checks only that each client gets
// one last response and that nothing is left.
func TestRandomEnsemblesMatchTheReference(t *testing.T) {
	seeds := 400
	if !testkit.Long() {
		seeds = 50
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 7))
			config := randomEnsemble(r)
			k := newFakeComposer(t)
			config.Composer, config.Observer, config.Memory = k, &CountingObserver{}, budget.New(budget.Config{Limit: 64 << 20})
			e := New(config)
			trouble := seed%4 == 3
			type client struct {
				heard []string
				final int
				want  []string
			}
			clients := make([]client, 1+r.IntN(3))
			open := 0
			for i := range clients {
				inputs := make(map[string]string)
				req := &infer.Request{Model: "e"}
				for _, in := range config.Inputs {
					inputs[in] = fmt.Sprint(r.IntN(100))
					req.Inputs = append(req.Inputs, k.tensor(in, inputs[in]))
				}
				c := &clients[i]
				c.want = reference(&config, inputs)
				open++
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				if trouble && r.IntN(2) == 0 {
					time.AfterFunc(time.Duration(r.IntN(30))*time.Millisecond, cancel)
				}
				err := e.Submit(ctx, req, func(response *infer.Response) {
					text := tensorsText(response.Outputs)
					response.Release()
					k.mu.Lock()
					defer k.mu.Unlock()
					if c.final > 0 {
						t.Errorf("seed %d: %q came after the last response", seed, text)
					}
					if response.Err != nil {
						text = response.Err.Message
					}
					if !response.Empty {
						c.heard = append(c.heard, text)
					}
					if response.Final {
						c.final++
						open--
						for i := range req.Inputs { // release without the lock, because Release takes it
							defer func(t infer.Tensor) { k.mu.Unlock(); t.Release(); k.mu.Lock() }(req.Inputs[i])
						}
					}
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			var performing sync.WaitGroup
			for rounds := 0; ; rounds++ {
				k.mu.Lock()
				calls, left := k.calls, open
				k.calls = nil
				k.mu.Unlock()
				if left == 0 {
					break
				}
				if rounds > 100_000 {
					t.Fatalf("seed %d: %d requests do not end", seed, left)
				}
				for _, call := range calls {
					own := rand.New(rand.NewPCG(r.Uint64(), 3))
					performing.Go(func() { k.perform(&config, call, own, trouble) })
				}
				time.Sleep(time.Millisecond)
			}
			performing.Wait()
			for i := range clients {
				c := &clients[i]
				slices.Sort(c.heard)
				if !trouble && !slices.Equal(c.heard, c.want) {
					t.Errorf("seed %d: %d steps to %v: request %d heard %q, want %q", seed, len(config.Steps), config.Outputs, i, c.heard, c.want)
				}
			}
			k.settled(e)
		})
	}
}
