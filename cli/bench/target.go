package bench

import (
	"context"
	"fmt"

	"github.com/nereid-serving/nereid/kserve"
)

// target is a server over one protocol.
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
	// newCaller returns a caller with its own connection. If shared memory is used, the outputs of
	// each number have their own part of it.
	newCaller(number int) (caller, error)
	close()
}

// caller sends one request at a time.
type caller interface {
	// call sends a request and waits for the complete answer. first is the time until its first
	// response in ns, or 0 if there is only one.
	call(ctx context.Context, r request) (a outcome, err error)
	close()
}

// request names the sample to send, and its position in a sequence.
type request struct {
	sample     int
	sequence   uint64 // 0: none
	start, end bool
}

// outcome is the response to a request.
type outcome struct {
	responses int
	first     int64 // until the first response, in ns
}

// prepared holds everything that requests are made from.
type prepared struct {
	options *options
	model   *kserve.ModelConfig
	samples []sample
	memory  *sharedMemory // nil: tensors are in the requests
}

// failure is an error response.
type failure struct {
	text string
	// broken means that the connection is unusable.
	broken bool
}

func (f *failure) Error() string { return f.text }

func brokenf(format string, args ...any) error {
	return &failure{fmt.Sprintf(format, args...), true}
}

// newTarget connects to the server.
func newTarget(p *prepared) (target, error) {
	if p.options.protocol == protocolHTTP {
		return newHTTPTarget(p), nil
	}
	return newGRPCTarget(p)
}
