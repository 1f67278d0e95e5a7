package generate

import (
	"sync/atomic"
	"testing"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/server/jsontext"
	"github.com/nereid-serving/nereid/server/rest/body"
)

// NewRequest returns an empty request for a model with these inputs.
func NewRequest(batched bool, inputs ...*kserve.ModelInput) *Request {
	account := budget.New(budget.Config{})
	q := &Request{codec: NewCodec(&body.Gatherer{Account: account, MaxBytes: 1 << 20}, nil, nil), inputs: inputs, batched: batched}
	q.begin(budget.Charge{Account: account})
	return q
}

func Decode(t *testing.T, q *Request, text string) error {
	t.Helper()
	doc, err := new(jsontext.Scanner).Scan(nil, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return q.read(doc.Root())
}

// slot counts its releases from any goroutine.
type slot struct{ released atomic.Int64 }

func (*slot) Retain() {}

func (s *slot) Release() { s.released.Add(1) }
