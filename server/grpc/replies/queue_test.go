package replies

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestStallIsSeenWithoutFurtherReplies checks that a client that does not read the first of several
// queued replies loses its stream, even if no further reply is queued.
func TestStallIsSeenWithoutFurtherReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stall = time.Second
		streams := NewStreams(budget.New(budget.Config{Limit: 1 << 20}))
		q := NewQueue(Limits{Requests: 1, Responses: 10, Bytes: 1 << 20, Stall: stall, Log: zerolog.Nop()}, streams)
		streams.Enter(q)
		defer streams.Leave(q)
		q.Begin(false)
		origin := &Origin{Model: "m"}
		for range 3 {
			q.Add(nil, Reply{Origin: origin, Response: &infer.Response{}})
		}
		if r, err := q.Next(t.Context(), nil); r == nil || err != nil {
			t.Fatalf("got %v and error %v, want the first reply", r, err)
		}
		select {
		case <-q.Over:
		case <-time.After(10 * stall):
			t.Fatal("the stream goes on")
		}
		if err := q.Reason(); err != errStalled {
			t.Errorf("got %v, want %v", err, errStalled)
		}
	})
}

// slot is a slot in the window of a model's request.
type slot struct{}

func (slot) Retain()  {}
func (slot) Release() {}

// TestFullStreamIsGivenUpEarlier checks that a client that leaves Limits.Bytes unread loses its
// stream after Full. Full replaces Stall because responses with slots do not block their model.
func TestFullStreamIsGivenUpEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const full = time.Second
		streams := NewStreams(budget.New(budget.Config{Limit: 1 << 20}))
		q := NewQueue(Limits{Requests: 1, Responses: 10, Bytes: 8, Full: full, Stall: time.Hour, Log: zerolog.Nop()}, streams)
		streams.Enter(q)
		defer streams.Leave(q)
		q.Begin(false)
		origin := &Origin{Model: "m"}
		add := func() {
			output := infer.Tensor{Name: "o", DataType: infer.Uint8, Shape: []int64{8}, Data: make([]byte, 8)}
			q.Add(nil, Reply{Origin: origin, Response: &infer.Response{Outputs: []infer.Tensor{output}, Slot: slot{}}})
		}
		add()
		if r, err := q.Next(t.Context(), nil); r == nil || err != nil {
			t.Fatalf("got %v and error %v, want the first reply", r, err)
		}
		add()
		<-time.After(full / 2)
		add()
		if err := q.Reason(); err != nil {
			t.Errorf("the stream ends with %v before its time", err)
		}
		<-time.After(full)
		add()
		if err := q.Reason(); err != errStalled {
			t.Errorf("got %v, want %v", err, errStalled)
		}
	})
}

// TestOneStreamEndsForAllThatFindNoRoom checks that only the stream with the largest charge ends
// when many goroutines find the account full at once. The others use the memory that this frees.
func TestOneStreamEndsForAllThatFindNoRoom(t *testing.T) {
	account := budget.New(budget.Config{Limit: 1 << 20})
	streams := NewStreams(account)
	most := account.Most(budget.Replies)
	fill := func(bytes int64) *Queue {
		q := NewQueue(Limits{Requests: 1, Responses: 10, Bytes: 1 << 20, Log: zerolog.Nop()}, streams)
		streams.Enter(q)
		q.Begin(false)
		q.Add(nil, Reply{Origin: &Origin{Model: strings.Repeat("m", int(bytes)-replyCost)}, Response: &infer.Response{}})
		return q
	}
	worst, other, own := fill(most/2), fill(most/4), fill(most/4-replyCost)
	for range 100 {
		streams.relieve(own, 2*replyCost)
	}
	for _, tt := range []struct {
		name string
		q    *Queue
		want error
	}{{"the stream with most", worst, errFull}, {"another stream", other, nil}, {"the stream that adds", own, nil}} {
		if err := tt.q.Reason(); err != tt.want {
			t.Errorf("%s: ended with %v, want %v", tt.name, err, tt.want)
		}
		tt.q.Close(ErrGone)
		streams.Leave(tt.q)
	}
	if n := account.Total(); n != 0 {
		t.Errorf("%d bytes are still charged", n)
	}
}
