package process

import (
	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
)

// newBLS makes the BLS requests of a life, whose session it is.
func (l *life) newBLS() *blsRequests {
	m := l.in.model
	return newBLSRequests(blsCaller{
		model: m.env.Name, version: m.env.Version, host: m.env.Host,
		oneResponse: func(model string) string { return m.program.Text(OneResponseWanted, model) },
		channel:     l.channel, pool: m.supervisor.requests, log: l.in.log,
	}, l)
}

// execution implements blsSession.
func (l *life) execution(batch uint64) (requests []*infer.Request, executing bool, err error) {
	if batch != 0 {
		l.in.await.thought(l.channel.Posted() - max(l.bls.informed.Load(), l.handed.Load()))
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
		return nil, false, broke("handle", "INFER for batch %d, the last one is %d", batch, f.number)
	}
	if at := f.findLocked(batch); at >= 0 {
		return f.inside[at].batch.Tasks, true, nil
	}
	return f.openOfLocked(batch), false, nil
}

// decode implements blsSession.
func (l *life) decode(body *ipc.InferBody, frame []byte, r *infer.Request) (refusal *infer.Error, err error) {
	if len(body.Trace) > 0 {
		if parent := l.tracedBy(body.Trace); parent != nil {
			r.Trace = parent.Trace.Child()
		}
	}
	return l.decoder.Request(body, frame, r)
}

// tracedBy returns the request whose trace the stub means by a text, nil if it has no such
// request: under a trace whose request has ended nothing is traced.
func (l *life) tracedBy(text []byte) *infer.Request {
	l.in.mu.Lock()
	defer l.in.mu.Unlock()
	for i := range l.count {
		for _, task := range l.inside[i].batch.Tasks {
			if task.Request.Trace.Is(text) {
				return task.Request
			}
		}
	}
	for task := range l.open.byTask {
		if task.Request.Trace.Is(text) {
			return task.Request
		}
	}
	return nil
}
