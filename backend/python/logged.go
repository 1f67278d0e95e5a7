package python

import (
	"github.com/nereid-serving/nereid/ipc"
)

// logged writes what a model logged.
func (l *life) logged(f ipc.Frame) error {
	var body struct {
		Level   int    `msgpack:"level"`
		File    string `msgpack:"file"`
		Line    int    `msgpack:"line"`
		Message string `msgpack:"message"`
	}
	if err := decode(f, &body); err != nil {
		return err
	}
	// What a model says is its own, word for word: no fields are added.
	log := l.in.model.backend.log
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
		return broke("frame", "level of LOG is %d", body.Level)
	}
	if l.logLimit.allow(log) {
		event.Str("file", cut(body.File)).Int("line", body.Line).Msg(cut(body.Message))
	}
	return nil
}
