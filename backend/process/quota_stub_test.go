package process_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/backendtest"
	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/shm"
)

// charged is a fixture with an account. When the test ends, nothing may be charged.
type charged struct {
	*fixture
	account *budget.Account
	base    int64 // of the live heap
}

func newCharged(t *testing.T, limit int64) *charged {
	t.Helper()
	account := budget.New(budget.Config{Limit: limit})
	t.Cleanup(func() { // runs after the fixture's own cleanup
		for k := range budget.Kind(budget.Kinds) {
			if n := account.Used(k); n != 0 {
				t.Errorf("at the end %d bytes of %s are charged, want none", n, k)
			}
		}
		account.Holders(func(h *budget.Holder) bool { t.Errorf("%s is still a holder", h.Name()); return true })
	})
	r := newFixtureIn(t, testkit.Python(t).Path, nil, shm.PoolConfig{
		Default: shm.PageSize,
		Charge:  func(n int64) bool { return account.Try(budget.Blocks, n) },
		Refund:  func(n int64) { account.Give(budget.Blocks, n) },
	}, func(e *process.Environment) { e.Memory = account })
	return &charged{fixture: r, account: account, base: testkit.LiveHeap()}
}

// wantBounded checks that the heap has not grown by much more than the charged bytes.
func (c *charged) wantBounded(when string) {
	c.t.Helper()
	used := c.account.Total() - c.account.Used(budget.Blocks)
	if grown := testkit.LiveHeap() - c.base; grown > 2*used+32<<20 {
		c.t.Errorf("%s: the heap has grown by %d bytes, where %d are charged", when, grown, used)
	}
}

// share returns a model's share.
func (c *charged) share(k budget.Kind) int64 {
	return c.account.Most(k) / 100 * 50
}

// held returns the bytes that the processes of a model hold.
func (c *charged) held(m *running, k budget.Kind) (n int64) {
	model := fmt.Sprintf("model %q version 1 instance ", m.name)
	c.account.Holders(func(h *budget.Holder) bool {
		if strings.HasPrefix(h.Name(), model) {
			n += h.Held(k)
		}
		return true
	})
	return n
}

// wantServing checks that another model responds.
func (c *charged) wantServing(other *running) {
	c.t.Helper()
	request := &infer.Request{Inputs: []infer.Tensor{c.tensor("IN0", infer.Uint8, []int64{1, 100_000}, testkit.Pattern(100_000, 1))}}
	responses, _ := other.infer(request)
	if responses[0].Err != nil {
		c.t.Errorf("another model: got error %v", responses[0].Err)
	}
	responses[0].Release()
	releaseInputs(request)
}

// TestAFloodOfKeptResponsesStaysWithinAShare checks that responses kept for their order, with their
// window slots released, stay charged to their model. Beyond its share, the stream ends with an
// error that names the model, and the model is told to stop. Others continue.
func TestAFloodOfKeptResponsesStaysWithinAShare(t *testing.T) {
	c := newCharged(t, 64<<20)
	other := c.start("identity", infer.Uint8)
	m, err := c.open(c.copyModel("floods"), decoupledConfig("floods", infer.Uint8))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var kept []*infer.Response
	last := make(chan *infer.Response, 1)
	task := &backend.Task{Context: context.Background(), Request: c.small(), Send: func(r *infer.Response) {
		if r.Final {
			last <- r
			return
		}
		r.Slot.Release()
		r.Slot = nil
		mu.Lock()
		kept = append(kept, r)
		mu.Unlock()
	}}
	m.instance().Execute(&backend.Batch{Tasks: []*backend.Task{task}, Done: func(*backend.Batch, backend.Report) {}})
	r := <-last
	const want = `a request of model "floods" version 1 holds `
	if r.Err == nil || !strings.HasPrefix(r.Err.Message, want) || r.Err.Code != infer.Unavailable || !r.Err.OutOfMemory {
		t.Errorf("got the last response %+v, want an error %q", r.Err, want)
	}
	r.Release()
	c.wantBounded("with the flood")
	held := c.held(m, budget.Frames)
	if share := c.share(budget.Frames); held > share*7/8 || held < share/2 || int64(len(kept))*4096 < share/4 {
		t.Errorf("%d responses of 4096 bytes are kept and %d bytes held, want most of the share of %d", len(kept), held, share)
	}
	c.wantServing(other)
	for _, one := range c.supervisor.Instances() {
		shows := false
		for _, b := range one.Holds {
			shows = shows || b.Kind == "frames" && b.Bytes == held && b.Limit == c.share(budget.Frames)
		}
		if shows != (one.Model == "floods") {
			t.Errorf("%s: the status shows %v", one.Model, one.Holds)
		}
	}
	if n := strings.Count(c.log.String(), "requests of the model fail because memory is short"); n != 1 {
		t.Errorf("the log has %d warnings, want one", n)
	}
	again := m.begin("1")
	first := again.next()
	if first.Err != nil {
		t.Errorf("another request beside the flood: got error %v", first.Err)
	}
	first.Release()
	m.instance().Cancel(again.task)
	_, _ = again.rest()
	for _, r := range kept {
		r.Release()
	}
}

// TestAModelThatSaysMuchIsCutAndCharged checks that errors are cut to 1 MiB and charged until they
// are released, that parameters beyond the share are refused, and that nothing keeps their frames.
func TestAModelThatSaysMuchIsCutAndCharged(t *testing.T) {
	testkit.Story(t)
	c := newCharged(t, 256<<20) // a model's share of frames is 32 MiB
	m := c.start("says_much", infer.Uint8)
	for how, want := range map[string]struct {
		length int // of the error
		text   string
		code   infer.Code
	}{
		"error":      {1 << 20, "xxx", infer.Internal},
		"batch":      {1 << 20, "xxx", infer.Internal},
		"parameter":  {0, `model "says_much" version 1 holds `, infer.Unavailable},
		"more":       {0, `model "says_much" version 1 holds 0 bytes of frames and needs 4194`, infer.Unavailable}, // including its frame
		"parameters": {0, "", 0},
	} {
		var held []*infer.Response
		for range 3 {
			request := c.small()
			request.ID = how
			responses, _ := m.infer(request)
			held = append(held, responses...)
			err := responses[0].Err
			if want.text == "" {
				if err != nil || len(responses[0].Parameters) != 1<<15 {
					t.Errorf("%s: got %d parameters and error %v", how, len(responses[0].Parameters), err)
				}
				break
			}
			if err == nil || want.length > 0 && len(err.Message) != want.length || !strings.Contains(err.Message, want.text) || err.Code != want.code {
				t.Errorf("%s: got error %.100v", how, err)
			}
		}
		if n := c.account.Used(budget.Frames); n < int64(want.length*len(held)) {
			t.Errorf("%s: %d bytes are charged for %d errors of %d bytes", how, n, len(held), want.length)
		}
		c.wantBounded(how)
		releaseAll(held)
		if n := c.account.Used(budget.Frames); n != 0 {
			t.Errorf("%s: %d bytes are charged after the last release", how, n)
		}
	}
	if n := c.counts.of(&c.counts.lost); n != 0 {
		t.Errorf("%d processes were lost, want none", n)
	}
}

// TestBLSRequestsHaveTheLimitsOfClients checks that overlong strings in BLS requests are refused
// with an error that has the field, its length and the limit. Their frames are freed.
func TestBLSRequestsHaveTheLimitsOfClients(t *testing.T) {
	c := newCharged(t, 1<<30)
	host := &runningModels{}
	c.host = host
	callee := c.start("identity", infer.Uint8)
	host.models = map[string]*running{"identity": callee}
	config := modelConfig("asks_with_long_ids", 1, infer.Bytes)
	m, err := c.open(c.copyModel("asks_with_long_ids"), config)
	if err != nil {
		t.Fatal(err)
	}
	request := &infer.Request{Inputs: []infer.Tensor{c.tensor("IN0", infer.Bytes, []int64{1, 0}, nil)}}
	response := m.mustInfer(request)
	got := stringsOf(response.Outputs[0].Data)
	want := []string{
		"the request id of an inference request has 33554432 bytes, at most 65536 are allowed",
		"the model name of an inference request has 33554432 bytes, at most 4096 are allowed",
		"the parameters of an inference request has 33554", // including the JSON around them
		"Model identity - Error when running inference: the parameters of an inference request has 2097153 bytes, at most 1048576 are allowed",
		"Model identity - Error when running inference: a parameter's name of an inference request has 5000 bytes, at most 4096 are allowed",
		"the correlation id of an inference request has 33554432 bytes, at most 65536 are allowed",
		"",
	}
	for i := range want {
		if i >= len(got) || !strings.HasPrefix(got[i], want[i]) || want[i] == "" && got[i] != "" {
			t.Errorf("request %d: got %.200q, want %q", i, got[min(i, len(got)-1)], want[i])
		}
	}
	response.Release()
	c.wantBounded("after the requests")
	host.ended.Wait()
}

// stringsOf returns the elements of a BYTES tensor.
func stringsOf(data []byte) (list []string) {
	for len(data) >= 4 {
		n := int(data[0]) | int(data[1])<<8 | int(data[2])<<16
		list, data = append(list, string(data[4:4+n])), data[4+n:]
	}
	return list
}

// TestAModelThatKeepsItsInputsIsRefusedAlone checks that a model beyond its share of blocks gets no
// more tensors, while others do. Its blocks are returned when its process ends.
func TestAModelThatKeepsItsInputsIsRefusedAlone(t *testing.T) {
	const size = 4 << 20
	c := newCharged(t, 64<<20)
	other := c.start("copies", infer.Uint8)
	m := c.start("keeps_inputs", infer.Uint8)
	share := c.share(budget.Blocks)
	kept, held := int64(0), int64(0)
	for n := 0; ; n++ {
		request := &infer.Request{Inputs: []infer.Tensor{c.tensor("IN0", infer.Uint8, []int64{1, size}, make([]byte, size))}}
		responses, _ := m.infer(request)
		err := responses[0].Err
		responses[0].Release()
		releaseInputs(request)
		held = max(held, c.held(m, budget.Blocks))
		if err == nil && kept < 3*share {
			kept += size
			continue
		}
		const want = `model "keeps_inputs" version 1 keeps `
		if err == nil || !strings.HasPrefix(err.Message, want) || err.Code != infer.Unavailable || !err.OutOfMemory {
			t.Errorf("after %d requests: got %v, want an error %q", n, err, want)
		}
		break
	}
	if held < share || held > share+size {
		t.Errorf("it keeps %d bytes of blocks, want its share of %d", held, share)
	}
	if most := share + share/4; kept < most-size || kept > most+size {
		t.Errorf("it keeps %d bytes with the copies, want a quarter more than its share of %d", kept, share)
	}
	if n := strings.Count(c.log.String(), "now gets copies"); n != 1 {
		t.Errorf("the log has %d warnings of copies, want one", n)
	}
	if small, _ := m.infer(c.small()); small[0].Err != nil {
		t.Errorf("a request without a block: got error %v", small[0].Err)
	} else {
		small[0].Release()
	}
	c.wantServing(other)
	m.kill()
	testkit.Eventually(t, patience, func() bool {
		return m.ready() == nil && c.held(m, budget.Blocks) == 0
	})
	request := &infer.Request{Inputs: []infer.Tensor{c.tensor("IN0", infer.Uint8, []int64{1, size}, make([]byte, size))}}
	responses, _ := m.infer(request)
	if responses[0].Err != nil {
		t.Errorf("of the next process: got error %v", responses[0].Err)
	}
	responses[0].Release()
	releaseInputs(request)
}

// TestAModelThatKeepsAWindowGoesOn checks that a model whose last inputs exceed its share of blocks
// gets copies of some. Every response has the right bytes.
func TestAModelThatKeepsAWindowGoesOn(t *testing.T) {
	const size, window = 2 << 20, 13
	c := newCharged(t, 64<<20)
	share := c.share(budget.Blocks)
	if window*size <= share {
		t.Fatalf("a window of %d bytes is no more than the share of %d", window*size, share)
	}
	config := modelConfig("keeps_a_window", 1, infer.Uint8)
	m, err := c.open(c.copyModel("keeps_a_window"), config)
	if err != nil {
		t.Fatal(err)
	}
	held := int64(0)
	for n := range 4 * window {
		data := make([]byte, size)
		data[0], data[size-1] = byte(n), byte(2*n)
		request := &infer.Request{Inputs: []infer.Tensor{c.tensor("IN0", infer.Uint8, []int64{1, size}, data)}}
		responses, _ := m.infer(request)
		if err := responses[0].Err; err != nil {
			t.Fatalf("request %d: got error %v", n, err)
		}
		want := 0
		for k := max(0, n-window+1); k <= n; k++ {
			want += int(byte(k)) + int(byte(2*k))
		}
		if got := responses[0].Outputs[0].Data; len(got) != 1 || int(got[0]) != want%251 {
			t.Errorf("request %d: got %v, want [%d]", n, got, want%251)
		}
		responses[0].Release()
		releaseInputs(request)
		held = max(held, c.held(m, budget.Blocks))
	}
	if held < share || held > share+size {
		t.Errorf("it kept up to %d bytes of blocks, want its share of %d", held, share)
	}
	if got := c.log.String(); !strings.Contains(got, "now gets copies") || strings.Contains(got, "requests of the model fail because memory is short") {
		t.Errorf("the log is %s, want a warning of copies alone", got)
	}
}

// pausedModel is a host with a model that waits until the test lets it respond.
type pausedModel struct {
	*runningModels
	open chan struct{}
}

func (g *pausedModel) Target(model string, version int64) (backend.Target, error) {
	if model == "gate" {
		return &backendtest.Target{Run: g.submit}, nil
	}
	return &backendtest.Target{IsDecoupled: model == "floods", Run: g.runningModels.submit}, nil
}

func (g *pausedModel) submit(_ context.Context, _ *infer.Request, send infer.Sender) error {
	g.ended.Go(func() {
		<-g.open
		send(infer.ErrorResponse(errors.New("the gate is open")))
	})
	return nil
}

// TestUnreadBLSStreamsCountForTheirCaller checks that responses that a model does not read are
// charged to it, so that others can still use the model that sends them.
func TestUnreadBLSStreamsCountForTheirCaller(t *testing.T) {
	c := newCharged(t, 64<<20)
	host := &pausedModel{runningModels: &runningModels{}, open: make(chan struct{})}
	c.host = host
	callee, err := c.open(c.copyModel("floods"), decoupledConfig("floods", infer.Uint8))
	if err != nil {
		t.Fatal(err)
	}
	host.models = map[string]*running{"floods": callee}
	config := modelConfig("leaves_streams_unread", 1, infer.Bytes)
	m, err := c.open(c.copyModel("leaves_streams_unread"), config)
	if err != nil {
		t.Fatal(err)
	}
	request := &infer.Request{Inputs: []infer.Tensor{c.tensor("IN0", infer.Bytes, []int64{1, 0}, nil)}}
	answer := make(chan *infer.Response, 1)
	go func() {
		responses, _ := m.infer(request)
		answer <- responses[0]
	}()
	share := c.share(budget.Frames)
	testkit.Eventually(t, patience, func() bool {
		return c.held(m, budget.Frames) > share-64<<10 && c.held(callee, budget.Frames) < share/8
	})
	c.wantBounded("while nothing is read")
	another := callee.begin("1")
	first := another.next()
	if first.Err != nil {
		t.Errorf("the model that makes them, asked by another: got error %v", first.Err)
	}
	first.Release()
	callee.instance().Cancel(another.task)
	_, _ = another.rest()
	close(host.open)
	response := <-answer
	if response.Err != nil {
		t.Fatalf("got error %v", response.Err)
	}
	const want = `model "leaves_streams_unread" version 1 holds `
	if got := stringsOf(response.Outputs[0].Data); len(got) != 1 || !strings.HasPrefix(got[0], want) {
		t.Errorf("the stream ended with %q, want %q", got, want)
	}
	response.Release()
	host.ended.Wait()
}
