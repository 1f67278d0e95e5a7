package replies

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/memory"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestStallIsSeenWithoutFurtherReplies: replies that were all there before the first one
// is written wait as well, and a client that does not read that one loses its stream.
func TestStallIsSeenWithoutFurtherReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stall = time.Second
		streams := NewStreams(memory.New(memory.Config{Limit: 1 << 20}))
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
