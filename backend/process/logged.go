package process

import (
	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/backend/process/output"
	"github.com/nereid-serving/nereid/ipc"
)

// maxMessageLines bounds what one LOG puts into the log, in lengths of a line: a long
// traceback is worth its space, and counts as as many lines.
const maxMessageLines = 16

// Limits of the ids that are shown of the requests of a batch.
const (
	maxShownRequests = 32
	maxShownID       = 128 // bytes
)

// logged writes what a model logged, or what its stub has to say of it.
func (l *life) logged(f ipc.Frame) error {
	var body struct {
		Level   int    `msgpack:"level"`
		File    string `msgpack:"file"`
		Line    int    `msgpack:"line"`
		Message string `msgpack:"message"`
		// Own marks what the stub says, Batch the batch that it is about.
		Own   bool   `msgpack:"own"`
		Batch uint64 `msgpack:"batch"`
		// Once names what the message is about, which is said once for all instances.
		Once string `msgpack:"once"`
	}
	if err := frames.DecodeMap(f, &body); err != nil {
		return err
	}
	log := l.in.model.supervisor.log
	if body.Own {
		log = l.in.log
	}
	// What a model says is its own, word for word: no fields are added.
	event := log.Info()
	switch body.Level {
	case 0:
	case 1:
		event = log.Warn()
	case 2:
		event = log.Error()
	case 3:
		event = log.Debug()
	default:
		event.Discard()
		return ipc.Broken("frame", "level of LOG is %d", body.Level)
	}
	if body.Once != "" && !l.in.model.saysFirst(body.Once) {
		return nil
	}
	most := l.in.model.supervisor.limits.Output.LineBytes
	text := output.CutAt(body.Message, maxMessageLines*most)
	if !l.logLimit.Allow(log, 1+len(text)/most) {
		return nil
	}
	event = event.Str("file", output.Cut(body.File)).Int("line", body.Line)
	if ids := l.requestsOf(body.Batch); len(ids) > 0 {
		event = event.Strs("requests", ids)
	}
	event.Msg(text)
	return nil
}

// maxSaid bounds what a model remembers of what has been said once; beyond it, nothing is
// said.
const maxSaid = 256

// saysFirst reports whether no instance of the model has logged something about what before.
func (m *Model) saysFirst(what string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.said[what] || len(m.said) == maxSaid {
		return false
	}
	if m.said == nil {
		m.said = make(map[string]bool)
	}
	m.said[what] = true
	return true
}

// LogLevelsChanged tells the stubs which levels are worth sending from now on.
// Calls do not overlap.
func (s *Supervisor) LogLevelsChanged() {
	s.mu.Lock()
	var lives []*life
	for l := range s.lives {
		lives = append(lives, l)
	}
	s.mu.Unlock()
	for _, l := range lives {
		// A life that has ended wants to hear nothing.
		if err := l.ask(ipc.LogSettings, s.levels()); err != nil {
			l.in.log.Debug().Err(err).Msg("log settings were not sent")
		}
	}
}

// hear adds the life to the listeners for changed log levels, or takes it
// away.
func (l *life) hear(yes bool) {
	s := l.in.model.supervisor
	s.mu.Lock()
	defer s.mu.Unlock()
	if yes {
		s.lives[l] = struct{}{}
	} else {
		delete(s.lives, l)
	}
}
