package native

import (
	"io"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/rs/zerolog"
)

// newLogger makes the logger of go-plugin's client: its lines help to find a fault and go to the
// log's lowest level. Errors of it are told by runner.diagnose.
func newLogger(log zerolog.Logger) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{
		Name: "plugin", Level: hclog.Debug, DisableTime: true, Output: lines{log},
		// Its own word for the end of runner.Wait, which says nothing of the process here.
		Exclude: func(_ hclog.Level, message string, _ ...any) bool { return message == "plugin process exited" },
	})
}

// lines writes each line of go-plugin's into the log.
type lines struct{ log zerolog.Logger }

var _ io.Writer = lines{}

// Write implements io.Writer.
func (l lines) Write(b []byte) (int, error) {
	l.log.Debug().Msg(strings.TrimSpace(string(b))) // bound: mostSaid, of which go-plugin shows a line
	return len(b), nil
}
