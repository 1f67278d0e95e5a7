package nereid

import (
	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/server"
	"github.com/rs/zerolog"
)

// logControl informs the stubs when a client has changed the log settings.
type logControl struct {
	server.LogControl
	changed func()
}

func (c logControl) ChangeLogSettings(change func(*server.LogSettings)) {
	c.LogControl.ChangeLogSettings(change)
	c.changed()
}

// logLevels returns the levels of models' log lines that stubs should send.
func logLevels(from server.LogControl) func() process.LogLevels {
	return func() process.LogLevels {
		s := from.LogSettings()
		// A level below 0 has wrapped around.
		return process.LogLevels{Info: s.Info, Warning: s.Warning, Error: s.Error, Verbose: int(int32(s.VerboseLevel))}
	}
}

// fixedLog shows the level of a logger that clients cannot change.
type fixedLog struct{ level zerolog.Level }

func (l fixedLog) LogSettings() server.LogSettings {
	s := server.LogSettings{
		Info: l.level <= zerolog.InfoLevel, Warning: l.level <= zerolog.WarnLevel, Error: l.level <= zerolog.ErrorLevel, Format: "default",
	}
	if l.level <= zerolog.DebugLevel {
		s.VerboseLevel = 1
	}
	return s
}

func (fixedLog) ChangeLogSettings(func(*server.LogSettings)) {}
