package plugin

import (
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"

	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/ipc/peer"
	"github.com/rs/zerolog"
	"github.com/vmihailenco/msgpack/v5"
)

// Levels of LOG.
const (
	levelInfo    = 0
	levelWarning = 1
	levelError   = 2
	levelVerbose = 3
)

// mostMessage is the number of bytes of a message that are sent if there is no memory for all of
// it.
const mostMessage = 8000

// levels are the body of LOG_SETTINGS.
type levels struct {
	Info    bool `msgpack:"info"`
	Warning bool `msgpack:"warning"`
	Error   bool `msgpack:"error"`
	Verbose int  `msgpack:"verbose"`
}

// logs sends messages of the enabled levels.
type logs struct {
	peer   *peer.Peer
	wanted [4]atomic.Bool // by level
}

func (l *logs) settle(s levels) {
	for level, wanted := range [4]bool{s.Info, s.Warning, s.Error, s.Verbose >= 1} {
		l.wanted[level].Store(wanted)
	}
}

// levelOf returns the level for LOG. Triton has no level below verbose. slog's intermediate levels
// count as the next lower one.
func levelOf(level slog.Level) int {
	switch {
	case level >= slog.LevelError:
		return levelError
	case level >= slog.LevelWarn:
		return levelWarning
	case level >= slog.LevelInfo:
		return levelInfo
	}
	return levelVerbose
}

// enabled implements Environment.Enabled of the engine.
func (l *logs) enabled(level slog.Level) bool { return l.wanted[levelOf(level)].Load() }

// log implements Environment.Log of the engine.
func (l *logs) log(level slog.Level, file string, line int, message string) {
	l.send(logBody{Level: levelOf(level), File: file, Line: line, Message: message})
}

type logBody struct {
	Level   int    `msgpack:"level"`
	File    string `msgpack:"file"`
	Line    int    `msgpack:"line"`
	Message string `msgpack:"message"`
	Own     bool   `msgpack:"own"`
	Batch   uint64 `msgpack:"batch"`
}

func (l *logs) send(body logBody) {
	if !l.wanted[body.Level].Load() {
		return
	}
	// The server rejects strings that are not UTF-8.
	body.File, body.Message = strings.ToValidUTF8(body.File, "\uFFFD"), strings.ToValidUTF8(body.Message, "\uFFFD")
	encoded, err := msgpack.Marshal(&body)
	if err == nil {
		err = l.peer.Send(ipc.Log, 0, encoded)
	}
	if err != nil && len(body.Message) > mostMessage {
		body.Message = strings.ToValidUTF8(body.Message[:mostMessage], "") + "…"
		if encoded, err = msgpack.Marshal(&body); err == nil {
			err = l.peer.Send(ipc.Log, 0, encoded)
		}
	}
	if err != nil {
		_, _ = os.Stderr.WriteString(body.Message + "\n")
	}
}

// complain logs an error of this package, optionally about a batch.
func (l *logs) complain(batch uint64, text string) {
	l.send(logBody{Level: levelError, File: "plugin", Message: text, Own: true, Batch: batch})
}

// WriteLevel implements zerolog.LevelWriter, for the engine's reports about the backend.
func (l *logs) WriteLevel(level zerolog.Level, line []byte) (int, error) {
	body := logBody{Level: levelInfo, File: "plugin", Own: true}
	switch {
	case level >= zerolog.ErrorLevel:
		body.Level = levelError
	case level == zerolog.WarnLevel:
		body.Level = levelWarning
	case level <= zerolog.DebugLevel:
		body.Level = levelVerbose
	}
	var event struct {
		Message, Error, Stack string
	}
	if err := json.Unmarshal(line, &event); err != nil {
		event.Message = string(line)
	}
	body.Message = event.Message
	for _, more := range []string{event.Error, event.Stack} {
		if more != "" {
			body.Message += "\n" + more
		}
	}
	l.send(body)
	return len(line), nil
}

// Write implements io.Writer.
func (l *logs) Write(line []byte) (int, error) { return l.WriteLevel(zerolog.InfoLevel, line) }
