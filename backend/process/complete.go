package process

import (
	"context"
	"errors"

	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/panics"
)

// AutoComplete implements backend.Model. The stub that is asked becomes that of
// the first instance: the model is imported once for both.
func (m *Model) AutoComplete(ctx context.Context, config []byte) ([]byte, error) {
	if err := m.program.Check(ctx, ""); err != nil {
		return nil, err
	}
	instances, err := m.makeInstances(m.env.Config, nil)
	if err != nil {
		return nil, err
	}
	in := instances[0]
	l, err := in.begin(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, m.startError(&startFailure{instance: in.name, err: err}, "")
	}
	answer, err := l.complete(ctx, config)
	if err != nil {
		l.end(err)
		if errors.Is(err, errStopped) {
			return nil, context.Cause(ctx)
		}
		return nil, m.startError(&startFailure{instance: in.name, err: err}, "")
	}
	in.primed = l
	m.primed = in
	return answer, nil
}

// dismiss ends the stub that has completed the config and is not needed; by force
// when ctx ends.
func (m *Model) dismiss(ctx context.Context) {
	in := m.primed
	m.primed = nil
	if in == nil || in.primed == nil {
		return
	}
	l := in.primed
	in.primed = nil
	stop := context.AfterFunc(ctx, panics.Guard(in.log, panics.Life, l.process.Kill, nil))
	defer stop()
	l.finalize()
	l.end(errStopped)
}

// complete asks a stub that has just been started. The answer is nil if the
// model has nothing to say.
func (l *life) complete(ctx context.Context, config []byte) ([]byte, error) {
	if err := l.greet(ctx); err != nil {
		return nil, err
	}
	l.told.Store(toldAutoComplete)
	m := l.in.model
	if err := l.ask(ipc.AutoComplete, m.program.Complete(config, l.surroundings())); err != nil {
		return nil, err
	}
	if err := l.await(ctx, l.completed, m.settings.InitializeTimeout, "complete its config"); err != nil {
		return nil, err
	}
	return l.completion, nil
}
