package bench

import (
	"context"
	"fmt"

	"github.com/nereid-serving/nereid/kserve"
)

// target is a server by one protocol.
type target interface {
	// serverName is the name in the server's metadata.
	serverName(ctx context.Context) (string, error)
	config(ctx context.Context) (*kserve.ModelConfig, error)
	// index lists the versions of the models of the server's repository.
	index(ctx context.Context) ([]*kserve.RepositoryIndexResponse_ModelIndex, error)
	// statistics returns the figures of all versions, or of the requested one.
	statistics(ctx context.Context) ([]*kserve.ModelStatistics, error)
	register(ctx context.Context, name, key string, bytes int64) error
	unregister(ctx context.Context, name string) error
	// prepare makes the requests that callers send, one for each sample. The caller of that number
	// has outputs in shared memory where there is any.
	newCaller(number int) (caller, error)
	close()
}

// caller sends one request at a time.
type caller interface {
	// call sends a request and waits for the whole answer. first is how many ns of now passed until its first response; 0
	// where there is one only.
	call(ctx context.Context, r request) (a answer, err error)
	close()
}

// request says which sample is sent, and its place in a sequence.
type request struct {
	sample     int
	sequence   uint64 // 0: none
	start, end bool
}

// answer is the response to a request.
type answer struct {
	responses int
	first     int64 // when the first response had come, ns of now
}

// prepared is what requests are made of.
type prepared struct {
	options *options
	model   *kserve.ModelConfig
	samples []sample
	memory  *sharedMemory // nil: tensors travel in requests
}

// failure is an answer that is an error.
type failure struct {
	text string
	// broken: the connection cannot be used any more.
	broken bool
}

func (f *failure) Error() string { return f.text }

func brokenf(format string, args ...any) error {
	return &failure{fmt.Sprintf(format, args...), true}
}

// newTarget connects with the server.
func newTarget(p *prepared) (target, error) {
	if p.options.protocol == protocolHTTP {
		return newHTTPTarget(p), nil
	}
	return newGRPCTarget(p)
}
