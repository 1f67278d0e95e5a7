package generate

import (
	"context"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/server"
)

// Stream executes a request in its own goroutine, for a caller that takes the responses as they
// come.
type Stream struct {
	responses *queue
	cancel    context.CancelFunc
	done      chan struct{} // closed when req and found belong to the caller again
}

// Start executes req on found. Until Close returns, req, its inputs and found belong to the Stream.
// The caller closes it.
func Start(ctx context.Context, core server.Core, found *models.Target, req *infer.Request, log zerolog.Logger) *Stream {
	ctx, cancel := context.WithCancel(ctx)
	s := &Stream{responses: newQueue(), cancel: cancel, done: make(chan struct{})}
	panics.Go(log, panics.Request, func() {
		defer close(s.done)
		s.responses.end(server.InferOn(ctx, core, found, req, s.responses.take))
	}, s.responses.end)
	return s
}

// Next waits for responses and returns all there are; the caller releases them. last means that no
// more will come, and err is the error of a rejected request. space is memory for the next list.
// One goroutine calls it.
func (s *Stream) Next(space []*infer.Response) (list []*infer.Response, last bool, err error) {
	return s.responses.next(space)
}

// Cancel tells the model that no client waits for the responses.
func (s *Stream) Cancel() { s.cancel() }

// Close cancels the request, releases the responses that Next has not returned, and waits until the
// model is done with the request.
func (s *Stream) Close() {
	s.cancel()
	s.responses.close()
	<-s.done
}
