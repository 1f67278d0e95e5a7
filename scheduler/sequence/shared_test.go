package sequence_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler/sequence"
)

func boolToInt(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func playSequence(t *testing.T, kind byte, script []byte) {
	configs := []sequence.Config{direct(2, 0, 0), direct(3, 50_000, 0.5), oldest(2, 3, 0), oldest(2, 2, 20_000, 2)}
	config := configs[kind%4]
	config.Batching.IterativeSequence = kind&4 != 0
	account := budget.New(budget.Config{Limit: 64 << 20})
	if kind&8 != 0 {
		config.Decoupled = kind&16 != 0
		config.Memory = account
		config.States = []sequence.State{{Input: "IN", Output: "OUT", DataType: infer.Int32, Shape: []int64{1}, Data: make([]byte, 4)}}
	}
	c := newFixture(t, config)
	names := []string{"i", "j"}
	c.run("up i; up j")
	generation := map[infer.CorrelationID]int{}
	of := map[string]string{}   // the sequence of each request
	begun := map[string]int{}   // the last executed request of each sequence
	looked := map[string]bool{} // instances whose batch has been checked
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
			if !slices.Contains(c.Known(), id) {
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
				c.finish(i, backend.Report{Executed: true}, func() *infer.Response {
					data := make([]byte, 4*n) // another size for each
					return &infer.Response{Final: true, Outputs: []infer.Tensor{{Name: "OUT", DataType: infer.Int32, Shape: []int64{int64(n)}, Data: data}}}
				})
			}
		case what == 12:
			for _, p := range c.clients {
				if int(op&3) == int(p.own.Correlation.Number)-1 && p.own.ID != "" && n%3 == 0 {
					p.cancel()
				}
			}
		case what == 13:
			time.Sleep(time.Duration(op&15) * 100 * time.Millisecond)
		case what == 14 && op&8 != 0: // replaces an instance by another one
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
	if n := account.Used(budget.States); n != 0 {
		t.Errorf("%d bytes are charged at the end", n)
	}
}

// checkBatch checks an instance's batch, once per batch.
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
		id := of[task.Request.ID]
		if in[id] {
			t.Errorf("a batch has two requests of sequence %s", id)
		}
		in[id] = true
		var n int
		if _, err := fmt.Sscan(task.Request.ID, &n); err != nil {
			t.Fatal(err)
		}
		if n < begun[id] && !rounds {
			t.Errorf("request %d of sequence %s was executed after request %d", n, id, begun[id])
		}
		begun[id] = n
	}
	if c.instance(name).more {
		t.Errorf("instance %s was given a batch while it had one", name)
	}
}
