package process

import (
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
		Pool: m.supervisor.requests, Holder: l.quota.holder, TakeBlocks: l.quota.takeBlocks, Devices: m.supervisor.copier != nil, Log: l.in.log,
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

// Traced implements bls.Session.
func (s blsSession) Traced(text []byte) *infer.Request { return s.tracedBy(text) }
