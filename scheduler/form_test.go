package scheduler

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/scheduler/batching"
)

// teller is an instance that writes down when it is given which batch, and takes
// a while for each.
type teller struct {
	name  string
	lasts time.Duration
	tale  *tale
}

// tale is what happened: "<ms> <what>", in order.
type tale struct {
	begun time.Time
	mu    sync.Mutex
	lines []string
}

func (t *tale) tell(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := time.Since(t.begun)
	t.lines = append(t.lines, fmt.Sprintf("%v ", float64(at.Microseconds())/1000)+fmt.Sprintf(format, args...))
}

func (t *tale) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "; ")
}

func (t *teller) Name() string                { return t.name }
func (t *teller) Ready(context.Context) error { return nil }

func (t *teller) Execute(b *backend.Batch) {
	t.tale.tell("%s", ids(b))
	time.AfterFunc(t.lasts, func() {
		b.Done(b, backend.Report{Executed: true})
		for _, task := range b.Tasks {
			task.Send(&infer.Response{Final: true})
		}
	})
}

// ids names the requests of a batch.
func ids(b *backend.Batch) string {
	var list []string
	for _, t := range b.Tasks {
		list = append(list, t.Request.ID)
	}
	return strings.Join(list, "+")
}

// askAt is a request of a story.
type askAt struct {
	at       int // ms
	id       string
	size     int64
	priority uint64
	timeout  time.Duration
	inputs   string // names with shapes: "A:2 B:3,4"; a shape tensor has content: "S:1=x"
	gone     int    // ms when its client goes; 0: never
}

// parseInputs reads inputs, and puts the batch dimension before each shape.
func parseInputs(text string) (list []infer.Tensor) {
	for _, field := range strings.Fields(text) {
		name, shape, _ := strings.Cut(field, ":")
		shape, content, _ := strings.Cut(shape, "=")
		in := infer.Tensor{Name: name, Shape: []int64{1}, Data: []byte(content)}
		for _, dim := range strings.Split(shape, ",") {
			var n int64
			_, _ = fmt.Sscan(dim, &n)
			in.Shape = append(in.Shape, n)
		}
		list = append(list, in)
	}
	return list
}

// playStory plays a story on instances that take lasts for each batch, and tells what
// they were given and who got an error.
func playStory(t *testing.T, config *kserve.ModelConfig, change func(*batching.Rules), instances int, lasts time.Duration, asks []askAt) string {
	t.Helper()
	told := &tale{begun: time.Now()}
	b := batching.NewRules(config)
	if change != nil {
		change(b)
	}
	d := NewBatcher(BatcherConfig{Model: "m", Observer: &counter{}, Batching: b})
	for i := range instances {
		d.Available(&teller{name: fmt.Sprint(i), lasts: lasts, tale: told})
	}
	begun := time.Now()
	for _, a := range asks {
		time.Sleep(time.Until(begun.Add(time.Duration(a.at) * time.Millisecond)))
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		if a.gone > 0 {
			time.AfterFunc(time.Until(begun.Add(time.Duration(a.gone)*time.Millisecond)), cancel)
		} else {
			t.Cleanup(cancel)
		}
		req := &infer.Request{
			ID: a.id, BatchSize: max(a.size, 1), Priority: a.priority, TimeoutMicros: uint64(a.timeout.Microseconds()),
			Inputs: parseInputs(a.inputs),
		}
		err := d.Submit(ctx, req, func(r *infer.Response) {
			if r.Err != nil {
				told.tell("%s: %s %s", a.id, r.Err.Code, r.Err.Message)
			}
		})
		if err != nil {
			told.tell("%s refused: %v", a.id, err)
		}
		synctest.Wait()
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	if d.InFlight() != 0 || d.waiting.length != 0 {
		t.Errorf("at the end: %d in flight, %d wait", d.InFlight(), d.waiting.length)
	}
	if err := d.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	return told.String()
}

// TestBatchesFormAsConfigured is a table of what is executed when.
func TestBatchesFormAsConfigured(t *testing.T) {
	same := func(at int, ids ...string) (asks []askAt) {
		for _, id := range ids {
			asks = append(asks, askAt{at: at, id: id})
		}
		return asks
	}
	join := func(lists ...[]askAt) (all []askAt) {
		for _, l := range lists {
			all = append(all, l...)
		}
		return all
	}
	for _, c := range []struct {
		name      string
		config    string // of dynamic_batching, and more
		change    func(*batching.Rules)
		instances int
		lasts     int // ms
		asks      []askAt
		want      string
	}{
		{name: "no batch dimension", config: "max_batch_size: 0 dynamic_batching { }", lasts: 10,
			asks: same(0, "a", "b", "c"), want: "0 a; 10 b; 20 c"},
		{name: "whatever waits", config: "max_batch_size: 4 dynamic_batching { }", lasts: 10,
			asks: same(0, "a", "b", "c", "d"), want: "0 a; 10 b+c+d"},
		{name: "never above the largest", config: "max_batch_size: 4 dynamic_batching { }", lasts: 10,
			asks: same(0, "a", "b", "c", "d", "e", "f"), want: "0 a; 10 b+c+d+e; 20 f"},
		{name: "sizes of clients count", config: "max_batch_size: 4 dynamic_batching { }", lasts: 10,
			asks: join(same(0, "a"), []askAt{{id: "b", size: 2}, {id: "c", size: 3}, {id: "d"}, {id: "e", size: 4}}),
			want: "0 a; 10 b; 20 c+d; 30 e"},
		{name: "a preferred size without delay", config: "max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 2, 4 ] }", lasts: 10,
			asks: same(0, "a", "b", "c", "d", "e", "f", "g", "h"), want: "0 a; 10 b+c+d+e; 20 f+g; 30 h"},
		{name: "none reached", config: "max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 4 ] }", lasts: 10,
			asks: same(0, "a", "b", "c", "d"), want: "0 a; 10 b+c+d"},
		{name: "cut above all preferred", config: "max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 4 ] }", lasts: 10,
			asks: join(same(0, "a"), []askAt{{id: "b", size: 3}, {id: "c", size: 3}}), want: "0 a; 10 b; 20 c"},
		{name: "delay waits for more", config: "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 100000 }", lasts: 10,
			asks: join(same(0, "a"), same(50, "b"), same(90, "c"), same(120, "d")), want: "100 a+b+c; 220 d"},
		{name: "no longer than for the largest", config: "max_batch_size: 3 dynamic_batching { max_queue_delay_microseconds: 100000 }", lasts: 10,
			asks: join(same(0, "a"), same(50, "b"), same(60, "c", "d")), want: "60 a+b+c; 160 d"},
		{name: "one that fills a batch does not wait", config: "max_batch_size: 3 dynamic_batching { max_queue_delay_microseconds: 100000 }", lasts: 10,
			asks: []askAt{{id: "a", size: 3}, {at: 1, id: "b", size: 2}, {at: 2, id: "c", size: 2}}, want: "0 a; 10 b; 102 c"},
		{name: "a preferred size in time", config: "max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 2, 4 ] max_queue_delay_microseconds: 100000 }", lasts: 50,
			asks: join(same(0, "a"), same(10, "b"), same(20, "c", "d", "e")), want: "10 a+b; 60 c+d; 120 e"},
		{name: "all that fit after the delay", config: "max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 30000 }", lasts: 50,
			asks: join(same(0, "a", "b", "c", "d"), same(5, "e", "f", "g", "h", "i")), want: "0 a+b+c+d; 50 e+f+g+h+i"},
		{name: "the delay passes while others execute", config: "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 30000 }", lasts: 50,
			asks: join(same(0, "a"), same(40, "b"), same(79, "c"), same(81, "d")), want: "30 a; 80 b+c; 130 d"},
		{name: "two instances", config: "max_batch_size: 2 dynamic_batching { }", instances: 2, lasts: 10,
			asks: same(0, "a", "b", "c", "d", "e"), want: "0 a; 0 b; 10 c+d; 10 e"},
		{name: "whose client has gone", config: "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 100000 }", lasts: 10,
			asks: join([]askAt{{id: "a", gone: 60}}, same(50, "b"), same(70, "c")), want: "60 a: Cancelled ; 150 b+c"},
		{name: "strategy of one", config: "max_batch_size: 8 dynamic_batching { }", lasts: 10, change: func(b *batching.Rules) { b.Strategy, _ = batching.Single(nil) },
			asks: same(0, "a", "b", "c"), want: "0 a; 10 b; 20 c"},
		{name: "strategy by volume", config: "max_batch_size: 8 dynamic_batching { }", lasts: 10, change: func(b *batching.Rules) { b.Strategy = bytesAtMost(3) },
			asks: join(same(0, "0"), []askAt{{id: "a", inputs: "A:1=xx"}, {id: "b", inputs: "A:1=y"}, {id: "c", inputs: "A:1=zzzz"}, {id: "d", inputs: "A:1=x"},
				{id: "e", inputs: "A:1=x B:1=y"}}),
			want: "0 0; 10 a+b; 20 c; 30 d+e"},
		{name: "held back at first", config: "max_batch_size: 2 dynamic_batching { }", lasts: 10, change: func(b *batching.Rules) { b.StartWith = 3 },
			asks: join(same(0, "a", "b"), same(100, "c"), same(200, "d")), want: "100 a+b; 110 c; 200 d"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := playStory(t, parseConfig(t, c.config), c.change, max(c.instances, 1), time.Duration(c.lasts)*time.Millisecond, c.asks)
				if got != c.want {
					t.Errorf("got  %s\nwant %s", got, c.want)
				}
			})
		})
	}
}

// TestBatchesHoldAlikeRequests is a table of whose batch begins with a, while b, c and d
// wait behind an execution.
func TestBatchesHoldAlikeRequests(t *testing.T) {
	const (
		fixed    = `input { name: "A" dims: [ 2 ] } `
		variable = `input { name: "A" dims: [ -1, 3 ] } input { name: "B" dims: [ 2 ] } `
		ragged   = `input { name: "A" dims: [ -1 ] allow_ragged_batch: true } `
		optional = `input { name: "A" dims: [ 2 ] } input { name: "B" dims: [ 2 ] optional: true } `
		shape    = `input { name: "S" dims: [ 1 ] is_shape_tensor: true } `
		both     = `input { name: "A" dims: [ -1 ] optional: true } input { name: "B" dims: [ -1 ] optional: true } `
	)
	for _, c := range []struct {
		name, inputs string
		of           []string // inputs of the requests
		want         string
	}{
		{"fixed shapes are not looked at", fixed, []string{"A:2", "A:9", "A:2"}, "a+b+c"},
		{"the same variable shape", variable, []string{"A:5,3 B:2", "A:5,3 B:7", "A:5,3 B:2"}, "a+b+c"},
		{"another one begins the next batch, and all behind it wait", variable, []string{"A:5,3 B:2", "A:6,3 B:2", "A:5,3 B:2"}, "a; b; c"},
		{"ragged", ragged, []string{"A:1", "A:2", "A:3"}, "a+b+c"},
		{"an optional one is there or not", optional, []string{"A:2", "A:2", "A:2 B:2", "A:2 B:2", "A:2"}, "a+b; c+d; e"},
		{"another optional one", both, []string{"A:2", "B:2", "B:2", "B:3"}, "a; b+c; d"},
		{"shape tensors by their content", shape, []string{"S:1=x", "S:1=x", "S:1=y", "S:1=y"}, "a+b; c+d"},
		{"in another order", variable, []string{"A:5,3 B:2", "B:2 A:5,3"}, "a+b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asks := []askAt{{id: "0", inputs: "A:0 B:0"}}
				for i, inputs := range c.of {
					asks = append(asks, askAt{id: string(rune('a' + i)), inputs: inputs})
				}
				got := playStory(t, parseConfig(t, c.inputs+"max_batch_size: 8 dynamic_batching { }"), nil, 1, 10*time.Millisecond, asks)
				want := []string{"0 0"}
				for i, batch := range strings.Split(c.want, "; ") {
					want = append(want, fmt.Sprintf("%d %s", 10*(i+1), batch))
				}
				if got != strings.Join(want, "; ") {
					t.Errorf("got %s\nwant %s", got, strings.Join(want, "; "))
				}
			})
		})
	}
}

// TestQueuePoliciesRejectOrDelay is a table of queues with priorities and policies. Each batch
// takes 10 ms.
func TestQueuePoliciesRejectOrDelay(t *testing.T) {
	const (
		expired  = "Unavailable Request timeout expired"
		reject   = "max_batch_size: 2 dynamic_batching { default_queue_policy { default_timeout_microseconds: 15000 } }"
		delay    = "max_batch_size: 1 dynamic_batching { default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 15000 } }"
		override = "max_batch_size: 1 dynamic_batching { default_queue_policy { default_timeout_microseconds: 25000 allow_timeout_override: true } }"
		never    = "max_batch_size: 1 dynamic_batching { default_queue_policy { allow_timeout_override: true } }"
		sized    = "max_batch_size: 1 dynamic_batching { default_queue_policy { max_queue_size: 2 } }"
		levels   = "max_batch_size: 2 dynamic_batching { priority_levels: 3 default_priority_level: 2 }"
		own      = "max_batch_size: 1 dynamic_batching { priority_levels: 2 default_priority_level: 2 default_queue_policy { max_queue_size: 1 } " +
			"priority_queue_policy { key: 1 value { default_timeout_microseconds: 5000 timeout_action: DELAY } } }"
		all = "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 100000 default_queue_policy { default_timeout_microseconds: 50000 } }"
		// Those past their deadline come after those of their level, before lower ones.
		mixed = "max_batch_size: 1 dynamic_batching { priority_levels: 2 default_priority_level: 2 " +
			"default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 5000 allow_timeout_override: true } }"
		late = "max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 1500000 " +
			"default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 9000000 allow_timeout_override: true } }"
	)
	for _, c := range []struct {
		name, config string
		asks         []askAt
		want         string
	}{
		{"rejected in time", reject, []askAt{{id: "a"}, {id: "b", size: 2}, {id: "c"}, {at: 1, id: "d"}}, "0 a; 10 b; 15 c: " + expired + "; 16 d: " + expired},
		{"delayed", delay, []askAt{{id: "a"}, {id: "b"}, {id: "c"}, {at: 11, id: "d"}, {at: 12, id: "e"}}, "0 a; 10 b; 20 d; 30 c; 40 e"},
		{"a shorter timeout", override, []askAt{{id: "a"}, {id: "b", timeout: 5 * time.Millisecond}, {id: "c", timeout: time.Hour}, {id: "d"}, {id: "e"}},
			"0 a; 5 b: " + expired + "; 10 c; 20 d; 25 e: " + expired},
		{"no shorter one than none", never, []askAt{{id: "a"}, {id: "b", timeout: 5 * time.Millisecond}, {id: "c", timeout: time.Millisecond}}, "0 a; 10 b; 20 c"},
		{"no override", reject, []askAt{{id: "a"}, {id: "b", timeout: 5 * time.Millisecond}}, "0 a; 10 b"},
		{"full", sized, []askAt{{id: "a"}, {id: "b"}, {id: "c"}, {id: "d"}, {at: 11, id: "e"}},
			"0 a; 0 d refused: [request id: d] Exceeds maximum queue size; 10 b; 20 c; 30 e"},
		{"the highest first", levels, []askAt{{id: "a"}, {id: "b", priority: 3}, {id: "c"}, {id: "d", priority: 1}, {id: "e", priority: 2}, {id: "f", priority: 9}, {id: "g", priority: 1}},
			"0 a; 10 d+g; 20 c+e; 30 f+b"},
		{"policies of their own", own, []askAt{{id: "a"}, {id: "b"}, {id: "c"}, {id: "d", priority: 1}, {id: "e", priority: 1}, {at: 2, id: "f", priority: 1}, {at: 7, id: "g", priority: 1}},
			"0 a; 0 c refused: [request id: c] Exceeds maximum queue size; 10 g; 20 d; 30 e; 40 f; 50 b"},
		{"expired while the batch waits for others", all, []askAt{{id: "a"}, {at: 40, id: "b"}, {at: 60, id: "c"}},
			"50 a: " + expired + "; 90 b: " + expired + "; 110 c: " + expired},
		{"late ones of a level", mixed, []askAt{{id: "a"}, {id: "b"}, {id: "c", priority: 1}, {at: 8, id: "d", priority: 1}, {at: 9, id: "e"}},
			"0 a; 10 d; 20 c; 30 b; 40 e"},
		{"a client goes while it is late", delay, []askAt{{id: "a"}, {id: "b"}, {id: "c", gone: 25}, {at: 11, id: "d"}, {at: 12, id: "e"}},
			"0 a; 10 b; 20 d; 25 c: Cancelled ; 30 e"},
		{"a preferred size without who is late", late, []askAt{{id: "a", size: 2}, {id: "b", timeout: 100 * time.Millisecond}, {at: 1, id: "c", size: 2}},
			"100 a+c; 1500 b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := playStory(t, parseConfig(t, c.config), nil, 1, 10*time.Millisecond, c.asks); got != c.want {
					t.Errorf("got  %s\nwant %s", got, c.want)
				}
			})
		})
	}
}

// TestTimeoutRunsSinceTheRequestWasMade: the time-out of what a model asks for runs from
// when the model asked. A clock that is ahead does not make it longer.
func TestTimeoutRunsSinceTheRequestWasMade(t *testing.T) {
	const config = "max_batch_size: 1 dynamic_batching { default_queue_policy { default_timeout_microseconds: 20000 allow_timeout_override: true } }"
	for _, c := range []struct {
		name    string
		made    time.Duration // before the request comes
		timeout time.Duration
		want    string
	}{
		{"over before it comes", 10 * time.Microsecond, 5 * time.Microsecond, "0 r: Unavailable"},
		{"the policy's", 20 * time.Millisecond, 0, "0 r: Unavailable"},
		{"in time", 10 * time.Microsecond, 11 * time.Microsecond, "0 r"},
		{"made in the future", -time.Hour, 5 * time.Microsecond, "0 r"},
		{"a client's", 0, 5 * time.Microsecond, "0 r"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told := &tale{begun: time.Now()}
				d := NewBatcher(BatcherConfig{Model: "m", Observer: &counter{}, Batching: batching.NewRules(parseConfig(t, config))})
				d.Available(&teller{name: "0", lasts: time.Millisecond, tale: told})
				req := &infer.Request{ID: "r", BatchSize: 1, TimeoutMicros: uint64(c.timeout.Microseconds())}
				if c.made != 0 {
					req.Made = backend.Now() - int64(c.made)
				}
				err := d.Submit(t.Context(), req, func(r *infer.Response) {
					if r.Err != nil {
						told.tell("r: %s", r.Err.Code)
					}
				})
				time.Sleep(time.Second)
				if got := told.String(); got != c.want || err != nil {
					t.Errorf("got %s, %v; want %s", got, err, c.want)
				}
			})
		})
	}
}
