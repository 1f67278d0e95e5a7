package process

import (
	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process/bls"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
)

// blsSession is a life as the BLS requests of its model see it.
type blsSession struct{ *life }

// newBLS makes the BLS requests of a life.
func (l *life) newBLS() *bls.Requests {
	m := l.in.model
	return bls.New(bls.Config{
		Model: m.env.Name, Version: m.env.Version, Host: m.env.Host,
		OneResponse: func(model string) string { return m.program.Text(OneResponseWanted, model) },
		Channel:     l.channel, Decoder: l.decoder, Encoder: l.encoder, Submit: &l.in.submit,
		Pool: m.supervisor.requests, Log: l.in.log,
	}, blsSession{l})
}

// Handle implements bls.Session.
func (s blsSession) Handle(f ipc.Frame) error { return s.handle(f) }

// Fail implements bls.Session.
func (s blsSession) Fail(err error) { s.fail(err) }

// Execution implements bls.Session.
func (s blsSession) Execution(batch uint64) (requests []*infer.Request, executing bool, err error) {
	l := s.life
	if batch != 0 {
		l.in.await.thought(l.channel.Posted() - max(l.bls.Informed(), l.handed.Load()))
	}
	tasks, executing, err := l.tasksOf(batch)
	if err != nil {
		return nil, false, err
	}
	requests = make([]*infer.Request, len(tasks))
	for i, task := range tasks {
		requests[i] = task.Request
	}
	return requests, executing, nil
}

// tasksOf returns the tasks of a batch that is executed, or those that it has left open.
func (f *inFlight) tasksOf(batch uint64) (tasks []*backend.Task, executing bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if batch > f.number {
		return nil, false, ipc.Broken("handle", "INFER for batch %d, the last one is %d", batch, f.number)
	}
	if at := f.findLocked(batch); at >= 0 {
		return f.inside[at].batch.Tasks, true, nil
	}
	return f.openOfLocked(batch), false, nil
}

// Traced implements bls.Session.
func (s blsSession) Traced(text []byte) *infer.Request { return s.tracedBy(text) }

// tracedBy returns the request whose trace the stub means by a text, nil if it has no such
// request: under a trace whose request has ended nothing is traced.
func (f *inFlight) tracedBy(text []byte) *infer.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.count {
		for _, task := range f.inside[i].batch.Tasks {
			if task.Request.Trace.Is(text) {
				return task.Request
			}
		}
	}
	for task := range f.open.byTask {
		if task.Request.Trace.Is(text) {
			return task.Request
		}
	}
	return nil
}
