package native

import (
	"io"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/rs/zerolog"
)

// newLogger returns the logger of go-plugin's client. It writes at the lowest level, because
// runner.diagnose reports the client's errors.
func newLogger(log zerolog.Logger) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{
		Name: "plugin", Level: hclog.Debug, DisableTime: true, Output: lines{log},
		// go-plugin logs this at the end of runner.Wait, which does not mean that the process has ended.
		Exclude: func(_ hclog.Level, message string, _ ...any) bool { return message == "plugin process exited" },
	})
}

// lines writes each line of go-plugin's to the log.
type lines struct{ log zerolog.Logger }

var _ io.Writer = lines{}

// Write implements io.Writer.
func (l lines) Write(b []byte) (int, error) {
	l.log.Debug().Msg(strings.TrimSpace(string(b))) // bound: mostSaid, of which go-plugin shows a line
	return len(b), nil
}
