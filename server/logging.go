package server

import "github.com/nereid-serving/nereid/infer"

// LogSettings are the log settings that clients see and change.
type LogSettings struct {
	File                 string // "" is the console
	Info, Warning, Error bool
	VerboseLevel         uint32 // 0 is off
	Format               string // "default" or "ISO8601"
}

// LogControl holds the log settings.
type LogControl interface {
	LogSettings() LogSettings
	// ChangeLogSettings applies change to the settings. Calls do not overlap.
	ChangeLogSettings(change func(*LogSettings))
}

// The formats of log lines, as clients name them.
const (
	LogFormatDefault = "default"
	LogFormatISO8601 = "ISO8601"
)

// ErrLogFile rejects another log file.
var ErrLogFile = &infer.Error{Code: infer.Unsupported, Message: "log file location can not be updated through network protocol"}
