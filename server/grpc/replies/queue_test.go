package replies_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/server/grpc/replies"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// wantStalled checks that the stream has ended because its client does not read.
func wantStalled(t *testing.T, q *replies.Queue) {
	t.Helper()
	if got := status.Convert(q.Reason()); got.Code() != codes.ResourceExhausted || got.Message() != "the client does not read the responses of its stream" {
		t.Errorf("the stream ended with %v, want that its client does not read", got)
	}
}

// TestStallIsSeenWithoutFurtherReplies checks that a client that does not read the first of several
// queued replies loses its stream, even if no further reply is queued.
func TestStallIsSeenWithoutFurtherReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stall = time.Second
		streams := replies.NewStreams(budget.New(budget.Config{Limit: 1 << 20}))
		q := replies.NewQueue(replies.Limits{Requests: 1, Responses: 10, Bytes: 1 << 20, Stall: stall, Log: zerolog.Nop()}, streams)
		streams.Enter(q)
		defer streams.Leave(q)
		q.Begin(false)
		origin := &replies.Origin{Model: "m"}
		for range 3 {
			q.Add(nil, replies.Reply{Origin: origin, Response: &infer.Response{}})
		}
		if r, err := q.Next(t.Context(), nil); r == nil || err != nil {
			t.Fatalf("got %v and error %v, want the first reply", r, err)
		}
		select {
		case <-q.Over:
		case <-time.After(10 * stall):
			t.Fatal("the stream goes on")
		}
		wantStalled(t, q)
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
		streams := replies.NewStreams(budget.New(budget.Config{Limit: 1 << 20}))
		q := replies.NewQueue(replies.Limits{Requests: 1, Responses: 10, Bytes: 8, Full: full, Stall: time.Hour, Log: zerolog.Nop()}, streams)
		streams.Enter(q)
		defer streams.Leave(q)
		q.Begin(false)
		origin := &replies.Origin{Model: "m"}
		add := func() {
			output := infer.Tensor{Name: "o", DataType: infer.Uint8, Shape: []int64{8}, Data: make([]byte, 8)}
			q.Add(nil, replies.Reply{Origin: origin, Response: &infer.Response{Outputs: []infer.Tensor{output}, Slot: slot{}}})
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
		wantStalled(t, q)
	})
}
