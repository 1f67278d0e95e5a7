package logs

import (
	"sync/atomic"

	"github.com/rs/zerolog"
)

// Options are the initial destination and selection of log lines.
type Options struct {
	Info, Warning, Error bool   // --log-info, --log-warning, --log-error
	Verbose              int    // --log-verbose: 0 is off
	ISO8601              bool   // --log-format=ISO8601
	File                 string // --log-file: append there; empty is the console
	Interactive          bool   // lines on a terminal are short and coloured
}

// Settings select the log lines and their format. Any goroutine may read and change them at any
// time; a change applies from the next line.
type Settings struct {
	info, warning, error atomic.Bool
	verbose              atomic.Int64
	iso8601              atomic.Bool
	file                 string // destination of the lines; it does not change
	interactive          bool   // as in Options.Interactive; it does not change
	starting             atomic.Bool
}

// SetStarting sets whether the server is starting. At the end of the start, failed models are
// listed.
func (s *Settings) SetStarting(yes bool) { s.starting.Store(yes) }

func NewSettings(o Options) *Settings {
	s := &Settings{file: o.File, interactive: o.Interactive}
	s.info.Store(o.Info)
	s.warning.Store(o.Warning)
	s.error.Store(o.Error)
	s.verbose.Store(int64(o.Verbose))
	s.iso8601.Store(o.ISO8601)
	s.apply()
	return s
}

// File returns the path of the log file, or "" if lines go to the console.
func (s *Settings) File() string { return s.file }

// Info reports whether information lines are written.
func (s *Settings) Info() bool { return s.info.Load() }

// Warning reports whether warnings are written.
func (s *Settings) Warning() bool { return s.warning.Load() }

// Error reports whether errors are written.
func (s *Settings) Error() bool { return s.error.Load() }

// Verbose returns the level of verbose lines, 0 for none.
func (s *Settings) Verbose() int { return int(s.verbose.Load()) }

// ISO8601 reports whether lines begin in that format.
func (s *Settings) ISO8601() bool { return s.iso8601.Load() }

// SetInfo turns information lines on or off.
func (s *Settings) SetInfo(on bool) { s.info.Store(on); s.apply() }

// SetWarning turns warnings on or off.
func (s *Settings) SetWarning(on bool) { s.warning.Store(on); s.apply() }

// SetError turns errors on or off.
func (s *Settings) SetError(on bool) { s.error.Store(on); s.apply() }

// SetVerbose sets the level of verbose lines.
func (s *Settings) SetVerbose(level int) { s.verbose.Store(int64(level)); s.apply() }

// SetISO8601 chooses how lines begin.
func (s *Settings) SetISO8601(on bool) { s.iso8601.Store(on) }

// apply sets zerolog's global level to the lowest level in use, so that lines below it cost next to
// nothing. This is zerolog's only switch at run time, and it applies to the whole process.
func (s *Settings) apply() {
	level := zerolog.FatalLevel
	for _, l := range []zerolog.Level{zerolog.ErrorLevel, zerolog.WarnLevel, zerolog.InfoLevel, zerolog.DebugLevel, zerolog.TraceLevel} {
		if s.wants(l) {
			level = l
		}
	}
	zerolog.SetGlobalLevel(level)
}

// wants reports whether lines of a level are written. Debug lines have verbosity 1, trace lines
// verbosity 2.
func (s *Settings) wants(level zerolog.Level) bool {
	switch level {
	case zerolog.TraceLevel:
		return s.Verbose() >= 2
	case zerolog.DebugLevel:
		return s.Verbose() >= 1
	case zerolog.WarnLevel:
		return s.Warning()
	case zerolog.ErrorLevel:
		return s.Error()
	case zerolog.FatalLevel, zerolog.PanicLevel, zerolog.NoLevel: // the last one is for the output of models
		return true
	}
	return s.Info()
}
