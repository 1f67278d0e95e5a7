package sequence

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/backendtest"
	"github.com/nereid-serving/nereid/infer"
)

// FuzzSequence plays a script of bytes, and wants each request answered
// once, those of a sequence in their order, one of each in a batch, and nothing
// left at the end.
func FuzzSequence(f *testing.F) {
	f.Add([]byte{0, 0, 1, 2, 3, 10, 20, 30, 0x40, 0x41, 0x42, 0x80, 0x81, 0x90})
	f.Add([]byte("\x01\x00\x08\x10\x18\x40\x20\x28\x50\x00\x04\x60\x41\x70\x00\x02\x80\x44\x90\x40\x48"))
	f.Add([]byte("\x02seven sequences, two instances, and one of them is lost"))
	f.Add([]byte("\x03\xf0\xe1\xd2\xc3\xb4\xa5\x96\x87\x78\x69\x5a\x4b\x3c\x2d\x1e\x0f"))
	f.Add([]byte("0+0\x7f000\xe3")) // lost between START, which it had not begun, and END
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) < 2 || len(script) > 300 {
			return
		}
		synctest.Test(t, func(t *testing.T) { playSequence(t, script[0], script[1:]) })
	})
}

func playSequence(t *testing.T, kind byte, script []byte) {
	configs := []Config{direct(2, 0, 0), direct(3, 50_000, 0.5), oldest(2, 3, 0), oldest(2, 2, 20_000, 2)}
	config := configs[kind%4]
	config.Batching.IterativeSequence = kind&4 != 0
	if kind&8 != 0 {
		config.States = []State{{Input: "IN", Output: "OUT", DataType: infer.Int32, Shape: []int64{1}, Data: make([]byte, 4)}}
	}
	c := newFixture(t, config)
	names := []string{"i", "j"}
	c.run("up i; up j")
	generation := map[infer.CorrelationID]int{}
	of := map[string]string{}   // the sequence of each request
	begun := map[string]int{}   // of each sequence, the last request that was executed
	looked := map[string]bool{} // instances whose batch has been looked at
	for n, op := range script {
		name := names[op>>2&1]
		i := c.instance(name)
		switch what := op >> 4; {
		case what < 8:
			id := infer.CorrelationID{Number: uint64(op&3) + 1}
			flags := []uint32{0, 0, infer.SequenceStart, infer.SequenceEnd}[op>>2&3]
			if what == 7 {
				flags |= infer.SequenceStart
			}
			c.mu.Lock()
			known := c.ids[id] != nil
			c.mu.Unlock()
			if !known {
				generation[id]++
			}
			req := &infer.Request{ID: fmt.Sprint(n), Correlation: id, Flags: flags, BatchSize: 1}
			if what == 6 {
				req.TimeoutMicros = 30_000
			}
			c.send(req)
			of[req.ID] = fmt.Sprintf("%d of %d", generation[id], id.Number)
		case what < 12:
			if i.has() == nil {
				break
			}
			looked[name] = false
			switch what {
			case 11:
				if config.Batching.IterativeSequence {
					c.finish(i, backend.Report{Executed: true, Rescheduled: i.has().Tasks}, nil)
					break
				}
				fallthrough
			case 10:
				err := errors.New("failed")
				c.finish(i, backend.Report{Executed: true, Err: err}, func() *infer.Response { return infer.ErrorResponse(err) })
			default:
				c.finish(i, backend.Report{Executed: true}, func() *infer.Response { return &infer.Response{Final: true} })
			}
		case what == 12:
			for _, p := range c.clients {
				if int(op&3) == int(p.own.Correlation.Number)-1 && p.own.ID != "" && n%3 == 0 {
					p.cancel()
				}
			}
		case what == 13:
			time.Sleep(time.Duration(op&15) * 100 * time.Millisecond)
		case what == 14 && op&8 != 0: // another instance comes for one that goes
			c.step("retire " + name)
			names[op>>2&1] = name + "'"
			c.step("up " + name + "'")
		case i.dead:
			c.step("up " + name)
		case op&1 != 0 && i.has() != nil:
			looked[name] = false
			c.step("staged " + name)
		default:
			looked[name] = false
			c.step("restart " + name)
		}
		synctest.Wait()
		for _, name := range names {
			checkBatch(t, c, name, looked, of, begun, config.Batching.IterativeSequence)
		}
	}
	c.run("wait 10s")
	for name, i := range c.instances {
		if i.dead {
			c.step("up " + name)
		}
	}
	c.leave()
}

// checkBatch looks at what an instance executes, once.
func checkBatch(t *testing.T, c *fixture, name string, looked map[string]bool, of map[string]string, begun map[string]int, rounds bool) {
	t.Helper()
	b := c.instance(name).has()
	if b == nil || looked[name] {
		return
	}
	looked[name] = true
	in := map[string]bool{}
	for _, task := range b.Tasks {
		if task.Request.Padding {
			continue
		}
		sequence := of[task.Request.ID]
		if in[sequence] {
			t.Errorf("a batch has two requests of sequence %s", sequence)
		}
		in[sequence] = true
		var n int
		if _, err := fmt.Sscan(task.Request.ID, &n); err != nil {
			t.Fatal(err)
		}
		if n < begun[sequence] && !rounds {
			t.Errorf("request %d of sequence %s was executed behind request %d", n, sequence, begun[sequence])
		}
		begun[sequence] = n
	}
	if c.instance(name).more {
		t.Errorf("instance %s was given a batch while it had one", name)
	}
}

// TestStormAnswersEverySequence has many clients send sequences to instances that die now and
// then. Run it with the race detector.
func TestStormAnswersEverySequence(t *testing.T) {
	for _, c := range []struct {
		name   string
		config Config
	}{{"direct", direct(4, 0, 0)}, {"oldest", oldest(4, 6, 0)}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := c.config
				var counts tally
				config.Model, config.Observer = "m", &counts
				s := New(config)
				instances := []*backendtest.Instance{backendtest.NewInstance("i", 3*time.Millisecond), backendtest.NewInstance("j", 5*time.Millisecond)}
				for _, in := range instances {
					s.Available(in)
				}
				answers := make(chan int, 1<<10)
				const clients, sequences = 16, 20
				for n := range clients {
					go func() {
						got := 0
						for k := range sequences {
							id := infer.CorrelationID{Number: uint64(n*sequences + k + 1)}
							for step := range 5 {
								ctx, cancel := context.Background(), context.CancelFunc(func() {})
								if n%4 == 3 && step == 2 {
									ctx, cancel = context.WithTimeout(ctx, time.Millisecond)
								}
								flags := []uint32{infer.SequenceStart, 0, 0, 0, infer.SequenceEnd}[step]
								err := s.Infer(ctx, &infer.Request{Correlation: id, Flags: flags, BatchSize: 1}, func(r *infer.Response) { got++ })
								cancel()
								if err != nil {
									break // its sequence was lost, or ended by a request that was cancelled
								}
							}
						}
						answers <- got
					}()
				}
				for range 10 {
					time.Sleep(20 * time.Millisecond)
					in := instances[0]
					in.Refuse.Store(true)
					time.Sleep(10 * time.Millisecond) // its batch ends
					s.Lost(in, false)
					time.Sleep(10 * time.Millisecond)
					in.Refuse.Store(false)
					s.Available(in)
				}
				total := 0
				for range clients {
					total += <-answers
				}
				if err := s.Stop(t.Context()); err != nil {
					t.Error(err)
				}
				if s.InFlight() != 0 || counts.pending.Load() != 0 || counts.negative.Load() || total < clients*sequences {
					t.Errorf("%d answers, %d in flight, %d pending, fewer than none for a while: %v", total, s.InFlight(), counts.pending.Load(), counts.negative.Load())
				}
				for _, in := range instances {
					if in.Overlapped() {
						t.Errorf("instance %s had two batches at once", in.Name())
					}
				}
			})
		})
	}
}
