package replies

import (
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
)

// TestOneStreamEndsForAllThatFindNoRoom checks that only the stream with the largest charge ends
// when many goroutines find the account full at once. The others use the memory that this frees. It
// is internal because goroutines that add replies would find the account full at different times.
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
