package grpc_test

import (
	"io"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/server"
	grpcserver "github.com/nereid-serving/nereid/server/grpc"
	"github.com/nereid-serving/nereid/server/servertest"
)

// brokenCore panics when Target is called for the model "broken".
type brokenCore struct{ server.Core }

func (c brokenCore) Target(name string, version int64) (models.Target, error) {
	if name == "broken" {
		panic("a bug behind the names of models")
	}
	return c.Core.Target(name, version)
}

// TestAPanicEndsItsOwnRequestOfAStream checks that a request gets an error in its turn if its
// handling panics, before the core has it or while its inputs are built, that its memory is
// released, and that the stream continues.
func TestAPanicEndsItsOwnRequestOfAStream(t *testing.T) {
	const large = 1 << 20
	s := startWith(t, grpcserver.Config{}, nil, func(parts *server.Parts, blocks *servertest.Blocks) {
		parts.Core = brokenCore{parts.Core}
		parts.Allocate = func(n int) ([]byte, infer.Memory, error) {
			if n == 4*large {
				panic("a bug behind large inputs")
			}
			return blocks.Allocate(n)
		}
	})
	stream := s.open(t, rpcContext(t))
	typed := int32s("id_int32", large)
	typed.RawInputContents = nil
	typed.Inputs[0].Contents = &kserve.InferTensorContents{IntContents: make([]int32, large)}
	sendAll(t, stream, int32s("id_int32", 1), int32s("broken", 1<<16), typed, int32s("id_int32", 2))
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for i, broken := range []bool{false, true, true, false} {
		answer, err := stream.Recv()
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		if got := answer.ErrorMessage != ""; got != broken {
			t.Errorf("answer %d has the error %q, want one: %t", i, answer.ErrorMessage, broken)
		}
	}
	if err := endOf(stream); err != io.EOF {
		t.Errorf("the stream ends with %v, want io.EOF", err)
	}
}
